"""The drawings of ARCHITECTURE.md show the source as it is: rooms, a publication's journey, a search."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.house import ROOT, SOURCE, source_files
from tests.architecture.test_imports import ORDER

TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
STEP = re.compile(r"(\S+\.py) +(\S+)")


def drawing(name: str) -> list[str]:
    """The lines of the only fenced block with this name."""
    blocks: list[str] = re.findall(rf"^```text {name}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    (block,) = blocks
    return block.splitlines()


def functions() -> set[tuple[str, str]]:
    """Every function and method at the top of a file, with its file: ("broker/links.py", "Links.flush")."""
    found: set[tuple[str, str]] = set()
    for file in source_files():
        for node in file.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add((file.name, node.name))
            elif isinstance(node, ast.ClassDef):
                found |= {
                    (file.name, f"{node.name}.{each.name}")
                    for each in node.body
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                }
    return found


def test_the_drawing_of_rooms_is_the_order_of_imports() -> None:
    rows = [re.split(r" {3,}", line)[0].split() for line in drawing("rooms")]
    assert rows == [list(row) for row in ORDER]


@pytest.mark.parametrize("name", ["journey", "search", "storing", "creation"])
def test_every_step_is_a_function_of_its_file(name: str) -> None:
    lines = drawing(name)
    steps = [match.groups() for line in lines if (match := STEP.search(line))]
    assert len(steps) == len(lines), "every line names a file and a function"
    known = functions()
    assert [step for step in steps if step not in known] == []


@pytest.mark.parametrize("step", [("broker/links.py", "Links.fly"), ("broker/link.py", "Links.flush")])
def test_an_invented_step_would_be_found(step: tuple[str, str]) -> None:
    assert (SOURCE / "broker" / "links.py").exists()
    assert step not in functions()
