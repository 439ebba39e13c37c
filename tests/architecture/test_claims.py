"""Tests can fail: a claim that stands only below an `if` may never be made, and some claims are true of anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.house import ROOT

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_claim(node: ast.AST) -> bool:
    raises = isinstance(node, ast.With | ast.AsyncWith) and any("raises" in ast.unparse(i) for i in node.items)
    return isinstance(node, ast.Assert) or raises


def always_claims(body: list[ast.stmt]) -> bool:
    """True if some claim is made whichever way each `if` goes."""
    for node in body:
        if is_claim(node):
            return True
        if isinstance(node, ast.If):
            if always_claims(node.body) and always_claims(node.orelse):
                return True
        elif any(always_claims(getattr(node, part, [])) for part in ("body", "orelse", "finalbody")):
            return True
    return False


def is_empty(claim: ast.Assert) -> bool:
    """True of `assert x is None or isinstance(x, …)`, and of lengths that are not negative."""
    test = claim.test
    text = ast.unparse(test)
    is_either = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
    return (is_either and " is None" in text and "isinstance(" in text) or (
        text.startswith("len(") and text.endswith(">= 0")
    )


def test_functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, Function) and node.name.startswith("test_"):
            yield node


test_functions.__test__ = False  # type: ignore[attr-defined]


def weak_tests(path: Path) -> list[str]:
    """Tests with claims of which none need be made, or with one that is true of anything."""
    return [
        f"{path.name}:{function.lineno} {function.name}"
        for function in test_functions(path)
        if any(is_claim(node) for node in ast.walk(function))
        if not always_claims(function.body)
        or any(isinstance(node, ast.Assert) and is_empty(node) for node in ast.walk(function))
    ]


def test_every_test_makes_a_claim_that_can_be_wrong() -> None:
    wrong = [found for path in sorted((ROOT / "tests").rglob("test_*.py")) for found in weak_tests(path)]
    assert wrong == [], "make the claim in every case: hypothesis.assume, or an else with a claim of its own"


@pytest.mark.parametrize(
    ("text", "is_weak"),
    [
        ("if x:\n        assert y", True),
        ("for x in y:\n        if x:\n            assert y", True),
        ("assert x is None or isinstance(x, str)", True),
        ("assert len(x) >= 0", True),
        ("if x:\n        assert y\n    else:\n        assert z", False),
        ("assume(x)\n    assert y", False),
        ("with pytest.raises(E):\n        f()", False),
        ("helper()", False),
    ],
)
def test_weak_tests_are_told_from_others(tmp_path: Path, text: str, is_weak: bool) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(f"def test_x():\n    {text}\n")
    assert bool(weak_tests(file)) is is_weak
