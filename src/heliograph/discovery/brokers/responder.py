"""The responder: a service at each broker that answers requests for a broker, and advertises its own broker.

In:    datagrams (requests, pings, SPREADs of a directory); the topics of broker discovery; samples of usage (tell).
Out:   responses straight to the requester; requests on the topic; broker advertisements; pongs.
State: the last requests, how often each source asked; its parts hold the rest.
Not here: which requesters are answered (policy.py), writing answers (response_sender.py), the broker's status
       (status.py), advertisements (advertisement_sender.py), the directory (directory.py).
Paper: [brokers] §4 and §5.

A party that asks by datagram gets only a cookie until it has presented that cookie: then its address is proven, the
request spreads on the topic, and every broker that receives it there answers straight to that address. The address of a
request on the topic was proven by its publisher, and only brokers and directories may publish there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace as replace_body

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.advertisement import Advertiser, DirectoriesFound, Withdraw
from heliograph.discovery.brokers.advertisement_sender import AdvertisementSender
from heliograph.discovery.brokers.config import GROUP_SOCKET, RESPONDER, SOCKET, ResponderConfig, address_of, written
from heliograph.discovery.brokers.messages import (
    ADVERTISEMENT_TOPIC,
    ANNOUNCEMENT_TOPIC,
    GROUP_BYTES,
    ON_TOPIC,
    REQUEST_TOPIC,
    Announcement,
    Certificate,
    CertificateRequest,
    Challenge,
    DiscoveryRequest,
    Landmarks,
    Message,
    MessageKind,
    Ping,
    Pong,
    Spread,
)
from heliograph.discovery.brokers.outcomes import Outcomes
from heliograph.discovery.brokers.policy import AnswerPolicy, is_among
from heliograph.discovery.brokers.response_sender import ResponseSender
from heliograph.discovery.brokers.signing import Signing
from heliograph.discovery.brokers.status import BrokerStatus, UsageSample
from heliograph.discovery.brokers.surveyor import Surveyor
from heliograph.discovery.brokers.uplinks import Uplinks
from heliograph.discovery.buckets import Buckets
from heliograph.discovery.cookies import Cookies
from heliograph.discovery.repeats import Repeats
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
)
from heliograph.model.chance import Seed, nonces_of, secret_of
from heliograph.model.publication import Publication
from heliograph.services.broker_session import BrokerSession
from heliograph.wire.frames import Frame
from heliograph.wire.requests import Asker

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.keyring import Keyring

NS_PER_MS = 1_000_000
FIRST_SAMPLE_MS = 50  # until the broker has reported its listeners


class Responder:
    """A machine at the end of a pipe, with a datagram socket and a second one for the multicast group."""

    def __init__(
        self,
        config: ResponderConfig,
        broker: str,
        *,
        seed: Seed,
        incarnation: int,
        keyring: Keyring | None = None,
        monitored: bool = False,
    ) -> None:
        self._config = config
        self._broker = broker
        self._incarnation = incarnation
        self._outbox = Outbox()
        self._timers = Timers()
        self._counts: Counter[str] = Counter()
        self._secret = secret_of(seed, f"{incarnation}/responder")
        self._cookies = Cookies(seed, "requester")
        self._directory_cookies = Cookies(seed, "directory")
        self._buckets = Buckets(config.rate_per_s, config.burst, config.sources_max)
        self._repeats: Repeats[None] = Repeats(config.requests_remembered)
        self._signing = Signing(keyring, required=False)
        self._policy = AnswerPolicy(config)
        self._status = BrokerStatus()
        self._advertiser = Advertiser(config, broker, incarnation)
        links = [address for text in config.directory_links if (address := address_of(text)) is not None]
        self._surveyor = Surveyor(nonces_of(seed, f"{incarnation}/responder"), self._timers, self._send, self._surveyed)
        self._uplinks = Uplinks(links, self._outbox, self._timers, self._heard_from_directory)
        self._session: BrokerSession | None = None
        self._port = 0  # of our datagram socket; 0: not open
        topics = ([ADVERTISEMENT_TOPIC] if config.public else []) + [topic.encode() for topic in config.topics]
        self._advertisements = AdvertisementSender(
            *(self._advertiser, self._status, self._signing, self._directory_cookies, self._uplinks),
            *(self._outbox, self._timers, self._counts, lambda: self._session, tuple(topics)),
        )
        self._responses = ResponseSender(
            *(config, broker, incarnation, self._status, self._signing, self._outbox, self._counts),
            lambda: self._session,
        )
        self._outcomes = Outcomes(broker, monitored, lambda: self._session)

    # -- the pipe ---------------------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached: subscribe to the topics of discovery. Or a directory that we dialled."""
        if peer.transport != "pipe":
            self._uplinks.attach(link, peer)
            self._advertisements.advertise(now)
            return
        withdraw = self._advertisements.withdraw
        session = self._session = BrokerSession(
            *(link, self._outbox, self._secret),
            requests=messages.REQUESTS,
            serve=self._serve,
            refused=lambda reason: self._counts.update((reason.word,)),
            warned=withdraw,
        )
        session.hello(RESPONDER)
        session.subscribe(REQUEST_TOPIC, self._heard_request)
        session.subscribe(ANNOUNCEMENT_TOPIC, self._heard_announcement)
        self._sample(now)
        self._uplinks.start(now)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link to the broker, or to a directory, has closed."""
        if self._uplinks.has(link):
            self._uplinks.detach(link)
            return
        self._session = None
        self._status.stopped()
        self._timers.cancel("sample")
        self._timers.cancel("advertise")

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes from the broker, or from a directory."""
        if self._uplinks.has(link):
            self._uplinks.receive(link, data, now)
            return
        session = self._session
        if session is None or session.link != link:
            return
        session.receive(data, now)
        if session.fault is not None:
            self._outbox.hang_up(link, session.fault)

    def _sample(self, now: Instant) -> None:
        if self._session is not None:
            self._outcomes.publish()
            self._session.order({"do": "report", "question": "usage"}, self._sampled)
            wait_ms = self._config.sample_ms if self._status.ports else FIRST_SAMPLE_MS
            self._timers.set("sample", now + wait_ms * NS_PER_MS, self._sample)

    def _sampled(self, report: Any, now: Instant) -> None:
        before = (self._status.willing, self._status.island, dict(self._status.ports))
        self._status.heard(report, self._port, now)
        if isinstance(report, dict) and report["draining"]:
            self._advertisements.withdraw(now)
            return
        if (self._status.willing, self._status.island, self._status.ports) != before:
            self._advertisements.advertise(now)  # at once, so that directories know where it is

    def _serve(self, frame: Frame, asked: CertificateRequest, asker: Asker, now: Instant) -> None:
        """A client's request to this service: for a chain of certificates that does not fit a datagram."""
        assert self._session is not None
        chain = self._signing.chain(asked.hash) or b""
        self._session.answer(frame, messages.write(Certificate(chain), pad=False))

    # -- requests ---------------------------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A datagram from any sender."""
        try:
            if not self._buckets.may(source[0], now):
                raise ProtocolError(Reason.RATE_OVER_LIMIT)
            message = messages.unpack(data)
            match message.kind:
                case MessageKind.REQUEST:
                    if socket == GROUP_SOCKET and len(data) < GROUP_BYTES:
                        raise ProtocolError(Reason.FRAME_TOO_SHORT, "a request to the group must be padded")
                    self._receive_request(source, message, now)
                case MessageKind.PING:
                    self._receive_ping(source, message, now)
                case MessageKind.SPREAD:
                    self._receive_spread(source, message, now)
                case MessageKind.LANDMARKS:
                    self._check_directory(source, message, now)
                    self._surveyor.told(messages.decode(Landmarks, message.body).landmarks, now)
                case MessageKind.PONG:
                    if not self._surveyor.receive(message.cookie, now):
                        raise ProtocolError(Reason.SENDER_UNPROVEN, "a pong without a ping")
                case MessageKind.CERTIFICATE_REQUEST:
                    self._send_chain(source, self._chain(message))
                case MessageKind.CERTIFICATE:
                    chain = messages.decode(Certificate, message.body).chain
                    self._signing.learn(chain, self._status.wall_ns(now))
                case _:
                    raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)
        except ProtocolError as error:
            self._count(error)
        except Exception as error:
            self._outbox.guard.caught("datagram to the responder", error, now, entity=source[0])

    def _receive_request(self, source: Address, message: Message, now: Instant) -> None:
        if not self._cookies.is_right(source, message.cookie, now):
            challenge = Challenge(self._signing.id_of(message), message.cookie)
            self._send(source, messages.write(challenge, self._cookies.of(source, now)))
            self._counts["challenged"] += 1
            return
        try:
            self._take_up(message, Spread(b"", source[0], source[1], self._broker), True, now)
        except ProtocolError as error:
            if error.reason is Reason.CERTIFICATE_UNKNOWN:  # we can verify its next attempt
                self._send(source, messages.write(CertificateRequest(self._signing.hash_of(message))))
            raise

    def _receive_spread(self, source: Address, message: Message, now: Instant) -> None:
        """A request from a directory; accepted only from one that we know and whose address is proven."""
        self._check_directory(source, message, now)
        spread = messages.decode(Spread, message.body)
        if spread.relay == ON_TOPIC:
            spread = replace_body(spread, relay=written(source))  # the directory does not know its address, but we do
        self._take_up(messages.unpack(spread.request, padded=False), spread, not spread.last, now)

    def _check_directory(self, source: Address, message: Message, now: Instant) -> None:
        known = self._advertiser.is_directory(source, now)
        if not known or not self._directory_cookies.is_right(source, message.cookie, now):
            raise ProtocolError(Reason.SENDER_UNPROVEN, "not a directory to which this broker advertises")

    def _heard_from_directory(self, link: LinkId, payload: bytes, now: Instant) -> None:
        """A message on a link that we dialled, so it comes from a directory of ours."""
        try:
            message = messages.unpack(payload, padded=False)
            if message.kind is MessageKind.PING:
                ping = messages.decode(Ping, message.body)
                self._uplinks.say(link, messages.write(Pong(ping.sent_ns, self._broker), message.cookie, pad=False))
            elif message.kind is MessageKind.SPREAD:
                spread = messages.decode(Spread, message.body)
                self._take_up(messages.unpack(spread.request, padded=False), spread, not spread.last, now)
            elif message.kind is MessageKind.LANDMARKS:
                self._surveyor.told(messages.decode(Landmarks, message.body).landmarks, now)
            else:
                raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)
        except ProtocolError as error:
            self._count(error)
        except Exception as error:
            self._outbox.guard.caught("message of a directory", error, now, link)

    def _heard_request(self, publication: Publication, now: Instant) -> None:
        """A request on the topic."""
        try:
            spread = messages.decode(Spread, messages.unpack(publication.payload, padded=False).body)
            self._take_up(messages.unpack(spread.request, padded=False), spread, False, now)
        except ProtocolError as error:
            self._count(error)

    def _take_up(self, message: Message, spread: Spread, onward: bool, now: Instant) -> None:
        """A request whose address is proven: pass it on and answer it, once per attempt."""
        claimed = self._signing.glance(message, DiscoveryRequest)
        outcome = "answered"
        try:
            self._answer(claimed, message, spread, onward, now)
        except ProtocolError as error:
            outcome = error.reason.word
            raise
        finally:
            self._outcomes.add(claimed.id, spread.host, outcome, self._status.network_ns(now)[0])

    def _answer(self, claimed: DiscoveryRequest, message: Message, spread: Spread, onward: bool, now: Instant) -> None:
        address = (spread.host, spread.port)
        if not self._repeats.is_new(claimed.id, address, claimed.attempt):
            raise ProtocolError(Reason.REQUEST_REPEATED)
        wall_ns = self._status.wall_ns(now)
        request, holder = self._signing.read(message, DiscoveryRequest, wall_ns)
        self._signing.check_fresh(request, holder, wall_ns)
        self._repeats.add(request.id, address, request.attempt, None)
        other = bool(request.network) and request.network != self._status.network
        if onward and not other and self._session is not None:
            whole = replace(self._signing.opened(message), chain=self._signing.chain_for(message))
            spread = replace_body(spread, request=messages.bare(whole))
            self._session.publish(REQUEST_TOPIC, messages.write(spread, pad=False))
            self._counts["spread"] += 1
        self._policy.check(spread.host, holder)
        if not self._status.willing or self._advertisements.withdrawn:
            raise ProtocolError(Reason.DRAINING, "this broker accepts no clients at present")
        if other and request.role == "broker":
            raise ProtocolError(Reason.NETWORK_OTHER, "the link could not be made")
        if request.role == "broker" and request.requester == self._broker:
            raise ProtocolError(Reason.NAME_TAKEN, "a broker does not join itself")
        if not spread.last and not is_among(
            request.id, request.attempt, self._broker, self._status.brokers, request.budget
        ):
            raise ProtocolError(Reason.BUDGET_SPENT)
        self._responses.send(request, holder, spread, now)

    def _receive_ping(self, source: Address, message: Message, now: Instant) -> None:
        self._advertiser.heard(source, now)
        ping = messages.decode(Ping, message.body)
        self._counts["pinged"] += 1
        self._send(source, messages.write(Pong(ping.sent_ns, self._broker), message.cookie))

    def _surveyed(self, now: Instant) -> None:
        self._status.surveyed(self._surveyor.distances)
        self._advertisements.advertise(now)

    # -- chains -----------------------------------------------------------------------------------------------------

    def _chain(self, message: Message) -> bytes:
        return self._signing.chain(messages.decode(CertificateRequest, message.body).hash) or b""

    def _send_chain(self, source: Address, chain: bytes) -> None:
        data = messages.write(Certificate(chain))
        if chain and len(data) <= messages.DATAGRAM_BYTES_MAX:
            self._send(source, data)

    def _heard_announcement(self, publication: Publication, now: Instant) -> None:
        """A private directory announced itself; we may advertise to it."""
        try:
            message = messages.unpack(publication.payload, padded=False)
            announcement, _ = self._signing.read(message, Announcement, self._status.wall_ns(now))
        except ProtocolError as error:
            self._count(error)
            return
        if self._advertiser.announced(announcement, now):
            self._advertisements.advertise(now)

    # -- the rest of the contract -----------------------------------------------------------------------------------

    def tell(self, command: Any, now: Instant) -> None:
        """UsageSample, DirectoriesFound, Withdraw; SocketOpened and SocketFailed from the driver."""
        match command:
            case UsageSample():
                self._status.sampled(command, now)
            case DirectoriesFound(addresses):
                if self._advertiser.found(addresses):
                    self._advertisements.advertise(now)
            case Withdraw():
                self._advertisements.withdraw(now)
            case SocketOpened(name, (_, port)) if name == SOCKET:
                self._port = port
                self._sample(now)
            case SocketOpened() | SocketFailed():
                pass  # the group's address is known; the driver notes sockets that failed, and we do without
            case _:
                raise UsageError(f"a responder does not know the command {command!r}")

    def clock(self, wall_ns: int, now: Instant) -> None:
        """A reading of the wall clock."""
        self._status.clock(wall_ns, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: a pipe is never pressed for long, and carries little."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests only links."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A directory could not be dialled."""
        self._uplinks.failed(ticket)

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """What it has done, and what it dropped for which reason."""
        if question != "overview":
            raise UsageError("a responder reports its overview only")
        return {
            "broker": self._broker,
            "willing": self._status.willing and not self._advertisements.withdrawn,
            "island": self._status.island,
            "brokers": self._status.brokers,
            "remembered": len(self._repeats),
            "sources": len(self._buckets),
            "counts": dict(sorted(self._counts.items())),
        }

    def _send(self, address: Address, data: bytes) -> None:
        self._outbox.datagrams.append((SOCKET, address, data))

    def _count(self, error: ProtocolError) -> None:
        self._counts[error.reason.word] += 1
