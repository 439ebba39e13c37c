"""The list of planted bugs applies to the sources as they are, and leaves no folder out."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.architecture.house import ROOT, SOURCE, source_files
from tests.mutants.listing import LIST, DoesNotApplyError, Mutant, mutants

BESIDE = ("evaluation", "cli/demo", "sim")


def problem(mutant: Mutant) -> str | None:
    """Why a mutant cannot be tried out as it is written, if so."""
    file = SOURCE / mutant.file
    if not file.is_file():
        return f"{mutant.bug}: src/heliograph/{mutant.file} is gone; update {LIST.relative_to(ROOT)}"
    try:
        changed = mutant.planted(file.read_text("utf-8"))
        ast.parse(changed)
    except DoesNotApplyError as error:
        return str(error)
    except SyntaxError as error:
        return f"{mutant.bug}: what is planted is not Python: {error}"
    return None if mutant.old != mutant.new else f"{mutant.bug}: nothing is changed"


def test_every_planted_bug_still_applies() -> None:
    assert [text for mutant in mutants() if (text := problem(mutant)) is not None] == []


def test_a_bug_whose_text_is_gone_is_told_with_the_place_to_update() -> None:
    gone = Mutant("model/origin.py", "no such text", "nowhere to be found", "", "tests")
    assert "update the mutant 'no such text' in tests/mutants/list.toml" in (problem(gone) or "")
    with pytest.raises(DoesNotApplyError, match="occurs 2 times"):
        Mutant("x", "twice", "a", "b", "tests").planted("a a")


def test_every_folder_of_the_product_has_three_planted_bugs_and_every_other_one() -> None:
    with_code = {
        str(file.path.relative_to(SOURCE).parent) for file in source_files() if file.path.name != "__init__.py"
    }
    planted = Counter(mutant.folder for mutant in mutants())
    assert {folder for folder in with_code if planted[folder] < (1 if is_beside(folder) else 3)} == set()


def is_beside(folder: str) -> bool:
    """True for folders whose code serves tests, experiments or a demonstration, and not users of the product."""
    return any(folder == one or folder.startswith(f"{one}/") for one in BESIDE)


def test_every_planted_bug_names_a_test_that_exists() -> None:
    wrong = []
    for mutant in mutants():
        name, _, function = mutant.test.partition("::")
        file = ROOT / name
        if not file.is_file() or f"def {function}(" not in file.read_text("utf-8"):
            wrong.append((mutant.bug, mutant.test))
    assert wrong == []


def test_no_bug_is_planted_twice() -> None:
    assert len({mutant.bug for mutant in mutants()}) == len(mutants())
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in mutants()}) == len(mutants())
