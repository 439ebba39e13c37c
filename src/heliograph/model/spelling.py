"""Spelling: finds the known name that is most similar to an unknown one.

In:    a name as the user typed it, and the known names.
Out:   the most similar one, if it is similar enough to be suggested.
State: none.
Not here: the text of the suggestion (config/sources.py, topology/toml_tables.py, cli/config.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

TYPED_MAX = 120  # characters that are compared
NEAR = 0.5  # the share of characters that two names have in common, from 0 to 1


def nearest(typed: str, known: Iterable[str], *, near: float = NEAR) -> str | None:
    """The known name that is most similar to this one; None if none is similar enough."""
    typed = typed[:TYPED_MAX]
    for name in get_close_matches(typed, known, n=1, cutoff=near):
        common = _same_section(typed, name)  # limits.foo and limits.routes_max have little in common but the section
        if SequenceMatcher(None, typed[common:], name[common:]).ratio() >= near:
            return name
    return None


def _same_section(one: str, other: str) -> int:
    """The length of the section with which both names begin."""
    start = next((place for place, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1), 0)
    ends = [one.rfind(mark, 0, start) + len(mark) for mark in (".", "__") if mark in one[:start]]
    return max(ends, default=0)
