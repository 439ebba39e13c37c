"""Anchors: the links that a directory keeps to some brokers, to listen to their network and to speak into it.

In:    addresses from the settings, brokers it learned of; the life of links.
Out:   dials; what is published on the topics of broker discovery, heard by ``heard``.
State: one session per link, and when to dial again.
Not here: what is heard (directory.py), the frames of a session (services/broker_session.py).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from heliograph.discovery.brokers.config import DirectoryConfig, address_of
from heliograph.discovery.brokers.messages import ADVERTISEMENT_TOPIC, RELAY_TOPIC
from heliograph.errors import Reason
from heliograph.machine import Address, Dial, Instant, LinkId, Outbox, Peer, Ticket, Timers
from heliograph.model.publication import Publication
from heliograph.services.broker_session import BrokerSession

NS_PER_MS = 1_000_000
BEAT_NS = 10_000 * NS_PER_MS
SILENT_NS = 3 * BEAT_NS
AGAIN_NS = 2_000 * NS_PER_MS
REFUSED_NS = 60_000 * NS_PER_MS  # a broker that lets us do nothing is tried again after this

Heard = Callable[[Publication, Instant], None]


class Anchors:
    """The broker links of one directory, and the pipe where it is part of a node."""

    def __init__(self, config: DirectoryConfig, seed: int, outbox: Outbox, timers: Timers, heard: Heard) -> None:
        self._config = config
        self._outbox = outbox
        self._timers = timers
        self._heard = heard
        self._secret = f"{seed}/directory".encode()
        self._wanted = [address for text in config.links if (address := address_of(text)) is not None]
        self._dials: dict[Ticket, Address] = {}
        self._links: dict[Address, LinkId] = {}
        self._sessions: dict[LinkId, BrokerSession] = {}
        self._heard_at: dict[LinkId, Instant] = {}
        self._pause: dict[Address, Instant] = {}

    @property
    def sessions(self) -> list[BrokerSession]:
        """Those through which something can be published."""
        return [session for session in self._sessions.values() if session.welcomed and not session.refused]

    def start(self, now: Instant) -> None:
        """Dial the brokers of the settings, and look after the links from now on."""
        self._tend(now)

    def reload(self, config: DirectoryConfig, now: Instant) -> None:
        """Dial the brokers that are new in the settings, and leave those that are gone from them."""
        named = [address for text in config.links if (address := address_of(text)) is not None]
        learned = self._wanted[len(self._config.links) :]
        self._wanted = [*named, *(address for address in learned if address not in named)]
        self._config = config
        for address, link in self._links.items():
            if address not in self._wanted:
                self._outbox.hang_up(link, Reason.GOODBYE)
        self._pause.clear()
        self._tend(now)

    def learn(self, address: Address) -> None:
        """Keep a link to this broker too, if we have something to show there and links to spare."""
        learned = len(self._wanted) - len(self._config.links)
        credible = bool(self._config.token) or self._config.links_secure
        if credible and address not in self._wanted and learned < self._config.links_learned_max:
            self._wanted.append(address)

    def forget(self, address: Address) -> None:
        """A learned broker is known no more."""
        if address in self._wanted[len(self._config.links) :]:
            self._wanted.remove(address)

    def _tend(self, now: Instant) -> None:
        for link, session in self._sessions.items():
            if now - self._heard_at[link] > SILENT_NS and session.fault is None:
                session.give_up(Reason.SILENT)
            elif now - self._heard_at[link] > BEAT_NS:
                session.beat()
        for address in self._wanted:
            busy = address in self._links or address in self._dials.values()
            if not busy and self._pause.get(address, now) <= now:
                self._dials[self._outbox.dial(Dial(*address, secure=self._config.links_secure))] = address
        self._timers.set("tend", now + AGAIN_NS, self._tend)

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> bool:
        """A link that we dialled, or our pipe; False if it is somebody else who dialled us."""
        pipe = peer.transport == "pipe"
        address = self._dials.pop(peer.ticket, None) if peer.ticket is not None else None
        if not pipe and address is None:
            return False
        secret = sha256(self._secret + b"%d" % link).digest()
        session = self._sessions[link] = BrokerSession(link, self._outbox, secret)
        self._heard_at[link] = now
        if address is not None:
            self._links[address] = link
        config = self._config
        session.hello(config.name, "" if pipe else config.entity, "" if pipe else config.token)
        for topic in (ADVERTISEMENT_TOPIC, RELAY_TOPIC + config.name.encode(), *map(str.encode, config.topics)):
            session.subscribe(topic, self._heard)
        return True

    def receive(self, link: LinkId, data: bytes, now: Instant) -> bool:
        """What a broker says; False if the link is none of ours."""
        session = self._sessions.get(link)
        if session is None:
            return False
        self._heard_at[link] = now
        session.receive(data, now)
        if session.fault is not None:
            self._outbox.hang_up(link, session.fault)
        return True

    def detach(self, link: LinkId, now: Instant) -> bool:
        """A link is gone; False if it was none of ours."""
        session = self._sessions.pop(link, None)
        if session is None:
            return False
        del self._heard_at[link]
        for address in [address for address, used in self._links.items() if used == link]:
            del self._links[address]
            self._pause[address] = now + (AGAIN_NS if session.welcomed and not session.refused else REFUSED_NS)
        return True

    def failed(self, ticket: Ticket, now: Instant) -> None:
        """A broker could not be dialled."""
        address = self._dials.pop(ticket, None)
        if address is not None:
            self._pause[address] = now + AGAIN_NS

    def publish(self, topic: bytes, payload: bytes) -> int:
        """Say it at every broker that we are linked to; how many."""
        for session in self.sessions:
            session.publish(topic, payload)
        return len(self.sessions)
