"""The canary: healthy parties at both brokers, which must be served whatever attackers do.

In:    a driver with the two brokers, the store and the topic directory.
Out:   FaultError unless each party gets exactly what was published for it, in order, and every question its answer.
State: their links, how many songs were published and received, the canary's own topic and resource.
Not here: attackers (inputs.py), the network (network_target.py).

A publisher at one broker publishes reliably, on guarded topics: a subscriber at the other broker hears each song once,
and reads it once more from the store. Every song contains MARK, so that whoever else hears one is easily noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from heliograph.discovery.brokers import messages as discovery
from heliograph.discovery.topics.bundle import GrantBundle, encode_bundle
from heliograph.discovery.topics.creation import OwnTopic, TopicCreation
from heliograph.discovery.topics.exchange import TopicConversation
from heliograph.discovery.topics.finder import TopicFinder
from heliograph.discovery.topics.listing import Creation, Descriptors
from heliograph.discovery.topics.messages import TopicQuery, unpack
from heliograph.discovery.topics.statements import Statements
from heliograph.machine import Address
from heliograph.model.identity import Identity, Role
from heliograph.node import Node
from heliograph.sim.topic_party import Begin, TopicParty
from heliograph.wire import stores as wire
from heliograph.wire.frames import Frame, Kind
from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.discovery.topics.stage import keyring_of
from tests.fuzz.driver import MS, Driver, FaultError, Wire
from tests.fuzz.valid import DIRECTED, UNPROVEN, body, event, hello, subscribe

NAME = "canary"
MARK = b"a song of the canary"
SINGING, LISTENING, BESIDE = b"the canary publishes", b"the canary listens!!", b"the canary is near!!"
SECRET = "0c" * 16  # of its resource
WORD = "canaryword"  # of its topic's description
CHANNEL, WINDOW = 1, 1_000
GUARDED = (b"canary/", b"private/", b"Topics/")
READ_EVERY, ASK_EVERY = 20, 100  # songs: after how many the store, and everything else, is looked at
WAIT_MS = 400  # for the store, which gathers what it writes, and for searches


class Canary:
    """All healthy parties."""

    def __init__(self, driver: Driver, here: str, there: str, dial: Callable[[str, str, str], Wire]) -> None:
        self._driver = driver
        self._here = here
        self._dial = dial
        self._sung = 0  # songs so far; also the sequence of the last one
        self._read = 0  # songs that were read from the store
        self._acknowledged = 0
        self._numbers = 0
        self._answers: dict[int, dict[str, Any] | None] = {}
        self._inboxes: dict[str, str] = {}
        self.singer, self.listener = self._join("singer", here, SINGING), self._join("listener", there, LISTENING)
        self.beside = self._join("beside", here, BESIDE)
        self.party = self._party(here)
        driver.pass_time(driver.now + 3_000 * MS)
        self._own()
        self._store()
        self._resource()
        self.is_cut_off = False  # brokers that lie may lead publications astray: only the near broker serves for sure
        for wire_ in (self.listener, self.beside):
            self._subscribe(wire_)

    # -- the start --------------------------------------------------------------------------------------------------

    def _join(self, name: str, node: str, secret: bytes) -> Wire:
        wire_ = self._dial(f"{NAME} {name}", node, NAME)
        self._driver.send(wire_, hello(secret, keep_alive_ms=100_000))
        self._driver.settle()
        (welcome,) = grammar.whole_frames(bytes(wire_.heard))
        self._inboxes[wire_.name] = json.loads(welcome.payload)["inbox"]
        wire_.heard.clear()
        return wire_

    def _party(self, node: str) -> TopicParty:
        address: Address = (node, 3)
        party = TopicParty(NAME, keyring_of(NAME), address, b"seed of the canary")
        self._driver.add(
            Node(name="party", machines={"party": party}, pipes=(), listeners={}),
            Identity(NAME, (Role.CLIENT,), "certificate"),
        )
        return party

    def _own(self) -> None:
        """A topic of its own, which nobody else may use."""
        wanted = Creation(NAME, 86_400, descriptors=Descriptors(path="canary", text=f"topic of the {WORD}"))
        made = self._talk(lambda say, seed: TopicCreation(say, wanted, seed))
        if not isinstance(made.result, OwnTopic):
            raise FaultError(f"the canary got no topic: {made.error}")
        self.topic: OwnTopic = made.result
        record = unpack(made.result.record)
        self.bundle = encode_bundle(GrantBundle(record.body, list(record.chains)))
        for wire_ in (self.singer, self.listener, self.beside):
            answer = self.ask(wire_, "rights", {"do": "present", "bundle": self.bundle})
            if answer is None or not answer.get("ok"):
                raise FaultError(f"the canary may not use its own topic: {answer}")

    def _store(self) -> None:
        """A durable reading of everything that the canary sings."""
        found = self._ask_later(self.listener, "stores", {"do": "find", "filter": "canary/#"})
        self.store: str = found["stores"][0]["store"]
        self.store_inbox: str = found["stores"][0]["inbox"]
        opening = {"do": "open", "store": self.store, "channel": CHANNEL, "name": NAME, "filter": "canary/#"}
        if self._ask_later(self.listener, "stores", opening | {"start": "first", "window": WINDOW})["position"] != 0:
            raise FaultError("the store is not empty")
        if self._ask_later(self.singer, "stores", {"do": "attach", "store": self.store})["have"] != 0:
            raise FaultError("the store knows the singer already")

    def _resource(self) -> None:
        request = {"do": "register", "secret": SECRET, "where": "class = 'canary'", "epoch": 1, "model": "static"}
        self._must(self.ask(self.singer, "resources", request | {"name": NAME, "lease_s": 3_600.0}))

    def _subscribe(self, wire_: Wire) -> None:
        filters = ["canary/+", "private/#", f"Entity/{NAME}", f"{self.root}/#"]
        for number, pattern in enumerate(filters, 1):
            self._driver.send(wire_, subscribe(number, pattern))
        self._driver.settle()
        said = [frame.kind for frame in grammar.whole_frames(bytes(wire_.heard))]
        if said != [grammar.CONFIRMED] * len(filters):
            raise FaultError(f"the canary could not subscribe: {said}")
        wire_.heard.clear()

    @property
    def root(self) -> str:
        """The topics that only the canary has a right to."""
        return self.topic.advertisement.root

    @property
    def inbox(self) -> str:
        """Of the listener."""
        return self._inboxes[self.listener.name]

    # -- singing ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """One song is published, and heard once by each listener; now and then everything else is tried too."""
        self._check_song()
        if self._sung % READ_EVERY == 0 and not self.is_cut_off:
            self.check_store()
        if self._sung % ASK_EVERY == 0:
            self.check_answers()

    def _check_song(self, everywhere: bool = False) -> None:
        song = self._sing()
        self._driver.settle()
        for wire_ in (self.beside, self.listener):
            heard = [one.raw for one in self._hear(wire_)]
            if heard != [song] and (everywhere or not self.is_cut_off or wire_ is self.beside):
                raise FaultError(f"the canary published {song!r}, and {wire_.name} heard {heard}")
        self._hear(self.singer)

    def _sing(self) -> bytes:
        """One in four songs is on a guarded topic; the others are reliable, and the store keeps them."""
        self._sung += 1
        number = self._sung
        topic = f"canary/{number % 7}"
        if number % 4 == 0:
            topic = (f"private/{number % 3}", f"Entity/{NAME}", f"{self.root}/song")[number // 4 % 3]
        headers = b""
        if number % 4:
            headers = body(**{"$q": [self.store, number - 1 - (number % 4 == 1 and number > 1)]})
        song = event(SINGING, topic, number, b"%b %d" % (MARK, number), headers=headers)
        self._driver.send(self.singer, song)
        for wire_ in (self.listener, self.beside):
            self._driver.send(wire_, put_together(grammar.PING, number))
        return song

    def _hear(self, wire_: Wire) -> list[grammar.Frame]:
        """The publications that a party heard, but for what others may send it; answers go to their places."""
        if not wire_.is_open:
            raise FaultError(f"{wire_.name} was hung up ({wire_.ended}) for what somebody else did")
        said = list(grammar.whole_frames(bytes(wire_.heard)))
        wire_.heard.clear()
        heard: list[grammar.Frame] = []
        for frame in said:
            match frame.kind:
                case grammar.DELIVERY:
                    if frame.origin:
                        raise FaultError(f"{wire_.name} was told that it lost {frame.origin} publications")
                    heard += grammar.whole_frames(frame.payload)
                case grammar.SERVICE:
                    self._answers[frame.sequence] = None if frame.flags & 2 else json.loads(frame.payload)
                case Kind.STORED if wire_ is self.listener:
                    self._take_stored(frame)
                case Kind.STORED if wire_ is self.singer:
                    self._take_acknowledgement(frame)
                case grammar.PING:
                    self._driver.send(wire_, put_together(grammar.PONG, frame.sequence))
                case grammar.PONG:
                    pass
                case _:
                    raise FaultError(f"{wire_.name} was told {frame.raw!r} for what somebody else did")
        return [one for one in heard if not self._is_permitted(one)]

    def lies_are_forgotten(self) -> None:
        """The brokers that lied are gone. What was lost meanwhile is not asked for; from now on nothing may be."""
        self._hear(self.listener)
        self._check_song(everywhere=True)

    # -- the store ----------------------------------------------------------------------------------------------------

    def _take_stored(self, frame: grammar.Frame) -> None:
        if self.is_cut_off:
            return
        if frame.flags:
            raise FaultError(f"the reading of the canary was disturbed: {frame.raw!r}")
        wire.span_of(Frame(frame.raw))
        for song in grammar.whole_frames(frame.payload):
            self._read += 1 + (self._read % 4 == 3)  # songs that are not reliable are not kept
            if not song.payload.endswith(b" %d" % self._read):
                raise FaultError(f"song {self._read} was to be read from the store, not {song.raw!r}")

    def _take_acknowledgement(self, frame: grammar.Frame) -> None:
        said = wire.decode(wire.Acknowledged, frame.payload or b"{}")
        if said.refused or said.missing or said.state != "open":
            raise FaultError(f"the store did not keep what the canary sang: {said}")
        self._acknowledged = max(self._acknowledged, frame.sequence)

    def check_store(self) -> None:
        """The store has acknowledged every reliable song, and the reader has got it."""
        last = self._sung - (self._sung % 4 == 0)
        self._wait(lambda: self._acknowledged == last and self._read == last)
        if (self._acknowledged, self._read) != (last, last):
            told = f"acknowledged until {self._acknowledged}, read until {self._read}"
            raise FaultError(f"of the songs until {last}, the store {told}")
        log = self._must(self.ask(self.listener, "stores", {"do": "logs", "store": self.store}))["logs"][0]
        for request in (
            {"do": "ack", "store": self.store, "name": NAME, "before": log["next"]},
            {"do": "credit", "store": self.store, "channel": CHANNEL, "at": log["next"], "window": WINDOW},
        ):
            self._must(self.ask(self.listener, "stores", request))

    # -- questions ----------------------------------------------------------------------------------------------------

    def check_answers(self) -> None:
        """A topic and a resource are found, and a datagram is answered."""
        finder = self._talk(lambda say, seed: TopicFinder(say, TopicQuery("keywords", WORD), seed, known=(self._here,)))
        assert isinstance(finder, TopicFinder)
        found = [each.topic for each in finder.found]
        if found != [self.topic.topic]:
            raise FaultError(f"a search for the canary's topic found {found} ({finder.error})")
        asked = {"do": "discover", "model": "static", "where": "class = 'canary'"}
        answer = self._must(self.ask(self.beside, "resources", asked))
        if [row["name"] for row in answer["resources"]].count(NAME) != 1:  # others may overlap it
            raise FaultError(f"a search for the canary's resource found {answer}")
        source = (f"{NAME}-{self._sung}", 1)
        self._driver.send_datagram(source, (self._here, 4), discovery.write(discovery.Ping(self._sung)))
        self._driver.settle()
        if self._driver.unsent.pop(source[0], 0) != 1:
            raise FaultError("a ping was not answered")

    def ask(self, wire_: Wire, service: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer of a service, which has to come at once; None if it refuses."""
        self._numbers += 1
        number = self._numbers
        self._driver.send(wire_, put_together(grammar.SERVICE, number, body(**request), service.encode()))
        self._driver.settle()
        if heard := self._hear(wire_):
            raise FaultError(f"{wire_.name} heard {heard} while nobody sang")
        if number not in self._answers:
            raise FaultError(f"{service} did not answer {request}")
        return self._answers.pop(number)

    def _ask_later(self, wire_: Wire, service: str, request: dict[str, Any]) -> dict[str, Any]:
        """The same of a service that needs some time: at the start, stores have to be heard of."""
        self._numbers += 1
        number = self._numbers
        self._driver.send(wire_, put_together(grammar.SERVICE, number, body(**request), service.encode()))
        self._driver.pass_time(self._driver.now + 3_000 * MS)
        self._hear(wire_)
        return self._must(self._answers.pop(number, None))

    def _must(self, answer: dict[str, Any] | None) -> dict[str, Any]:
        if answer is None:
            raise FaultError("a request of the canary was refused")
        return answer

    def _talk(self, make: Callable[[Statements, bytes], TopicConversation]) -> TopicConversation:
        self._driver.tell(self._driver.seats["party", "party"], Begin(make))
        self._driver.settle()
        talk = self.party.conversations[-1]
        self._wait(lambda: talk.is_over)
        return talk

    def _wait(self, until: Callable[[], bool]) -> None:
        """Let time pass until something is true, as long as a healthy network may take."""
        for _ in range(WAIT_MS):
            if until():
                return
            self._driver.pass_time(self._driver.now + MS)
            for wire_ in (self.singer, self.listener):
                if heard := self._hear(wire_):
                    raise FaultError(f"{wire_.name} heard {heard} while nobody sang")

    def _is_permitted(self, publication: grammar.Frame) -> bool:
        """May others send this to the canary? To Entity/canary whoever has a certificate may, as the topic directory
        does; to its inbox whoever knows it, on a topic of the inbox, or directed there from one that is not guarded.
        Where brokers lie, a proven broker may relay anything else: only the songs themselves are judged there."""
        if MARK in publication.payload:
            return False
        if self.is_cut_off:
            return True  # a proven broker vouches for what it relays, on guarded topics too
        if publication.topic.startswith(b"Entity/"):
            return UNPROVEN not in publication.payload
        is_directed = publication.flags & DIRECTED and not publication.topic.startswith(GUARDED)
        return bool(is_directed) or publication.topic.startswith(b"Inbox/")
