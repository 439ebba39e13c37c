"""Content tables: which subscriptions match a publication, if that depends on more than the topic.

In:    a topic filter with a condition, and any hashable value that identifies the subscriber.
Out:   for a topic, the fields that concern it; for a field and an event, the entries that match.
State: per topic filter a field: its conditions, each once, in a box index; residues are checked afterwards.
Not here: conditions (condition.py), the index (boxes/), topic filters alone (topics.py).

An entry gets a new number whenever its values change, so that an answer can be cached by the numbers of the entries
that matched.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from heliograph.matching.boxes.index import BoxIndex, IndexFullError
from heliograph.matching.condition import Condition, Event
from heliograph.matching.topics import TopicTable

V = TypeVar("V", bound=Hashable)
RESIDUES_MAX = 8_192  # the weight of residues on one filter: about 30 ms for an event that lies in all boxes


class Entry(Generic[V]):
    """One condition in a field, and all values that were added with it."""

    __slots__ = ("condition", "number", "place", "values")

    def __init__(self, place: int, condition: Condition) -> None:
        self.number = 0
        self.place = place  # its id in the index, reused when free
        self.condition = condition
        self.values: dict[V, None] = {}


class Field(Generic[V]):
    """The conditions on one topic filter."""

    __slots__ = ("_entries", "_index", "_places", "_synopses", "filter", "residues")

    def __init__(self, pattern: bytes) -> None:
        self.filter = pattern
        self._index = BoxIndex()
        self._entries: dict[tuple[str, str], Entry[V]] = {}
        self._places: dict[int, Entry[V]] = {}
        self._synopses: dict[str, int] = {}  # synopses of the topic -> how many conditions need them
        self.residues = 0  # the weight of all residues: they cost time for every event

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[Entry[V]]:
        """All entries, oldest first."""
        return list(self._entries.values())

    def add(self, condition: Condition, value: V, number: int) -> None:
        """Add a value, and give the entry this number. IndexFullError if there is no room."""
        key = (condition.language, condition.text)
        entry = self._entries.get(key)
        if entry is None:
            if condition.weight and self.residues + condition.weight > RESIDUES_MAX:
                raise IndexFullError("residues_max", "too many conditions that no index can hold on one filter")
            place = self._index.spare
            self._index.add(place, condition.box)
            entry = self._entries[key] = self._places[place] = Entry(place, condition)
            self._count(condition, 1)
        entry.values[value] = None
        entry.number = number

    def remove(self, condition: Condition, value: V, number: int) -> None:
        """Remove a value, which must be there."""
        key = (condition.language, condition.text)
        entry = self._entries[key]
        del entry.values[value]
        entry.number = number
        if not entry.values:
            del self._entries[key]
            del self._places[entry.place]
            self._index.remove(entry.place)
            self._count(condition, -1)

    def match(self, event: Event) -> list[Entry[V]]:
        """The entries that match an event."""
        attributes = event.attributes_with(self._synopses) if self._synopses else event.attributes
        found = map(self._places.__getitem__, self._index.match(attributes))
        if not self.residues:
            return list(found)
        return [entry for entry in found if entry.condition.residue is None or entry.condition.residue.matches(event)]

    def _count(self, condition: Condition, step: int) -> None:
        self.residues += step * condition.weight
        synopsis = condition.synopsis
        if synopsis is not None:
            self._synopses[synopsis] = self._synopses.get(synopsis, 0) + step
            if not self._synopses[synopsis]:
                del self._synopses[synopsis]


class ContentTable(Generic[V]):
    """Fields by topic filter. ``add`` and ``remove`` return whether a field came or went."""

    __slots__ = ("_fields", "_next", "_topics")

    def __init__(self) -> None:
        self._fields: dict[bytes, Field[V]] = {}
        self._topics: TopicTable[Field[V]] = TopicTable()
        self._next = 0

    def __len__(self) -> int:
        return sum(len(field) for field in self._fields.values())

    def add(self, pattern: bytes, condition: Condition, value: V) -> bool:
        """Add a value with this filter and condition; True if the filter had no conditions before."""
        field = self._fields.get(pattern)
        if field is not None:
            field.add(condition, value, self._tick())
            return False
        field = Field(pattern)
        field.add(condition, value, self._tick())
        self._fields[pattern] = field
        self._topics.add(pattern, field)
        return True

    def remove(self, pattern: bytes, condition: Condition, value: V) -> bool:
        """Remove a value; True if the filter has no conditions now."""
        field = self._fields[pattern]
        field.remove(condition, value, self._tick())
        if field:
            return False
        del self._fields[pattern]
        self._topics.remove(pattern, field)
        return True

    def _tick(self) -> int:
        self._next += 1
        return self._next

    def fields(self, topic: bytes) -> tuple[Field[V], ...]:
        """The fields of a topic; empty for most topics."""
        return tuple(self._topics.match(topic)) if self._fields else ()
