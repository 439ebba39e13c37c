"""The directory (BDN): keeps broker advertisements, and hands requests for a broker to the network.

In:    datagrams, links of those who dial it, topics of the brokers it is linked to; as a service, its pipe.
Out:   acknowledgements at once; requests to the nearest and the farthest brokers; pings; relayed answers.
State: known brokers (known.py), the last requests with their requesters, how often each source asked.
Not here: choosing a broker (the requester does), links to brokers (anchors.py), answers (responder.py).
Paper: [brokers] §2 to §4.
Long:  what it hears comes by datagram, link and topic, and all three end in the same few steps.

All that it keeps is soft state, so any directory can be lost, and there may be others that know other brokers. It runs
in a process of its own or on a broker's pipe. On a link that was dialled to it, each message travels in a SERVICE frame
named "bdn"; in one named "admin" stands a question of the administrator (questions.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from heliograph.broker.shares import Shares, source_of
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.anchors import Anchors
from heliograph.discovery.brokers.config import FIXED, SOCKET, DirectoryConfig, address_of, written
from heliograph.discovery.brokers.known import Known, KnownBrokers
from heliograph.discovery.brokers.messages import (
    ANNOUNCEMENT_TOPIC,
    DATAGRAM_BYTES_MAX,
    DIRECTORY_FRAMES,
    DIRECTORY_NAME,
    LIFETIME_S_MAX,
    LISTED_MAX,
    NO_COOKIE,
    ON_TOPIC,
    REQUEST_TOPIC,
    Acknowledgement,
    Announcement,
    BrokerAdvertisement,
    Certificate,
    CertificateRequest,
    Challenge,
    DiscoveryRequest,
    Kind,
    Landmarks,
    Message,
    Ping,
    Pong,
    Relay,
    Spread,
)
from heliograph.discovery.brokers.questions import NAME as QUESTIONS_NAME
from heliograph.discovery.brokers.questions import Questions
from heliograph.discovery.brokers.signing import Signing
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
    Socket,
    SocketFailed,
    SocketName,
    SocketOpened,
    Ticket,
    Timers,
    TurnedAway,
)
from heliograph.model.identity import Role
from heliograph.notes import DirectoryReloaded, PeerRefused
from heliograph.wire.frames import Frame, service
from heliograph.wire.splitter import Splitter

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.keyring import Keyring

NAME = DIRECTORY_NAME.decode()
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
TICK_NS = 50 * NS_PER_MS  # how often due pings are looked for
AGAIN_NS = 500 * NS_PER_MS  # after a ping that was not answered
AGAIN_MAX = 16  # … so many times; then its address counts as unproven, and gets one ping per broker advertisement
RENEWALS = 3
NEAR_MAX = 20  # brokers that are asked because they are near: twice as many as are pinged


@dataclass(frozen=True, slots=True)
class ReloadDirectory:
    """Told to a directory: keep what these settings want, and dial whom they name."""

    config: DirectoryConfig


@dataclass(slots=True)
class Requester:
    """Who asked, and how many more answers we pass on."""

    reply: Address
    link: LinkId | None
    budget: int
    acknowledgement: Acknowledgement
    cookie: bytes  # that it showed, and that shows it who we are


@dataclass(slots=True)
class Guest:
    """A link of somebody who dialled us."""

    host: str
    splitter: Splitter
    heard_at: Instant
    known: Known | None = None  # the broker that made itself known here


class Directory:
    """A machine with a datagram socket, a listener and, if it likes, links to brokers."""

    def __init__(self, config: DirectoryConfig, *, seed: int, keyring: Keyring | None = None) -> None:
        self._config = self._started_with = config
        self._outbox = Outbox()
        self._timers = Timers()
        self._cookies = Cookies(seed, "requester")
        self._ping_cookies = Cookies(seed, "ping")
        self._buckets = Buckets(config.rate_per_s, config.burst, config.sources_max)
        self._signing = Signing(keyring, required=False)
        self._required = keyring is not None  # then only brokers that prove to be some are kept
        self._known = KnownBrokers(config)
        self._requests: Repeats[Requester] = Repeats(config.requests_remembered)
        self._anchors = Anchors(config, seed, self._outbox, self._timers, self._heard)
        self._questions = Questions(config.local_digest, self.report)
        self._guests: dict[LinkId, Guest] = {}
        self._strangers: Shares[LinkId] = Shares()  # guests that have not made themselves known as brokers
        self._due: list[tuple[Instant, int, Known]] = []  # when to ping whom; a heap, one entry per proven broker
        self._turns = 0  # entries made so far: of two at one instant the older comes first
        self._wall_offset_ns: int | None = None
        self._started = False
        self._counts: Counter[str] = Counter()

    @staticmethod
    def sockets(config: DirectoryConfig) -> tuple[Socket, ...]:
        """The socket that it needs."""
        return (Socket(name=SOCKET, host=config.host, port=config.port),)

    # -- hearing ----------------------------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Anything from anybody."""
        try:
            message = messages.unpack(data)
            if message.kind is not Kind.PONG and not self._buckets.may(source[0], now):
                raise ProtocolError(Reason.RATE_OVER_LIMIT)
            match message.kind:
                case Kind.REQUEST:
                    self._receive_request(source, message, now)
                case Kind.ADVERTISEMENT:
                    self._advertised(message, source, message.cookie, now)
                case Kind.PONG:
                    self._receive_pong(source, message, now)
                case Kind.RELAY:
                    if not any(known.proven for known in self._known.at(source)):
                        raise ProtocolError(Reason.SENDER_UNPROVEN, "not a broker that is known here")
                    self._relay(message, source[0])
                case Kind.CERTIFICATE_REQUEST:
                    self._give_chain(source, message)
                case Kind.CERTIFICATE:
                    self._signing.learn(messages.decode(Certificate, message.body).chain, self._wall_ns(now))
                case _:
                    raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)
        except ProtocolError as error:
            self._count(error)

    def _heard(self, payload: bytes, now: Instant) -> None:
        """Something on a topic, from a broker of the network."""
        try:
            message = messages.unpack(payload, padded=False)
            if message.kind is Kind.ADVERTISEMENT:
                self._advertised(message, None, NO_COOKIE, now)
            elif message.kind is Kind.RELAY:
                self._relay(message, "")
            else:
                raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)
        except ProtocolError as error:
            self._count(error)

    # -- brokers ----------------------------------------------------------------------------------------------------

    def _advertised(
        self, message: Message, source: Address | None, cookie: bytes, now: Instant, link: LinkId | None = None
    ) -> Known | None:
        role = Role.BROKER if self._required else None
        advertisement, holder = self._signing.read(message, BrokerAdvertisement, self._wall_ns(now), role)
        if self._required and holder is None and source is not None:
            raise ProtocolError(Reason.CREDENTIAL_MISSING, "an advertisement that nobody signed")
        if holder is not None and holder.identity.entity != advertisement.broker:
            raise ProtocolError(Reason.CREDENTIAL_WRONG, "a broker advertises itself, and nobody else")
        self._known.expire(now)
        if advertisement.withdrawn:
            self._known.withdraw(advertisement, source, cookie, link, proven=holder is not None or source is None)
            self._counts["withdrawals"] += 1
            return None
        known = self._known.add(advertisement, source, cookie, now)
        self._counts["advertisements"] += 1
        if advertisement.lifetime_s > LIFETIME_S_MAX:
            self._counts["lifetimes_cut"] += 1
        known.link = link if link is not None else known.link
        self._prove(known, now)
        return known

    def _prove(self, known: Known, now: Instant) -> None:
        """Ping a broker that has not answered yet: once per broker advertisement, which was no shorter than a ping.

        The address that it came from may be somebody else's, so nothing is repeated before there is an answer. If the
        ping gets lost, the next advertisement makes up for it: a broker renews soon while nobody pings it.
        """
        waits = known.pinged_at is not None and now - known.pinged_at < AGAIN_NS
        if known.is_within_reach and not known.proven and not waits:
            self._ping(known, now)

    def _ping(self, known: Known, now: Instant) -> None:
        if known.pinged_at is not None:
            self._known.missed(known)
        known.pinged_at = now
        if known.link is not None:
            self._write(known.link, messages.write(Ping(now), pad=False))
        elif known.address is not None:
            self._send(known.address, messages.write(Ping(now), self._ping_cookies.of(known.address, now)))

    def _tell_landmarks(self, known: Known, now: Instant) -> bool:
        """Let a broker measure its distances if it is time; True if it was told."""
        if not self._known.landmarks.is_to_be_told(known, now):
            return False
        landmarks = self._known.landmarks.addresses
        known.told, known.told_at = frozenset(landmarks), now
        if known.link is not None:
            self._write(known.link, messages.write(Landmarks(landmarks), pad=False))
        elif known.address is not None:
            self._send(known.address, messages.write(Landmarks(landmarks), known.cookie))
        return True

    def _receive_pong(self, source: Address, message: Message, now: Instant) -> None:
        pong = messages.decode(Pong, message.body)
        there = [known for known in self._known.at(source) if known.advertisement.broker == pong.broker]
        if not there or not self._ping_cookies.is_right(source, message.cookie, now):
            raise ProtocolError(Reason.SENDER_UNPROVEN, "a pong that was not asked for")
        for known in there:
            self._ponged(known, pong, now)
            port = known.advertisement.ports.get("tls" if self._config.links_secure else "tcp", 0)
            if port:
                self._anchors.learn((known.advertisement.host or source[0], port))

    def _ponged(self, known: Known, pong: Pong, now: Instant) -> None:
        if known.pinged_at == pong.sent_ns and self._known.get(known.key) is known:
            known.pinged_at = None
            known.ponged_at = now
            self._known.ponged(known, now - pong.sent_ns)
            if not known.queued:
                known.queued = True
                self._remind(known, now + self._config.ping_ms * NS_PER_MS)

    def _remind(self, known: Known, at: Instant) -> None:
        self._turns += 1
        heappush(self._due, (at, self._turns, known))

    def _tick(self, now: Instant) -> None:
        """Ping those whose turn it is, not too many at once; forget those who are gone."""
        self._known.expire(now)
        self._known.tend_landmarks()
        most = max(1, self._config.pings_per_s * TICK_NS // NS_PER_S)
        while self._due and self._due[0][0] <= now and most:
            _, _, known = heappop(self._due)
            if self._known.get(known.key) is known:  # else it was forgotten meanwhile
                most -= self._look_after(known, now)
        for link, guest in self._guests.items():
            if now - guest.heard_at > self._config.link_idle_ms * NS_PER_MS:
                guest.heard_at = now
                self._outbox.hang_up(link, Reason.SILENT)
        self._timers.set("tick", now + TICK_NS, self._tick)

    def _look_after(self, known: Known, now: Instant) -> bool:
        """Ping a proven broker again if it is time, soon if it did not answer; True if that or more was said to it.

        Landmarks are named here only: if all brokers measured at once, the landmarks would seem far.
        """
        if known.misses >= AGAIN_MAX:
            self._known.doubt(known)
        if not known.proven:
            known.queued = False  # its next advertisement gets the next ping
            return False
        next_at = known.ponged_at + self._config.ping_ms * NS_PER_MS
        rests = known.pinged_at is None and now < next_at
        if not rests:
            self._ping(known, now)
        told = self._tell_landmarks(known, now)
        self._remind(known, max(now + AGAIN_NS, next_at) if rests else now + AGAIN_NS)
        return told or not rests

    # -- requests ---------------------------------------------------------------------------------------------------

    def _receive_request(self, source: Address, message: Message, now: Instant) -> None:
        if not self._cookies.is_right(source, message.cookie, now):
            challenge = Challenge(self._signing.id_of(message), message.cookie)
            self._send(source, messages.write(challenge, self._cookies.of(source, now)))
            self._counts["challenged"] += 1
            return
        self._take_up(message, source, None, now)

    def _take_up(self, message: Message, reply: Address, link: LinkId | None, now: Instant) -> None:
        """A request from a proven address: acknowledge, and hand it to the network once per attempt."""
        message = self._signing.opened(message)
        claimed = self._signing.glance(message, DiscoveryRequest)
        if not self._requests.is_new(claimed.id, claimed.attempt):
            known = self._requests.get(claimed.id)
            assert known is not None
            self._answer(reply, link, known.acknowledgement, message.cookie)
            raise ProtocolError(Reason.REQUEST_REPEATED)
        try:
            request = self._read(message, now)
        except ProtocolError as error:
            if error.reason is Reason.CERTIFICATE_UNKNOWN and link is None:
                self._send(reply, messages.write(CertificateRequest(self._signing.hash_of(message))))
            else:
                refusal = Acknowledgement(
                    claimed.id, claimed.attempt, self._config.name, reason=error.reason, text=error.detail[:200]
                )
                self._answer(reply, link, refusal, message.cookie)
            raise
        chosen, landmarks, last = self._chosen(request)
        brokers = max(self._known.count(request.network), len(chosen))
        listed = b"" if last else messages.marks_of(self._known.names(LISTED_MAX, request.network))
        said = Acknowledgement(
            *(request.id, request.attempt, self._config.name, brokers, len(chosen)), landmarks=landmarks, listed=listed
        )
        requester = Requester(reply, link, request.budget, said, message.cookie)
        self._requests.add(request.id, request.attempt, requester)
        self._answer(reply, link, said, message.cookie)
        self._inject(message, request, reply, chosen, last)

    def _chosen(self, request: DiscoveryRequest) -> tuple[list[Known], list[str], bool]:
        """Who gets a request, landmarks for the requester to measure, and whether it ends with those who get it.

        Where there are more brokers than answers are wanted, the landmarks answer first and then those near to the
        requester; else, or where that is not possible, the network spreads it.
        """
        known, marks = self._known, self._known.landmarks
        if self._config.injection == "all":
            return known.everybody(request.budget, request.network), [], False
        if request.network and known.count(request.network) < known.measured:
            choose = known.several if request.attempt > 1 else known.ends
            return choose(request.budget, request.network), [], False  # landmarks are of all networks
        if request.measures and marks.ready and known.measured > request.budget:
            return marks.brokers, marks.addresses, True
        near = marks.near(request.distances, min(request.budget, NEAR_MAX)) if request.distances else []
        if near:
            return near, [], True
        return known.several(request.budget) if request.attempt > 1 else known.ends(request.budget), [], False

    def _read(self, message: Message, now: Instant) -> DiscoveryRequest:
        wall_ns = self._wall_ns(now)
        request, holder = self._signing.read(message, DiscoveryRequest, wall_ns)
        if self._config.private and holder is None:
            raise ProtocolError(Reason.CREDENTIAL_MISSING, "this directory is private: sign the request")
        self._signing.check_fresh(request, holder, wall_ns)
        if request.network and not self._known.count(request.network) and not self._anchors.speakers:
            raise ProtocolError(Reason.NETWORK_OTHER, f"no broker of it is known here{self._known.networks_in_words()}")
        return request

    def _inject(
        self, message: Message, request: DiscoveryRequest, reply: Address, chosen: list[Known], last: bool
    ) -> None:
        """Hand the request to brokers: on the topic where we have links, by datagram to those that were chosen."""
        relay = (self._config.advertise or ON_TOPIC) if request.relay else ""
        message = replace(message, chain=self._signing.chain_for(message))
        spread = Spread(messages.bare(message), *reply, self._config.name, relay, last)
        self._counts["requests"] += 1
        if self._anchors.speakers and not last:
            self._anchors.publish(REQUEST_TOPIC, messages.write(spread, pad=False))
        brief = Spread(messages.bare(replace(message, chain=b"")), *reply, self._config.name, relay, last)
        fits = len(messages.write(spread)) <= DATAGRAM_BYTES_MAX
        body = messages.encode(spread if fits else brief)
        for known in chosen:
            if known.link is not None:
                self._counts["injected"] += 1
                self._write(known.link, messages.write(spread, pad=False))
            elif known.address is not None and any(known.cookie):
                self._counts["injected"] += 1
                self._send(known.address, messages.pack(Message(Kind.SPREAD, 0, known.cookie, body)))

    def _relay(self, message: Message, host: str) -> None:
        """An answer for somebody whom brokers may not reach: pass it on, as long as its budget lasts."""
        relay = messages.decode(Relay, message.body)
        requester = self._requests.get(relay.id)
        if requester is None or requester.budget <= 0:
            raise ProtocolError(Reason.BUDGET_SPENT, "nobody here waits for this answer")
        response = messages.unpack(relay.response, padded=False)
        if response.kind is not Kind.RESPONSE:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "only answers are relayed")
        requester.budget -= 1
        self._counts["relayed"] += 1
        cookie = requester.cookie
        whole = messages.write(Relay(relay.id, messages.bare(response), host), cookie, pad=False)
        brief = messages.write(Relay(relay.id, messages.bare(replace(response, chain=b"")), host), cookie)
        if requester.link is not None:
            self._write(requester.link, whole)
        elif len(brief) <= DATAGRAM_BYTES_MAX:
            self._send(requester.reply, whole if len(whole) <= DATAGRAM_BYTES_MAX else brief)

    def _answer(self, reply: Address, link: LinkId | None, said: Acknowledgement, cookie: bytes) -> None:
        """With the cookie that the requester showed: nobody else knows it."""
        if link is not None:
            self._write(link, messages.write(said, pad=False))
        else:
            self._send(reply, messages.write(said, cookie))

    def _give_chain(self, source: Address, message: Message) -> None:
        """A broker that got a request from us without its signer's chain asks for it."""
        chain = self._signing.chain(messages.decode(CertificateRequest, message.body).hash)
        data = messages.write(Certificate(chain or b""))
        if chain and len(data) <= DATAGRAM_BYTES_MAX:
            self._send(source, data)

    # -- links ------------------------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A broker that we dialled, our pipe, or a guest."""
        if self._anchors.attach(link, peer, now):
            return
        address = address_of(peer.address)
        source = source_of(peer.address)
        if address is None or (len(self._guests) >= self._config.links_max and not self._free_a_place(source)):
            self._outbox.hang_up(link, Reason.LINKS_OVER_LIMIT)
            return
        self._strangers.add(source, link)
        self._guests[link] = Guest(address[0], Splitter(DIRECTORY_FRAMES), now)

    def _free_a_place(self, source: str) -> bool:
        """Hang up on a guest that has not made itself known as a broker, of the address that has most of them."""
        link = self._strangers.victim(source)
        if link is None:
            return False
        self._strangers.remove(link)
        del self._guests[link]
        self._outbox.hang_up(link, Reason.SOURCE_OVER_SHARE)
        self._count(ProtocolError(Reason.SOURCE_OVER_SHARE))
        return True

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """What a broker says, or a guest."""
        if self._anchors.receive(link, data, now):
            return
        guest = self._guests.get(link)
        if guest is None:
            return
        guest.heard_at = now
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
        if guest.splitter.fault is not None:
            self._outbox.hang_up(link, guest.splitter.fault)

    def _receive_from(self, guest: Guest, link: LinkId, message: Message, now: Instant) -> None:
        """A link proves the host at its other end, so no cookie is needed; the port is the guest's own affair."""
        if message.kind is Kind.REQUEST:
            port = self._signing.glance(message, DiscoveryRequest).port
            self._take_up(message, (guest.host, port), link, now)
        elif message.kind is Kind.ADVERTISEMENT:
            port = self._signing.glance(message, BrokerAdvertisement).ports.get("udp", 0)
            guest.known = self._advertised(message, (guest.host, port), message.cookie, now, link)
            if guest.known is not None:
                self._strangers.remove(link)
        elif message.kind is Kind.PONG and guest.known is not None:
            self._ponged(guest.known, messages.decode(Pong, message.body), now)
        elif message.kind is Kind.RELAY and guest.known is not None:
            self._relay(message, guest.host)
        elif message.kind is Kind.CERTIFICATE_REQUEST:
            chain = self._signing.chain(messages.decode(CertificateRequest, message.body).hash)
            self._write(link, messages.write(Certificate(chain or b""), pad=False))
        else:
            raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """A link is gone."""
        self._strangers.remove(link)
        guest = None if self._anchors.detach(link, now) else self._guests.pop(link, None)
        if guest is not None and guest.known is not None and guest.known.link == link:
            guest.known.link = None  # what answered on the link need not hear datagrams: that is proven anew
            if self._known.get(guest.known.key) is guest.known:
                self._known.doubt(guest.known)
                self._prove(guest.known, now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A broker could not be dialled."""
        self._anchors.failed(ticket, now)

    # -- announcing -------------------------------------------------------------------------------------------------

    def _announce(self, now: Instant) -> None:
        """A private directory lets brokers know that it is there."""
        address = address_of(self._config.advertise)
        if address is not None:
            body = Announcement(self._config.name, *address, self._config.lifetime_s)
            self._anchors.publish(ANNOUNCEMENT_TOPIC, messages.pack(self._signing.message(body), pad=False))
        every_ns = self._config.lifetime_s * NS_PER_S // RENEWALS if self._anchors.speakers else NS_PER_S
        self._timers.set("announce", now + every_ns, self._announce)

    # -- the rest of the contract -----------------------------------------------------------------------------------

    def clock(self, wall_ns: int, now: Instant) -> None:
        """What the wall clock says. The first word of it is also the start."""
        self._wall_offset_ns = wall_ns - now
        if not self._started:
            self._started = True
            self._anchors.start(now)
            self._tick(now)
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
        """Put settings in force, but for those that only a restart can change."""
        restart = config.restart_needed(self._started_with)
        self._config = config = replace(config, **{name: getattr(self._started_with, name) for name in FIXED})
        self._known.reload(config)
        self._requests.limit(config.requests_remembered)
        self._anchors.reload(config, now)
        if config.private:
            self._announce(now)
        else:
            self._timers.cancel("announce")
        self._outbox.note(DirectoryReloaded(len(self._known), restart))

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """What it says is short, and guests are few."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """It asks for nothing but links."""

    def take(self) -> Effects:
        """What is wanted since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """Whom it knows, and what it did."""
        match question:
            case "overview":
                return {
                    "directory": self._config.name,
                    "brokers": len(self._known),
                    "measured": self._known.measured,
                    "islands": self._known.islands,
                    "landmarks": self._known.landmarks.addresses,
                    "placed": self._known.landmarks.placed,
                    "links": len(self._anchors.speakers),
                    "guests": len(self._guests),
                    "requests_remembered": len(self._requests),
                    "sources": len(self._buckets),
                    "counts": dict(sorted(self._counts.items())),
                }
            case "brokers":
                return [_describe(known) for known in self._known.all()]
        raise UsageError(f"no report is called {question[:64]!r}; ask for overview or brokers")

    def _send(self, address: Address, data: bytes) -> None:
        self._outbox.datagrams.append((SOCKET, address, data))

    def _write(self, link: LinkId, data: bytes) -> None:
        self._outbox.writes.append((link, [service(DIRECTORY_NAME, data, 0)]))

    def _wall_ns(self, now: Instant) -> int | None:
        return None if self._wall_offset_ns is None else now + self._wall_offset_ns

    def _count(self, error: ProtocolError) -> None:
        self._counts[error.reason.word] += 1


def _describe(known: Known) -> dict[str, Any]:
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
