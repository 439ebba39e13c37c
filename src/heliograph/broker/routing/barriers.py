"""Barriers: how a broker learns that every broker in reach has received what it told them.

In:    WAVE frames; calls when an interest was learned or a neighbour is gone.
Out:   WAVE frames; a call when a barrier that was started here has come back.
State: barriers that pass through here, each for at most a few seconds; the callers that wait for one of ours.
Not here: what is told (announcements.py, advertising.py, leadership.py).

A barrier spreads over every link. A broker answers the neighbour from which it first received the barrier, once all its
other neighbours have answered. Links keep order, so wherever the barrier has been, everything told before it is known;
and a broker of the same cluster answers only when the path to the one that started the barrier is in force.
A broker starts one barrier at a time; calls in the meantime share the next one. While one leader takes over from
another, the new leader answers only when it leads: the barrier waits for its interests, and for the paths to it.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.routing.leadership import Leadership
from heliograph.broker.routing.ports import Neighbour, Port
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.errors import Reason
from heliograph.machine import Instant, Timers
from heliograph.wire import broker_bodies as wire
from heliograph.wire.frames import Frame, Kind

BARRIERS_MAX = 4_096  # passing through at once, one per broker; more are not answered and time out where they started
BARRIERS_PER_NEIGHBOUR_MAX = 1_024  # of them from one neighbour, so that no neighbour can fill the table
BARRIER_MS_MAX = 5_000  # a barrier that was lost somewhere ends here


class Barrier:
    """A barrier that passes through this broker."""

    __slots__ = ("done", "key", "need", "source", "told", "waiting", "wide")

    def __init__(
        self,
        broker: int,
        number: int,
        wide: bool,
        need: tuple[int, int, int],
        source: Neighbour | None,
        done: Callable[[Barrier, Instant], None] | None,
    ) -> None:
        self.key = (broker, number)
        self.wide = wide
        self.need = need  # leader, incarnation, number: answer once this interest is known
        self.told = (0, 0, 0)  # the highest of these in the answers so far
        self.source = source
        self.done = done
        self.waiting: dict[int, None] = {}


class Barriers:
    """The barriers that pass through one broker."""

    def __init__(self, view: View, leadership: Leadership, teller: Teller, timers: Timers) -> None:
        self._view = view
        self._leadership = leadership
        self._teller = teller
        self._timers = timers
        self._barriers: dict[tuple[int, int], Barrier] = {}
        self._number = view.map.me.incarnation << 16  # above those of earlier incarnations
        self._asking: list[Callable[[Instant], None]] = []  # called when our current barrier comes back
        self._waiting: list[Callable[[Instant], None]] = []  # … and when the next one does

    def look_again(self, gone: Neighbour | None, now: Instant) -> None:
        """An interest was learned, or a neighbour is gone: a barrier may have been waiting for that."""
        for barrier in list(self._barriers.values()):
            self._answered(barrier, gone, now)

    def when_known(self, done: Callable[[Instant], None], now: Instant) -> None:
        """Call ``done`` once every broker in reach knows what we told before this."""
        self._waiting.append(done)
        if not self._asking:
            self._ask(now)

    def _ask(self, now: Instant) -> None:
        """First ask our cluster; its leader answers with the number of the interests that it advertised. Then ask all
        brokers, which answer once they know the interests of that number."""
        self._asking, self._waiting = self._waiting, []

        def ask_everybody(inner: Barrier, now: Instant) -> None:
            self._start(True, self._tell_askers, inner.told, now)

        self._start(False, ask_everybody, (0, 0, 0), now)

    def _tell_askers(self, _: Barrier, now: Instant) -> None:
        answered, self._asking = self._asking, []
        for done in answered:
            done(now)
        if self._waiting and not self._asking:
            self._ask(now)

    def _start(
        self, wide: bool, done: Callable[[Barrier, Instant], None], need: tuple[int, int, int], now: Instant
    ) -> None:
        self._number += 1
        barrier = Barrier(self._view.me, self._number, wide, need, None, done)
        self._begin(barrier, now)

    def receive(self, link: Port, frame: Frame, now: Instant) -> None:
        """A question, which we answer once all neighbours that we ask have answered; or such an answer."""
        neighbour = link.neighbour
        assert neighbour is not None
        body = wire.decode_barrier(frame.payload)
        barrier = self._barriers.get((body.broker, body.number))
        if body.answer:
            if barrier is not None:
                barrier.told = max(barrier.told, body.told)
                self._answered(barrier, neighbour, now)
            return
        if barrier is not None or body.broker == self._view.me:
            # It came back through a loop. The neighbour that asked first gets our full answer.
            self._answer(neighbour, body.broker, body.number, body.wide, (0, 0, 0))
            return
        if self._is_full(neighbour):
            self._teller.refuse(Reason.REQUESTS_OVER_LIMIT)
            return
        barrier = Barrier(body.broker, body.number, body.wide, body.told, neighbour, None)
        self._begin(barrier, now)

    def _begin(self, barrier: Barrier, now: Instant) -> None:
        self._barriers[barrier.key] = barrier
        at = now + BARRIER_MS_MAX * NS_PER_MS
        self._timers.set(("barrier", barrier.key), at, lambda now: self._end(barrier, now))
        self._spread(barrier, now)

    def _is_full(self, neighbour: Neighbour) -> bool:
        if len(self._barriers) < BARRIERS_PER_NEIGHBOUR_MAX:
            return False
        passing = sum(barrier.source is neighbour for barrier in self._barriers.values())
        return len(self._barriers) >= BARRIERS_MAX or passing >= BARRIERS_PER_NEIGHBOUR_MAX

    def _spread(self, barrier: Barrier, now: Instant) -> None:
        cluster = self._view.map.me.cluster
        body = wire.encode(wire.BarrierBody(barrier.key[0], barrier.key[1], barrier.wide, False, barrier.need))
        for neighbour in self._view.neighbours.values():
            reached = barrier.wide or neighbour.cluster == cluster
            if neighbour is not barrier.source and reached and not neighbour.suspected:
                barrier.waiting[neighbour.broker] = None
                self._teller.put(neighbour, Kind.WAVE, body)
        self._answered(barrier, None, now)

    def _answered(self, barrier: Barrier, neighbour: Neighbour | None, now: Instant) -> None:
        if neighbour is not None:
            barrier.waiting.pop(neighbour.broker, None)
        if barrier.waiting:
            return
        if not barrier.wide:
            if barrier.key[0] not in self._view.paths.cluster:
                return  # we know its interests, but not the way to it yet
            if (due := self._leadership.due_for(barrier.key[0])) is not None:
                if not due:
                    return  # the leader has not advertised the requester's interests yet, but will
                barrier.told = max(barrier.told, due)
        if self._has_heard(barrier.need):
            self._end(barrier, now)

    def _has_heard(self, need: tuple[int, int, int]) -> bool:
        """True if these interests are known and in use: there is a path to their leader, or another broker leads by
        now."""
        view = self._view
        leader, *age = need
        if not leader or leader == view.me:
            return True
        owner = view.interests.owners.get((leader, True))
        if owner is None or owner.age < tuple(age):
            return False
        return leader in view.paths.parts or leader in view.map.members or not owner.filters

    def _end(self, barrier: Barrier, now: Instant) -> None:
        """The barrier has come back, or was lost somewhere: either way, no caller waits any longer."""
        if self._barriers.pop(barrier.key, None) is None:
            return
        self._timers.cancel(("barrier", barrier.key))
        if barrier.source is not None and barrier.source.link.neighbour is barrier.source:
            self._answer(barrier.source, *barrier.key, barrier.wide, barrier.told)
        if barrier.done is not None:
            barrier.done(barrier, now)

    def _answer(self, neighbour: Neighbour, broker: int, number: int, wide: bool, told: tuple[int, int, int]) -> None:
        self._teller.put(neighbour, Kind.WAVE, wire.encode(wire.BarrierBody(broker, number, wide, True, told)))
