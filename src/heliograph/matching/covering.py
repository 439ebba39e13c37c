"""Interests reduced by covering: topic filters with conditions, and the smallest subset that accepts the same.

In:    interests that come and go, each any number of times.
Out:   InterestSet.roots: those that no other covers; each add, remove and go_on returns how they changed.
State: the interests with their counts, the roots grouped by filter, the parent of each covered interest, and what is
       still to be settled.
Not here: the conditions of one filter (siblings.py), comparing two conditions (conditions.py), telling brokers
          (broker/routing/interests.py).
Paper: [grid] §1.2; [resources] §3.2.

A covered interest hangs under one that covers it, its parent, and is settled again when the parent is removed. To find
covering interests, a trie finds the filters, and indexes find the conditions among the siblings of each filter.

One interest may cover thousands, so the consequences of adding or removing it are computed in steps, by ``go_on``.
Until all steps are done, the roots may accept more than necessary but never less: a removed interest stays a root until
what it covered has settled, and those that a new root covers stay roots until they hang under it.
"""

from __future__ import annotations

from typing import NamedTuple

from heliograph.matching.boxes.box import box
from heliograph.matching.condition import Condition
from heliograph.matching.filters import FilterTrie, canonical
from heliograph.matching.siblings import Siblings

ANYTHING = Condition("predicates", "true")
"""The condition of an interest that has only a topic filter."""


class ConditionedFilter(NamedTuple):
    """A topic filter, and a condition on the events."""

    filter: bytes
    condition: Condition = ANYTHING


Change = tuple[list[ConditionedFilter], list[ConditionedFilter]]
"""Interests that became roots, and interests that no longer are."""


