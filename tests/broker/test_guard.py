"""What raises in a unit of work costs the peer that caused it, and nobody else.

These tests plant a fault in a machine of ours: there is no other way to see what a bug would do.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.broker.broker import Broker
from heliograph.broker.config import BrokerConfig, LinkConfig, ListenerConfig, NetworkConfig
from heliograph.broker.contents import Content
from heliograph.broker.subscriptions import Subscriptions
from heliograph.errors import Reason
from heliograph.guard import AGAIN_NS, PLACES_MAX, Guard
from heliograph.machine import Effects, Peer
from heliograph.model.origin import origin_of
from heliograph.notes import Note, WorkFailed
from heliograph.sim.digest import Digest
from heliograph.sim.journal import Journal
from heliograph.sim.loop import Loop
from heliograph.stores.known import KnownStores
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, control, event
from heliograph.wire.splitter import FROM_BROKER, Splitter
from tests.conftest import Caught
from tests.services.office import Office

pytestmark = pytest.mark.req("O6", "N18")

MS = 1_000_000
POISON = b"poison"


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch, caught: Caught) -> Caught:
    """A condition on content that raises for one payload."""
    sound = Content.route

    def route(self: Any, raw: bytes) -> Any:
        assert POISON not in raw or not self._here, "planted"  # only where a subscriber is
        return sound(self, raw)

    monkeypatch.setattr(Content, "route", route)
    caught.expect()
    return caught


class Pair:
    """Two brokers that are linked, a publisher at the one and a subscriber with a condition at the other."""

    def __init__(self) -> None:
        self.now = 1_000 * MS
        listener = ListenerConfig(name="main", host="127.0.0.1", port=0)
        links = (LinkConfig(host="b"),)
        self.brokers = {
            name: Broker(
                BrokerConfig(
                    name=name,
                    listeners=(listener,),
                    network=NetworkConfig(key=b"k" * 32, links=links if name == "a" else ()),
                ),
                seed=1,
                incarnation=1,
            )
            for name in ("a", "b")
        }
        self.hung_up: list[tuple[str, int, Reason]] = []
        self.notes: list[Note] = []
        self.heard: dict[tuple[str, int], list[Frame]] = {}
        self._splitters: dict[tuple[str, int], Splitter] = {}
        self._wakes: dict[str, int | None] = {}
        for broker in self.brokers.values():
            broker.clock(1_700_000_000_000 * MS, self.now)
        self.pump()
        self.pass_time(5_000)
        self.dial("a")
        self.dial("b")

    def dial(self, name: str) -> None:
        self._splitters[(name, 1)] = Splitter(FROM_BROKER)
        self.heard[(name, 1)] = []
        self.brokers[name].attach(1, Peer("tcp", "192.0.2.1:1", "main"), self.now)
        secret = b"\1".hex() * 32 if name == "a" else b"\2".hex() * 32
        self.send(name, control(Kind.HELLO, 0, bodies.encode(bodies.Hello([1], secret))))

    def send(self, name: str, data: bytes) -> None:
        self.brokers[name].receive(1, data, self.now)
        self.pump()

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.now += 50 * MS
            for name, broker in self.brokers.items():
                at = self._wakes.get(name)
                if at is not None and at <= self.now:
                    broker.wake(self.now)
            self.pump()

    def pump(self) -> None:
        for _ in range(1_000):
            done = [self._carry_out(name, broker.take()) for name, broker in self.brokers.items()]
            if not any(done):
                return
        raise AssertionError("without end")

    def _carry_out(self, name: str, effects: Effects) -> bool:
        self._wakes[name] = effects.wake_at
        for link, chunks in effects.writes:
            if link == 1:
                frames = map(Frame, self._splitters[(name, 1)].split(b"".join(chunks)))
                self.heard[(name, 1)] += frames
            else:
                other = "b" if name == "a" else "a"
                self.brokers[other].receive(2, b"".join(chunks), self.now)
        for ticket, _ in effects.dials:
            self.brokers["b"].attach(2, Peer("tcp", "192.0.2.9:9", "main"), self.now)
            self.brokers["a"].attach(2, Peer("tcp", "b:4717", ticket=ticket), self.now)
        self.notes += effects.notes
        self.hung_up += [(name, link, reason) for link, reason in effects.hangups]
        return bool(effects.writes or effects.dials)

    def delivered(self) -> list[bytes]:
        """The payloads that the subscriber got."""
        found = []
        for frame in self.heard[("b", 1)]:
            if frame.kind == Kind.DELIVERY:
                inner, start = frame.payload, 0
                while start < len(inner):
                    size = 4 + int.from_bytes(inner[start : start + 4], "little")
                    found.append(Frame(inner[start : start + size]).payload)
                    start += size
        return found


def publications(*payloads: bytes, first: int = 1) -> bytes:
    origin = origin_of(b"\1" * 32)
    return b"".join(event(b"prices", each, origin, first + at) for at, each in enumerate(payloads))


def a_pair() -> Pair:
    pair = Pair()
    body = bodies.Subscribe(1, "prices", language="sql", where="x IS NULL")
    pair.send("b", control(Kind.SUBSCRIBE, 1, bodies.encode(body)))
    assert [frame.kind for frame in pair.heard[("b", 1)]][-1] == Kind.CONFIRMED
    pair.pass_time(2_000)
    return pair


def test_of_what_a_neighbour_relays_one_publication_is_dropped_and_the_link_stays(poisoned: Caught) -> None:
    pair = a_pair()
    pair.send("a", publications(b"one", POISON, b"two"))
    pair.send("a", publications(b"three", first=4))
    pair.pass_time(1_000)

    assert pair.delivered() == [b"one", b"two", b"three"]
    assert pair.hung_up == []
    assert pair.brokers["b"].report("overview")["neighbours"] == 1
    assert pair.brokers["b"].report("overview")["refused"]["internal_error"] == 1
    failed = [note for note in pair.notes if isinstance(note, WorkFailed)]
    assert [(note.error, note.level) for note in failed] == [("AssertionError", "error")] * len(failed)
    assert "test_guard.py" in failed[0].traceback
    assert "planted" not in str(failed[0].repeatable)


def test_a_clients_own_publication_that_raises_is_refused_alone(
    monkeypatch: pytest.MonkeyPatch, caught: Caught
) -> None:
    sound = Subscriptions.resolve

    def resolve(self: Any, table: Any, topic: bytes) -> Any:
        if topic == b"bad":
            raise RecursionError("planted")
        return sound(self, table, topic)

    monkeypatch.setattr(Subscriptions, "resolve", resolve)
    caught.expect()
    office = Office()
    origin = origin_of(bytes.fromhex(f"{office.link:064x}"))
    office.send(office.link, event(b"bad", b"", origin, 1) + event(b"good", b"", origin, 2))

    assert office.hung_up == []
    assert caught.places
    assert office.outcome(office.ask("admin", b'{"do":"report"}')) == ""


def test_a_frame_that_raises_costs_its_sender_the_link_and_nobody_elses(
    monkeypatch: pytest.MonkeyPatch, caught: Caught
) -> None:
    caught.expect()
    office = Office()
    other = office.dial()

    def fail(*arguments: Any) -> None:
        raise TypeError("planted")

    monkeypatch.setattr(Subscriptions, "_enter", fail)
    subscribe = control(Kind.SUBSCRIBE, 1, bodies.encode(bodies.Subscribe(1, "a/b")))
    office.send(other, subscribe)

    assert office.hung_up == [(other, Reason.INTERNAL_ERROR)]
    assert office.outcome(office.ask("admin", b'{"do":"report"}')) == ""


def test_a_request_that_raises_after_it_waited_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, caught: Caught
) -> None:
    """Requests that wait for a store are handled together, in a wake."""
    caught.expect()
    office = Office()
    bad, good = "00000000000000bd", "00000000000000ed"
    sound = KnownStores.get

    def get(self: KnownStores, store: str, now: int) -> Any:
        assert store != bad or now < office.ends, "planted"  # type: ignore[attr-defined]
        return sound(self, store, now)

    monkeypatch.setattr(KnownStores, "get", get)
    office.ends = office.now + 1_000 * MS  # type: ignore[attr-defined]
    first, second = (office.ask("stores", json.dumps({"do": "logs", "store": each}).encode()) for each in (bad, good))
    assert not office.answers

    assert office.outcome(first) == "internal_error"
    assert office.outcome(second) == "store_unknown"
    assert office.outcome(office.ask("stores", b'{"do":"find"}')) == ""


def test_the_traceback_is_written_once_per_place_and_minute(caught: Caught) -> None:
    caught.expect()
    notes: list[Any] = []
    guard = Guard(notes.append)

    def fail(now: int) -> None:
        try:
            raise ValueError("x" * 1_000)
        except ValueError as error:
            guard.caught("here", error, now, 7, "alice")

    for now in (0, 1, AGAIN_NS - 1, AGAIN_NS):
        fail(now)

    assert [(note.place, note.link, note.entity, note.repeated) for note in notes] == [
        ("here", 7, "alice", 0),
        ("here", 7, "alice", 2),
    ]
    assert len(notes[0].traceback) < 500


def test_when_many_places_fail_the_one_that_failed_first_is_forgotten(caught: Caught) -> None:
    caught.expect()
    notes: list[Any] = []
    guard = Guard(notes.append)

    def fail(place: int, now: int) -> None:
        try:
            raise ValueError
        except ValueError as error:
            guard.caught(f"place {place}", error, now)

    for place in range(PLACES_MAX + 1):
        fail(place, place)
    assert len(notes) == PLACES_MAX + 1
    fail(PLACES_MAX, PLACES_MAX + 1)
    assert len(notes) == PLACES_MAX + 1, "the last one is remembered, and was told within this minute"
    fail(0, PLACES_MAX + 2)
    assert [note.place for note in notes[PLACES_MAX + 1 :]] == ["place 0"]


def test_a_simulated_run_has_the_type_of_an_exception_but_no_lines_of_code() -> None:
    def digest(traceback: str) -> str:
        found = Digest()
        effects = Effects()
        effects.notes = [WorkFailed("frame", "TypeError", 3, "alice", 0, traceback)]
        found.add_rest(0, 1, effects)
        return found.hex()

    assert digest("reading.py:7 read > TypeError: x") == digest("reading.py:8 read > TypeError: x")
    journal = Journal(Loop())
    journal.write("note", "a", WorkFailed("frame", "TypeError", 3, "alice", 0, "reading.py:7 read > TypeError: x"))
    [line] = journal.lines()
    assert "error=TypeError" in line
    assert "reading.py" not in line
