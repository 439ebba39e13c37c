"""Snapshots on their way to neighbours: a few parts at a time, so that a large table never floods a link.

In:    what a broker hosts, for a neighbour that lacks it; parts that the neighbour has taken; changes meanwhile.
Out:   numbered parts of a snapshot, and behind them the changes that came meanwhile, in order.
State: per neighbour, the snapshots that are being sent and the parts that it has not taken yet, bounded.
Not here: which neighbour lacks what (spreading.py), putting parts together (table.py).

A broker refuses what waits for a slow neighbour beyond 1 MiB, so parts wait here instead, where they are not even
encoded yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from heliograph.discovery.resources.messages import (
    ADVERTISEMENTS_PER_BODY_MAX,
    AdvertisedResource,
    AdvertisementsTold,
    Message,
    length_of_part,
)
from heliograph.machine import Instant, LinkId

PARTS_AT_ONCE = 8  # on one link: at most 320 KB
CHANGES_MAX = 1_000  # messages that wait behind one snapshot
STALLED_NS = 30_000_000_000

Head = tuple[int, str, str, int, int, int]  # of a message: host, name, cluster, slot, incarnation, number


class _Outgoing(msgspec.Struct, eq=False):
    """A snapshot of one hosting broker for one neighbour."""

    head: Head
    resources: Sequence[AdvertisedResource]
    at: int = 0  # the first resource of the next part
    part: int = 0
    changes: list[AdvertisementsTold] = []  # to be sent behind it

    def next(self) -> AdvertisementsTold:
        end = self.at + length_of_part(self.resources, self.at, ADVERTISEMENTS_PER_BODY_MAX)
        more = end < len(self.resources)
        add = list(self.resources[self.at : end])
        told = AdvertisementsTold(*self.head, full=True, more=more, add=add, part=self.part, paced=True)
        self.at, self.part = end, self.part + 1
        return told


class _Neighbour(msgspec.Struct):
    outgoing: deque[_Outgoing] = msgspec.field(default_factory=deque)
    untaken: dict[tuple[int, int], None] = {}  # parts on their way: host, number of the part
    moved: Instant = 0  # when a part was last taken


class Snapshots:
    """The snapshots that one broker is sending."""

    def __init__(self, send: Callable[[LinkId, Message], None]) -> None:
        self._send = send
        self._neighbours: dict[LinkId, _Neighbour] = {}
        self._now: Instant = 0  # of the last ``stalled``

    def begin(self, link: LinkId, head: Head, resources: Sequence[AdvertisedResource]) -> None:
        """Send a neighbour everything that a broker hosts. An older snapshot of that broker is given up."""
        neighbour = self._neighbours.setdefault(link, _Neighbour(moved=self._now))
        neighbour.outgoing = deque(one for one in neighbour.outgoing if one.head[0] != head[0])
        neighbour.outgoing.append(_Outgoing(head, resources))
        self._go_on(link, neighbour)

    def follow(self, link: LinkId, told: AdvertisementsTold) -> bool:
        """True if a change has to wait behind a snapshot of the same broker, and does."""
        sending = self._sending(link, told.host)
        if sending is None:
            return False
        sending.changes.append(told)
        if len(sending.changes) > CHANGES_MAX:  # the neighbour notices the gap at the next change, and asks again
            neighbour = self._neighbours[link]
            neighbour.outgoing.remove(sending)
            self._go_on(link, neighbour)
        return True

    def is_sending(self, link: LinkId, host: int) -> bool:
        """True if parts of a snapshot of this broker are still to be sent to the neighbour."""
        return self._sending(link, host) is not None

    def _sending(self, link: LinkId, host: int) -> _Outgoing | None:
        neighbour = self._neighbours.get(link)
        if neighbour is None:
            return None
        return next((one for one in neighbour.outgoing if one.head[0] == host), None)

    def taken(self, link: LinkId, parts: Sequence[tuple[int, int]]) -> None:
        """The neighbour has taken these parts: send as many others."""
        neighbour = self._neighbours.get(link)
        if neighbour is None:
            return
        for part in parts:
            neighbour.untaken.pop(part, None)
        neighbour.moved = self._now
        self._go_on(link, neighbour)

    def _go_on(self, link: LinkId, neighbour: _Neighbour) -> None:
        while neighbour.outgoing and len(neighbour.untaken) < PARTS_AT_ONCE:
            first = neighbour.outgoing[0]
            told = first.next()
            neighbour.untaken[told.host, told.part] = None
            self._send(link, told)
            if not told.more:
                neighbour.outgoing.popleft()
                for change in first.changes:
                    self._send(link, change)
        if not neighbour.outgoing and not neighbour.untaken:
            self._neighbours.pop(link, None)

    def drop(self, link: LinkId) -> None:
        """The neighbour is gone, or begins anew."""
        self._neighbours.pop(link, None)

    def stalled(self, now: Instant) -> list[LinkId]:
        """Neighbours that have taken nothing for long: something was lost."""
        self._now = now
        return [link for link, neighbour in self._neighbours.items() if now - neighbour.moved > STALLED_NS]