class InterestSet:
    """Interests reduced by covering. ``roots`` keeps the order in which interests became roots."""

    __slots__ = ("_count", "_covering", "_filters", "_groups", "_leaving", "_parent", "_under", "roots")

    def __init__(self) -> None:
        self._count: dict[ConditionedFilter, int] = {}
        self._parent: dict[ConditionedFilter, ConditionedFilter] = {}  # covered interest -> its parent
        self._under: dict[ConditionedFilter, dict[ConditionedFilter, None]] = {}
        self._filters = FilterTrie()  # the filters of the groups
        self._groups: dict[bytes, Siblings] = {}  # the roots of each filter, except those that are leaving
        self._leaving: dict[ConditionedFilter, None] = {}  # removed roots under which others still hang
        # Root -> filters whose roots it may cover, and roots that have to be moved under it; taken from the end.
        self._covering: dict[ConditionedFilter, list[bytes | ConditionedFilter]] = {}
        self.roots: dict[ConditionedFilter, None] = {}

    def __len__(self) -> int:
        return len(self._count)

    def __contains__(self, interest: ConditionedFilter) -> bool:
        return _plain(interest) in self._count

    @property
    def is_settled(self) -> bool:
        """False while there is something left for ``go_on``."""
        return not self._leaving and not self._covering

    def coverer(self, interest: ConditionedFilter) -> ConditionedFilter | None:
        """The root that represents an interest of the set: the interest itself, or one that covers it."""
        interest = _plain(interest)
        if interest not in self._count:
            return None
        while interest in self._parent:
            interest = self._parent[interest]
        return interest

    def add(self, interest: ConditionedFilter) -> Change:
        """Add an interest, once more if it is there already."""
        interest = _plain(interest)
        count = self._count.get(interest, 0)
        self._count[interest] = count + 1
        if count:
            return [], []
        if interest not in self._leaving:
            return ([interest], []) if self._settle(interest) else ([], [])
        del self._leaving[interest], self.roots[interest]
        if self._settle(interest):
            return [], []  # it was still a root
        self._hand_over(interest, self._parent[interest])
        return [], [interest]

    def remove(self, interest: ConditionedFilter) -> Change:
        """Remove an interest once; it must be there."""
        interest = _plain(interest)
        count = self._count[interest]
        if count > 1:
            self._count[interest] = count - 1
            return [], []
        del self._count[interest]
        self._covering.pop(interest, None)
        parent = self._parent.pop(interest, None)
        if parent is not None:
            del self._under[parent][interest]
            self._hand_over(interest, parent)
            return [], []
        self._ungroup(interest)
        if interest in self._under:
            self._leaving[interest] = None
            return [], []
        del self.roots[interest]
        return [], [interest]

    def go_on(self, steps: int) -> Change:
        """Do this many of the pending steps; each settles one interest."""
        came: dict[ConditionedFilter, None] = {}
        went: dict[ConditionedFilter, None] = {}
        for _ in range(steps):
            if self._covering:
                self._cover_one(came, went)
            elif self._leaving:
                self._free_one(came, went)
            else:
                break
        return list(came), list(went)

    def _cover_one(self, came: dict[ConditionedFilter, None], went: dict[ConditionedFilter, None]) -> None:
        """Do one step for a root that may cover others: find those of one filter, or move one of them under it."""
        wide, waiting = next(iter(self._covering.items()))
        narrow = waiting.pop()
        if isinstance(narrow, bytes):
            waiting += self._covered_with(narrow, wide)
        if not waiting:
            del self._covering[wide]
        if isinstance(narrow, ConditionedFilter) and self._is_root(wide) and self._is_root(narrow):
            self._ungroup(narrow)
            del self.roots[narrow]
            self._hang(narrow, wide)
            if narrow in came:
                del came[narrow]
            else:
                went[narrow] = None

    def _free_one(self, came: dict[ConditionedFilter, None], went: dict[ConditionedFilter, None]) -> None:
        """Settle one interest that hangs under a removed root; after the last one, drop the root."""
        leaving = next(iter(self._leaving))
        hanging = self._under.get(leaving)
        if hanging:
            orphan = next(iter(hanging))
            del hanging[orphan], self._parent[orphan]
            if self._settle(orphan):
                came[orphan] = None
        if not hanging:
            self._under.pop(leaving, None)
            del self._leaving[leaving], self.roots[leaving]
            went[leaving] = None

    def _settle(self, interest: ConditionedFilter) -> bool:
        """Hang an interest under a root that covers it, or make it a root (True), which may cover others."""
        wanted = box(interest.condition.box)
        for pattern in self._filters.covering(interest.filter):
            coverer = self._groups[pattern].coverer(interest.condition, wanted)
            if coverer is not None:
                self._hang(interest, ConditionedFilter(pattern, coverer))
                return False
        patterns = self._filters.covered(interest.filter)
        if patterns:
            self._covering[interest] = [*reversed(patterns)]
        self.roots[interest] = None
        group = self._groups.get(interest.filter)
        if group is None:
            group = self._groups[interest.filter] = Siblings()
            self._filters.add(interest.filter)
        group.add(interest.condition, wanted)
        return True

    def _covered_with(self, pattern: bytes, wide: ConditionedFilter) -> list[ConditionedFilter]:
        """The roots with this filter that another root covers, last first."""
        group = self._groups.get(pattern)
        if group is None or not self._is_root(wide):
            return []
        covered = group.covered(wide.condition, box(wide.condition.box))
        return [one for condition in reversed(covered) if (one := ConditionedFilter(pattern, condition)) != wide]

    def _is_root(self, interest: ConditionedFilter) -> bool:
        return interest in self.roots and interest not in self._leaving

    def _hang(self, interest: ConditionedFilter, under: ConditionedFilter) -> None:
        self._parent[interest] = under
        self._under.setdefault(under, {})[interest] = None

    def _hand_over(self, interest: ConditionedFilter, parent: ConditionedFilter) -> None:
        """Move what hangs under an interest to the interest's parent, which covers it too."""
        hanging = self._under[parent]
        for orphan in self._under.pop(interest, ()):
            self._parent[orphan] = parent
            hanging[orphan] = None
        if not hanging:
            del self._under[parent]

    def _ungroup(self, interest: ConditionedFilter) -> None:
        """Remove a root from its group, so that nothing more hangs under it."""
        group = self._groups[interest.filter]
        group.remove(interest.condition)
        if not group.boxes:
            del self._groups[interest.filter]
            self._filters.remove(interest.filter)


def _plain(interest: ConditionedFilter) -> ConditionedFilter:
    pattern = canonical(interest.filter)
    return interest if pattern is interest.filter else ConditionedFilter(pattern, interest.condition)
