"""A known broker: what a directory knows of one broker, and what happened between the two.

In:    its advertisements; pings, pongs and links.
Out:   where and how it can be asked, and how far away it is.
State: one broker's.
Not here: the table of all of them (known.py), landmarks (landmarks.py), sending (broker_pings.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heliograph.discovery.brokers.messages import NO_COOKIE, BrokerAdvertisement
from heliograph.machine import Address, Instant, LinkId

MISSES_MAX = 4  # consecutive pings without an answer before a broker counts as unreachable

Key = tuple[str, str, int]
"""A broker's name, its host and the UDP port that it advertises (0: none)."""


def key_of(advertisement: BrokerAdvertisement, source: Address | None) -> Key:
    """The key under which this advertisement is kept. If it names no host, the host that it was seen from counts."""
    host = advertisement.host or (source[0] if source else "")
    return advertisement.broker, host, advertisement.ports.get("udp", 0)


@dataclass(slots=True, eq=False)
class KnownBroker:
    """One broker, as a directory knows it."""

    key: Key
    advertisement: BrokerAdvertisement
    cookie: bytes = NO_COOKIE  # we present it with a request
    address: Address | None = None  # where it receives datagrams; None: known from a topic, without an address
    proven: bool = False  # it recently answered a ping there; until then, nothing is sent to it twice
    round_trip_ns: int | None = None  # None: not measured, or unreachable
    pinged_at: Instant | None = None  # when the outstanding ping was sent
    ponged_at: Instant = 0
    misses: int = 0
    link: LinkId | None = None  # the link on which it advertised itself, if by TCP
    told: frozenset[str] = frozenset()  # the landmarks it was last asked to measure …
    told_at: Instant | None = None  # … and when
    queued: bool = False  # it is in the queue of brokers to ping

    @property
    def is_within_reach(self) -> bool:
        """True if there is a way to ping it."""
        return self.address is not None or self.link is not None

    @property
    def age(self) -> tuple[int, int]:
        """The order of its advertisements: the greater one is newer."""
        return self.advertisement.incarnation, self.advertisement.number

    def renewed(self, advertisement: BrokerAdvertisement, cookie: bytes) -> None:
        """It sent a newer advertisement."""
        self.advertisement = advertisement
        self.cookie = cookie if any(cookie) else self.cookie

    def showed(self, cookie: bytes) -> None:
        """Its present advertisement came again by another path: take the cookie if there was none before."""
        self.cookie = self.cookie if any(self.cookie) else cookie

    def moved(self, address: Address | None) -> None:
        """It receives datagrams there from now on."""
        self.address = address

    def linked(self, link: LinkId) -> None:
        """It advertised itself on this link."""
        self.link = link

    def unlinked(self) -> None:
        """Its link has closed."""
        self.link = None

    def pinged(self, now: Instant) -> None:
        """A ping is sent."""
        self.pinged_at = now

    def missed(self) -> bool:
        """A ping got no answer. Returns True if it counts as unreachable now."""
        self.misses += 1
        return self.misses >= MISSES_MAX

    def ponged(self, now: Instant) -> None:
        """It answered the outstanding ping."""
        self.pinged_at = None
        self.ponged_at = now
        self.misses = 0
        self.proven = True

    def doubted(self) -> None:
        """It has not answered for long, or is no longer at its address: it has to be proven again."""
        self.proven = False
        self.misses = 0
        self.pinged_at = None

    def measured(self, round_trip_ns: int | None) -> None:
        """Its distance; None: not known any more."""
        self.round_trip_ns = round_trip_ns

    def told_of(self, landmarks: Iterable[str], now: Instant) -> None:
        """It was asked to measure its distance to these landmarks."""
        self.told, self.told_at = frozenset(landmarks), now

    def queue(self, queued: bool) -> None:
        """It was added to the queue of brokers to ping, or removed from it."""
        self.queued = queued
