"""The search: looks for the nearest broker that will have us, and ends with a SearchResult.

In:    datagrams and links of directories and brokers; time.
Out:   requests, pings; at the end ``result``, and the effect ``stop``.
State: one socket, whom it asked, what came back; bounded, however many brokers there are.
Not here: whom to ask (asked.py), what counts as an answer (answers.py), judging (selection.py), measuring
       (pinging.py), by which socket messages leave and how many to strangers (sending.py), the file of remembered
       brokers.
Paper: [brokers] §3, §6, §7.
Long:  one search from its first request to its result; its parts have files of their own, and this is who calls whom.

A search: ask directories and the multicast group at once; show each its cookie; collect answers until all who are
there have answered, or enough good ones have and no other comes; ping the best; take the nearest. What gets lost is
repeated; who does not answer is replaced: by remembered brokers, then by the static list. Nothing secret is ever sent:
a request carries a signature at most, and with a keyring only signed answers of brokers count.

Each party that the settings name is sent a number with its first request. Its challenge brings the number back, so the
cookie in it is known to nobody else, and what later shows that cookie is the party's own word.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from heliograph.discovery.brokers import messages, networks, selection, verdicts
from heliograph.discovery.brokers.answers import Answers
from heliograph.discovery.brokers.asked import DIRECTORY, LINK, MULTICAST, NEIGHBOUR, STATIC, AskedParties, AskedParty
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import SOCKET, SOCKET6, DiscoveryConfig, address_of, written
from heliograph.discovery.brokers.landmark_round import LandmarkRound, finer
from heliograph.discovery.brokers.measuring import Measuring
from heliograph.discovery.brokers.messages import (
    COOKIE_BYTES,
    DIRECTORY_FRAMES,
    Acknowledgement,
    Certificate,
    CertificateRequest,
    Challenge,
    DiscoveryRequest,
    Kind,
    Message,
    Pong,
    Relay,
)
from heliograph.discovery.brokers.pinging import Pinging
from heliograph.discovery.brokers.remembered import Remembered
from heliograph.discovery.brokers.result import SearchResult, result_of
from heliograph.discovery.brokers.sending import Sending, is_six
from heliograph.discovery.brokers.signing import SEALED_ID, Signing
from heliograph.discovery.restraint import Restraint
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import (
    Address,
    Dial,
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
from heliograph.wire.frames import Frame
from heliograph.wire.splitter import Splitter

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

NS_PER_MS = 1_000_000
BACK_OFF = 1.5
NEIGHBOURS_AT_ONCE = 2  # brokers of the group that are shown their cookie at once; what these spread reaches most …
NEIGHBOURS_NS = 4 * NS_PER_MS  # … and the rest is asked after this
DEADLINE = 1.95  # time-outs until the end, so that the caller has its answer within two
SLOW_NS_MAX = 1_000 * NS_PER_MS  # even the farthest directory is not farther
ATTEMPTS_MAX = 64  # what a request can count
FROM_ASKED = (Kind.ACKNOWLEDGEMENT, Kind.RELAY)  # datagrams in which others are named: only from those that we asked


class BrokerSearch:
    """A machine that lives for one search."""

    def __init__(
        self,
        config: DiscoveryConfig,
        *,
        seed: int,
        remembered: tuple[Remembered, ...] = (),
        keyring: Keyring | None = None,
        sealed: bool = False,
        directory_chain: bytes = b"",
    ) -> None:
        """The seed must be new for every search: the request's id and the nonces of its pings come from it.

        With ``sealed`` answers are for our eyes only, if we have a key; with the chain of a directory's certificates
        requests are for that directory's eyes only until it passes them on.
        """
        self._config = config
        self._sealed = sealed and keyring is not None and keyring.own is not None
        self._signing = Signing(keyring, required=True)
        self._directory_chain = directory_chain
        self._secret = sha256(f"{seed}/finder".encode()).digest()
        self._id = sha256(b"id" + self._secret).digest()[:16]
        self._parties = AskedParties(config, remembered)
        self._restraint = Restraint()
        self._outbox = Outbox()
        self._timers = Timers()
        self._pinging: Pinging | None = None
        self._splitters: dict[LinkId, Splitter] = {}
        self._dials: dict[Ticket, AskedParty] = {}
        self._wall_offset_ns: int | None = None
        self._attempt = 0
        self._rounds = 0
        self._spread = False  # somebody may have passed on the present attempt
        self._asked_again = False  # for somebody less busy
        self._start: Instant = 0
        self._marks: dict[str, Instant] = {}
        self._counts: Counter[str] = Counter()
        self._sending = Sending(self._outbox, self._restraint, self._counts)
        self._answers = Answers(self._id, config, self._signing, self._parties, self._counts, self._ask_for_chain)
        self._candidates = self._answers.candidates
        self._measuring = Measuring(self._secret, self._timers, self._sending.send, self._measured)
        self._landmark_round = LandmarkRound(
            config, self._candidates, self._measuring, self._timers, self._ask_one, self._ask_all
        )
        self.result: SearchResult | None = None

    @staticmethod
    def sockets(config: DiscoveryConfig, host: str, interface: str) -> tuple[Socket, ...]:
        """The one socket that a search needs; a second one before it where addresses of IPv6 are to be asked."""
        own = Socket(name=SOCKET, host=host, ttl=config.multicast.ttl, interface=interface)
        if not any(is_six(address) for text in (*config.directories, *config.brokers) if (address := address_of(text))):
            return (own,)
        return Socket(name=SOCKET6, host="::1" if host == "127.0.0.1" else "::"), own

    # -- asking -----------------------------------------------------------------------------------------------------

    def tell(self, command: Any, now: Instant) -> None:
        """Its socket is open: the search begins. Without one only directories that take links can be asked."""
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
        self._start = now
        self._timers.set("deadline", now + int(DEADLINE * config.timeout_ms * NS_PER_MS), self._give_up)
        self._timers.set("listed", now + config.listed_ms * NS_PER_MS, self._take_listed)
        self._timers.set("ceiling", now + config.timeout_ms * NS_PER_MS, self._stop_collecting)
        self._attempt = 1
        self._widen(now)
        self._wait_for_answers(now)
        if not self._parties.asked:
            self._give_up(now)

    def _widen(self, now: Instant) -> None:
        """Ask the next ones, while nobody answers."""
        if self._candidates:
            return
        for ask in self._parties.widen():
            self._restraint.prove(ask.address)
            ask.nonce = sha256(self._secret + b"ask" + written(ask.address).encode()).digest()[:COOKIE_BYTES]
            self._ask(ask, now)
        if self._parties.more:
            at = now + self._config.fallback_ms * NS_PER_MS if self._parties.asked else now
            self._timers.set("widen", at, self._widen)

    def _wait_for_answers(self, now: Instant) -> None:
        """Set when to ask again: not before those who spoke to us could have passed the request on."""
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
        if self._spread and self._attempt < ATTEMPTS_MAX:  # else a repeat of the same attempt is the same to all
            self._attempt += 1
            self._spread = False
        for ask in self._parties.due():
            self._ask(ask, now)
        self._wait_for_answers(now)

    def _ask(self, ask: AskedParty, now: Instant) -> None:
        self._answers.sent_at.setdefault(self._attempt, now)
        if ask.how == LINK and ask.link is None:
            self._dial(ask)
            return
        if ask.how == STATIC and not ask.takes_links:
            self._dial(ask)  # it may take links and still not answer searches
        ask.sent += 1
        ask.sent_at = now
        try:
            message = self._signing.message(self._request(ask, now), ask.cookie or ask.nonce, self._reader(ask, now))
        except ProtocolError as error:
            ask.refusal = f"its certificate: {error}"
            return
        self._spread = self._spread or ask.link is not None or bool(ask.cookie)
        if ask.link is not None:
            self._sending.write(ask.link, messages.pack(message, pad=False))
        elif ask.how == MULTICAST:
            self._sending.ask_group(ask.address, message)
        else:
            self._sending.ask(ask.address, message)

    def _dial(self, ask: AskedParty) -> None:
        if ask not in self._dials.values():
            self._dials[self._outbox.dial(Dial(*ask.address))] = ask

    def _reader(self, ask: AskedParty, now: Instant) -> Holder | None:
        """Whose eyes a request is for, where it is sealed. ProtocolError if the chain in our settings is not good."""
        if not self._directory_chain or ask.how not in (DIRECTORY, LINK):
            return None
        return self._signing.learn(self._directory_chain, self._wall_ns(now))

    def _request(self, ask: AskedParty, now: Instant) -> DiscoveryRequest:
        config, wall_ns, distances = self._config, self._wall_ns(now), self._landmark_round.distances_for(ask)
        return DiscoveryRequest(
            id=self._id,
            attempt=self._attempt,
            requester=config.name,
            role=config.role,
            port=self._sending.port_to(ask.address),
            transports=list(config.transports),
            budget=config.answers_max,
            relay=ask.how == LINK
            or (self._attempt > 1 and not distances),  # nothing came directly: perhaps nothing can
            sealed=self._sealed,
            measures=ask.how == DIRECTORY and not self._landmark_round.begun and self._attempt == 1,
            distances=distances,
            issued_ms=0 if wall_ns is None else wall_ns // NS_PER_MS,
            network=config.network or "",
        )

    # -- hearing ----------------------------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Anything from anybody."""
        try:
            message = messages.unpack(data)
            self._counts["received"] += 1
            self._restraint.heard(source, len(data))
            ask = self._parties.of(source)
            if message.kind in FROM_ASKED and (ask is None or message.cookie != ask.cookie):
                raise ProtocolError(Reason.SENDER_UNPROVEN, "it does not show its cookie")
            self._hear(message, source, ask, now)
        except ProtocolError as error:
            self._count(error)

    def _hear(self, message: Message, source: Address, ask: AskedParty | None, now: Instant) -> None:
        if self.result is not None:
            return
        match message.kind:
            case Kind.CHALLENGE:
                self._receive_challenge(message, source, now)
            case Kind.ACKNOWLEDGEMENT:
                self._receive_acknowledgement(message, ask, now)
            case Kind.RESPONSE:
                self._receive_response(message, source, None, now)
            case Kind.RELAY:
                self._receive_relay(message, ask, now)
            case Kind.PONG:
                messages.decode(Pong, message.body)
                pinging = self._pinging is not None and self._pinging.receive(message.cookie, now)
                if pinging or self._measuring.receive(message.cookie, now):
                    self._restraint.prove(source)
                else:
                    self._counts["pongs_unexpected"] += 1
            case Kind.CERTIFICATE_REQUEST:
                self._give_chain(message, ask, now)
            case Kind.CERTIFICATE:
                if self._answers.learn(message, self._wall_ns(now)):
                    self._consider(now)
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
        self._mark("first word", now)
        self._restraint.keep(source)
        ask.heard(now)
        ask.cookie = message.cookie
        ask.waits = ask.how == NEIGHBOUR and self._parties.shown > NEIGHBOURS_AT_ONCE
        if ask.waits:
            self._timers.set("neighbours", now + NEIGHBOURS_NS, self._ask_waiting)
        else:
            self._ask(ask, now)
        if ask.how == DIRECTORY:
            self._consider(now)  # now that it is known to be there, it is waited for

    def _ask_waiting(self, now: Instant) -> None:
        """Those of the group that are not linked to the first ones: these have not told them of us."""
        if self._pinging is None and self.result is None:
            for ask in self._parties.waiting():
                ask.waits = False
                self._ask(ask, now)

    def _receive_acknowledgement(self, message: Message, ask: AskedParty | None, now: Instant) -> None:
        if ask is None or ask.how == NEIGHBOUR:
            return
        said = messages.decode(Acknowledgement, message.body)
        if said.id == self._id:
            for address in filter(None, map(address_of, said.landmarks)):
                self._restraint.prove(address)  # to the directory it is
            self._mark("first word", now)
            ask.heard(now)
            ask.acknowledged(said, now)
            if self._pinging is None:
                self._landmark_round.acknowledged(ask, said, now)
            self._consider(now)

    def _receive_relay(self, message: Message, ask: AskedParty | None, now: Instant) -> None:
        """An answer that a directory passes on, with what it saw of the broker's address."""
        if ask is None or ask.acknowledged_at is None:
            raise ProtocolError(Reason.SENDER_UNPROVEN, "not a directory that was asked")
        relay = messages.decode(Relay, message.body)
        response = messages.unpack(relay.response, padded=False)
        if response.kind is not Kind.RESPONSE:
            raise ProtocolError(Reason.KIND_UNEXPECTED, response.kind.name)
        self._receive_response(response, (relay.host, 0), ask.address, now)

    def _receive_response(self, message: Message, source: Address, via: Address | None, now: Instant) -> None:
        if self._answers.take(message, source, via, self._wall_ns(now), now):
            self._mark("first answer", now)
            self._restraint.keep(source)
            self._consider(now)

    def _ask_for_chain(self, hash: bytes, source: Address) -> None:
        """By datagram; from a directory that we have a link to on that, where any chain fits."""
        link = self._parties.link_to(source)
        if link is None:
            self._sending.send(source, messages.write(CertificateRequest(hash)))
        else:
            self._sending.write(link, messages.write(CertificateRequest(hash), pad=False))

    def _give_chain(self, message: Message, ask: AskedParty | None, now: Instant) -> None:
        """Somebody to whom we showed only the hash of our chain asks for it: it gets that, and the request again."""
        chain = self._signing.chain(messages.decode(CertificateRequest, message.body).hash)
        data = messages.write(Certificate(chain or b""))
        if chain and len(data) <= messages.DATAGRAM_BYTES_MAX and ask is not None:
            self._sending.send(ask.address, data)
            if not ask.has_chain:
                ask.has_chain = True
                self._ask(ask, now)

    def _ask_one(self, ask: AskedParty, now: Instant) -> int:
        """Ask this one anew, whatever became of what it was asked before."""
        self._attempt = min(ATTEMPTS_MAX, self._attempt + 1)
        self._ask(ask, now)
        return self._attempt

    def _ask_all(self, now: Instant) -> None:
        self._attempt = min(ATTEMPTS_MAX, self._attempt + 1)
        for ask in self._parties.due():
            self._ask(ask, now)
        self._wait_for_answers(now)
        self._consider(now)

    def _measured(self, now: Instant) -> None:
        self._mark("measured", now)
        self._landmark_round.measured(now)

    # -- collecting -------------------------------------------------------------------------------------------------

    def _consider(self, now: Instant) -> None:
        """Is it time to choose?"""
        if self._pinging is not None or not self._candidates:
            return
        wait_ns = self._landmark_round.wait_ns(now) if self._landmark_round.active else self._answers.wait_ns(now)
        if wait_ns is not None and not self._answers.enough:
            wait_ns = max(wait_ns, self._start + self._config.collect_ms_min * NS_PER_MS - now)
        if wait_ns == 0:
            self._ping_next(now)
        elif wait_ns is not None:
            self._timers.set("patience", now + wait_ns, self._lose_patience)

    def _lose_patience(self, now: Instant) -> None:
        """If all who answered are busy and somebody that is known of has not answered, it is asked for once more."""
        if self._answers.lacking and not self._asked_again and self._pinging is None and self.result is None:
            self._asked_again = True
            self._ask_all(now)
        else:
            self._stop_collecting(now)

    def _stop_collecting(self, now: Instant) -> None:
        if self._candidates and self._pinging is None and self.result is None:
            self._ping_next(now)

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _ping_next(self, now: Instant) -> None:
        """Ping the best of those that were not pinged yet; if there are none, ask again."""
        self._timers.cancel("patience")
        self._mark("collected", now)
        if self._refuse_several(now):
            return
        candidates = list(self._candidates.values())
        selection.judge(candidates, self._config)
        left = [candidate for candidate in candidates if not candidate.target and candidate.datagrams is not None]
        targets = self._landmark_round.targets(left) if self._pinging is None else []
        if targets:
            self._config = finer(self._config)
        else:
            targets = selection.targets([one for one in left if not one.target], self._config)
        if not targets:
            self._choose_unpinged(now)
            return
        for candidate in targets:
            if candidate.relayed:  # the directory that passed its answer on is proven, and names it
                for address in filter(None, (candidate.named, candidate.seen)):
                    self._restraint.prove(address)
        secret = sha256(self._secret + self._attempt.to_bytes(1, "big") + len(left).to_bytes(2, "big")).digest()
        self._answers.closed = True
        send, prove = self._sending.send, self._restraint.prove
        self._pinging = Pinging(targets, self._config, secret, self._timers, send, self._pinged, prove)
        self._pinging.start(now)

    def _refuse_several(self, now: Instant) -> bool:
        """End without a choice if brokers of several networks have answered, and nobody said which is meant."""
        everybody = (*self._candidates.values(), *self._answers.late.values())
        refusal = networks.refusal(everybody, self._config, listed=self._parties.has_list)
        if refusal is not None:
            self._finish(now, refusal)
        return refusal is not None

    def _pinged(self, now: Instant) -> None:
        candidates = list(self._candidates.values())
        ranked = selection.rank(candidates, self._config)
        if ranked:
            verdicts.explain(candidates, ranked, self._config)
            self._end(now, ranked, True)
        else:
            self._ping_next(now)  # the first ten died meanwhile, or their pongs got lost

    def _choose_unpinged(self, now: Instant) -> None:
        """Nobody answers pings. While there is time, ask again; else take the best score: links may still work."""
        if now < self._start + self._config.timeout_ms * NS_PER_MS and not self._only_relayed():
            self._answers.clear()
            self._pinging = None
            self._spread = True
            self._widen(now)
            self._again(now)
            return
        self._take_estimate(now)

    def _only_relayed(self) -> bool:
        """True if nothing comes to us but through directories: then pings do not either."""
        return all(candidate.relayed for candidate in self._candidates.values())

    def _take_estimate(self, now: Instant) -> None:
        candidates = list(self._candidates.values())
        selection.judge(candidates, self._config)
        ranked = sorted(candidates, key=lambda one: (bool(one.loaded), one.pings > 0, -one.score, one.name))
        verdicts.explain_estimate(ranked)
        self._end(now, ranked, False)

    def _give_up(self, now: Instant) -> None:
        """Time is up."""
        if self.result is not None:
            return
        if self._candidates:
            ranked = selection.rank(list(self._candidates.values()), self._config)
            if ranked:
                self._pinged(now)
            else:
                self._take_estimate(now)
            return
        if self._parties.reachable:
            self._finish_listed(now)
            return
        what = "no broker answered" if self._parties.asked else "there is nobody to ask"
        text = f"{what}; name a directory or a broker, or start one in reach of multicast"
        if self._answers.others:
            others = list(self._answers.others.values())
            text = networks.none_of(self._config.network or "", others, self._config.transports)
        self._finish(now, SearchResult(reason=Reason.BROKER_NOT_FOUND, text=text))

    def _take_listed(self, now: Instant) -> None:
        """Nobody has said a word for long enough: a listed broker that takes links will do."""
        waited_ns = now - self._start
        if self._parties.quiet and self.result is None and waited_ns >= self._config.listed_ms * NS_PER_MS:
            self._finish_listed(now)

    def _finish_listed(self, now: Instant) -> None:
        urls = tuple(f"heliograph://{written(address)}" for address in self._parties.reachable)
        text = "unproven: nobody answered the search, but this broker of the static list takes links"
        self._finish(now, SearchResult(urls=urls, text=text))

    def _end(self, now: Instant, ranked: list[Candidate], proven: bool) -> None:
        if self._refuse_several(now):
            return
        rest = [candidate for candidate in self._candidates.values() if candidate not in ranked]
        rest.sort(key=lambda candidate: (not candidate.target, -candidate.score, candidate.name))
        self._finish(now, result_of(ranked, rest, self._config, self._wall_ns(now), proven=proven))

    def _finish(self, now: Instant, result: SearchResult) -> None:
        self._mark("total", now)
        times = {mark: (at - self._start) / 1e6 for mark, at in self._marks.items()}
        tried = self._parties.words(self._start)
        self.result = replace(result, tried=tried, times_ms=times, counts=dict(sorted(self._counts.items())))
        for link in self._splitters:
            self._outbox.hang_up(link, Reason.GOODBYE)
        self._timers = Timers()
        self._outbox.stop = True

    # -- links to directories ---------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A directory's link is there."""
        self._splitters[link] = Splitter(DIRECTORY_FRAMES)
        ask = self._dials.pop(peer.ticket or 0, None)
        if ask is None or self.result is not None or ask.how == STATIC:
            self._outbox.hang_up(link, Reason.GOODBYE)
            if ask is not None:
                ask.takes_links = ask.how == STATIC
                self._take_listed(now)
            return
        self._parties.linked(ask, link)
        self._ask(ask, now)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """What a directory says over its link; answers among it are relayed ones."""
        ask, splitter = self._parties.on(link), self._splitters.get(link)
        if ask is None or splitter is None:
            return
        for raw in splitter.split(data):
            try:
                message = messages.unpack(Frame(raw).payload, padded=False)
                self._counts["received"] += 1
                self._hear(message, ask.address, ask, now)
            except ProtocolError as error:
                self._count(error)
        if splitter.fault is not None and self.result is None:
            self._outbox.hang_up(link, splitter.fault)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """It is gone; if nobody has answered by then, it is dialled again."""
        self._splitters.pop(link, None)
        ask = self._parties.on(link)
        if ask is not None:
            self._parties.linked(ask, None)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A directory could not be dialled; the next round tries again."""
        self._dials.pop(ticket, None)

    # -- the rest of the contract -----------------------------------------------------------------------------------

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """What it says is short."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """It asks for nothing but links."""

    def clock(self, wall_ns: int, now: Instant) -> None:
        """What the wall clock says; it may be wrong, as long as it goes on evenly."""
        self._wall_offset_ns = wall_ns - now

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def take(self) -> Effects:
        """What is wanted since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """How far the search is."""
        if question != "overview":
            raise UsageError("a search reports its overview only")
        return {
            "candidates": len(self._candidates),
            "attempt": self._attempt,
            "asked": [ask.words(self._start) for ask in self._parties.asked],
            "ended": self.result is not None,
        }

    def _wall_ns(self, now: Instant) -> int | None:
        return None if self._wall_offset_ns is None else now + self._wall_offset_ns

    def _mark(self, name: str, now: Instant) -> None:
        self._marks.setdefault(name, now)

    def _count(self, error: ProtocolError) -> None:
        self._counts[error.reason.word] += 1
