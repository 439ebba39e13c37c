"""Guests: the links that requesters and brokers dialled to a directory.

In:    links and their addresses; which of them belong to brokers; time.
Out:   the guest behind a link; hang-ups of silent guests and of those that take too large a share.
State: at most ``links_max`` guests; which of them have not advertised a broker.
Not here: what guests send (directory.py), links that the directory dialled (discovery/anchors.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.broker.shares import Shares, source_of
from heliograph.discovery.brokers.config import DirectoryConfig, address_of
from heliograph.discovery.brokers.known_broker import KnownBroker
from heliograph.discovery.brokers.messages import DIRECTORY_FRAMES
from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId, Outbox, Peer
from heliograph.wire.splitter import Splitter

NS_PER_MS = 1_000_000


@dataclass(slots=True)
class Guest:
    """A party that dialled the directory."""

    host: str
    splitter: Splitter
    heard_at: Instant
    known: KnownBroker | None = None  # the broker that advertised itself here
    is_leaving: bool = False  # we hung up, and the link has not been detached yet


class Guests:
    """The guests of one directory."""

    def __init__(self, config: DirectoryConfig, outbox: Outbox) -> None:
        self._config = config
        self._outbox = outbox
        self._guests: dict[LinkId, Guest] = {}
        self._strangers: Shares[LinkId] = Shares()  # guests that have not advertised a broker

    def __len__(self) -> int:
        return len(self._guests)

    def reload(self, config: DirectoryConfig) -> None:
        """Apply new settings."""
        self._config = config

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> bool:
        """A new guest, or a hang-up if there is no room. Returns True if another guest was removed for it."""
        address, source = address_of(peer.address), source_of(peer.address)
        full = len(self._guests) >= self._config.links_max
        freed = address is not None and full and self._free_a_place(source)
        if address is None or (full and not freed):
            self._outbox.hang_up(link, Reason.LINKS_OVER_LIMIT)
            return False
        self._strangers.add(source, link)
        self._guests[link] = Guest(address[0], Splitter(DIRECTORY_FRAMES), now)
        return freed

    def _free_a_place(self, source: str) -> bool:
        """Hang up on a guest that has not advertised a broker, from the address that has the most of them."""
        link = self._strangers.victim(source)
        if link is None:
            return False
        self._strangers.remove(link)
        del self._guests[link]
        self._outbox.hang_up(link, Reason.SOURCE_OVER_SHARE)
        return True

    def heard(self, link: LinkId, now: Instant) -> Guest | None:
        """Bytes came on this link; returns its guest, or None if it has none."""
        guest = self._guests.get(link)
        if guest is not None:
            guest.heard_at = now
        return guest

    def is_here(self, link: LinkId) -> bool:
        """True if something may be written to this link."""
        guest = self._guests.get(link)
        return guest is not None and not guest.is_leaving

    def hang_up(self, link: LinkId, reason: Reason) -> None:
        """End the link of a guest."""
        self._guests[link].is_leaving = True
        self._outbox.hang_up(link, reason)

    def advertised(self, link: LinkId, known: KnownBroker | None) -> None:
        """This guest advertised a broker, or withdrew it (None)."""
        self._guests[link].known = known
        if known is not None:
            self._strangers.remove(link)

    def detach(self, link: LinkId) -> Guest | None:
        """A link has closed; returns its guest, if it had one."""
        self._strangers.remove(link)
        return self._guests.pop(link, None)

    def hang_up_silent(self, now: Instant) -> None:
        """Hang up on guests that have sent nothing for too long."""
        for link, guest in self._guests.items():
            if now - guest.heard_at > self._config.link_idle_ms * NS_PER_MS:
                guest.heard_at = now
                self.hang_up(link, Reason.SILENT)
