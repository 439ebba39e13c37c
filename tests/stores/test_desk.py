"""The service `stores` of a broker: it remembers stores that are away, and forgets those that will not come back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.errors import Reason
from heliograph.machine import Machine, Peer
from heliograph.stores.desk import StoresDesk
from heliograph.wire import stores
from heliograph.wire.frames import Frame, Kind, ServiceFlag, service
from heliograph.wire.requests import Asker
from tests.client.script import a_delivery, an_event, frames_in

pytestmark = pytest.mark.req("N11")

MS = 1_000_000
HOUR_MS = 3_600_000
STORE = "00000000000000aa"
ADMIN, CLIENT = ("admin", "client"), ("client",)


class Desk:
    """The service alone, with a scripted broker."""

    def __init__(self) -> None:
        self.machine: Machine = StoresDesk(1)
        self.now = 1
        self.machine.attach(1, Peer("pipe", "broker"), self.now)
        self._numbers = 0
        self._subscribed: dict[str, int] = {}
        self.published: list[Frame] = []
        self._answers: dict[int, Frame] = {}
        self.ask(do="find")
        self.pass_ms(3_000)

    def take(self) -> None:
        for _, written in self.machine.take().writes:
            for frame in frames_in(b"".join(written)):
                if frame.kind == Kind.SUBSCRIBE:
                    self._subscribed[json.loads(frame.payload)["filter"]] = json.loads(frame.payload)["number"]
                elif frame.kind == Kind.EVENT:
                    self.published.append(frame)
                elif frame.kind == Kind.SERVICE:
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


def test_what_another_service_tells_in_a_form_that_nobody_knows_is_counted() -> None:
    desk = Desk()
    desk.hear(stores.FORGOTTEN, b'{"store": 7}')
    assert desk.machine.report("overview")["malformed"] == 1
