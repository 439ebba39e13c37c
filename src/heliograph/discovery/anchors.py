"""Anchors: the links that a directory keeps to some brokers, to listen to their network and to publish in it.

In:    addresses from the settings, brokers it learned of; links that come up and end.
Out:   dials; publications on the topics of the settings, handed to ``heard``.
State: one session per link, and when to dial again.
Not here: what publications mean (brokers/directory.py), the frames on the link (services/broker_session.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from heliograph.errors import Reason
from heliograph.machine import Address, Dial, Instant, LinkId, Outbox, Peer, Ticket, Timers
from heliograph.model.chance import Seed, secret_of
from heliograph.model.identity import Role
from heliograph.model.publication import Publication
from heliograph.services.broker_session import BrokerSession
from heliograph.trust.expiries import Expiries

NS_PER_MS = 1_000_000
BEAT_NS = 10_000 * NS_PER_MS
SILENT_NS = 3 * BEAT_NS
AGAIN_NS = 2_000 * NS_PER_MS
REFUSED_NS = 60_000 * NS_PER_MS  # delay before retrying a broker that refused us everything

Heard = Callable[[Publication, Instant], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorSettings:
    """What a directory's links need to know."""

    name: str  # of the directory
    brokers: tuple[Address, ...]  # that the settings name
    topics: tuple[bytes, ...]  # that it listens to
    secure: bool = False  # TLS, with the driver's certificate
    learned_max: int = 0  # links to brokers that it learned of
    entity: str = ""  # with a token: the directory's entity
    token: str = field(default="", repr=False)


