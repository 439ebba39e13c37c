"""Historic subscriptions: matches many subscriptions with many past publications, exactly as brokers would.

In:    topic filters with compiled conditions; topics, headers and payloads of publications, by column.
Out:   BulkMatcher.match: pairs (publication, subscription), in order of publications.
State: per topic filter one immutable batch index over its conditions. Needs numpy.
Not here: live subscriptions (contents.py, topics.py), the index itself (boxes/batch.py), Spark (pipeline/history.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from heliograph.matching.boxes.batch import BatchIndex, EventColumn, Pairs, ValueColumn
from heliograph.matching.boxes.box import box
from heliograph.matching.condition import Condition, Event
from heliograph.matching.topics import TopicTable

EventOf = Callable[[int], Event]
NONE = np.zeros(0, np.int64)


class _FilterGroup:
    """The subscriptions of one topic filter."""

    __slots__ = ("always", "conditions", "firsts", "has_residues", "index", "places", "sizes", "synopses")

    def __init__(self) -> None:
        self.always: list[int] = []  # subscriptions without a condition
        self.conditions: dict[Condition, list[int]] = {}
        self.index: BatchIndex | None = None
        self.places: list[tuple[Condition, Any]] = []
        self.has_residues = False
        self.firsts: Any = NONE  # per condition its first subscription …
        self.sizes: Any = NONE  # … and how many there are
        self.synopses: tuple[str, ...] = ()

    def settle(self) -> None:
        self.places = [(condition, np.array(numbers)) for condition, numbers in self.conditions.items()]
        self.has_residues = any(condition.residue is not None for condition, _ in self.places)
        self.firsts = np.array([numbers[0] for _, numbers in self.places], np.int64)
        self.sizes = np.array([len(numbers) for _, numbers in self.places], np.int64)
        if self.places:
            self.index = BatchIndex([box(condition.box) for condition, _ in self.places])
            wanted = dict.fromkeys(c.synopsis for c, _ in self.places if c.synopsis is not None)
            self.synopses = tuple(name for name in wanted if name is not None)


class BulkMatcher:
    """Subscriptions, numbered by their places in a list; each is a filter, and a condition or None."""

    def __init__(self, subscriptions: Sequence[tuple[bytes, Condition | None]]) -> None:
        self._topics: TopicTable[int] = TopicTable()
        self._groups: list[_FilterGroup] = []
        numbers: dict[bytes, int] = {}
        for place, (pattern, condition) in enumerate(subscriptions):
            number = numbers.get(pattern)
            if number is None:
                number = numbers[pattern] = len(self._groups)
                self._groups.append(_FilterGroup())
                self._topics.add(pattern, number)
            if condition is None:
                self._groups[number].always.append(place)
            else:
                self._groups[number].conditions.setdefault(condition, []).append(place)
        for group in self._groups:
            group.settle()

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that conditions look at."""
        named = dict.fromkeys(
            name for group in self._groups if group.index is not None for name in group.index.attributes
        )
        return tuple(named)

    def match(
        self, topics: Sequence[bytes], codes: Any, event_of: EventOf, columns: Mapping[str, EventColumn] | None = None
    ) -> Pairs:
        """Pairs for publications whose topics are ``topics[code]``.

        ``event_of`` makes the publication at a place. It is called for residues, and for attributes if no ``columns``
        are given. Columns must agree with the headers.
        """
        found: dict[int, list[int]] = {}  # group -> topics
        for code, topic in enumerate(topics):
            for number in self._topics.match(topic):
                found.setdefault(number, []).append(code)
        parts = [self._of_group(self._groups[n], where, codes, event_of, columns) for n, where in found.items()]
        if not parts:
            return NONE, NONE
        events = np.concatenate([part[0] for part in parts])
        places = np.concatenate([part[1] for part in parts])
        order = np.lexsort((places, events))
        return events[order], places[order]

    def _of_group(
        self,
        group: _FilterGroup,
        topics: list[int],
        codes: Any,
        event_of: EventOf,
        columns: Mapping[str, EventColumn] | None,
    ) -> Pairs:
        events = np.flatnonzero(np.isin(codes, topics))
        found, places = NONE, NONE
        if group.index is not None:
            if columns is not None and not group.synopses:
                whole, which = group.index.match(columns, len(codes))
                keep = np.isin(whole, events)
                found, which = whole[keep], which[keep]
            else:
                seen = [event_of(event) for event in events.tolist()]
                attributes = [event.attributes_with(group.synopses) for event in seen]
                named = {name: ValueColumn([each.get(name) for each in attributes]) for name in group.index.attributes}
                local, which = group.index.match(named, len(events))
                found = events[local]
            found, places = _spread(group, found, which, event_of)
        if group.always:
            found = np.concatenate([found, np.repeat(events, len(group.always))])
            places = np.concatenate([places, np.tile(group.always, len(events))])
        return found, places


def _spread(group: _FilterGroup, events: Any, which: Any, event_of: EventOf) -> Pairs:
    """Check residues, then replace each condition by its subscriptions."""
    drop = [
        pair
        for pair, place in enumerate(which.tolist())
        if (residue := group.places[place][0].residue) is not None and not residue.matches(event_of(int(events[pair])))
    ] if group.has_residues else []  # fmt: skip
    if drop:
        events, which = np.delete(events, drop), np.delete(which, drop)
    if len(which) == 0 or group.sizes.max() == 1:
        return events, group.firsts[which]
    sizes = group.sizes[which]
    places = np.concatenate([group.places[place][1] for place in which.tolist()]) if len(which) else NONE
    return np.repeat(events, sizes), places
