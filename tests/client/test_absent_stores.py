"""Publishers wait for a store that is away, in bytes: what waits, what goes on, and what fails together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.client.commands import Drain, Flush, PublishReliably
from heliograph.errors import NotConnectedError, Reason, RefusedError
from heliograph.wire import stores
from heliograph.wire.bodies import Refusal
from heliograph.wire.frames import Frame, Kind, ServiceFlag, service
from tests.client.script import HERE, THERE, Script, body_of

pytestmark = pytest.mark.req("N11")

ORDERS, BILLS = 0xA, 0xB
HOUR_MS = 3_600_000


def advertised(store: int, pattern: str) -> dict[str, Any]:
    return {"store": f"{store:016x}", "name": f"s{store}", "patterns": [pattern], "inbox": "", "ttl_ms": 10_000}


class Desk:
    """The broker's service `stores`, and the stores behind it, as simple as can be."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.there: dict[int, dict[str, Any]] = {}
        self.away: list[dict[str, Any]] = []
        self.forgotten: set[str] = set()
        self.kept: dict[int, list[bytes]] = {}  # by store: payloads, in the order in which they came
        self.have: dict[int, int] = {}
        self.mute = False  # it does not answer `find`
        self.deaf = False  # what is published is lost

    def serve(self) -> None:
        """Answer everything that the session said."""
        heard = self.script.heard()
        while heard:
            for frame in heard:
                if frame.kind == Kind.SERVICE:
                    self._answer(frame)
                elif frame.kind == Kind.EVENT:
                    self._keep(frame)
                elif frame.kind == Kind.PING:
                    self.script.pong(frame)
            heard = self.script.heard()

    def _answer(self, frame: Frame) -> None:
        asked = body_of(frame)
        if asked["do"] == "find":
            if not self.mute:
                found = [one for one in self.there.values() if self._fits(one, asked["topic"])]
                away = [one for one in self.away if not found and self._fits(one, asked["topic"])]
                self._say(frame, {"stores": found, "away": away})
        elif asked["store"] in self.forgotten:
            self._refuse(frame, Reason.STORE_MISSING)
        elif int(asked["store"], 16) in self.there:
            store = int(asked["store"], 16)
            self._say(frame, {"have": self.have.get(store, 0), "inbox": self.there[store]["inbox"]})
        else:
            self._refuse(frame, Reason.STORE_UNKNOWN)

    def _fits(self, store: dict[str, Any], topic: str) -> bool:
        return topic.startswith(store["patterns"][0].removesuffix("#"))

    def _say(self, frame: Frame, body: dict[str, Any]) -> None:
        answer = service(stores.STORES, json.dumps(body).encode(), frame.sequence, flags=ServiceFlag.ANSWER)
        self.script.say(answer)

    def _refuse(self, frame: Frame, reason: Reason) -> None:
        body = stores.encode(Refusal(reason.word, reason, "because"))
        flags = ServiceFlag.ANSWER | ServiceFlag.REFUSAL
        self.script.say(service(stores.STORES, body, frame.sequence, flags=flags))

    def _keep(self, frame: Frame) -> None:
        headers = json.loads(frame.headers)
        store = int(headers["$q"][0], 16)
        is_missed = self.deaf or headers["$q"][1] > self.have.get(store, 0)
        if store not in self.there or is_missed or headers.get("$d", [""]) not in ([""], [self.there[store]["inbox"]]):
            return
        if frame.sequence > self.have.get(store, 0):
            self.kept.setdefault(store, []).append(frame.payload)
            self.have[store] = frame.sequence
            inbox = self.script.inbox().encode()
            self.script.say(stores.stored(inbox, store, frame.sequence, flags=stores.StoredFlag.ACK))

    def run(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.serve()
            self.script.pass_ms(50)
        self.serve()


def desk_with(*there: int, **settings: Any) -> Desk:
    script = Script(HERE, THERE, **settings)
    script.connect()
    desk = Desk(script)
    for store in there:
        come(desk, store)
    return desk


def come(desk: Desk, store: int) -> None:
    desk.there[store] = advertised(store, "orders/#" if store == ORDERS else "bills/#")


def reconnect(desk: Desk) -> None:
    desk.script.lose()
    desk.script.attach()
    desk.script.welcome(broker="other")
    desk.serve()


def publish(desk: Desk, topic: str, text: str, request: int = 0, **more: Any) -> PublishReliably:
    command = PublishReliably(topic, [text.encode()], request=request, **more)
    desk.script.tell(command)
    desk.serve()
    return command


def known_and_gone(**settings: Any) -> Desk:
    """A session that has used both stores; then the one for orders goes, and the session knows that."""
    desk = desk_with(ORDERS, BILLS, **settings)
    publish(desk, "orders/1", "o1", 1)
    publish(desk, "bills/1", "b1", 2)
    desk.run(100)
    del desk.there[ORDERS]
    publish(desk, "orders/1", "o2", 3, ms_max=60_000)
    desk.run(2_000)
    return desk


def test_a_topic_whose_store_was_known_waits_for_it_and_nothing_is_missing() -> None:
    desk = known_and_gone()
    waiting = publish(desk, "orders/1", "o3", 4)
    publish(desk, "orders/new", "o4", 5)  # a topic that was never used, of the same store
    desk.run(8_000)
    assert desk.script.session.reliable.is_waiting(waiting)
    assert {1, 2} == set(desk.script.outcomes())
    come(desk, ORDERS)
    desk.run(1_500)
    assert desk.kept[ORDERS] == [b"o1", b"o2", b"o3", b"o4"]
    outcomes = desk.script.outcomes()
    assert [outcomes[request].error for request in (3, 4, 5)] == [None, None, None]


def test_publications_for_other_stores_go_on_while_one_is_away() -> None:
    desk = known_and_gone()
    publish(desk, "orders/1", "o3", 4)
    publish(desk, "bills/1", "b2", 5)
    publish(desk, "bills/new", "b3", 6)
    desk.run(100)
    assert desk.kept[BILLS] == [b"b1", b"b2", b"b3"]
    assert {5, 6} <= set(desk.script.outcomes())


def test_publications_for_other_stores_go_on_while_a_topic_without_a_store_is_looked_for() -> None:
    desk = known_and_gone()
    publish(desk, "nobody/1", "n1", 4)
    publish(desk, "bills/1", "b2", 5)
    publish(desk, "bills/new", "b3", 6)
    desk.run(100)
    assert desk.kept[BILLS] == [b"b1", b"b2", b"b3"]


def test_what_may_go_to_the_same_store_keeps_its_order_while_a_store_is_looked_for() -> None:
    desk = desk_with(BILLS)
    publish(desk, "bills/1", "b1", 1)
    desk.run(100)
    desk.mute = True
    publish(desk, "bills/2", "b2", 2)
    publish(desk, "bills/1", "b3", 3)
    desk.run(1_000)
    assert desk.kept[BILLS] == [b"b1"]
    desk.mute = False
    reconnect(desk)  # the next broker is asked
    desk.run(1_000)
    publish(desk, "bills/1", "b4", 4)
    desk.run(1_000)
    assert desk.kept[BILLS] == [b"b1", b"b2", b"b3", b"b4"]


def test_when_the_first_fails_all_that_wait_behind_it_for_that_store_fail_with_it() -> None:
    desk = known_and_gone()
    publish(desk, "orders/1", "o3", 4)
    desk.run(5_000)
    publish(desk, "orders/2", "o4", 5)
    publish(desk, "nobody/1", "n1", 6)
    desk.run(1_000)
    publish(desk, "bills/1", "b2", 7)
    desk.run(4_100)
    outcomes = desk.script.outcomes()
    for request in (4, 5):
        error = outcomes[request].error
        assert isinstance(error, NotConnectedError)
        assert error.reason is Reason.TIME_OUT
    assert outcomes[7].error is None
    come(desk, ORDERS)
    publish(desk, "orders/1", "o5", 8)
    desk.run(2_000)
    assert desk.kept[ORDERS] == [b"o1", b"o2", b"o5"]  # o2 was sent before anybody knew that the store was away


def test_without_a_request_a_flush_tells_that_publications_were_not_stored_in_time() -> None:
    desk = known_and_gone()
    first = publish(desk, "orders/1", "o3")
    second = publish(desk, "orders/1", "o4")
    desk.script.tell(Flush(9))
    desk.run(9_000)
    assert 9 not in desk.script.outcomes()
    desk.run(1_100)
    assert not desk.script.session.reliable.is_waiting(second)
    assert isinstance(first.error, NotConnectedError)
    assert isinstance(second.error, NotConnectedError)
    come(desk, ORDERS)  # o2 was sent, and is still repeated
    desk.run(2_000)
    error = desk.script.outcome(9).error
    assert isinstance(error, RefusedError)
    assert error.reason is Reason.TIME_OUT
    assert desk.kept[ORDERS] == [b"o1", b"o2"]


def test_a_flush_ends_when_what_waited_without_a_request_has_failed() -> None:
    desk = desk_with()
    desk.away = [advertised(ORDERS, "orders/#")]
    publish(desk, "orders/1", "o1")
    desk.run(100)
    desk.script.tell(Flush(1))
    desk.script.tell(Drain(2))
    desk.run(10_000)
    assert [desk.script.session.ended, *sorted(desk.script.outcomes())] == [True, 1, 2]


def test_a_broker_that_knew_the_store_is_enough_to_wait() -> None:
    desk = desk_with()
    desk.away = [advertised(ORDERS, "orders/#")]
    publish(desk, "orders/1", "o1", 1)
    desk.run(6_000)
    come(desk, ORDERS)
    desk.run(1_500)
    assert desk.script.outcome(1).error is None
    assert desk.kept[ORDERS] == [b"o1"]


def test_a_session_that_used_the_store_is_enough_to_wait_at_another_broker() -> None:
    desk = desk_with(ORDERS)
    publish(desk, "orders/1", "o1", 1)
    desk.run(100)
    desk.there.clear()
    reconnect(desk)
    publish(desk, "orders/2", "o2", 2)
    desk.run(6_000)
    come(desk, ORDERS)
    desk.run(1_500)
    assert desk.script.outcome(2).error is None
    assert desk.kept[ORDERS] == [b"o1", b"o2"]


def a_part(desk: Desk, name: str, request: int) -> PublishReliably:
    found = stores.StoreAdvertisement(**desk.there[ORDERS])
    return publish(desk, "orders/1", name, request, store=found, part=("job", 1, name))


@pytest.mark.parametrize("lost", [False, True])
def test_parts_of_a_batch_go_on_when_their_store_comes_back_with_another_inbox(lost: bool) -> None:
    """A restarted store is another session with another inbox. Repeats to the old one would never arrive, and what the
    session publishes for this store behind them would wait for ever."""
    desk = desk_with(ORDERS)
    desk.there[ORDERS]["inbox"] = "Inbox/00000000000000aa/0000000000000001"
    a_part(desk, "p1", 1)
    desk.deaf = lost
    old = a_part(desk, "p2", 2) if lost else None
    publish(desk, "orders/2", "o3", 3)
    desk.there[ORDERS]["inbox"] = "Inbox/00000000000000aa/0000000000000002"
    desk.deaf = False
    if old is None:
        a_part(desk, "p2", 2)
    desk.run(3_000)
    assert sorted(desk.kept[ORDERS]) == [b"o3", b"p1", b"p2"]
    assert [outcome.error for outcome in desk.script.outcomes().values()] == [None] * 3


def test_a_topic_that_never_had_a_store_is_refused_after_two_seconds() -> None:
    desk = desk_with(BILLS)
    publish(desk, "orders/1", "o1", 1)
    publish(desk, "orders/1", "o2", 2)
    desk.run(1_900)
    assert desk.script.outcomes() == {}
    desk.run(500)
    outcomes = desk.script.outcomes()
    for request in (1, 2):
        error = outcomes[request].error
        assert isinstance(error, RefusedError)
        assert error.reason is Reason.STORE_MISSING


def test_after_an_hour_a_store_is_no_longer_waited_for() -> None:
    desk = desk_with(ORDERS)
    publish(desk, "orders/1", "o1", 1)
    desk.run(100)
    desk.there.clear()
    for _ in range(HOUR_MS // 5_000):
        desk.script.pass_ms(5_000)
        desk.serve()
    publish(desk, "orders/2", "o2", 2)
    desk.run(3_000)
    error = desk.script.outcome(2).error
    assert isinstance(error, RefusedError)
    assert error.reason is Reason.STORE_MISSING


def test_nothing_waits_for_a_store_that_was_forgotten() -> None:
    desk = known_and_gone()
    publish(desk, "orders/1", "o3", 4)
    desk.run(1_000)
    desk.forgotten.add(f"{ORDERS:016x}")
    desk.run(1_500)
    outcomes = desk.script.outcomes()
    for request in (3, 4):
        error = outcomes[request].error
        assert isinstance(error, RefusedError)
        assert error.reason is Reason.STORE_MISSING
    publish(desk, "orders/1", "o4", 5)
    desk.run(2_500)
    assert desk.script.outcome(5).error is not None
    assert desk.script.session.report("stores")["reliable"]["waiting"] == 0


def test_many_new_topics_at_once_are_all_found_and_keep_their_order() -> None:
    desk, topics = desk_with(ORDERS), 40
    for number in range(topics):
        desk.script.tell(PublishReliably(f"orders/{number}", [b"%d" % number], request=1 + number))
    desk.run(500)
    assert desk.kept[ORDERS] == [b"%d" % number for number in range(topics)]
