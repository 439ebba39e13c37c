"""Parcels: publications between brokers.

In:    PARCEL frames from neighbours.
Out:   parcels to the next neighbours; runs for our own clients; COUNT frames.
State: what is not confirmed yet, in both directions (with each neighbour), and counters.
Not here: the targets of a publication (destinations.py, where it enters), what leaves from here (forwarding.py), queues
          (broker/links.py).
Paper: [grid] §1.2, dissemination along shortest paths, with traces against echoes.

A broker on the path reads the prefix only: it splits the targets by next neighbour and sends the frames on unchanged.
The frames are read where they arrive: at a target, for its clients, and at the first broker of another cluster, which
matches them for the members of that cluster. What a prefix means here (a Way) is computed once and cached by its bytes
until the map changes; so a parcel costs one struct read and one look-up, like a publication.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.routing.plans import Plans
from heliograph.broker.routing.ports import GONE, HopSink, LinkWriter, Neighbour, Port, Sink
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.routing.targets import Targets
from heliograph.broker.routing.view import View
from heliograph.errors import ProtocolError, Reason
from heliograph.guard import Guard
from heliograph.machine import Instant, Timers
from heliograph.wire.frames import SCAN, Frame, Kind, control, hops_of
from heliograph.wire.limits import HEAD_BYTES, TRACE_MAX

WAYS_MAX = 1_024  # remembered
CONFIRM_BYTES = 1 << 18  # received before a count is sent at once: a quarter of what the sender keeps …
CONFIRM_EACH = 1 << 12  # … where each read counts for this much more than its length …
CONFIRM_MS = 200  # … or this long after the first unconfirmed parcel

PARCEL = int(Kind.PARCEL)
_unpack = SCAN.unpack_from


class Way:
    """What a hop prefix means at this broker. _native.c reads all but trace, joins, joined and repeats."""

    __slots__ = ("groups", "inside", "is_here", "joined", "joins", "lost", "repeats", "sinks", "trace")

    def __init__(self, is_here: bool, inside: bool, groups: tuple[int, ...], trace: tuple[int, ...]) -> None:
        self.is_here = is_here  # some of it is for our clients …
        self.inside = inside  # … and for the members of our cluster
        self.groups = groups
        self.trace = trace  # including us
        self.sinks: list[HopSink] = []  # neighbours that get the rest
        self.joins = False  # frames for members and frames for other parts leave in one parcel …
        self.joined: dict[tuple[Sink, ...], tuple[Sink, ...]] = {}  # … a route's sinks -> the same with ours
        self.repeats = False  # after a loss: what we have seen may be missing at members, and is passed on to them
        self.lost = 0  # targets or neighbours that cannot be reached


Arrive = Callable[[Port, bytes, Way, Instant], None]
"""Reads frames for our clients: link, frames, way, now. If the way joins, it also passes them on."""


class Parcels:
    """Forwards parcels, and hands those that have arrived to the broker. _native.c reads: _ways, forwarded, arrived."""

    __slots__ = (
        "_arrive",
        "_guard",
        "_links",
        "_plans",
        "_relieve",
        "_timers",
        "_view",
        "_ways",
        "arrived",
        "forwarded",
        "unroutable",
    )

    def __init__(
        self,
        view: View,
        plans: Plans,
        links: LinkWriter,
        timers: Timers,
        guard: Guard,
        relieve: Callable[[Neighbour, Instant], None],
        arrive: Arrive,
    ) -> None:
        self._view = view
        self._plans = plans
        self._links = links
        self._timers = timers
        self._guard = guard
        self._ways: dict[tuple[int, int, int, bytes], Way] = {}  # entries of an older map are never found again
        self._relieve = relieve  # called when a suspected neighbour is heard
        self._arrive = arrive  # reads frames that are for us
        self.forwarded = 0
        self.arrived = 0
        self.unroutable = 0

    def read(self, link: Port, neighbour: Neighbour, data: bytes, pos: int, now: Instant) -> int:
        """Take whole parcels from ``pos`` on: keep what is for us, send the rest on. Returns where that ends.

        This is the hot path between brokers, and flat for that reason. A parcel that is incomplete, or whose lengths do
        not fit, is left to the broker, which gathers or refuses it; so a parcel that is too long never gets here whole.
        """
        start = pos
        heard = 0
        size = len(data)
        while size - pos >= HEAD_BYTES:
            length, word, members, number, hops_length = _unpack(data, pos)
            end = pos + 4 + length
            top = pos + HEAD_BYTES + hops_length
            if word & 0xFF != PARCEL or end > size or top > end:
                break
            heard = number
            try:
                hops = data[pos + HEAD_BYTES : top]
                way = self.known_way(word, members, hops)
                if way is None:
                    way = self._meet(Frame(data[pos:top]))
                    self._ways[(self._view.settled, word, members, hops)] = way
                frames = data[top:end]
                if way.is_here:
                    self.arrived += 1
                    self._arrive(link, frames, way, now)
                self.forwarded += len(way.sinks)
                for sink in () if way.joins else way.sinks:
                    if sink.link.sink is sink:
                        sink.link.out.append(frames)
                    else:
                        self._links.deliver(link, sink, frames, now)
                if way.lost:
                    self.unroutable += way.lost
            except ProtocolError:
                raise
            except Exception as error:  # the neighbour only relayed it: the parcel is dropped alone
                self._guard.caught("parcel", error, now, link.id, neighbour.name)
                self._links.count(Reason.INTERNAL_ERROR)
            pos = end
            if link.state == GONE:
                break
        if pos != start:
            if neighbour.suspected:
                self._relieve(neighbour, now)
            if neighbour.heard(heard, pos - start + CONFIRM_EACH) > CONFIRM_BYTES:
                self._confirm(neighbour)
            elif not neighbour.is_timed:
                self._confirm_later(neighbour, now)
        return pos

    def known_way(self, word: int, members: int, hops: bytes) -> Way | None:
        """What a prefix means, if it is remembered."""
        return self._ways.get((self._view.settled, word, members, hops))

    def _meet(self, frame: Frame) -> Way:
        """Compute what a prefix means."""
        if len(self._ways) >= WAYS_MAX:
            self._ways.clear()
        view = self._view
        parts, trace, groups = hops_of(frame)
        members = frame.origin
        inside = False
        if parts:
            inside = any(view.is_here(part) or view.map.was_ours(part) for part in parts)
            parts = tuple(part for part in parts if not view.is_here(part))
        if members and frame.epoch != view.epoch:
            inside, members = True, 0  # slots have changed owners since: compute the members again
        bit = 1 << view.map.me.slot
        way = Way(inside or bool(members & bit), inside, groups, (*trace, view.me)[-TRACE_MAX:])
        members &= ~bit
        if members or parts:
            way.sinks, way.lost = self._plans.next_hops(Targets(members, parts, groups), frame.flags - 1, trace)
        way.repeats = inside and self._plans.is_troubled
        way.joins = inside and not groups and (bool(way.sinks) or way.repeats)
        return way

    def count_forwarded(self) -> None:
        """The shortcut forwarded a parcel."""
        self.forwarded += 1

    def count_arrived(self) -> None:
        """The shortcut delivered a parcel."""
        self.arrived += 1

    def forget_ways(self) -> None:
        """The paths changed, or what is held back on them."""
        self._ways.clear()

    # -- confirmation ---------------------------------------------------------------------------------------------

    def _confirm_later(self, neighbour: Neighbour, now: Instant) -> None:
        """Start a timer unless one is running, so that there is one per neighbour and CONFIRM_MS, not one per count."""
        neighbour.wait_to_confirm()
        at = now + CONFIRM_MS * NS_PER_MS
        self._timers.set(("confirm", neighbour.link.id), at, lambda _: self._confirm_timed(neighbour))

    def _confirm_timed(self, neighbour: Neighbour) -> None:
        if neighbour.waited():
            self._confirm(neighbour)

    def _confirm(self, neighbour: Neighbour) -> None:
        self._links.put(neighbour.link, control(Kind.COUNT, neighbour.count()))
