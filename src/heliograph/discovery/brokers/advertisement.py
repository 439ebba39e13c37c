"""Broker advertisements: what a broker says of itself, and which directories get it.

In:    the broker's status; directories, configured or announced.
Out:   BrokerAdvertisement bodies, numbered; the directories that get them.
State: the number of the last one; announced directories until their announcement expires.
Not here: sending (advertisement_sender.py), keeping those of others (known.py).
Paper: [brokers] §2.2 to §2.4. Soft state: each may be lost; they are renewed three times in their lifetime.
"""

from __future__ import annotations

from msgspec import Struct

from heliograph.discovery.brokers.config import ResponderConfig, address_of
from heliograph.discovery.brokers.messages import Announcement, BrokerAdvertisement
from heliograph.discovery.brokers.status import BrokerStatus
from heliograph.machine import Address, Instant

NS_PER_S = 1_000_000_000
RENEWALS = 3
FIRST_NS = NS_PER_S // 4
STRANGE_NS = 60 * NS_PER_S  # a directory that has not pinged us for this long may have lost our advertisement


class DirectoriesFound(Struct, frozen=True):
    """Told to a responder: the addresses of directories whose names were looked up."""

    addresses: tuple[Address, ...]


class Withdraw(Struct, frozen=True):
    """Told to a responder: its broker is about to stop, so directories should send no client to it."""


class Advertiser:
    """One broker's advertisements."""

    def __init__(self, config: ResponderConfig, broker: str, incarnation: int) -> None:
        self._config = config
        self._broker = broker
        self._incarnation = incarnation
        self._number = 0
        self._configured = [address for text in config.directories if (address := address_of(text)) is not None]
        self._found: tuple[Address, ...] = ()  # also configured, but by host name
        self._heard: dict[Address, Instant] = {}  # directories that pinged us, and when
        self._quick = 0  # consecutive early renewals
        self._announced: dict[Address, Instant] = {}  # directory -> when its announcement expires

    def wait_ns(self, now: Instant) -> int:
        """The time until the next renewal; shorter while a directory has not shown that it knows us, but growing."""
        usual = self._config.lifetime_s * NS_PER_S // RENEWALS
        strange = [one for one in self.directories(now) if now - self._heard.get(one, now - STRANGE_NS) >= STRANGE_NS]
        self._quick = self._quick + 1 if strange else 0
        return min(usual, FIRST_NS * 2 ** min(self._quick // 2, 16)) if strange else usual

    def found(self, addresses: tuple[Address, ...]) -> bool:
        """Names were looked up. Returns True if that changed anything."""
        room = self._config.directories_max - len(self._configured)
        changed, self._found = self._found != addresses[:room], addresses[:room]
        return changed

    def heard(self, source: Address, now: Instant) -> None:
        """A directory pinged us, so it has our advertisement."""
        if self.is_directory(source, now):
            self._heard[source] = now

    def announced(self, announcement: Announcement, now: Instant) -> bool:
        """A directory announced itself. Returns True if it is new and will get our advertisements."""
        address = (announcement.host, announcement.port)
        if not self._config.join_private or not announcement.host or not announcement.port:
            return False
        new = address not in self.directories(now)
        if new and len(self.directories(now)) >= self._config.directories_max:
            return False
        self._announced[address] = now + announcement.lifetime_s * NS_PER_S
        return new

    def directories(self, now: Instant) -> list[Address]:
        """The directories that get our advertisements by datagram."""
        for address in [address for address, until in self._announced.items() if until <= now]:
            del self._announced[address]
            self._heard.pop(address, None)
        return list(dict.fromkeys([*self._configured, *self._found, *self._announced]))

    def is_directory(self, source: Address, now: Instant) -> bool:
        """True if this is a directory that gets our advertisements."""
        return source in self._configured or source in self._found or self._announced.get(source, now) > now

    def next(self, status: BrokerStatus, *, withdrawn: bool = False) -> BrokerAdvertisement:
        """The next advertisement; with ``withdrawn``, the final one."""
        self._number += 1
        config = self._config
        return BrokerAdvertisement(
            broker=self._broker,
            incarnation=self._incarnation,
            number=self._number,
            lifetime_s=config.lifetime_s,
            host=config.advertise_host,
            ports=status.ports,
            address=status.address,
            island=status.island,
            brokers=status.brokers,
            geography=config.geography,
            institution=config.institution,
            withdrawn=withdrawn,
            distances=status.distances,
            network=status.network,
        )
