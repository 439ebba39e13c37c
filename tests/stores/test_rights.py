"""Who may do what with stores: nobody reads what they may not hear, and nobody but a store acknowledges."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from heliograph.broker.commands import Reload
from heliograph.broker.config import AccessConfig, BrokerConfig, NetworkConfig, RuleConfig
from heliograph.errors import Reason
from heliograph.machine import Instant
from heliograph.sim.storing.publisher import ReliablePublisher
from heliograph.sim.storing.store_user import StoreUser
from heliograph.stores.config import StoreConfig
from heliograph.stores.hearer import Hearer
from heliograph.wire import bodies, stores
from heliograph.wire.frames import Flag, Frame, Kind, event
from heliograph.wire.hearing import Hearing
from tests.stores.ledge import ORIGIN, Ledge
from tests.stores.stage import Stage, sequences
from tests.stores.test_batches import commit, staging
from tests.stores.test_batches import stage as stage_parts

pytestmark = pytest.mark.req("O6", "N10")

DENIED = AccessConfig(rules=(RuleConfig(effect="deny", who=("*",), verbs=("subscribe",), topics=("orders/secret",)),))


def a_stage() -> Stage:
    stage = Stage(1)
    stage.broker("a")
    stage.broker("b", "a", store=StoreConfig(enabled=True, name="s1", patterns=("orders/#",)))
    stage.broker("c", "a", "b", access=DENIED)
    stage.run(3)
    return stage


def test_the_readers_own_broker_takes_out_what_the_reader_may_not_hear() -> None:
    stage = a_stage()
    stage.publisher("writer", "a", topics=["orders/secret", "orders/open"], count=40)
    stage.reader("trusted", "a", pattern="orders/#")
    stage.reader("other", "c", pattern="orders/#")
    stage.run(8)
    writer = stage.world.hosts["writer"].seat("writer").machine
    assert isinstance(writer, ReliablePublisher)
    assert sequences(stage.notebook, "trusted", writer.origin) == list(range(1, 41))
    assert sequences(stage.notebook, "other", writer.origin) == list(range(1, 41, 2))
    assert stage.notebook.gaps == []


def test_a_reader_that_wants_the_whole_of_a_filter_gets_nothing_if_some_is_withheld() -> None:
    ledge = Ledge()
    ledge.deliver(*(event(topic, b"", 7, number) for number, topic in enumerate([b"a/1", b"a/2", b"b/1"], 1)))
    ledge.settle()
    some = Hearing(7, "token", True, [("b/#", False)])

    def read(channel: int, pattern: str, whole: bool) -> tuple[int, list[tuple[int, str]]]:
        """Positions of publications that came, and what was said of the reading."""
        ledge.frames.clear()
        opening = stores.OpenChannel(f"{ledge.id:016x}", channel, filter=pattern, end=3, whole=whole)
        ledge.ask(opening, entity="bob", hears=some)
        ledge.settle()
        notices = [json.loads(frame.payload) for frame in ledge.frames if frame.flags & stores.StoredFlag.NOTICE]
        came = sum(len(stores.span_of(frame)[3]) for frame in ledge.frames if not frame.flags)
        return came, [(notice.get("code", 0), notice.get("text", "")) for notice in notices]

    assert read(1, "#", False) == (2, [(0, "")])
    assert read(2, "a/#", True) == (2, [(0, "")])
    assert read(3, "#", True) == (0, [(Reason.SUBSCRIBE_DENIED, "some publications of # are withheld from bob")])


CREATED = "Topics/6a4e2f6e-8a3c-4a53-9d0a-0d7d6c1b2a3f/news"
ALLOWED = AccessConfig(
    rules=(RuleConfig(effect="allow", who=("*",), verbs=("publish", "subscribe"), topics=("Topics/#",)),)
)


def test_nobody_reads_a_created_topic_from_a_store_without_a_right_to_it() -> None:
    stage = Stage(1)
    stage.broker("a", access=ALLOWED)
    stage.broker("b", "a", access=ALLOWED, store=StoreConfig(enabled=True, name="s1", patterns=("Topics/#",)))
    stage.broker("c", "a", "b")
    stage.run(3)
    stage.publisher("writer", "a", topics=[CREATED], count=20)
    stage.reader("trusted", "a", pattern="Topics/#")
    stage.reader("other", "c", pattern="Topics/#")
    stage.run(8)
    writer = stage.world.hosts["writer"].seat("writer").machine
    assert isinstance(writer, ReliablePublisher)
    assert sequences(stage.notebook, "trusted", writer.origin) == list(range(1, 21))
    assert sequences(stage.notebook, "other", writer.origin) == []
    assert stage.notebook.gaps == []


class Forger(StoreUser):
    """A client that tries what only stores may."""

    def __init__(self, name: str, brokers: list[tuple[str, int]], seed: int, notebook: object, *, attempt: str) -> None:
        super().__init__(name, brokers, seed)
        self._attempt = attempt
        self.reasons: list[str] = []

    def welcomed(self, now: Instant) -> None:
        victim = b"Inbox/00000000000000aa/1122334455667788"
        if self._attempt == "acknowledge":
            self.write(stores.stored(victim, 7, 99, flags=stores.StoredFlag.ACK))
        elif self._attempt == "advertise":
            body = stores.StoreAdvertisement("00000000000000ff", "mine", ["#"], victim.decode(), 60_000)
            self.write(event(stores.ADVERTISEMENT, stores.encode(body), self.origin, 1))
        else:
            asked = stores.Asked(
                1, victim.decode(), "alice", ["admin"], victim.decode(), msgspec.Raw(b'{"do": "names"}')
            )
            self.write(event(stores.REQUEST % 7, stores.encode(asked), self.origin, 1))

    def _hear(self, frame: Frame, now: Instant) -> None:
        if frame.kind in (Kind.GOODBYE, Kind.REFUSED):
            kind = bodies.Goodbye if frame.kind == Kind.GOODBYE else bodies.Refusal
            self.reasons.append(bodies.decode(kind, frame.payload).reason)
        super()._hear(frame, now)


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        ("acknowledge", Reason.ROLE_MISSING),
        ("advertise", Reason.PUBLISH_DENIED),
        ("ask for another", Reason.PUBLISH_DENIED),
    ],
)
def test_what_only_stores_and_brokers_may_say_is_refused(attempt: str, reason: Reason) -> None:
    stage = a_stage()
    host = stage.party(Forger, "forger", "a", attempt=attempt)
    stage.run(2)
    forger = host.seat("forger").machine
    assert isinstance(forger, Forger)
    assert forger.reasons[:1] == [reason.word]


HIDDEN = Hearing(3, "none", True, [("odd/#", False)])


def told(hears: Hearing, **asked: Any) -> list[tuple[int, int, bytes, bytes]]:
    """What a store sends to a reader, beside its answers, if ten publications are stored, the odd ones on odd/…"""
    ledge = Ledge()
    for n in range(1, 11):
        topic = (b"even", b"odd/%d" % n)[n % 2]
        ledge.deliver(event(topic, b"<n>%d</n>" % n, ORIGIN, n, b'{"n":%d}' % n))
        ledge.settle()
        ledge.wait(50)
    ledge.frames.clear()
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1, start="first", times=True, **asked), hears=hears)
    ledge.settle()
    for _ in range(30):
        ledge.wait(100)
        ledge.settle()
    return [(frame.flags, frame.sequence, frame.headers, frame.payload) for frame in ledge.frames if frame.flags != 1]


@pytest.mark.parametrize("more", [{}, {"window": 1}, {"pace": 1.0}, {"end": 10}, {"end": 10, "pace": 2.0}])
@pytest.mark.parametrize(
    ("language", "true", "false"),
    [
        ("predicates", "n = 3", "n = 12"),
        ("regex", "topic ~ '^odd/3'", "topic ~ '^odd/x'"),
        ("xpath", "/n = 3", "/n = 12"),
    ],
)
def test_no_condition_shows_a_reader_what_it_may_not_hear(
    language: str, true: str, false: str, more: dict[str, Any]
) -> None:
    known = Hearing(3, "none", True)
    asked: dict[str, Any] = {"language": language, **more}
    assert told(known, where=true, **asked) != told(known, where=false, **asked)
    assert told(HIDDEN, where=true, **asked) == told(HIDDEN, where=false, **asked)
    assert told(HIDDEN, filter="+/3", **more) == told(HIDDEN, filter="+/x", **more)


@pytest.mark.parametrize(
    ("topic", "hears", "may"),
    [
        (b"Entity/alice/news", Hearing(1, "none", True), False),
        (b"Entity/alice/news", Hearing(1, "token", True), True),
        (b"Entity/bob/news", Hearing(1, "token", True, [("#", True), ("Entity/#", True)]), False),
        (CREATED.encode(), Hearing(1, "token", True), False),
        (CREATED.encode(), Hearing(1, "token", True, [], [CREATED.rpartition("/")[0]]), True),
        (CREATED.encode(), Hearing(1, "token", False, [("Topics/#", True)]), True),
        (b"Services/Stores/Advertisement", Hearing(1, "token", True), False),
        (b"plain", Hearing(1, "token", True), True),
        (b"plain", Hearing(1, "token", False), False),
        (b"plain", Hearing(1, "token", False, [("plain", True), ("#", False)]), True),
    ],
)
def test_a_store_judges_topics_as_the_readers_broker_does(topic: bytes, hears: Hearing, may: bool) -> None:
    assert Hearer("alice", ["client", "role of a newer broker"], hears).may_hear(topic) is may


def test_a_reader_that_may_hear_less_is_sent_again_what_it_may() -> None:
    ledge = Ledge()
    for n in range(1, 5):
        ledge.deliver(event((b"even", b"odd")[n % 2], b"", ORIGIN, n))
    ledge.settle()
    request = stores.OpenChannel(f"{ledge.id:016x}", 1, start="first")
    ledge.ask(request, hears=Hearing(3, "none", True))
    ledge.settle()
    ledge.frames.clear()
    ledge.ask(stores.GiveCredit(f"{ledge.id:016x}", 1, 1), hears=Hearing(4, "none", True, [("odd", False)]))
    ledge.settle()
    [frame] = [frame for frame in ledge.frames if not frame.flags]
    _, before, after, offsets = stores.span_of(frame)
    assert (frame.sequence, before, after, list(offsets)) == (4, 1, 4, [0, 2])


@pytest.mark.parametrize("name", ["", "n"])
@pytest.mark.parametrize(
    ("pattern", "may"),
    [
        ("secret/#", False),
        ("secret/open", True),
        ("#", True),
        ("Entity/bob/#", False),
        ("Entity/alice/#", True),
        ("Services/#", False),
        ("Topics/#", True),
    ],
)
def test_nobody_opens_what_it_could_never_hear(pattern: str, may: bool, name: str) -> None:
    ledge = Ledge()
    hears = Hearing(1, "token", True, [("secret/open", True), ("secret/#", False)])
    if pattern == "secret/#":
        hears = Hearing(1, "token", True, [("secret/#", False)])
    number = ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1, name, pattern), hears=hears)
    ledge.settle()
    granted, answer = ledge.answer(number)
    assert granted is may
    assert may or answer["reason"] == Reason.SUBSCRIBE_DENIED.word
    number = ledge.ask(stores.ListNames(f"{ledge.id:016x}"))
    assert len(ledge.answer(number)[1]["names"]) == (may and bool(name))


def test_a_request_that_does_not_say_what_the_reader_may_hear_opens_nothing() -> None:
    ledge = Ledge()
    number = ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1), hears=None)
    ledge.settle()
    granted, answer = ledge.answer(number)
    assert (granted, answer["reason"]) == (False, Reason.BODY_MALFORMED.word)


class Listener(StoreUser):
    """A client that opens a replay with a condition, and gives credit only when it is told to."""

    def __init__(self, name: str, brokers: list[tuple[str, int]], seed: int, notebook: object) -> None:
        super().__init__(name, brokers, seed)
        self.got: list[tuple[int, int]] = []  # flags, and how many publications
        self._store = ""

    def welcomed(self, now: Instant) -> None:
        self.ask(stores.FindStores(filter="orders/#"), self._found, now)

    def _found(self, answer: dict[str, Any] | None, now: Instant) -> None:
        assert answer is not None
        self._store = answer["stores"][0]["store"]
        request = stores.OpenChannel(
            self._store, 1, filter="orders/#", language="regex", where="topic ~ 'secret'", times=True, window=1_000
        )
        self.ask(request, lambda answer, now: None, now)

    def heard(self, frame: Frame, now: Instant) -> None:
        self.got.append((frame.flags, 0 if frame.flags else len(stores.span_of(frame)[3])))

    def credit(self, now: Instant) -> None:
        self.ask(stores.GiveCredit(self._store, 1, 0), lambda answer, now: None, now)


def test_what_a_store_chose_before_a_reader_lost_its_rights_does_not_reach_it() -> None:
    stage = a_stage()
    host = stage.party(Listener, "listener", "a")
    stage.run(3)
    listener = host.seat("listener").machine
    assert isinstance(listener, Listener)
    stage.publisher("writer", "b", topics=["orders/secret"], count=2)
    stage.run(3)
    assert sum(count for _, count in listener.got) == 2
    listener.got.clear()
    at_a = stage.world.hosts["a"]
    network = NetworkConfig(key=b"k" * 32)
    at_a.tell(at_a.seat("broker"), Reload(BrokerConfig(name="a", network=network, access=DENIED)))
    stage.run(1)
    stage.publisher("later", "b", topics=["orders/secret"], count=2)
    stage.run(3)
    assert listener.got == [], "neither publications nor notices: both were chosen by what it may no longer hear"
    for _ in range(2):  # the store reads again; then it says how far it is
        host.tell(host.seat("listener"), Listener.credit)
        stage.run(2)
    assert listener.got == [(0, 0)], "a frame that covers positions, and says nothing about them"


def test_the_rest_of_a_replay_follows_when_a_reader_hears_less() -> None:
    stage = a_stage()
    stage.reader("reader", "a", pattern="orders/#")
    stage.publisher("writer", "b", topics=["orders/secret", "orders/open"], count=20)
    stage.run(5)
    at_a = stage.world.hosts["a"]
    network = NetworkConfig(key=b"k" * 32)
    at_a.tell(at_a.seat("broker"), Reload(BrokerConfig(name="a", network=network, access=DENIED)))
    later = stage.publisher("later", "b", topics=["orders/secret", "orders/open"], count=20)
    stage.run(6)
    writer = later.seat("later").machine
    assert isinstance(writer, ReliablePublisher)
    assert sequences(stage.notebook, "reader", writer.origin) == list(range(1, 21, 2))
    assert stage.notebook.gaps == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    ("hears", "may"),
    [
        (Hearing(1, "token", True), True),
        (Hearing(1, "token", False), False),
        (Hearing(1, "token", False, spoken=[("t", True)]), True),
        (Hearing(1, "token", True, spoken=[("t", False)]), False),
        (Hearing(1, "token", True, rules=[("t", False)]), True),
        (None, False),
    ],
)
def test_a_commit_needs_the_rights_to_its_topics_as_they_are_then(
    hears: Hearing | None, may: bool, is_restarted: bool
) -> None:
    ledge = staging()
    stage_parts(ledge, 0x1111, 1, 3, 4, "p")
    if is_restarted:  # and knows nothing about topics
        ledge = Ledge(ledge.vault)
    granted, answer = commit(ledge, 4, ("p", 3), hears=hears)
    assert granted is may
    assert may or answer["code"] == (Reason.BODY_MALFORMED if hears is None else Reason.PUBLISH_DENIED)
    assert ledge.store.report("overview")["next"] == 3 * may
    assert commit(ledge, 4, ("p", 3))[0], "what was refused is still staged"


@pytest.mark.parametrize(
    ("hears", "may"),
    [
        (Hearing(1, "token", True), False),
        (Hearing(1, "token", True, roots=[CREATED.rpartition("/")[0]]), False),
        (Hearing(1, "token", True, spoken_roots=[CREATED.rpartition("/")[0]]), True),
        (Hearing(1, "token", False, spoken=[("Topics/#", True)]), True),
    ],
)
def test_a_commit_needs_a_right_to_a_created_topic(hears: Hearing, may: bool) -> None:
    assert Hearer("alice", ["client"], hears).may_publish(CREATED.encode()) is may


class Stager(StoreUser):
    """A client that stages one publication, and commits it when it is told to."""

    def __init__(self, name: str, brokers: list[tuple[str, int]], seed: int, notebook: object) -> None:
        super().__init__(name, brokers, seed)
        self.store = ""
        self.answers: list[dict[str, Any] | None] = []

    def welcomed(self, now: Instant) -> None:
        self.ask(stores.FindStores(topic="orders/1"), self._found, now)

    def _found(self, answer: dict[str, Any] | None, now: Instant) -> None:
        assert answer is not None
        self.store, inbox = answer["stores"][0]["store"], answer["stores"][0]["inbox"]
        self.ask(stores.AttachPublisher(self.store), lambda answer, now: self._attached(inbox), now)

    def _attached(self, inbox: str) -> None:
        headers = json.dumps({"$q": [self.store, 0, "job", 0, "p"], "$d": [inbox]}).encode()
        self.write(event(b"orders/1", b"staged", self.origin, 1, headers, Flag.DIRECTED))

    def commit(self, now: Instant) -> None:
        request = stores.CommitBatch(self.store, "job", 0, [("p", 1)], proof="ab" * 32)
        self.ask(request, lambda answer, now: self.answers.append(answer), now)


@pytest.mark.parametrize("is_taken", [False, True])
def test_what_was_staged_while_it_was_allowed_is_not_committed_after_the_right_is_gone(is_taken: bool) -> None:
    stage = a_stage()
    host = stage.party(Stager, "stager", "a")
    stage.run(4)
    rule = RuleConfig(effect="deny", who=("*",), verbs=("publish",), topics=("orders/#",))
    config = BrokerConfig(name="a", network=NetworkConfig(key=b"k" * 32), access=AccessConfig(rules=(rule,)))
    if is_taken:
        at_a = stage.world.hosts["a"]
        at_a.tell(at_a.seat("broker"), Reload(config))
    stage.run(1)
    machine = host.seat("stager").machine
    assert isinstance(machine, Stager)
    host.tell(host.seat("stager"), Stager.commit)
    stage.run(4)
    assert [answer is None for answer in machine.answers] == [is_taken]
    assert stage.report("b")["next"] == (0 if is_taken else 1)
