"""Parcels: publications on their way between brokers.

In:    PARCEL and COUNT frames from neighbours; what a lost neighbour had not confirmed.
Out:   parcels to the next neighbours; runs for our own clients; COUNT frames.
State: what is not confirmed yet, in both directions (with each neighbour), and counters.
Not here: whom a publication is for (network.py, where it enters), queues (broker/links.py).
Paper: [grid] §1.2, dissemination along shortest paths, with traces against echoes.

A broker on the way looks at the prefix only: it splits the targets by next neighbour and sends the frames on as they
came. The frames are read where they arrive: at a target, for its clients, and at the first broker of another cluster,
which matches them for the members of that cluster.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.links import Link, Links
from heliograph.broker.routing.neighbours import HopSink, Neighbour, Targets
from heliograph.broker.routing.network import Network
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.machine import Instant, Timers
from heliograph.wire.frames import Frame, Kind, control, hops_of
from heliograph.wire.limits import TRACE_MAX

VISITS_MAX = 3  # a parcel turns back where a link broke, or where views differ while a change spreads; but not for ever
CONFIRM_PARCELS = 16  # received before a count is sent at once …
CONFIRM_MS = 5  # … or so long after the first unconfirmed one

Arrive = Callable[[Link, bytes, bool, tuple[int, ...], tuple[int, ...], Instant], None]
"""Read frames for our clients: link, frames, whether also for the other members of our cluster, groups, trace, now."""


class Parcels:
    """Forwards parcels, and hands those that have arrived to the broker."""

    def __init__(self, network: Network, links: Links, timers: Timers) -> None:
        self._network = network
        self._links = links
        self._timers = timers
        self.arrive: Arrive
        self.forwarded = 0
        self.arrived = 0
        self.replanned = 0
        self.unroutable = 0

    def receive(self, link: Link, frame: Frame, now: Instant) -> None:
        """A parcel: confirm it, keep what is for us, send the rest on."""
        neighbour = link.neighbour
        assert neighbour is not None
        parts, trace, groups = hops_of(frame)
        self._heard(neighbour, frame.sequence, now)
        network = self._network
        members = frame.origin
        inside = False
        if parts:
            inside = any(network.is_here(part) for part in parts)
            parts = tuple(part for part in parts if not network.is_here(part))
        if members and frame.epoch != network.epoch:
            inside, members = True, 0  # slots have changed hands since: find the members anew
        bit = 1 << network.map.me.slot
        if inside or members & bit:
            self.arrived += 1
            self.arrive(link, frame.payload, inside, groups, (*trace, network.me)[-TRACE_MAX:], now)
        members &= ~bit
        if members or parts:
            self.forward(link, Targets(members, parts, groups), frame.payload, frame.flags - 1, trace, now)

    def forward(
        self, source: Link, targets: Targets, frames: bytes, ttl: int, trace: tuple[int, ...], now: Instant
    ) -> bool:
        """Send frames on to their targets; False if none of them can be reached."""
        network = self._network
        passed = (*trace, network.me)[-TRACE_MAX:]
        reached_members = 0
        reached_parts = 0
        sent = False
        for neighbour, some in network.split(targets):
            reached_members |= some.members
            reached_parts += len(some.parts)
            if ttl <= 0 or trace.count(neighbour.broker) >= VISITS_MAX:
                self.unroutable += 1
                continue
            sink = neighbour.sink(some, ttl, network.epoch, passed)
            self.forwarded += 1
            self._links.deliver(source, sink, frames, now)
            sent = True
        if reached_members != targets.members or reached_parts != len(targets.parts):
            self.unroutable += 1
        return sent

    # -- confirmation ---------------------------------------------------------------------------------------------

    def _heard(self, neighbour: Neighbour, number: int, now: Instant) -> None:
        neighbour.heard_in = number
        if number - neighbour.confirmed_in >= CONFIRM_PARCELS:
            self._confirm(neighbour)
        elif number == neighbour.confirmed_in + 1:
            at = now + CONFIRM_MS * NS_PER_MS
            self._timers.set(("confirm", neighbour.link.id), at, lambda now: self._confirm(neighbour))

    def _confirm(self, neighbour: Neighbour) -> None:
        neighbour.confirmed_in = neighbour.heard_in
        self._timers.cancel(("confirm", neighbour.link.id))
        self._links.put(neighbour.link, control(Kind.COUNT, neighbour.heard_in))

    def receive_count(self, link: Link, frame: Frame, now: Instant) -> None:
        """The neighbour has every parcel up to this number."""
        assert link.neighbour is not None
        link.neighbour.confirm(frame.sequence)

    def plan_again(self, neighbour: Neighbour, now: Instant) -> int:
        """A neighbour is gone or suspected: what it had not confirmed goes another way, under the same ids."""
        waiting = self._links.abandon(neighbour.link)
        sent = list(neighbour.sent)
        neighbour.sent.clear()
        neighbour.sent_bytes = 0
        for parcel in sent:
            self._plan(neighbour, parcel.targets, b"".join(parcel.chunks), parcel.ttl, parcel.trace, now)
        for sink, frames in waiting:
            assert isinstance(sink, HopSink)
            self._plan(neighbour, sink.targets, frames, sink.ttl, sink.trace, now)
        self.replanned += len(sent) + len(waiting)
        return len(sent) + len(waiting)

    def _plan(
        self, gone: Neighbour, targets: Targets, frames: bytes, ttl: int, trace: tuple[int, ...], now: Instant
    ) -> None:
        before_us = trace[:-1] if trace[-1:] == (self._network.me,) else trace
        self.forward(gone.link, targets, frames, ttl, before_us, now)
