"""The house as the architecture tests see it: files, their rooms, what they import, what documents say.

In:    the checkout.
Out:   SourceFile values, text of documents, tracked paths.
State: none.
Not here: the rules (test_imports.py, test_heads.py, test_documents.py).
"""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heliograph"


@dataclass(frozen=True)
class Import:
    """One import statement, by the module or name it asks for."""

    name: str  # dotted; for "from a import b" it is "a.b"
    module: str  # what must be loaded: for "from a import b" it is "a"
    line: int


@dataclass(frozen=True)
class SourceFile:
    """One Python file under src/heliograph."""

    path: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def module(self) -> str:
        parts = ("heliograph", *self.path.relative_to(SOURCE).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self) -> str:
        """The folder below heliograph/, or the file's own name at the top."""
        return self.path.relative_to(SOURCE).parts[0].removesuffix(".py")

    @property
    def head(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def imports(self) -> list[Import]:
        return list(imports_of(self.tree, at_start=False))

    @property
    def imports_at_start(self) -> list[Import]:
        """Without those inside functions, which run later, and those for type checkers, which never run."""
        return list(imports_of(self.tree, at_start=True))


def imports_of(tree: ast.AST, *, at_start: bool) -> list[Import]:
    """Every import below a node, in order."""
    found: list[Import] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            module = node.module or ""
            found += [Import(f"{module}.{alias.name}", module, node.lineno) for alias in node.names]
        elif not (at_start and runs_later(node)):
            found += imports_of(node, at_start=at_start)
    return found


def runs_later(node: ast.AST) -> bool:
    """True for what is not run when its file is loaded: functions, and blocks for type checkers."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


@cache
def source_files() -> tuple[SourceFile, ...]:
    """All of them, in order of path."""
    return tuple(SourceFile(path, ast.parse(path.read_text("utf-8"))) for path in sorted(SOURCE.rglob("*.py")))


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is, or would be, tracked: what .gitignore leaves out is left out."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listing.returncode == 0, f"git could not list the checkout's files: {listing.stderr}"
    return tuple(path for name in sorted(listing.stdout.splitlines()) if (path := ROOT / name).is_file())


def documents() -> tuple[Path, ...]:
    """Every Markdown file of the project."""
    return tuple(path for path in project_files() if path.suffix == ".md")


def code_lines(path: Path) -> list[str]:
    """Lines of fenced and indented blocks, and of code spans, of a Markdown file, without prompts."""
    lines: list[str] = []
    fenced = False
    for line in path.read_text("utf-8").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            lines.append(line.strip().removeprefix("$ "))
        else:
            lines += re.findall(r"`([^`]+)`", line)
    return lines