class Anchors:
    """The broker links of one directory, and the pipe where it is part of a node."""

    def __init__(self, settings: AnchorSettings, seed: Seed, outbox: Outbox, timers: Timers, heard: Heard) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._heard = heard
        self._seed = seed
        self._wanted = list(settings.brokers)  # those that the settings name, then learned ones
        self._dials: dict[Ticket, Address] = {}
        self._links: dict[Address, LinkId] = {}
        self._sessions: dict[LinkId, BrokerSession] = {}
        self._heard_at: dict[LinkId, Instant] = {}
        self._pause: dict[Address, Instant] = {}
        self._replaced: dict[Address, LinkId] = {}  # links that end when a new one to the same broker is welcomed
        self._expiries = Expiries(timers, self._certificate_ends, self._certificate_ended)

    @property
    def sessions(self) -> list[BrokerSession]:
        """The sessions through which the directory can publish."""
        return [session for session in self._sessions.values() if session.welcomed and not session.refused]

    @property
    def dialled(self) -> list[BrokerSession]:
        """Those of them over links, where the directory can ask services of the broker."""
        links = dict.fromkeys(self._links.values())
        return [session for session in self.sessions if session.link in links]

    def start(self, now: Instant) -> None:
        """Dial the brokers of the settings, and look after the links from now on."""
        self._tend(now)

    def reload(self, settings: AnchorSettings, now: Instant) -> None:
        """Dial the brokers that are new in the settings, and leave those that are gone from them."""
        named = settings.brokers
        learned = self._wanted[len(self._settings.brokers) :]
        self._wanted = [*named, *(address for address in learned if address not in named)]
        self._settings = settings
        for address, link in self._links.items():
            if address not in self._wanted:
                self._outbox.hang_up(link, Reason.GOODBYE)
        self._pause.clear()
        self._tend(now)

    def learn(self, address: Address) -> None:
        """Keep a link to this broker too, if links are secure and there are links to spare.

        Any party may advertise a broker at any address. Only TLS proves that the party there is a broker of ours, so
        without TLS a learned broker is not dialled.
        """
        learned = len(self._wanted) - len(self._settings.brokers)
        if self._settings.secure and address not in self._wanted and learned < self._settings.learned_max:
            self._wanted.append(address)

    def _tend(self, now: Instant) -> None:
        for link, session in self._sessions.items():
            if now - self._heard_at[link] > SILENT_NS and session.fault is None:
                session.give_up(Reason.SILENT)
            elif now - self._heard_at[link] > BEAT_NS:
                session.beat()
        for address in list(self._replaced):
            self._end_replaced(address)
        for address in self._wanted:
            has_link = address in self._links and address not in self._replaced
            busy = has_link or address in self._dials.values()
            if not busy and self._pause.get(address, now) <= now:
                self._dials[self._outbox.dial(Dial(*address, secure=self._settings.secure))] = address
        self._timers.set("tend", now + AGAIN_NS, self._tend)

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> bool:
        """A link that we dialled, or our pipe. Returns False for a link that was dialled to us."""
        pipe = peer.transport == "pipe"
        address = self._dials.pop(peer.ticket, None) if peer.ticket is not None else None
        if not pipe and address is None:
            return False
        session = self._sessions[link] = BrokerSession(
            *(link, self._outbox, secret_of(self._seed, f"directory{link}")),
            warned=lambda now: self._renew(link, now),
        )
        self._heard_at[link] = now
        if address is not None:
            self._links[address] = link
            self._expiries.add(link, peer, now)
        settings = self._settings
        has_token = address is not None and self._may_see_token(address, peer)
        session.hello(settings.name, settings.entity if has_token else "", settings.token if has_token else "")
        for topic in settings.topics:
            session.subscribe(topic, self._heard)
        return True

    def _may_see_token(self, address: Address, peer: Peer) -> bool:
        """True for a party that has proven the role broker, and without TLS for a broker that the settings name."""
        if peer.transport == "tls":
            return peer.identity is not None and peer.identity.has(Role.BROKER)
        return address in self._wanted[: len(self._settings.brokers)]

    def receive(self, link: LinkId, data: bytes, now: Instant) -> bool:
        """Bytes from a broker. Returns False if the link is not one of ours."""
        session = self._sessions.get(link)
        if session is None:
            return False
        self._heard_at[link] = now
        session.receive(data, now)
        for address in [address for address, used in self._links.items() if used == link]:
            self._end_replaced(address)
        if session.fault is not None:
            self._outbox.hang_up(link, session.fault)
        return True

    def detach(self, link: LinkId, now: Instant) -> bool:
        """A link has closed. Returns False if it was not one of ours."""
        session = self._sessions.pop(link, None)
        if session is None:
            return False
        del self._heard_at[link]
        self._expiries.remove(link)
        for address in [address for address, old in self._replaced.items() if old == link]:
            del self._replaced[address]
        for address in [address for address, used in self._links.items() if used == link]:
            del self._links[address]
            self._pause[address] = now + (AGAIN_NS if session.welcomed and not session.refused else REFUSED_NS)
        return True

    # -- certificates that end --------------------------------------------------------------------------------------

    def clock(self, wall_ns: int, now: Instant) -> None:
        """A reading of the wall clock."""
        self._expiries.clock(wall_ns, now)

    def _renew(self, link: LinkId, now: Instant) -> None:
        """A certificate of this link ends soon, or the broker asks us to leave: dial anew before this one ends."""
        for address, used in self._links.items():
            if used == link and address not in self._dials.values():
                self._replaced.setdefault(address, link)
                self._pause.pop(address, None)
        self._tend(now)

    def _end_replaced(self, address: Address) -> None:
        """End the old link to this broker once the new one is welcomed."""
        old, new = self._replaced.get(address), self._links.get(address)
        if old is not None and new is not None and new != old and self._sessions[new].welcomed:
            del self._replaced[address]
            self._outbox.hang_up(old, Reason.GOODBYE)

    def _certificate_ends(self, link: LinkId, left_ms: int, late: bool, now: Instant) -> None:
        if not late:
            self._renew(link, now)

    def _certificate_ended(self, link: LinkId, now: Instant) -> None:
        self._outbox.hang_up(link, Reason.CERTIFICATE_EXPIRED)

    def failed(self, ticket: Ticket, now: Instant) -> None:
        """A broker could not be dialled."""
        address = self._dials.pop(ticket, None)
        if address is not None:
            self._pause[address] = now + AGAIN_NS

    def publish(self, topic: bytes, payload: bytes) -> int:
        """Publish at every broker that we are linked to, and return how many those are."""
        for session in self.sessions:
            session.publish(topic, payload)
        return len(self.sessions)
