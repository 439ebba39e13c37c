"""The shortcut: a read with a single publication or parcel for one link that keeps up is written to it at once.

In:    bytes of a link's stream.
Out:   the one write that follows from them; None if it is not that simple, and then nothing has been done.
State: none of its own; it updates links, origins and neighbours as the long path does.
Not here: everything else (reading.py, links.py, routing/parcels.py), which a None leaves to ``receive``.

At low load every read is of this kind, so this determines the latency of a broker and of a hop. It does the same as the
long path, to the byte; tests/broker/test_shortcut.py compares the two. _native.c has a compiled twin; before it is
used, twins.py checks that the attributes it reads exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.broker import hot
from heliograph.broker.links import Link, Links
from heliograph.broker.routes import PlainRoutes, Route, RouteTable
from heliograph.broker.routing.parcels import CONFIRM_BYTES, CONFIRM_EACH, PARCEL
from heliograph.broker.routing.ports import READY, Sink
from heliograph.broker.routing.seen import Origins, Seen
from heliograph.machine import Instant, LinkId, Outbox
from heliograph.wire.frames import ORIGIN, SCAN, SEQUENCE
from heliograph.wire.limits import HEAD_BYTES, HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX
from heliograph.wire.scan import PLAIN_EVENT

if TYPE_CHECKING:
    from heliograph.broker import _native
    from heliograph.broker.routing.parcels import Parcels
    from heliograph.broker.routing.ports import Neighbour
    from heliograph.broker.routing.view import View

_unpack = SCAN.unpack_from


class PlainShortcut:
    """One write for one read."""

    def __init__(
        self,
        links: Links,
        outbox: Outbox,
        local: RouteTable,
        inner: RouteTable,
        origins: Origins,
        view: View,
        parcels: Parcels,
        payload_bytes_max: int,
    ) -> None:
        self._by_id = links.by_id
        self._touched = links.touched
        self._outbox = outbox
        self._local = local
        self._inner = inner
        self._origins = origins
        self._parcels = parcels
        self._payload_bytes_max = payload_bytes_max

    def limit(self, payload_bytes_max: int) -> None:
        """Set the largest payload that is accepted from now on."""
        self._payload_bytes_max = payload_bytes_max

    def take(self, link: LinkId, data: bytes, now: Instant) -> tuple[LinkId, bytes] | None:
        """The link to write to, and the bytes; None if ``receive`` has to handle the read."""
        source = self._by_id.get(link)
        if source is None or source.state != READY or source.need or self._touched or self._outbox.writes:
            return None
        if source.neighbour is None:
            written = self._of_client(source, data)
        else:
            written = self._of_neighbour(source.neighbour, data, now)
        if written is not None:
            source.hear(len(data), now)
        return written

    def _of_client(self, source: Link, data: bytes) -> tuple[LinkId, bytes] | None:
        seen = source.seen
        if seen is None:
            return None
        route = find(data, source.routes, seen, self._payload_bytes_max)
        if route is None:
            return None
        sink = route.guarded if route.guard in source.publishes else route.only
        if sink is None or (sink.link is source and sink.own is not True):
            return None
        written = write(sink, data)
        if written is not None:
            seen.admit(SEQUENCE.unpack_from(data, 16)[0])
        return written

    def _of_neighbour(self, neighbour: Neighbour, data: bytes, now: Instant) -> tuple[LinkId, bytes] | None:
        size = len(data)
        owed = neighbour.owed + size + CONFIRM_EACH
        if size < HEAD_BYTES or neighbour.suspected or not neighbour.is_timed or owed > CONFIRM_BYTES:
            return None
        length, word, members, number, hops_length = _unpack(data, 0)
        top = HEAD_BYTES + hops_length
        if length != size - 4 or word & 0xFF != PARCEL or top > size:
            return None
        way = self._parcels.known_way(word, members, data[HEAD_BYTES:top])
        if way is None or way.lost:
            return None
        written = None
        if way.is_here and not way.sinks and not way.groups:
            written = self._arrive(data[top:], way.inside, now)
        elif not way.is_here and len(way.sinks) == 1:
            written = write(way.sinks[0], data[top:])
            if written is not None:
                self._parcels.count_forwarded()
        if written is not None:
            neighbour.heard(number, size + CONFIRM_EACH)
        return written

    def _arrive(self, frames: bytes, inside: bool, now: Instant) -> tuple[LinkId, bytes] | None:
        if len(frames) < HEAD_BYTES:
            return None
        table = self._inner if inside else self._local
        seen = self._origins.known(ORIGIN.unpack_from(frames, 8)[0], now)
        if seen is None:
            return None
        route = find(frames, table.routes, seen, PAYLOAD_BYTES_MAX)
        if route is None or route.only is None:
            return None
        written = write(route.only, frames)
        if written is not None:
            seen.admit(SEQUENCE.unpack_from(frames, 16)[0])
            self._parcels.count_arrived()
        return written


def find(data: bytes, routes: PlainRoutes | _native.Routes, seen: Seen, payload_bytes_max: int) -> Route | None:
    """The route of bytes that are exactly one plain EVENT, newer than the last, on a topic whose route is known."""
    size = len(data)
    if size < HEAD_BYTES or size > payload_bytes_max or size > HEADERS_BYTES_MAX:
        return None
    length, word, origin, sequence, header_length = _unpack(data, 0)
    topic_end = HEAD_BYTES + (word >> 16)
    if length != size - 4 or word & 0xFFFF != PLAIN_EVENT or topic_end + header_length > size:
        return None
    if sequence < seen.next or origin != seen.origin:
        return None
    return routes.get(data[HEAD_BYTES:topic_end])


def write(sink: Sink, frames: bytes) -> tuple[LinkId, bytes] | None:
    """Frames with their prefix; None if the link does not keep up, or if they must be split."""
    link = sink.link
    if link.touched or link.pressed or link.backlog or link.state != READY or len(frames) > sink.bytes_max:
        return None
    link.count_delivery()
    return link.id, sink.prefix(len(frames), [frames]) + frames


Shortcut: type[PlainShortcut | _native.Shortcut] = PlainShortcut
if hot.is_native:
    from heliograph.broker import _native, twins

    twins.check(_native.NAMES, _native.LIMITS)
    Shortcut = _native.Shortcut
