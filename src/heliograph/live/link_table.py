"""The table of a driver's links: their numbers, and how to write to each.

In:    links and pipe ends as they come up and end.
Out:   an outlet per link; the links to end when the node stops.
State: links by number; sockets that are open, that linger after a hangup, and that carry TLS.
Not here: how links come up (network.py), what happens on one (links.py), TLS (secure.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from heliograph.errors import Reason
from heliograph.live.descriptors import peers_max
from heliograph.machine import LinkId

Outlet = Callable[[list[bytes]], None]


class LinkEnd(Protocol):
    """This side's end of a link: a socket's or a pipe's."""

    number: LinkId

    def hold(self, held: bool) -> None:
        """Stop or resume reading."""

    def hang_up(self, reason: Reason) -> None:
        """End the link after what was written to it."""

    def abort(self) -> None:
        """End the link now."""


class SocketEnd(LinkEnd, Protocol):
    """The end of a link over a socket."""

    def linger_over(self) -> None:
        """The peer has had time to hang up."""


class RawLink(Protocol):
    """A TCP connection below TLS."""

    @property
    def is_proven(self) -> bool:
        """True if the peer has shown a certificate."""

    def give_up(self) -> None:
        """The node stops: end it if its handshake is not complete."""

    def abort(self) -> None:
        """End it now."""


class LinkTable:
    """All links of a driver."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.outlets: dict[LinkId, Outlet] = {}
        self.writes: dict[LinkId, Callable[[bytes], None]] = {}  # the same for a single piece
        self.peers_max = peers_max()  # descriptors from this number on are not for peers that dial in
        self._ends: dict[LinkId, LinkEnd] = {}
        self._sockets: dict[SocketEnd, None] = {}  # until their transport is gone
        self._lingering: dict[SocketEnd, None] = {}  # hung up, until their peer has closed too
        self._raw: dict[RawLink, None] = {}
        self._next: LinkId = 1
        self._empty = asyncio.Event()

    def add(self, end: LinkEnd, outlet: Outlet, write: Callable[[bytes], None]) -> LinkId:
        """Number a link."""
        number = self._next
        self._next = number + 1
        self._ends[number] = end
        self.outlets[number] = outlet
        self.writes[number] = write
        return number

    def add_socket(self, link: SocketEnd, outlet: Outlet, write: Callable[[bytes], None]) -> LinkId:
        """Number a link over a socket."""
        self._sockets[link] = None
        return self.add(link, outlet, write)

    def silence(self, number: LinkId) -> None:
        """Write nothing more to this link."""
        self.outlets.pop(number, None)
        self.writes.pop(number, None)

    def linger(self, link: SocketEnd) -> None:
        """A link was hung up; it stays open until its peer has read the reason."""
        self.silence(link.number)
        self._lingering[link] = None

    def end_lingering(self) -> bool:
        """Close the link that has lingered longest; False if there is none."""
        link = next(iter(self._lingering), None)
        if link is None:
            return False
        del self._lingering[link]
        link.abort()
        return True

    def forget(self, number: LinkId) -> None:
        """A link is gone."""
        self.silence(number)
        self._ends.pop(number, None)

    def remove(self, link: SocketEnd) -> None:
        """A socket is gone."""
        self.forget(link.number)
        self._sockets.pop(link, None)
        self._lingering.pop(link, None)
        if not self._sockets:
            self._empty.set()

    def add_raw(self, raw: RawLink) -> None:
        """A TCP connection below TLS is up."""
        self._raw[raw] = None

    def remove_raw(self, raw: RawLink) -> None:
        """A TCP connection below TLS is gone."""
        self._raw.pop(raw, None)

    def end_proven(self) -> None:
        """An authority is no longer trusted: end the links of all peers with certificates. Those that can still prove
        themselves come back at once."""
        for raw in [raw for raw in self._raw if raw.is_proven]:
            raw.abort()

    def hold(self, number: LinkId, held: bool) -> None:
        """Stop or resume reading a link."""
        end = self._ends.get(number)
        if end is not None:
            end.hold(held)

    def hang_up(self, number: LinkId, reason: Reason) -> None:
        """End a link."""
        end = self._ends.get(number)
        if end is not None:
            end.hang_up(reason)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function after some seconds."""
        self.loop.call_later(seconds, call)

    async def close(self, linger_s: float, timeout_s: float) -> None:
        """Hang up all links; those that are not gone after ``timeout_s`` are cut."""
        for raw in list(self._raw):
            raw.give_up()
        links = list(self._sockets)
        if not links:
            return
        self._empty.clear()
        for link in links:
            link.hang_up(Reason.STOPPING)
            self.later(linger_s, link.linger_over)
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Cut all links now."""
        for raw in list(self._raw):
            raw.abort()
        for link in list(self._sockets):
            link.abort()
