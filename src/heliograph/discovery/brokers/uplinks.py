"""Uplinks: the links that a broker's responder keeps to directories that it advertises to by TCP.

In:    their addresses; links that come up and end; messages in SERVICE frames.
Out:   dials; messages of the directories, handed to ``heard``; our messages to them.
State: one splitter per link, and when to dial again.
Not here: the content of messages (responder.py), links of a directory to brokers (anchors.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heliograph.discovery.brokers.messages import DIRECTORY_FRAMES, DIRECTORY_NAME
from heliograph.machine import Address, Dial, Instant, LinkId, Outbox, Peer, Ticket, Timers
from heliograph.model.identity import Role
from heliograph.wire.frames import Frame, service
from heliograph.wire.splitter import Splitter

AGAIN_NS = 2_000_000_000

Heard = Callable[[LinkId, bytes, Instant], None]


class Uplinks:
    """The links of one responder. It dials only directories that its settings name."""

    def __init__(self, addresses: Sequence[Address], outbox: Outbox, timers: Timers, heard: Heard) -> None:
        self._addresses = addresses
        self._outbox = outbox
        self._timers = timers
        self._heard = heard
        self._dials: dict[Ticket, Address] = {}
        self._links: dict[LinkId, tuple[Address, Splitter]] = {}

    def start(self, now: Instant) -> None:
        """Dial the directories that have no link, now and regularly."""
        there = [address for address, _ in self._links.values()] + list(self._dials.values())
        for address in self._addresses:
            if address not in there:
                self._dials[self._outbox.dial(Dial(*address, role=Role.DIRECTORY))] = address
        if self._addresses:
            self._timers.set("uplinks", now + AGAIN_NS, self.start)

    def attach(self, link: LinkId, peer: Peer) -> None:
        """The link to a directory is up."""
        self._links[link] = (self._dials.pop(peer.ticket or 0), Splitter(DIRECTORY_FRAMES))

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Messages of a directory, each for itself."""
        _, splitter = self._links[link]
        for raw in splitter.split(data):
            self._heard(link, Frame(raw).payload, now)
        if splitter.fault is not None:
            self._outbox.hang_up(link, splitter.fault)

    def detach(self, link: LinkId) -> None:
        """The link has closed, and will be dialled again."""
        self._links.pop(link, None)

    def failed(self, ticket: Ticket) -> None:
        """The directory could not be dialled, and will be again."""
        self._dials.pop(ticket, None)

    def has(self, link: LinkId) -> bool:
        """True if this is a directory's link."""
        return link in self._links

    def say(self, link: LinkId, message: bytes) -> None:
        """Send this to one directory."""
        self._outbox.writes.append((link, [service(DIRECTORY_NAME, message, 0)]))

    def say_to_all(self, message: bytes) -> None:
        """Send this to all linked directories."""
        for link in self._links:
            self.say(link, message)
