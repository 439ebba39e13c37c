"""The search: looks for the nearest broker that accepts us, and ends with a SearchResult.

In:    datagrams and links of directories and brokers; time.
Out:   requests, pings; at the end ``result``, and the effect ``stop``.
State: its parts: the parties it asked, the answers, the choice; bounded, however many brokers there are.
Not here: which parties are asked (asked.py), writing requests (request_sender.py), what counts as an answer
       (answers.py), when to choose and which broker (broker_choice.py), sockets and restraint (sending.py).
Paper: [brokers] §3, §6, §7.

A search asks directories and the multicast group at once, and presents to each party the cookie that it requires. It
collects answers until all known brokers have answered, or enough good ones have and no more come; then it pings the
best candidates and takes the nearest. Lost messages are repeated. If no party answers, it asks remembered brokers, then
the static list. Nothing secret is ever sent: a request carries at most a signature. With a keyring only signed answers
of brokers count.

Each party that the settings name gets a nonce with its first request. Its challenge returns the nonce, so no third
party knows the cookie in it, and a message with that cookie comes from that party.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.answers import Answers
from heliograph.discovery.brokers.asked import DIRECTORY, NEIGHBOUR, STATIC, AskedParties, AskedParty
from heliograph.discovery.brokers.broker_choice import BrokerChoice
from heliograph.discovery.brokers.config import SOCKET, SOCKET6, DiscoveryConfig, address_of, written
from heliograph.discovery.brokers.landmark_round import LandmarkRound
from heliograph.discovery.brokers.measuring import Measuring
from heliograph.discovery.brokers.messages import (
    Acknowledgement,
    Challenge,
    Message,
    MessageKind,
    Pong,
    Relay,
)
from heliograph.discovery.brokers.remembered import Remembered
from heliograph.discovery.brokers.request_sender import RequestSender
from heliograph.discovery.brokers.result import SearchResult
from heliograph.discovery.brokers.search_links import SearchLinks
from heliograph.discovery.brokers.search_log import SearchLog
from heliograph.discovery.brokers.sending import Sending, is_six
from heliograph.discovery.brokers.signing import SEALED_ID, Signing
from heliograph.discovery.cookies import COOKIE_BYTES
from heliograph.discovery.restraint import Restraint
from heliograph.discovery.wall_time import WallTime
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
)
from heliograph.model.chance import Seed, nonces_of
from heliograph.wire.frames import Frame

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.keyring import Keyring

NS_PER_MS = 1_000_000
BACK_OFF = 1.5
NEIGHBOURS_AT_ONCE = 2  # brokers of the group that get their cookie at once; their spreading reaches most …
NEIGHBOURS_NS = 4 * NS_PER_MS  # … and the rest is asked after this
DEADLINE = 1.95  # time-outs until the end, so that the caller has a result within two
SLOW_NS_MAX = 1_000 * NS_PER_MS  # even the farthest directory answers within this
FROM_ASKED = (
    MessageKind.ACKNOWLEDGEMENT,
    MessageKind.RELAY,
)  # datagrams that name other parties: accepted only from those that we asked


class BrokerSearch:
    """A machine that runs one search."""

    def __init__(
        self,
        config: DiscoveryConfig,
        *,
        seed: Seed,
        remembered: tuple[Remembered, ...] = (),
        keyring: Keyring | None = None,
        sealed: bool = False,
        directory_chain: bytes = b"",
    ) -> None:
        """The seed must be new for every search: the request's id and the nonces of its pings come from it.

        With ``sealed`` and a key, only we can read answers; with the chain of a directory's certificates, only that
        directory can read requests until it passes them on.
        """
        self._config = config
        self._directory_chain = directory_chain
        self._nonces = nonces_of(seed, "finder")
        self._id = sha256(b"id" + self._nonces).digest()[:16]
        self._signing = Signing(keyring, required=True)
        self._parties = AskedParties(config, remembered)
        self._restraint = Restraint()
        self._outbox = Outbox()
        self._timers = Timers()
        self._clock = WallTime()
        self._log = SearchLog()
        self._links = SearchLinks(self._outbox)
        self._sending = Sending(self._outbox, self._restraint, self._log.counts)
        self._requests = RequestSender(
            *(self._id, config, self._signing, self._parties, self._sending, self._links, self._clock),
            sealed=sealed and keyring is not None and keyring.own is not None,
            directory_chain=directory_chain,
        )
        ask_for_chain = self._requests.ask_for_chain
        self._answers = Answers(self._id, config, self._signing, self._parties, self._log.counts, ask_for_chain)
        candidates = self._candidates = self._answers.candidates
        measuring = self._measuring = Measuring(self._nonces, self._timers, self._sending.send, self._measured)
        self._landmark_round = LandmarkRound(config, candidates, measuring, self._timers, self._ask_one, self._ask_all)
        self._choice = BrokerChoice(
            *(config, self._nonces, self._answers, self._parties, self._requests, self._landmark_round),
            *(self._sending, self._restraint, self._timers, self._clock, self._log),
            ask_all=self._ask_all,
            start_over=self._start_over,
            over=self._finish,
        )
        self._rounds = 0
        self.result: SearchResult | None = None

    @staticmethod
    def sockets(config: DiscoveryConfig, host: str, interface: str) -> tuple[Socket, ...]:
        """The one socket that a search needs; preceded by a second one if IPv6 addresses are to be asked."""
        own = Socket(name=SOCKET, host=host, ttl=config.multicast.ttl, interface=interface)
        if not any(is_six(address) for text in (*config.directories, *config.brokers) if (address := address_of(text))):
            return (own,)
        return Socket(name=SOCKET6, host="::1" if host == "127.0.0.1" else "::"), own

    # -- asking -----------------------------------------------------------------------------------------------------

    def tell(self, command: Any, now: Instant) -> None:
        """Its socket is open: the search begins. Without one only directories that accept links can be asked."""
        match command:
            case SocketOpened(name, (_, port)):
                self._sending.opened(name, port)
                if name == SOCKET:
                    self._begin(now)
            case SocketFailed(name):
                if name == SOCKET:
                    self._begin(now)
            case _:
                raise UsageError(f"a search does not know the command {command!r}")

    def _begin(self, now: Instant) -> None:
        config = self._config
        self._log.begin(now)
        self._timers.set("deadline", now + int(DEADLINE * config.timeout_ms * NS_PER_MS), self._choice.give_up)
        self._timers.set("listed", now + config.listed_ms * NS_PER_MS, self._choice.take_listed)
        self._timers.set("ceiling", now + config.timeout_ms * NS_PER_MS, self._choice.stop_collecting)
        self._requests.next_attempt()
        self._widen(now)
        self._wait_for_answers(now)
        if not self._parties.asked:
            self._choice.give_up(now)

    def _widen(self, now: Instant) -> None:
        """Ask the next level while no party answers."""
        if self._candidates:
            return
        for ask in self._parties.widen():
            self._restraint.prove(ask.address)
            nonce = sha256(self._nonces + b"ask" + written(ask.address).encode()).digest()
            ask.introduced(nonce[:COOKIE_BYTES])
            self._ask(ask, now)
        if self._parties.more:
            at = now + self._config.fallback_ms * NS_PER_MS if self._parties.asked else now
            self._timers.set("widen", at, self._widen)

    def _wait_for_answers(self, now: Instant) -> None:
        """Set when to ask again: not before the parties that answered could have passed the request on."""
        config = self._config
        wait_ms = min(config.retry_ms_max, config.retry_ms * BACK_OFF**self._rounds)
        known = [ask.round_trip_ns for ask in self._parties.asked if ask.round_trip_ns is not None]
        slow_ns = min(SLOW_NS_MAX, 3 * max(known, default=0))
        self._timers.set("again", now + max(int(wait_ms * NS_PER_MS), slow_ns), self._again)

    def _again(self, now: Instant) -> None:
        if self._candidates or self.result is not None:
            return
        if self._landmark_round.active:
            self._wait_for_answers(now)
            return
        self._rounds += 1
        self._requests.repeat()
        for ask in self._parties.due():
            self._ask(ask, now)
        self._wait_for_answers(now)

    def _ask(self, party: AskedParty, now: Instant) -> None:
        self._answers.asked(self._requests.attempt, now)
        distances, measures = self._landmark_round.distances_for(party), not self._landmark_round.begun
        self._requests.send(party, distances, measures, now)

    def _ask_one(self, party: AskedParty, now: Instant) -> int:
        """Ask this party in a new attempt, whatever happened to the last one. Returns the attempt's number."""
        attempt = self._requests.next_attempt()
        self._ask(party, now)
        return attempt

    def _ask_all(self, now: Instant) -> None:
        """Ask all parties in a new attempt."""
        self._requests.next_attempt()
        for party in self._parties.due():
            self._ask(party, now)
        self._wait_for_answers(now)
        self._choice.consider(now)

    def _start_over(self, now: Instant) -> None:
        """No candidate answers pings: ask again, and ask further parties too."""
        self._requests.count_as_spread()
        self._widen(now)
        self._again(now)

    # -- receiving --------------------------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A datagram from any sender."""
        try:
            message = messages.unpack(data)
            self._log.counts["received"] += 1
            self._restraint.heard(source, len(data))
            ask = self._parties.of(source)
            if message.kind in FROM_ASKED and (ask is None or message.cookie != ask.cookie):
                raise ProtocolError(Reason.SENDER_UNPROVEN, "the cookie is missing")
            self._hear(message, source, ask, now)
        except ProtocolError as error:
            self._log.count(error)

    def _hear(self, message: Message, source: Address, ask: AskedParty | None, now: Instant) -> None:
        if self.result is not None:
            return
        match message.kind:
            case MessageKind.CHALLENGE:
                self._receive_challenge(message, source, now)
            case MessageKind.ACKNOWLEDGEMENT:
                self._receive_acknowledgement(message, ask, now)
            case MessageKind.RESPONSE:
                self._receive_response(message, source, None, now)
            case MessageKind.RELAY:
                self._receive_relay(message, ask, now)
            case MessageKind.PONG:
                messages.decode(Pong, message.body)
                pinged = self._choice.receive_pong(message.cookie, now)
                if pinged or self._measuring.receive(message.cookie, now):
                    self._restraint.prove(source)
                else:
                    self._log.counts["pongs_unexpected"] += 1
            case MessageKind.CERTIFICATE_REQUEST:
                if ask is not None and self._requests.give_chain(ask, message):
                    self._ask(ask, now)
            case MessageKind.CERTIFICATE:
                if self._answers.learn(message, self._clock.at(now)):
                    self._choice.consider(now)
            case _:
                raise ProtocolError(Reason.KIND_UNEXPECTED, message.kind.name)

    def _receive_challenge(self, message: Message, source: Address, now: Instant) -> None:
        challenge = messages.decode(Challenge, message.body)
        id = challenge.id
        if self._answers.enough or (id != self._id and not (self._directory_chain and id == SEALED_ID)):
            return
        ask = self._parties.challenged(source)
        if ask is None or ask.cookie == message.cookie:
            return
        if ask.how != NEIGHBOUR and challenge.shown not in (ask.nonce, ask.cookie):
            raise ProtocolError(Reason.SENDER_UNPROVEN, "a challenge to a request that was not sent there")
        self._log.mark("first word", now)
        self._restraint.keep(source)
        ask.heard(now)
        ask.challenged(message.cookie, waits=ask.how == NEIGHBOUR and self._parties.shown > NEIGHBOURS_AT_ONCE)
        if ask.waits:
            self._timers.set("neighbours", now + NEIGHBOURS_NS, self._ask_waiting)
        else:
            self._ask(ask, now)
        if ask.how == DIRECTORY:
            self._choice.consider(now)  # it is known to be up, so the search waits for it

    def _ask_waiting(self, now: Instant) -> None:
        """Ask brokers of the group that are not linked to the first ones, and so did not get our request from them."""
        if not self._choice.is_pinging and self.result is None:
            for ask in self._parties.waiting():
                ask.stop_waiting()
                self._ask(ask, now)

    def _receive_acknowledgement(self, message: Message, ask: AskedParty | None, now: Instant) -> None:
        if ask is None or ask.how == NEIGHBOUR:
            return
        said = messages.decode(Acknowledgement, message.body)
        if said.id == self._id:
            for address in filter(None, map(address_of, said.landmarks)):
                self._restraint.prove(address)  # to the directory it is
            self._log.mark("first word", now)
            ask.heard(now)
            ask.acknowledged(said, now)
            if not self._choice.is_pinging:
                self._landmark_round.acknowledged(ask, said, now)
            self._choice.consider(now)

    def _receive_relay(self, message: Message, ask: AskedParty | None, now: Instant) -> None:
        """An answer relayed by a directory, with the broker's address as the directory saw it."""
        if ask is None or ask.acknowledged_at is None:
            raise ProtocolError(Reason.SENDER_UNPROVEN, "not a directory that was asked")
        relay = messages.decode(Relay, message.body)
        response = messages.unpack(relay.response, padded=False)
        if response.kind is not MessageKind.RESPONSE:
            raise ProtocolError(Reason.KIND_UNEXPECTED, response.kind.name)
        self._receive_response(response, (relay.host, 0), ask.address, now)

    def _receive_response(self, message: Message, source: Address, via: Address | None, now: Instant) -> None:
        if self._answers.take(message, source, via, self._clock.at(now), now):
            self._log.mark("first answer", now)
            self._restraint.keep(source)
            self._choice.consider(now)

    def _measured(self, now: Instant) -> None:
        self._log.mark("measured", now)
        self._landmark_round.measured(now)

    def _finish(self, result: SearchResult, now: Instant) -> None:
        self._log.mark("total", now)
        tried, counts = self._parties.describe(self._log.start), dict(sorted(self._log.counts.items()))
        self.result = replace(result, tried=tried, times_ms=self._log.times_ms, counts=counts)
        self._links.hang_up()
        self._timers = Timers()
        self._outbox.finish()

    # -- links to directories ---------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The link to a directory is up."""
        ask = self._links.attach(link, peer.ticket)
        if ask is None or self.result is not None or ask.how == STATIC:
            self._outbox.hang_up(link, Reason.GOODBYE)
            if ask is not None and ask.how == STATIC:
                ask.accepted_link()
            if ask is not None:
                self._choice.take_listed(now)
            return
        self._parties.linked(ask, link)
        self._ask(ask, now)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Messages of a directory on its link; answers among them are relayed ones."""
        ask, splitter = self._parties.on(link), self._links.splitter(link)
        if ask is None or splitter is None:
            return
        for raw in splitter.split(data):
            try:
                message = messages.unpack(Frame(raw).payload, padded=False)
                self._log.counts["received"] += 1
                self._hear(message, ask.address, ask, now)
            except ProtocolError as error:
                self._log.count(error)
        if splitter.fault is not None and self.result is None:
            self._outbox.hang_up(link, splitter.fault)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link is gone; if no party has answered by then, it is dialled again."""
        self._links.detach(link)
        ask = self._parties.on(link)
        if ask is not None:
            self._parties.linked(ask, None)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A directory could not be dialled; the next round tries again."""
        self._links.failed(ticket)

    # -- the rest of the contract -----------------------------------------------------------------------------------

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: its messages are short."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests only links."""

    def clock(self, wall_ns: int, now: Instant) -> None:
        """A reading of the wall clock; it may be wrong, as long as it runs evenly."""
        self._clock.read(wall_ns, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """The progress of the search."""
        if question != "overview":
            raise UsageError("a search reports its overview only")
        return {
            "candidates": len(self._candidates),
            "attempt": self._requests.attempt,
            "asked": [ask.describe(self._log.start) for ask in self._parties.asked],
            "ended": self.result is not None,
        }
