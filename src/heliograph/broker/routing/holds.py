"""Holds: the destinations for which parcels wait here, and the stand-ins that take those parcels.

In:    destinations whose path is being changed (changeover.py), or for which a parcel would turn back (eddies.py).
Out:   the neighbour that leads to a destination, or a stand-in while parcels for it have to wait.
State: the holds; the destinations of parcels that would turn back.
Not here: when something waits, for how long, and what becomes of it (changeover.py, eddies.py).

A stand-in is a neighbour without a broker. Plans name it like any other neighbour, and what is delivered to it goes to
the part that keeps it. So sinks, routes and ways need not know that something waits.
"""

from __future__ import annotations

from heliograph.broker.routing.ports import Neighbour, Taker, stand_in
from heliograph.broker.routing.view import View
from heliograph.machine import Instant


class Hold:
    """A destination whose path is being changed."""

    __slots__ = ("is_answered", "is_over", "number", "old", "since", "step")

    def __init__(self, number: int, old: int, step: int, since: Instant) -> None:
        self.number = number  # the number of our MARK
        self.old = old  # the neighbour by which it was reached until now
        self.step = step  # its next neighbour, even if another one is on a shorter path by then
        self.since = since
        self.is_answered = False
        self.is_over = False  # what was held back leaves now

    def answer(self) -> None:
        """Everything on the old path has arrived."""
        self.is_answered = True

    def end(self) -> None:
        """What was held back leaves now."""
        self.is_over = True

    def lose(self) -> None:
        """A link is gone: neither the old path nor the planned one counts any more."""
        self.step = self.old = 0


class Holds:
    """What has to wait."""

    def __init__(self, view: View, hold_back: Taker, turn_back: Taker) -> None:
        self._view = view
        self.changing: dict[int, Hold] = {}  # destination -> its hold
        self.detour = stand_in(hold_back)  # takes the place of the next neighbour while parcels are held back
        self.turning: dict[int, None] = {}  # destinations with waiting parcels that would turn back
        self.eddy = stand_in(turn_back)  # … and the stand-in that takes them

    def way_to(self, destination: int, step: int | None, trace: tuple[int, ...]) -> Neighbour | None:
        """The neighbour, or stand-in, for a parcel with this trace; ``step`` is the neighbour on the shortest path."""
        if destination in self.turning:
            return self.eddy
        neighbours = self._view.neighbours
        hold = self.changing.get(destination)
        if hold is not None:
            if not hold.is_over and self._view.me not in trace and trace[-1:] != (hold.old,):
                return self.detour
            if hold.step in neighbours:
                step = hold.step
        return None if step is None else neighbours.get(step)

    def waits(self, destination: int) -> bool:
        """True if what goes there is held back because its path is being changed."""
        hold = self.changing.get(destination)
        return hold is not None and not hold.is_over

    def forget_sinks(self) -> None:
        """The paths change: forget the sinks of the stand-ins."""
        self.detour.forget_sinks()
        self.eddy.forget_sinks()
