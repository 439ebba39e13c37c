"""The service `stores` of a broker: it remembers stores that are away, and forgets those that will not come back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.errors import Reason
from heliograph.machine import Machine, Peer
from heliograph.stores.config import StoreConfig
from heliograph.stores.desk import StoresDesk
from heliograph.wire import bodies, stores
from heliograph.wire.frames import Frame, Kind, ServiceFlag, control, service
from heliograph.wire.limits import SERVICE_HOP_BYTES_MAX
from heliograph.wire.requests import Asker
from heliograph.wire.ways import LinkedBroker, WaysHere, Word
from heliograph.wire.ways import encode as encode_word
from tests.client.script import a_delivery, an_event, frames_in
from tests.stores.stage import Stage

pytestmark = pytest.mark.req("N11")

MS = 1_000_000
HOUR_MS = 3_600_000
STORE = "00000000000000aa"
INBOX = b"Inbox/00000000000000bb/00000000000000dd"
ADMIN, CLIENT = ("admin", "client"), ("client",)


class Desk:
    """The service alone, with a scripted broker."""

    def __init__(self, asked: bool = True) -> None:
        self.machine: Machine = StoresDesk(1)
        self.now = 1
        self.machine.attach(1, Peer("pipe", "broker"), self.now)
        self._numbers = 0
        self._subscribed: dict[str, int] = {}
        self.published: list[Frame] = []
        self.told: list[tuple[int, bytes]] = []  # to services at neighbours
        self._answers: dict[int, Frame] = {}
        self.take()
        if asked:
            self.ask(do="find")
            self.pass_ms(3_000)

    def take(self) -> None:
        for _, written in self.machine.take().writes:
            for frame in frames_in(b"".join(written)):
                if frame.kind == Kind.SUBSCRIBE:
                    self._subscribed[json.loads(frame.payload)["filter"]] = json.loads(frame.payload)["number"]
                elif frame.kind == Kind.EVENT:
                    self.published.append(frame)
                elif frame.kind == Kind.SERVICE and frame.flags & ServiceFlag.NEIGHBOUR:
                    self.told.append((frame.origin, frame.payload))
                elif frame.kind == Kind.SERVICE and frame.flags & ServiceFlag.ANSWER:
                    self._answers[frame.sequence] = frame

    def pass_ms(self, ms: int) -> None:
        self.now += ms * MS
        self.machine.wake(self.now)
        self.take()

    def hear(self, topic: bytes, payload: bytes) -> None:
        run = an_event(1, topic.decode(), payload)
        self.machine.receive(1, a_delivery([self._subscribed[topic.decode()]], [run]), self.now)
        self.take()

    def advertise(self, ttl_ms: int = 15_000, pattern: str = "orders/#") -> None:
        own = stores.StoreAdvertisement(STORE, "s1", [pattern], "", ttl_ms)
        self.hear(stores.ADVERTISEMENT, stores.encode(own))

    def ask(self, roles: tuple[str, ...] = CLIENT, **body: Any) -> Any:
        """The answer, or the reason of a refusal; None if there is none yet."""
        self._numbers += 1
        asker = stores.encode(Asker("me", list(roles), "token", "Inbox/00000000000000bb/00000000000000cc", "0" * 16))
        request = service(stores.STORES, json.dumps(body).encode(), self._numbers, 5, headers=asker)
        self.machine.receive(1, request, self.now)
        self.take()
        answer = self._answers.pop(self._numbers, None)
        if answer is None:
            return None
        told = json.loads(answer.payload)
        return told["reason"] if answer.flags & ServiceFlag.REFUSAL else told

    def meet(self, *links: int) -> None:
        """These links lead to neighbours now."""
        neighbours = [LinkedBroker(link, link, f"b{link}", "main", 1, 1) for link in links]
        word = encode_word(Word(WaysHere(1, "b", "main", 0, 1, neighbours)))
        self.machine.receive(1, service(b"broker", word, 0), self.now)
        self.take()

    def hear_from(self, link: int, payload: bytes) -> None:
        self.machine.receive(1, service(stores.STORES, payload, 0, link, flags=ServiceFlag.NEIGHBOUR), self.now)
        self.take()

    def welcome(self) -> None:
        body = bodies.Welcome(1, "b", 1, "00000000000000cc", "stores", [], [], {}, 9, INBOX.decode())
        self.machine.receive(1, control(Kind.WELCOME, 0, bodies.encode(body)), self.now)
        self.take()

    def answered(self) -> Frame:
        """The late answer to the last request."""
        return self._answers.pop(self._numbers)

    def found(self, topic: str = "orders/1") -> tuple[list[str], list[str]]:
        told = self.ask(do="find", topic=topic)
        return [one["name"] for one in told["stores"]], [one["name"] for one in told.get("away", [])]


@pytest.mark.parametrize("in_order", [False, True])
def test_a_store_that_was_known_is_away_for_an_hour(in_order: bool) -> None:
    desk = Desk()
    desk.advertise()
    assert desk.found() == (["s1"], [])
    if in_order:
        desk.advertise(ttl_ms=0)
    else:
        desk.pass_ms(15_000)
    assert desk.found() == ([], ["s1"])
    assert desk.found("bills/1") == ([], [])
    assert desk.ask(do="attach", store=STORE) == Reason.STORE_UNKNOWN.word
    desk.pass_ms(HOUR_MS - 60_000)
    assert desk.found() == ([], ["s1"])
    desk.pass_ms(60_000)
    assert desk.found() == ([], [])


def test_a_store_that_is_back_is_no_longer_away() -> None:
    desk = Desk()
    desk.advertise()
    desk.advertise(ttl_ms=0)
    desk.advertise()
    assert desk.found() == (["s1"], [])
    assert "away" not in desk.ask(do="find")


def test_a_store_that_is_away_is_forgotten_by_administrators_only_and_by_all_services() -> None:
    here, there = Desk(), Desk()
    for desk in (here, there):
        desk.advertise()
    assert here.ask(ADMIN, do="forget", store=STORE) == Reason.ASK_DENIED.word  # it is there
    for desk in (here, there):
        desk.advertise(ttl_ms=0)
    assert here.ask(CLIENT, do="forget", store=STORE) == Reason.ASK_DENIED.word
    assert here.found() == ([], ["s1"])
    here.published.clear()
    assert here.ask(ADMIN, do="forget", store=STORE) is not None
    (told,) = here.published
    there.hear(told.topic, told.payload)
    for desk in (here, there):
        assert desk.found() == ([], [])
        assert desk.ask(do="attach", store=STORE) == Reason.STORE_MISSING.word
        desk.advertise()
        assert desk.found() == (["s1"], [])


def test_a_service_that_nobody_asked_knows_a_store_that_is_away() -> None:
    desk = Desk(asked=False)
    desk.advertise()
    desk.pass_ms(15_000)
    assert desk.ask(do="find") is None  # the first request waits for stores to advertise
    desk.pass_ms(3_000)
    assert desk.found() == ([], ["s1"])
    assert desk.ask(ADMIN, do="forget", store=STORE) is not None
    assert desk.found() == ([], [])


def test_a_service_that_starts_learns_from_a_neighbour_which_stores_are_away_and_for_how_long() -> None:
    here, there = Desk(), Desk()
    here.meet(7)
    assert here.told == []  # without stores, nothing is said
    here.advertise()
    here.advertise(ttl_ms=0)
    here.pass_ms(HOUR_MS - 60_000)
    here.meet(7, 8, 9)
    assert [link for link, _ in here.told] == [8, 9]
    there.meet(5, 6)
    there.hear_from(5, here.told[0][1])
    assert there.found() == ([], ["s1"])
    assert [link for link, _ in there.told] == [6]  # and its other neighbours from it …
    there.hear_from(6, here.told[0][1])
    assert len(there.told) == 1  # … once
    there.pass_ms(60_000)
    assert there.found() == ([], [])


def test_a_store_of_which_a_neighbour_told_may_be_there_and_leaves_when_it_does_not_advertise() -> None:
    here, there = Desk(), Desk()
    here.advertise()
    here.meet(7)
    there.hear_from(5, here.told[0][1])
    assert there.found() == (["s1"], [])
    there.pass_ms(15_000)
    assert there.found() == ([], ["s1"])


def test_brokers_know_a_store_that_was_killed_also_those_that_start_while_it_is_away() -> None:
    """Nobody asks any of them about stores."""
    stage = Stage()
    stage.broker("a")
    stage.broker("b", "a", store=StoreConfig(enabled=True, name="s1", patterns=("orders/#",)))
    stage.broker("c", "a")
    stage.broker("d", "c")
    stage.run(8)
    stage.world.crash(stage.world.hosts["b"])
    stage.run(2)
    for name in ("c", "d"):
        stage.world.crash(stage.world.hosts[name])
    stage.run(60)
    for name in ("d", "c"):
        stage.world.start(stage.world.hosts[name])
    stage.run(20)
    for name in ("a", "c", "d"):
        report = stage.world.hosts[name].seat("stores").machine.report("overview")
        assert (name, report["awake"], report["stores"], report["away"]) == (name, False, 0, 1)


@pytest.mark.parametrize("known", ["there", "away", "forgotten"])
def test_what_a_service_knows_itself_no_neighbour_changes(known: str) -> None:
    desk = Desk()
    desk.advertise()
    if known != "there":
        desk.advertise(ttl_ms=0)
    if known == "forgotten":
        desk.ask(ADMIN, do="forget", store=STORE)
    before = desk.found()
    own = stores.StoreAdvertisement(STORE, "other", ["#"], "", 15_000)
    for away in (True, False):
        desk.hear_from(5, stores.encode(stores.ToldStores([stores.ToldStore(own, 1_000, away)])))
    desk.hear_from(5, b'{"stores": 7}')
    assert desk.found() == before
    assert desk.machine.report("overview")["malformed"] == 1


def test_many_stores_with_long_patterns_are_told_in_messages_that_fit() -> None:
    here, there = Desk(), Desk()
    for number in range(40):
        count, length = (4, 900) if number else (64, 1_012)  # the first is too long for one message
        patterns = [f"orders/{number}/{each:02}" + "x" * length for each in range(count)]
        own = stores.StoreAdvertisement(f"{number:016x}", f"s{number:02}", patterns, "", 15_000)
        here.hear(stores.ADVERTISEMENT, stores.encode(own))
    here.meet(7)
    assert max(len(message) for _, message in here.told) <= SERVICE_HOP_BYTES_MAX
    for _, message in here.told:
        there.hear_from(5, message)
    assert [one["name"] for one in there.ask(do="find")["stores"]] == [f"s{number:02}" for number in range(1, 40)]


def test_an_answer_counts_only_if_it_comes_from_the_store_that_was_asked() -> None:
    desk = Desk()
    desk.welcome()
    desk.advertise()
    desk.published.clear()
    assert desk.ask(do="logs", store=STORE) is None
    number = json.loads(desk.published[-1].payload)["number"]
    for store, log in ((0xBB, "theirs"), (0xAA, "main")):
        answer = stores.encode(stores.LogsFound([stores.LogEntry(log, 0, 1, 1)]))
        desk.machine.receive(1, stores.stored(INBOX, store, number, answer, flags=stores.StoredFlag.ANSWER), desk.now)
    desk.take()
    assert [one["log"] for one in json.loads(desk.answered().payload)["logs"]] == ["main"]


def test_a_store_that_is_away_is_told_to_close_what_it_may_still_get() -> None:
    """A store that stood still reads the request to open after the client has given up: the close follows it."""
    desk = Desk()
    desk.welcome()
    desk.advertise()
    desk.ask(do="open", store=STORE, channel=3, name="billing", filter="orders/#", proof="0" * 64)
    desk.pass_ms(20_000)
    desk.published.clear()
    assert desk.ask(do="open", store=STORE, channel=4, filter="orders/#") == "store_unknown"
    desk.ask(do="close", store=STORE, channel=3)
    assert [json.loads(frame.payload)["body"]["do"] for frame in desk.published] == ["close"]


def test_what_another_service_tells_in_a_form_that_nobody_knows_is_counted() -> None:
    desk = Desk()
    desk.hear(stores.FORGOTTEN, b'{"store": 7}')
    assert desk.machine.report("overview")["malformed"] == 1
