"""Landmarks: a few brokers far from each other, by which a directory finds the brokers near a requester.

In:    known brokers, and how far each says it is from the landmarks.
Out:   the landmarks; which brokers have to be told of them; the brokers near a requester that measured its distances.
State: at most LANDMARKS_MAX of them; each placed broker in a cell by its distances to the first two.
Not here: measuring (measuring.py), what is sent (directory.py).

In a network of thousands of brokers not all can answer a request, so near brokers should. A directory knows only how
far each broker is from itself, which places the broker on a ring. But a broker that is as far from each of four
landmarks as the requester is near the requester. A broker with false distances is pinged, but not chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import sqrt

from heliograph.discovery.brokers.config import written
from heliograph.discovery.brokers.known_broker import Key, KnownBroker
from heliograph.discovery.brokers.measuring import COMMON_MIN, apart
from heliograph.machine import Instant

NS_PER_S = 1_000_000_000
BROKERS_MIN = 50  # in a smaller network all brokers answer
LANDMARKS_MAX = 4
SAMPLE = 256  # brokers considered for the next landmark …
REPORTS_MIN = 32  # … of which this many must know their distances to the others
TELL_NS = 300 * NS_PER_S  # brokers are asked to measure again after this, and at once if a landmark is new
CELL_US = 1_000
RINGS_MAX = 64  # cells searched in each direction
SCAN_MAX = 256  # brokers compared: if more are this close together, any of them is near

Cell = tuple[int, int]


class LandmarkTable:
    """The landmarks of one directory."""

    def __init__(self) -> None:
        self._chosen: dict[str, KnownBroker] = {}  # by address as text; the first two define the cells
        self._cells: dict[Cell, dict[Key, KnownBroker]] = {}
        self._cell_of: dict[Key, Cell] = {}

    @property
    def addresses(self) -> list[str]:
        """Where the landmarks receive pings."""
        return list(self._chosen)

    @property
    def brokers(self) -> list[KnownBroker]:
        """The landmarks themselves."""
        return list(self._chosen.values())

    @property
    def placed(self) -> int:
        """How many brokers can be found by their distances."""
        return len(self._cell_of)

    @property
    def ready(self) -> bool:
        """True if a requester that measures its distances can be placed."""
        return len(self._chosen) >= COMMON_MIN and self.placed > BROKERS_MIN

    # -- choosing landmarks -----------------------------------------------------------------------------------------

    def tend(self) -> bool:
        """Forget landmarks that are unreachable. Returns True if there is room for another."""
        for address in [address for address, known in self._chosen.items() if known.round_trip_ns is None]:
            self._drop(address)
        return len(self._chosen) < LANDMARKS_MAX

    def choose(self, brokers: Sequence[KnownBroker]) -> None:
        """Choose one more landmark, far from the others, once enough brokers have measured their distances to those."""
        sample = [one for one in brokers[:: max(1, len(brokers) // SAMPLE)] if _can_be_pinged(one)]
        if not self._chosen:
            best = max(sample, key=lambda one: (one.round_trip_ns or 0, one.key), default=None)
        else:
            there = [one for one in sample if self._knows(one) and one.key not in self._keys()]
            enough = len(there) >= min(REPORTS_MIN, len(sample) // 2)
            best = max(there, key=lambda one: (self._loneliness(one), one.key)) if enough and there else None
        if best is not None and best.address is not None:
            self._chosen[written(best.address)] = best

    def _knows(self, known: KnownBroker) -> bool:
        return self._chosen.keys() <= known.advertisement.distances.keys()

    def _keys(self) -> list[Key]:
        return [known.key for known in self._chosen.values()]

    def _loneliness(self, known: KnownBroker) -> int:
        """How far it is from the nearest landmark."""
        return min(known.advertisement.distances[address] for address in self._chosen)

    def _drop(self, address: str) -> None:
        if address in self.addresses[:2]:  # the cells are invalid now; the next renewals fill them again
            self._cells.clear()
            self._cell_of.clear()
        del self._chosen[address]

    def is_to_be_told(self, known: KnownBroker, now: Instant) -> bool:
        """True if a broker should measure its distances: again, or to a landmark that is new to it."""
        if not self._chosen or not any(known.cookie):
            return False
        return known.told_at is None or now - known.told_at >= TELL_NS or not known.told >= self._chosen.keys()

    # -- placing brokers --------------------------------------------------------------------------------------------

    def place(self, known: KnownBroker) -> None:
        """A broker reported its distances to landmarks."""
        self.forget(known)
        cell = self._cell(known.advertisement.distances)
        if cell is not None:
            self._cells.setdefault(cell, {})[known.key] = known
            self._cell_of[known.key] = cell

    def forget(self, known: KnownBroker) -> None:
        """It is gone, or is moving."""
        cell = self._cell_of.pop(known.key, None)
        if cell is not None:
            del self._cells[cell][known.key]
            if not self._cells[cell]:
                del self._cells[cell]

    def _cell(self, distances: Mapping[str, int]) -> Cell | None:
        """The cell for these distances; None if they contain too little."""
        shared = [address for address in self._chosen if address in distances]
        first_two = self.addresses[:2]
        if len(shared) < COMMON_MIN or shared[:2] != first_two:
            return None
        return distances[first_two[0]] // CELL_US, distances[first_two[1]] // CELL_US

    def near(self, distances: Mapping[str, int], count: int) -> list[KnownBroker]:
        """The brokers whose distances to the landmarks are most like these, nearest first."""
        here = self._cell(distances)
        if here is None:
            return []
        wanted = {address: distances[address] for address in self._chosen if address in distances}
        best: list[tuple[float, Key, KnownBroker]] = []  # a heap of negative distances: the worst comes first
        seen = 0
        for ring, there in self._around(here):
            for known in there:
                far = apart(wanted, known.advertisement.distances)
                if far is not None and known.round_trip_ns is not None:
                    heappush(best, (-far, known.key, known))
                    if len(best) > count:
                        heappop(best)
            seen += len(there)
            # Brokers in a farther ring are farther away than this, so none of them is among the best.
            beyond = ring * CELL_US / sqrt(len(wanted))
            if seen > SCAN_MAX or (len(best) == count and -best[0][0] <= beyond):
                break
        return [known for _, _, known in sorted(best, key=lambda one: (-one[0], one[1]))]

    def _around(self, here: Cell) -> Iterator[tuple[int, list[KnownBroker]]]:
        """The brokers of this cell, and of the cells this many steps away; in a small network all at once."""
        if self.placed <= SCAN_MAX:
            yield RINGS_MAX, [known for there in self._cells.values() for known in there.values()]
            return
        for ring in range(RINGS_MAX):
            cells = (self._cells.get(cell, {}) for cell in _ring(here, ring))
            yield ring, [known for there in cells for known in there.values()]


def _can_be_pinged(known: KnownBroker) -> bool:
    return known.round_trip_ns is not None and known.address is not None and known.link is None


def _ring(here: Cell, ring: int) -> Iterator[Cell]:
    """The cells that are this many steps away."""
    x, y = here
    if not ring:
        yield here
        return
    for step in range(-ring, ring + 1):
        yield x + step, y - ring
        yield x + step, y + ring
    for step in range(1 - ring, ring):
        yield x - ring, y + step
        yield x + ring, y + step
