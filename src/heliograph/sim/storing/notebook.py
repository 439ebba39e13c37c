"""The notebook: what publishers were told and what readers got, kept outside the hosts that crash.

In:    acknowledgements, deliveries.
Out:   lists for the checkers.
State: both, per publisher and reader.
Not here: the machines (publisher.py, reader.py), the checks (checkers/stored.py).

A reader keeps its position here together with what it got, as a program does that wants everything exactly once.
"""

from __future__ import annotations

Record = tuple[int, int, int, int]  # store, position, origin, sequence


class Notebook:
    """One run's truth."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[int, list[int]]] = {}  # origin -> store -> numbers, as they were told
        self.refused: list[tuple[int, int, int]] = []  # origin, number, code
        self.read: dict[str, list[Record]] = {}  # reader -> what it got, in order
        self.positions: dict[str, dict[int, int]] = {}  # reader -> store -> what it expects next
        self.gaps: list[tuple[str, int, int, int]] = []  # reader, store, first, end
        self.resets: list[tuple[int, int]] = []  # origin, store

    def acknowledge(self, origin: int, store: int, numbers: list[int]) -> None:
        """A publisher was told that these are durable."""
        self.acknowledged.setdefault(origin, {}).setdefault(store, []).extend(numbers)

    def refuse(self, origin: int, number: int, code: int) -> None:
        """A publisher was told that this is not kept."""
        self.refused.append((origin, number, code))

    def reset(self, origin: int, store: int) -> None:
        """A publisher found that a store has less than it acknowledged."""
        self.resets.append((origin, store))

    def place(self, reader: str, store: int) -> int | None:
        """Where a reader goes on."""
        return self.positions.get(reader, {}).get(store)

    def take(self, reader: str, store: int, records: list[Record], after: int) -> None:
        """A reader has these results, and stands here."""
        self.read.setdefault(reader, []).extend(records)
        self.positions.setdefault(reader, {})[store] = after

    def miss(self, reader: str, store: int, first: int, end: int) -> None:
        """A reader was told that these positions cannot be read."""
        self.gaps.append((reader, store, first, end))
        self.positions.setdefault(reader, {})[store] = end

    @property
    def count(self) -> int:
        """How many were acknowledged."""
        return sum(len(numbers) for stores in self.acknowledged.values() for numbers in stores.values())
