"""Compares conditions with each other and with events, one at a time.

In:    compiled conditions (condition.py), events.
Out:   covers(wide, narrow); matches(condition, event); refusal(condition, event): which test failed.
State: none.
Not here: many conditions at once (boxes/index.py for events, covering.py for covering).
Paper: [resources] §3.2, covering.

Covering is sound for all languages, and complete if boxes are exact. Residues are compared by their terms: a condition
that has all terms of another, and more, is covered by it.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.matching.boxes import box
from heliograph.matching.condition import Condition, Event


def covers(wide: Condition, narrow: Condition) -> bool:
    """True if every event that matches ``narrow`` certainly matches ``wide``."""
    return wide == narrow or (asks_less(wide, narrow) and box.covers(wide.box, narrow.box))


def asks_less(wide: Condition, narrow: Condition) -> bool:
    """True if the residue of ``narrow`` has all terms of the residue of ``wide``."""
    if wide.residue is None:
        return True
    return narrow.residue is not None and wide.residue.terms <= narrow.residue.terms


def matches(condition: Condition, event: Event) -> bool:
    """True if an event matches. The simple form: an index tests many boxes at once, then the residues of those."""
    return refusal(condition, event) is None


def alone(condition: Condition) -> Callable[[Event], bool]:
    """The same test, for events on which no other condition is tested."""
    cheaper: Callable[[Event], bool] | None = getattr(condition.residue, "matches_alone", None)
    if cheaper is not None and not condition.box:
        return cheaper
    return lambda event: matches(condition, event)


def refusal(condition: Condition, event: Event) -> str | None:
    """The test that an event fails, as text; None if the event matches."""
    synopsis = condition.synopsis
    failed = box.failed(condition.box, event.attributes_with((synopsis,) if synopsis else ()))
    if failed is not None:
        return f"{failed.attribute} {failed.op}" + ("" if failed.op == "present" else f" {failed.value!r}")
    if condition.residue is None or condition.residue.matches(event):
        return None
    return condition.text
