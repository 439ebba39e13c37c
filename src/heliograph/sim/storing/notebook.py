"""The notebook: what publishers were told and what readers received, kept outside the hosts that crash.

In:    acknowledgements, deliveries.
Out:   the same as entries of the journal: "acknowledged", "taken", "missed"; lists for tests.
State: each reader's position, kept with what it received, as in a program that needs exactly-once results.
Not here: the machines (publisher.py, reader.py), the checks (checkers/kept.py and others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Record = tuple[int, int, int, int]  # store, position, origin, sequence
Write = Callable[..., None]


def unwritten(*_: Any) -> None:
    """For tests that read the notebook directly."""


class Notebook:
    """State that must survive a crash of its host."""

    def __init__(self, write: Write = unwritten) -> None:
        self._write = write  # an entry of the journal
        self.acknowledged: dict[int, dict[int, list[int]]] = {}  # origin -> store -> numbers, as acknowledged
        self.refused: list[tuple[int, int, int]] = []  # origin, number, code
        self.read: dict[str, list[Record]] = {}  # reader -> what it received, in order
        self.positions: dict[str, dict[int, int]] = {}  # reader -> store -> the next expected position
        self.gaps: list[tuple[str, int, int, int]] = []  # reader, store, first, end
        self.resets: list[tuple[int, int]] = []  # origin, store
        self.count = 0  # acknowledged

    def acknowledge(self, who: str, origin: int, store: int, numbers: list[tuple[int, str]]) -> None:
        """A publisher was told that these numbers, with their topics, are durable."""
        kept = self.acknowledged.setdefault(origin, {}).setdefault(store, [])
        for number, topic in numbers:
            kept.append(number)
            self.count += 1
            self._write("acknowledged", who, origin, number, topic)

    def refuse(self, origin: int, number: int, code: int) -> None:
        """A publisher was told that this number is not kept."""
        self.refused.append((origin, number, code))

    def reset(self, origin: int, store: int) -> None:
        """A publisher found that a store has lost acknowledged publications."""
        self.resets.append((origin, store))

    def place(self, reader: str, store: int) -> int | None:
        """The position where a reader resumes."""
        return self.positions.get(reader, {}).get(store)

    def take(self, reader: str, store: int, records: list[Record], after: int) -> None:
        """A reader has received these records, and is now at this position."""
        self.read.setdefault(reader, []).extend(records)
        self.positions.setdefault(reader, {})[store] = after
        for _, position, origin, number in records:
            self._write("taken", reader, store, position, origin, number)

    def miss(self, reader: str, store: int, first: int, end: int) -> None:
        """A reader was told that these positions cannot be read."""
        self.gaps.append((reader, store, first, end))
        self.positions.setdefault(reader, {})[store] = end
        self._write("missed", reader, store, first, end)
