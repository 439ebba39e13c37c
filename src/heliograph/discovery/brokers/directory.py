"""The directory (BDN): keeps broker advertisements, and hands requests for a broker to the network.

In:    datagrams; links that requesters and brokers dial; topics of the brokers it is linked to; as a service, its pipe.
Out:   challenges and acknowledgements; requests to brokers; pings; relayed answers.
State: its parts: known brokers, pings, requests, guests, links to brokers; how often each source asked.
Not here: handling a request (request_intake.py), pings (broker_pings.py), links that were dialled to it (guests.py),
       links that it dials (discovery/anchors.py), choosing a broker (the requester does).
Paper: [brokers] §2 to §4.

It keeps only soft state, so any directory can be lost, and there may be others that know other brokers. It runs
in a process of its own or on a broker's pipe. On a link that was dialled to it, each message travels in a SERVICE frame
named "bdn"; a frame named "admin" carries a question of the administrator (questions.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph.discovery.anchors import Anchors, AnchorSettings
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.broker_pings import TICK_NS, BrokerPings
from heliograph.discovery.brokers.config import DirectoryConfig, address_of, written
from heliograph.discovery.brokers.directory_output import DirectoryOutput
from heliograph.discovery.brokers.guests import Guest, Guests
from heliograph.discovery.brokers.known import KnownBrokers
from heliograph.discovery.brokers.known_broker import KnownBroker
from heliograph.discovery.brokers.messages import (
    ADVERTISEMENT_TOPIC,
    ANNOUNCEMENT_TOPIC,
    DIRECTORY_NAME,
    LIFETIME_S_MAX,
    NO_COOKIE,
    RELAY_TOPIC,
    Announcement,
    BrokerAdvertisement,
    Certificate,
    CertificateRequest,
    Challenge,
    DiscoveryRequest,
    Message,
    MessageKind,
    Pong,
)
from heliograph.discovery.brokers.questions import NAME as QUESTIONS_NAME
from heliograph.discovery.brokers.questions import Questions
from heliograph.discovery.brokers.request_intake import RequestIntake
from heliograph.discovery.brokers.signing import Signing
from heliograph.discovery.buckets import Buckets
from heliograph.discovery.cookies import Cookies
from heliograph.discovery.list_learner import ListLearner
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import (
    Address,
    Effects,
    Instant,
    LinkId,
    Outbox,
    Peer,
    SocketFailed,
    SocketName,
    SocketOpened,
    Ticket,
    Timers,
    TurnedAway,
)
from heliograph.model.chance import Seed
from heliograph.model.identity import Role
from heliograph.model.publication import Publication
from heliograph.notes import DirectoryReloaded, PeerRefused
from heliograph.wire.frames import Frame

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.keyring import Keyring

NAME = DIRECTORY_NAME.decode()
NS_PER_S = 1_000_000_000
RENEWALS = 3


@dataclass(frozen=True, slots=True)
class ReloadDirectory:
    """Told to a directory: apply these settings, and dial the brokers that they name."""

    config: DirectoryConfig


class Directory:
    """A machine with a datagram socket, a listener and, optionally, links to brokers."""

    def __init__(self, config: DirectoryConfig, *, seed: Seed, keyring: Keyring | None = None) -> None:
        self._config = self._started_with = config
        self._outbox = Outbox()
        self._timers = Timers()
        self._counts: Counter[str] = Counter()
        self._clock = WallTime()
        self._cookies = Cookies(seed, "requester")
        self._buckets = Buckets(config.rate_per_s, config.burst, config.sources_max)
        self._signing = Signing(keyring, required=False)
        self._required = keyring is not None  # then only brokers that prove their role are kept
        self._guests = Guests(config, self._outbox)
        output = self._output = DirectoryOutput(self._outbox, self._guests)
        known = self._known = KnownBrokers(config)
        self._pings = BrokerPings(config, seed, known, output)
        anchors = self._anchors = Anchors(_anchor_settings(config), seed, self._outbox, self._timers, self._heard)
        self._requests = RequestIntake(config, known, anchors, self._signing, output, self._counts)
        self._questions = Questions(config.local_digest, self.report)
        self._learner = ListLearner(keyring, self._clock, self._counts) if keyring is not None else None
        self._started = False

    # -- receiving --------------------------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A datagram from any sender."""
        try:
            message = messages.unpack(data)
            if message.kind is not MessageKind.PONG and not self._buckets.may(source[0], now):
                raise ProtocolError(Reason.RATE_OVER_LIMIT)
            match message.kind:
                case MessageKind.REQUEST:
                    self._receive_request(source, message, now)
                case MessageKind.ADVERTISEMENT:
                    self._advertised(message, source, message.cookie, now)
                case MessageKind.PONG:
                    self._receive_pong(source, message, now)
                case MessageKind.RELAY:
                    if not any(known.proven for known in self._known.at(source)):
                        raise ProtocolError(Reason.SENDER_UNPROVEN, "not a broker that is known here")
                    self._requests.relay(message, source[0])
                case MessageKind.CERTIFICATE_REQUEST:
                    hash = messages.decode(CertificateRequest, message.body).hash
                    self._output.give_chain(source, self._signing.chain(hash))
                case MessageKind.CERTIFICATE:
                    self._signing.learn(messages.decode(Certificate, message.body).chain, self._clock.at(now))
                case _:
                    raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)
        except ProtocolError as error:
            self._count(error)
        except Exception as error:
            self._outbox.guard.caught("datagram to the directory", error, now, entity=source[0])

    def _heard(self, publication: Publication, now: Instant) -> None:
        """A publication from a broker of the network."""
        try:
            message = messages.unpack(publication.payload, padded=False)
            if message.kind is MessageKind.ADVERTISEMENT:
                self._advertised(message, None, NO_COOKIE, now)
            elif message.kind is MessageKind.RELAY:
                self._requests.relay(message, "")
            else:
                raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)
        except ProtocolError as error:
            self._count(error)

    # -- brokers ----------------------------------------------------------------------------------------------------

    def _advertised(
        self, message: Message, source: Address | None, cookie: bytes, now: Instant, link: LinkId | None = None
    ) -> KnownBroker | None:
        role = Role.BROKER if self._required else None
        advertisement, holder = self._signing.read(message, BrokerAdvertisement, self._clock.at(now), role)
        if self._required and holder is None and source is not None:
            raise ProtocolError(Reason.CREDENTIAL_MISSING, "the advertisement is not signed")
        if holder is not None and holder.identity.entity != advertisement.broker:
            raise ProtocolError(Reason.CREDENTIAL_WRONG, "a broker may advertise only itself")
        self._known.expire(now)
        if advertisement.withdrawn:
            self._known.withdraw(advertisement, source, cookie, link, proven=holder is not None or source is None)
            self._counts["withdrawals"] += 1
            return None
        known = self._known.add(advertisement, source, cookie, now)
        self._counts["advertisements"] += 1
        if advertisement.lifetime_s > LIFETIME_S_MAX:
            self._counts["lifetimes_cut"] += 1
        if link is not None:
            known.linked(link)
        self._pings.prove(known, now)
        return known

    def _receive_pong(self, source: Address, message: Message, now: Instant) -> None:
        pong = messages.decode(Pong, message.body)
        for known in self._pings.receive(source, message.cookie, pong, now):
            port = known.advertisement.ports.get("tls" if self._config.links_secure else "tcp", 0)
            if port:
                self._anchors.learn((known.advertisement.host or source[0], port))

    def _tick(self, now: Instant) -> None:
        """Forget brokers that were not renewed, ping those that are due, hang up on silent guests."""
        self._known.expire(now)
        self._known.tend_landmarks()
        self._pings.ping_due(now)
        self._guests.hang_up_silent(now)
        self._timers.set("tick", now + TICK_NS, self._tick)

    def _ask_lists(self, now: Instant) -> None:
        """Ask brokers which certificates the authority revoked."""
        if self._learner is not None:
            self._learner.ask(self._anchors.dialled, now)
            self._timers.set("lists", now + NS_PER_S, self._ask_lists)

    def _receive_request(self, source: Address, message: Message, now: Instant) -> None:
        if not self._cookies.is_right(source, message.cookie, now):
            challenge = Challenge(self._signing.id_of(message), message.cookie)
            self._output.send(source, messages.write(challenge, self._cookies.of(source, now)))
            self._counts["challenged"] += 1
            return
        self._requests.take_up(message, source, None, self._clock.at(now))

    # -- links ------------------------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A broker that we dialled, our pipe, or a guest."""
        if self._anchors.attach(link, peer, now):
            return
        if self._guests.attach(link, peer, now):
            self._count(ProtocolError(Reason.SOURCE_OVER_SHARE))

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes from a broker or a guest."""
        if self._anchors.receive(link, data, now):
            return
        guest = self._guests.heard(link, now)
        if guest is None:
            return
        for raw in guest.splitter.split(data):
            frame = Frame(raw)
            try:
                if not self._buckets.may(guest.host, now):
                    raise ProtocolError(Reason.RATE_OVER_LIMIT)
                if frame.topic == QUESTIONS_NAME:
                    self._outbox.writes.append((link, [self._questions.answer(frame)]))
                    continue
                self._receive_from(guest, link, messages.unpack(frame.payload, padded=False), now)
            except ProtocolError as error:
                self._count(error)
            except Exception as error:
                self._outbox.guard.caught("frame to the directory", error, now, link, guest.host)
                self._outbox.hang_up(link, Reason.INTERNAL_ERROR)
                return
        if guest.splitter.fault is not None:
            self._guests.hang_up(link, guest.splitter.fault)

    def _receive_from(self, guest: Guest, link: LinkId, message: Message, now: Instant) -> None:
        """A link proves the host at its other end, so no cookie is needed; the port is as the guest states it."""
        if message.kind is MessageKind.REQUEST:
            port = self._signing.glance(message, DiscoveryRequest).port
            self._requests.take_up(message, (guest.host, port), link, self._clock.at(now))
        elif message.kind is MessageKind.ADVERTISEMENT:
            port = self._signing.glance(message, BrokerAdvertisement).ports.get("udp", 0)
            self._guests.advertised(link, self._advertised(message, (guest.host, port), message.cookie, now, link))
        elif message.kind is MessageKind.PONG and guest.known is not None:
            self._pings.ponged(guest.known, messages.decode(Pong, message.body), now)
        elif message.kind is MessageKind.RELAY and guest.known is not None:
            self._requests.relay(message, guest.host)
        elif message.kind is MessageKind.CERTIFICATE_REQUEST:
            chain = self._signing.chain(messages.decode(CertificateRequest, message.body).hash)
            self._output.write(link, messages.write(Certificate(chain or b""), pad=False))
        else:
            raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """A link has closed."""
        guest = None if self._anchors.detach(link, now) else self._guests.detach(link)
        if guest is not None and guest.known is not None and guest.known.link == link:
            guest.known.unlinked()  # it answered on its link, but may not receive datagrams: prove it again
            if self._known.get(guest.known.key) is guest.known:
                self._known.doubt(guest.known)
                self._pings.prove(guest.known, now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A broker could not be dialled."""
        self._anchors.failed(ticket, now)

    # -- announcing -------------------------------------------------------------------------------------------------

    def _announce(self, now: Instant) -> None:
        """A private directory announces itself to brokers."""
        address = address_of(self._config.advertise)
        if address is not None:
            body = Announcement(self._config.name, *address, self._config.lifetime_s)
            self._anchors.publish(ANNOUNCEMENT_TOPIC, messages.pack(self._signing.message(body), pad=False))
        every_ns = self._config.lifetime_s * NS_PER_S // RENEWALS if self._anchors.sessions else NS_PER_S
        self._timers.set("announce", now + every_ns, self._announce)

    # -- the rest of the contract -----------------------------------------------------------------------------------

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The wall clock's time. The first reading also counts as the start."""
        self._clock.read(wall_ns, now)
        self._anchors.clock(wall_ns, now)
        if not self._started:
            self._started = True
            self._anchors.start(now)
            self._tick(now)
            self._ask_lists(now)
            if self._config.private:
                self._announce(now)

    def tell(self, command: Any, now: Instant) -> None:
        """ReloadDirectory; SocketOpened, SocketFailed and TurnedAway from the driver."""
        if isinstance(command, ReloadDirectory):
            self._reload(command.config, now)
        elif isinstance(command, TurnedAway):
            self._counts[command.reason.word] += 1
            self._outbox.note(PeerRefused(0, command.reason, command.detail))
        elif not isinstance(command, SocketOpened | SocketFailed):
            raise UsageError(f"a directory does not know the command {command!r}")

    def _reload(self, config: DirectoryConfig, now: Instant) -> None:
        """Apply new settings, except those that only a restart can change."""
        restart = config.restart_needed(self._started_with)
        self._config = config = config.as_far_as_reloadable(self._started_with)
        for part in (self._known, self._pings, self._requests, self._guests):
            part.reload(config)
        self._anchors.reload(_anchor_settings(config), now)
        if config.private:
            self._announce(now)
        else:
            self._timers.cancel("announce")
        self._outbox.note(DirectoryReloaded(len(self._known), restart))

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: its messages are short, and guests are few."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests only links."""

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """The brokers it knows, and what it has done."""
        match question:
            case "overview":
                return {
                    "directory": self._config.name,
                    "brokers": len(self._known),
                    "measured": self._known.measured,
                    "islands": self._known.islands,
                    "landmarks": self._known.landmarks.addresses,
                    "placed": self._known.landmarks.placed,
                    "links": len(self._anchors.sessions),
                    "guests": len(self._guests),
                    "requests_remembered": len(self._requests),
                    "sources": len(self._buckets),
                    "counts": dict(sorted(self._counts.items())),
                }
            case "brokers":
                return [_describe(known) for known in self._known.all()]
        raise UsageError(f"no report is called {question[:64]!r}; ask for overview or brokers")

    def _count(self, error: ProtocolError) -> None:
        self._counts[error.reason.word] += 1


def _anchor_settings(config: DirectoryConfig) -> AnchorSettings:
    topics = (ADVERTISEMENT_TOPIC, RELAY_TOPIC + config.name.encode(), *map(str.encode, config.topics))
    return AnchorSettings(
        name=config.name,
        brokers=tuple(address for text in config.links if (address := address_of(text)) is not None),
        topics=topics,
        secure=config.links_secure,
        learned_max=config.links_learned_max,
        entity=config.entity,
        token=config.token,
    )


def _describe(known: KnownBroker) -> dict[str, Any]:
    said = known.advertisement
    return {
        "broker": said.broker,
        "host": known.key[1],
        "ports": said.ports,
        "address": said.address,
        "network": said.network,
        "island": said.island,
        "geography": said.geography,
        "institution": said.institution,
        "datagrams": "" if known.address is None else written(known.address),
        "round_trip_us": None if known.round_trip_ns is None else known.round_trip_ns // 1_000,
    }
