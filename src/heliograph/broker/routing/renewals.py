"""Renewals: a link between brokers takes the place of another, with nothing lost or overtaken.

In:    handshakes that are to replace a link; the last frame of a neighbour on an old link; links that are gone.
Out:   GOODBYE as our last frame on the old link; calls when a neighbour has moved and when its new link may be read.
State: links that are to replace others; links that were replaced and are not read out yet.
Not here: when a link is renewed, dials and handshakes (peering.py), what is written where (broker/links.py).

Each side sends a GOODBYE as the last frame of the old link, writes to the new one from then on, and reads the new one
once the other's GOODBYE has come. The neighbour stays the same object: numbers, paths and costs do not change.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.routing.ports import READY, LinkWriter, Neighbour, Port
from heliograph.errors import Reason
from heliograph.machine import Instant
from heliograph.wire import bodies
from heliograph.wire.frames import Kind, control

RENEWED = "this link was renewed"

Moved = Callable[[Neighbour, Port, Instant], None]
"""Called with a neighbour that has a new link, and its old one. The new one must not be read yet."""
ReadOn = Callable[[Port, Instant], None]
"""Called with a new link that may be read now."""


class Renewals:
    """The links of one broker that take the place of others."""

    def __init__(self, links: LinkWriter, moved: Moved, read_on: ReadOn) -> None:
        self._links = links
        self._moved = moved
        self._read_on = read_on
        self._prepared: dict[Port, Port] = {}  # a link in its handshake -> the link whose place it is to take
        self._finished: dict[Port, None] = {}  # of those: the neighbour has sent its last frame on the old link
        self._old: dict[Port, Neighbour] = {}  # replaced, and the neighbour's last frame has not come

    def prepare(self, link: Port, old: Port) -> None:
        """A handshake begins on a link that is to take the place of another."""
        self._prepared[link] = old

    def fits(self, link: Port, known: Neighbour, incarnation: int) -> bool:
        """True if this link, on which the neighbour has proven itself, can take the place of the one in use."""
        old = known.link
        is_whole = old.state == READY and old not in self._old and not known.suspected
        return is_whole and self._prepared.get(link) is old and incarnation == known.incarnation

    def move(self, neighbour: Neighbour, link: Port, now: Instant) -> None:
        """Use this link in place of the old one, on which everything that was written still arrives."""
        old = self._prepared.pop(link)
        link.rise(neighbour)
        neighbour.move(link)
        self._moved(neighbour, old, now)
        self._links.put(old, control(Kind.GOODBYE, 0, bodies.goodbye(Reason.TAKEN_OVER, RENEWED)))
        self._old[old] = neighbour
        if self._finished.pop(link, self) is None:
            self.last_on(old, now)

    def last_on(self, link: Port, now: Instant) -> bool:
        """The neighbour's last frame on a link: it uses a renewed one. False if this link is not being renewed."""
        neighbour = self._old.pop(link, None)
        if neighbour is not None:
            self._read_on(neighbour.link, now)
            if not link.backlog:  # else the other side ends it, once it has our last frame
                self._links.hang_up(link, Reason.TAKEN_OVER, RENEWED)
            return True
        for new, old in self._prepared.items():
            if old is link:  # the neighbour was faster than we are
                self._finished[new] = None
                return True
        return link.neighbour is not None and link.neighbour.link is not link

    def forget(self, link: Port) -> None:
        """A link is gone. If that was too early, the other one ends too: what is unconfirmed has to be sent again."""
        neighbour = self._old.pop(link, None)
        if neighbour is not None:
            self._links.hang_up(neighbour.link, Reason.RESET, "the link that this one replaced was lost")
        old = self._prepared.pop(link, None)
        if self._finished.pop(link, self) is None and old is not None:
            self._links.hang_up(old, Reason.RESET, "the link that was to replace this one was lost")
