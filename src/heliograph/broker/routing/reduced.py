"""Reduced: the interests of one class that an owner tells others, reduced by covering and bounded.

In:    filters, with or without conditions, as they come and go.
Out:   what is told of them, as far as it is settled: what came and what went.
State: a covering set, what was told last, and to which depth.
Not here: numbers, classes and bodies (interests.py), which interest covers which (matching/covering.py).
Paper: [resources] §3.2, covering.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.errors import ProtocolError
from heliograph.matching import covering
from heliograph.matching.condition import Condition
from heliograph.matching.languages import condition_of
from heliograph.model.subscription import Conditional, Wanted, filter_of
from heliograph.model.topics import HIDDEN_ROOTS, TOPIC_LEVELS_MAX

SETTLED_AT_ONCE = 16  # interests moved in the covering set because another came or went: about a millisecond
AS_IT_IS = TOPIC_LEVELS_MAX + 1  # a depth at which every filter is told unchanged
TOLD_BYTES_MAX = 4_096  # a longer condition is left out: only its filter is told


class Reduced:
    """The interests of one class that an owner tells: reduced by covering, bounded.

    While there is too much to tell, only the first ``_depth`` levels of filters are told, without conditions. The depth
    is computed again when the limit is passed again, or when everything fits unchanged.
    """

    __slots__ = ("_covers", "_depth", "_filters_max", "filters")

    def __init__(self, filters_max: int) -> None:
        self.filters: dict[Wanted, int] = {}  # as last told, and how many interests each represents
        self._covers = covering.InterestSet()
        self._filters_max = filters_max
        self._depth = AS_IT_IS

    @property
    def is_settled(self) -> bool:
        """False if there is more to tell: then call ``change`` again, without arguments."""
        return self._covers.is_settled

    @property
    def widened(self) -> bool:
        """True if some filters are told in a wider form."""
        return self._depth < AS_IT_IS

    def change(self, add: Iterable[Wanted] = (), remove: Iterable[Wanted] = ()) -> tuple[dict[Wanted, None], ...]:
        """Filters came or went. Returns what came and went of what is told, as far as it is settled."""
        came: dict[Wanted, None] = {}
        went: dict[Wanted, None] = {}
        for wanted in remove:
            self._count(self._covers.remove(_asked(wanted)), came, went)
        for wanted in add:
            self._count(self._covers.add(_asked(wanted)), came, went)
        self._count(self._covers.go_on(SETTLED_AT_ONCE), came, went)
        roots = len(self._covers.roots)
        if len(self.filters) > self._filters_max or (self.widened and 2 * roots <= self._filters_max):
            return self._find_depth(came, went)
        return came, went

    def _count(self, change: covering.Change, came: dict[Wanted, None], went: dict[Wanted, None]) -> None:
        """Add a change of roots to what is to be told. A root that came and went again is left out."""
        filters = self.filters
        for root in change[1]:
            told = widen(_wanted(root), self._depth)
            filters[told] -= 1
            if not filters[told]:
                del filters[told]
                if told in came:
                    del came[told]
                else:
                    went[told] = None
        for root in change[0]:
            told = widen(_wanted(root), self._depth)
            if told not in filters:
                filters[told] = 0
                if told in went:
                    del went[told]
                else:
                    came[told] = None
            filters[told] += 1

    def _find_depth(self, came: dict[Wanted, None], went: dict[Wanted, None]) -> tuple[dict[Wanted, None], ...]:
        """Choose the largest depth within the limit. Returns what came and went since the last time."""
        before = dict.fromkeys(wanted for wanted in self.filters if wanted not in came)
        before.update(went)
        depth = AS_IT_IS
        while True:
            self.filters = {}
            for root in self._covers.roots:
                told = widen(_wanted(root), depth)
                self.filters[told] = self.filters.get(told, 0) + 1
            if len(self.filters) <= self._filters_max or depth == 0:
                break
            if depth == AS_IT_IS and any(isinstance(wanted, Conditional) for wanted in self.filters):
                depth -= 1
            else:
                depth = min(depth, max(filter_of(wanted).count(b"/") + 1 for wanted in self.filters)) - 1
        self._depth = depth
        new = dict.fromkeys(wanted for wanted in self.filters if wanted not in before)
        return new, dict.fromkeys(wanted for wanted in before if wanted not in self.filters)


def _asked(wanted: Wanted) -> covering.ConditionedFilter:
    """A wanted filter in the form of the covering set."""
    if isinstance(wanted, bytes):
        return covering.ConditionedFilter(wanted)
    return covering.ConditionedFilter(wanted.filter, condition_wanted(wanted) or covering.ANYTHING)


def condition_wanted(wanted: Wanted) -> Condition | None:
    """The condition; None if there is none, or if only newer brokers know its language: then only the filter counts."""
    if isinstance(wanted, bytes):
        return None
    try:
        return condition_of(wanted.language, wanted.where)
    except ProtocolError:
        return None


def _wanted(asked: covering.ConditionedFilter) -> Wanted:
    if asked.condition is covering.ANYTHING:
        return asked.filter
    return Conditional(asked.filter, asked.condition.language, asked.condition.text)


def widen(wanted: Wanted, depth: int) -> Wanted:
    """A filter that covers this one and has at most ``depth`` levels before a '#'. Conditions are told unchanged or
    not at all."""
    if isinstance(wanted, Conditional):
        if depth == AS_IT_IS and 4 * len(wanted.where) <= TOLD_BYTES_MAX:
            return wanted
        wanted = wanted.filter
    levels = wanted.split(b"/")
    if levels[0] in HIDDEN_ROOTS:
        depth = max(depth, 1)  # '#' alone does not match system topics
    if len(levels) <= depth:
        return wanted
    return b"/".join([*levels[:depth], b"#"])
