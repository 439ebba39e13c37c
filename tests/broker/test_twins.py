"""A compiled part that is not the twin of the Python around it is noticed when it is loaded."""

from __future__ import annotations

import pytest

from heliograph.broker import hot, twins
from heliograph.broker.links import Link

NAMES = sorted({name for listed in twins.SLOTS.values() for name in listed.split()})


def test_names_and_numbers_that_agree_are_no_problem() -> None:
    assert twins.problems(NAMES, twins.NUMBERS) == []


def test_a_name_that_only_one_side_has_is_one() -> None:
    assert twins.problems([*NAMES, "vanished"], twins.NUMBERS) == ["it reads vanished, which twins.py does not list"]
    assert twins.problems(NAMES[1:], twins.NUMBERS) == [f"twins.py lists {NAMES[0]}, which it does not read"]


def test_a_slot_that_was_renamed_or_became_a_property_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Link):
        @property
        def need(self) -> int:  # type: ignore[override]
            return 0

    slots = {**twins.SLOTS, Other: "need gone"}
    del slots[Link]
    monkeypatch.setattr(twins, "SLOTS", {**slots, Link: twins.SLOTS[Link]})
    found = twins.problems([*NAMES, "gone"], twins.NUMBERS)
    assert found == ["Other.need is no slot", "Other.gone is no slot"]


def test_a_limit_that_was_changed_fails_the_import() -> None:
    with pytest.raises(ImportError, match="CONFIRM_EACH is 1 there and 4096 here"):
        twins.check(NAMES, {**twins.NUMBERS, "CONFIRM_EACH": 1})


@pytest.mark.skipif(not hot.is_native, reason="the compiled parts are not installed or not wanted")
def test_the_compiled_part_is_a_twin() -> None:
    assert twins.problems(hot.native.NAMES, hot.native.LIMITS) == []
