"""Interests reduced by covering: topic filters with conditions, and the smallest part of them that says as much.

In:    interests that come and go, each any number of times.
Out:   InterestSet.roots: those that no other covers; each add and remove tells how they changed.
State: the interests with their counts, the roots grouped by filter, and which covered interest hangs under which.
Not here: the conditions of one filter (siblings.py), one against another (conditions.py), who tells whom
          (broker/routing/interests.py).
Paper: [grid] §1.2; [resources] §3.2.

What is covered hangs under one that covers it, and settles anew when that one goes. To find who covers whom, a trie
finds the filters, and among the siblings of each filter indexes find the conditions.
"""

from __future__ import annotations

from typing import NamedTuple

from heliograph.matching.boxes.box import Box, box
from heliograph.matching.condition import Condition
from heliograph.matching.filters import FilterTrie, canonical
from heliograph.matching.siblings import Siblings

ANYTHING = Condition("predicates", "true")
"""The condition of an interest that asks for topics only."""


class Interest(NamedTuple):
    """Topics, and what is asked of the events on them."""

    filter: bytes
    condition: Condition = ANYTHING


Change = tuple[list[Interest], list[Interest]]
"""Interests that became roots, and interests that no longer are."""


class InterestSet:
    """Interests reduced by covering. ``roots`` keeps the order in which interests became roots."""

    __slots__ = ("_count", "_filters", "_groups", "_parent", "_under", "roots")

    def __init__(self) -> None:
        self._count: dict[Interest, int] = {}
        self._parent: dict[Interest, Interest] = {}  # covered interest -> the one it hangs under
        self._under: dict[Interest, dict[Interest, None]] = {}
        self._filters = FilterTrie()  # of the groups
        self._groups: dict[bytes, Siblings] = {}  # the roots of each filter
        self.roots: dict[Interest, None] = {}

    def __len__(self) -> int:
        return len(self._count)

    def __contains__(self, interest: Interest) -> bool:
        return _plain(interest) in self._count

    def coverer(self, interest: Interest) -> Interest | None:
        """The root that stands for an interest of the set: itself, or the one that covers it."""
        interest = _plain(interest)
        if interest not in self._count:
            return None
        while interest in self._parent:
            interest = self._parent[interest]
        return interest

    def add(self, interest: Interest) -> Change:
        """An interest comes (once more)."""
        interest = _plain(interest)
        count = self._count.get(interest, 0)
        self._count[interest] = count + 1
        return ([], []) if count else self._settle(interest)

    def remove(self, interest: Interest) -> Change:
        """An interest goes (once); it must be there."""
        interest = _plain(interest)
        count = self._count[interest]
        if count > 1:
            self._count[interest] = count - 1
            return [], []
        del self._count[interest]
        orphans = list(self._under.pop(interest, ()))
        parent = self._parent.pop(interest, None)
        if parent is not None:
            hanging = self._under[parent]
            del hanging[interest]
            for orphan in orphans:  # what covers the covering covers them too
                self._parent[orphan] = parent
                hanging[orphan] = None
            if not hanging:
                del self._under[parent]
            return [], []
        self._uproot(interest)
        risen: dict[Interest, None] = {}
        for orphan in orphans:
            del self._parent[orphan]
            came, went = self._settle(orphan)
            for root in went:
                risen.pop(root, None)
            risen.update(dict.fromkeys(came))
        return list(risen), [interest]

    def _settle(self, interest: Interest) -> Change:
        """Hang an interest under a root that covers it, or make it a root and hang what it covers under it."""
        wanted = box(interest.condition.box)
        for pattern in self._filters.covering(interest.filter):
            coverer = self._groups[pattern].coverer(interest.condition, wanted)
            if coverer is not None:
                self._hang(interest, Interest(pattern, coverer))
                return [], []
        covered = [
            Interest(pattern, condition)
            for pattern in self._filters.covered(interest.filter)
            for condition in self._groups[pattern].covered(interest.condition, wanted)
        ]
        for root in covered:
            self._uproot(root)
            self._hang(root, interest)
        self._root(interest, wanted)
        return [interest], covered

    def _hang(self, interest: Interest, under: Interest) -> None:
        self._parent[interest] = under
        self._under.setdefault(under, {})[interest] = None

    def _root(self, interest: Interest, wanted: Box | None) -> None:
        self.roots[interest] = None
        group = self._groups.get(interest.filter)
        if group is None:
            group = self._groups[interest.filter] = Siblings()
            self._filters.add(interest.filter)
        group.add(interest.condition, wanted)

    def _uproot(self, interest: Interest) -> None:
        del self.roots[interest]
        group = self._groups[interest.filter]
        group.remove(interest.condition)
        if not group.boxes:
            del self._groups[interest.filter]
            self._filters.remove(interest.filter)


def _plain(interest: Interest) -> Interest:
    pattern = canonical(interest.filter)
    return interest if pattern is interest.filter else Interest(pattern, interest.condition)
