"""Forwarding: sends frames from this broker to their targets, and again if a neighbour is lost.

In:    frames with their targets; COUNT frames; neighbours that are gone, suspected or do not hear us.
Out:   parcels to the next neighbours.
State: counters. Unconfirmed parcels are kept with each neighbour.
Not here: which neighbours those are (plans.py), parcels that come from neighbours (parcels.py).
"""

from __future__ import annotations

from heliograph.broker.routing.plans import Plans
from heliograph.broker.routing.ports import HopSink, LinkWriter, Neighbour, Port
from heliograph.broker.routing.targets import TargetedRun, Targets
from heliograph.broker.routing.view import View
from heliograph.errors import Reason
from heliograph.guard import Guard
from heliograph.machine import Instant
from heliograph.wire.frames import Frame


class Forwarding:
    """Sends frames to their targets."""

    def __init__(self, view: View, plans: Plans, links: LinkWriter, guard: Guard) -> None:
        self._view = view
        self._plans = plans
        self._links = links
        self._guard = guard
        self.forwarded = 0  # parcels
        self.replanned = 0
        self.unroutable = 0

    def forward(
        self, source: Port, targets: Targets, frames: bytes, ttl: int, trace: tuple[int, ...], now: Instant
    ) -> bool:
        """Send frames on to their targets; False if none of them can be reached."""
        sinks, lost = self._plans.next_hops(targets, ttl, trace)
        for sink in sinks:
            self._links.deliver(source, sink, frames, now)
        self.forwarded += len(sinks)
        self.unroutable += lost
        return bool(sinks)

    def receive_count(self, link: Port, frame: Frame, now: Instant) -> None:
        """The neighbour has every parcel up to this number."""
        assert link.neighbour is not None
        link.neighbour.confirm(frame.sequence)

    def plan_again(self, neighbour: Neighbour, now: Instant) -> int:
        """A neighbour is gone or suspected: send its unconfirmed parcels another way, under the same ids."""
        waiting = self._links.abandon(neighbour.link)
        sent = neighbour.take_back()
        for _, _, chunks, sink in sent:
            self._plan(neighbour, sink.run(b"".join(chunks), self._view.me), now)
        for waiting_sink, frames in waiting:
            assert isinstance(waiting_sink, HopSink)
            self._plan(neighbour, waiting_sink.run(frames, self._view.me), now)
        self.replanned += len(sent) + len(waiting)
        return len(sent) + len(waiting)

    def send_on(self, neighbour: Neighbour, old: Port, now: Instant) -> None:
        """A neighbour has another link: what still waits for the old one goes there. What was written arrives."""
        for sink, frames in self._links.abandon(old):
            assert isinstance(sink, HopSink)
            self._plan(neighbour, sink.run(frames, self._view.me), now)

    def _plan(self, gone: Neighbour, run: TargetedRun, now: Instant) -> None:
        """One that raises is dropped: it must not end the link that it is sent on instead, and then the next."""
        try:
            self.forward(gone.link, self._plans.widened(run.targets), run.frames, run.ttl, run.trace, now)
        except Exception as error:
            self._guard.caught("parcel, planned again", error, now, gone.link.id, gone.name)
            self._links.count(Reason.INTERNAL_ERROR)
