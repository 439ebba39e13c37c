"""What the documents say exists: links, files, commands, options, targets, benchmarks and ledger lines."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli import main
from tests.architecture.house import ROOT, SOURCE, code_lines, documents, project_files

LEDGER = ROOT / "docs" / "reference" / "ledger.md"
DOCUMENTS = documents()
PROSE_MAX = 120

# Written in two halves, so that this file does not find itself.
MACHINE_PATHS = re.compile("/(" + "work|farm|root" + ")/")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def ledger_ids() -> list[str]:
    return re.findall(r"^\| ([NBTRPSO]\d+) \|", LEDGER.read_text("utf-8"), re.MULTILINE)


@cache
def req_ids(path: Path) -> list[str]:
    """The ids in the ``req`` markers of a test file."""
    return [
        argument.value if isinstance(argument, ast.Constant) else ast.unparse(argument)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.req")
        for argument in node.args
    ]


def test_every_ledger_line_has_an_id_of_its_own_and_none_is_left_out() -> None:
    ids = ledger_ids()
    expected = {"N": 20, "B": 20, "T": 15, "R": 14, "P": 14, "S": 9, "O": 10}
    assert ids == [f"{letter}{number}" for letter, last in expected.items() for number in range(1, last + 1)]


def test_every_ledger_line_says_how_far_it_is() -> None:
    rows = [line for line in LEDGER.read_text("utf-8").splitlines() if re.match(r"\| [NBTRPSO]\d", line)]
    wrong = [row for row in rows if not re.search(r"\| (done|done: \S.*|planned|partly: \S.*) \|$", row)]
    assert wrong == []


def test_every_req_marker_is_in_the_ledger() -> None:
    known = set(ledger_ids())
    tests = sorted((ROOT / "tests").rglob("*.py"))
    wrong = {named(path): unknown for path in tests if (unknown := [id for id in req_ids(path) if id not in known])}
    assert wrong == {}


def test_what_the_ledger_calls_done_is_shown_by_a_test() -> None:
    shown = {id for path in (ROOT / "tests").rglob("*.py") for id in req_ids(path)}
    claimed = re.findall(
        r"^\| ([NBTRPSO]\d+) \|.*\| (?:done|done: .*|partly: .*) \|$", LEDGER.read_text("utf-8"), re.MULTILINE
    )
    assert [id for id in claimed if id not in shown] == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    wrong = [
        f"{named(path)}:{number}"
        for path in project_files()
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert wrong == []


def test_every_relative_link_leads_somewhere() -> None:
    wrong = [
        (named(document), link)
        for document in DOCUMENTS
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text("utf-8"))
        if "://" not in link and not (document.parent / link).exists()
    ]
    assert wrong == []


def test_every_source_file_named_exists() -> None:
    """``broker/access.py`` means a file in the house; ``tests/…`` and others are relative to the checkout."""
    wrong = [
        (named(document), name)
        for document in DOCUMENTS
        for line in code_lines(document)
        for name in re.findall(r"\b[\w./-]+\.(?:py|toml)\b", line)
        if "/" in name and not name.startswith("/") and not (SOURCE / name).exists() and not (ROOT / name).exists()
    ]
    assert wrong == []


def prose_over(document: Path, length_max: int) -> list[int]:
    """The numbers of lines that are too long; rows of tables and lines of code cannot be wrapped and do not count."""
    found, in_code = [], False
    for number, line in enumerate(document.read_text("utf-8").splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        if len(line) > length_max and not in_code and not line.startswith(("|", "    ", "[")):
            found.append(number)
    return found


def test_lines_of_prose_wrap() -> None:
    wrong = [f"{named(document)}:{number}" for document in DOCUMENTS for number in prose_over(document, PROSE_MAX)]
    assert wrong == [], f"wrap these at {PROSE_MAX} characters"


def test_every_part_of_a_large_room_exists() -> None:
    """A heading names a folder; the first cells below it name its files."""
    text = (ROOT / "docs" / "reference" / "parts.md").read_text("utf-8")
    folders = re.findall(r"^## [^\n]*`([\w/]+)/`\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert len(folders) == text.count("\n## ")
    wrong = [
        f"{folder}/{name}"
        for folder, table in folders
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+\.py)`", row)
        if not (SOURCE / folder / name).is_file()
    ]
    assert wrong == []


def commands(document: Path) -> list[str]:
    """Command lines that begin with ``heliograph``, continuation lines joined."""
    lines: list[str] = []
    for line in code_lines(document):
        if lines and lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1] + line
        else:
            lines.append(line.removeprefix(".venv/bin/"))
    pieces = [piece.strip() for line in lines for piece in line.split(" | ")]
    # "<name>" marks a text with fields, as in the protocol, not a command.
    return [piece for piece in pieces if re.match(r"heliograph( [a-z-]|$)", piece) and not re.search(r"<\w", piece)]


def fault(line: str) -> str | None:
    """What the command line does not know of this line."""
    words = shlex.split(line, comments=True)[1:]
    command: Any = main.command()
    while words and hasattr(command, "commands"):
        word = words.pop(0)
        if "|" in word:  # "config check|show" names several
            return next((f"{one} unknown" for one in word.split("|") if one not in command.commands), None)
        if word.startswith("-"):
            break
        if word not in command.commands:
            return f"{word} unknown"
        command = command.commands[word]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options.add("--help")
    given = [word.strip("[]").split("=")[0] for word in words if word.strip("[]").startswith("--") and word != "--"]
    return next((f"{option} unknown" for option in given if option not in options), None)


@pytest.mark.req("O2")
def test_every_command_in_the_documents_exists_with_its_options() -> None:
    wrong = [
        (named(document), line, problem)
        for document in DOCUMENTS
        for line in commands(document)
        if (problem := fault(line)) is not None
    ]
    assert wrong == []


def test_an_invented_command_would_be_found() -> None:
    assert fault("heliograph publisch a b") == "publisch unknown"
    assert fault("heliograph publish a b --lowd") == "--lowd unknown"


def test_every_make_target_and_benchmark_named_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    lines = [line for document in DOCUMENTS for line in code_lines(document)]
    made = [word for line in lines for word in re.findall(r"^make ([a-z-]+)", line)]
    assert [target for target in made if target not in targets] == []
    measured = [word for line in lines for word in re.findall(r"python -m benchmarks ([a-z][\w-]*)", line)]
    files = {file.stem.replace("_", "-") for file in (ROOT / "benchmarks").glob("*.py")}
    assert [name for name in measured if name not in ("all", *files)] == []


def test_every_test_that_the_page_of_attacks_names_is_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    wrong, file = [], ""
    for named_file, function in re.findall(r"`(tests/[\w/]+\.py)?(?:::(test_\w+))?`", page):
        file = named_file or file
        path = ROOT / file
        if not path.is_file() or (function and f"def {function}(" not in path.read_text("utf-8")):
            wrong.append(f"{file}::{function}")
    assert wrong == []
