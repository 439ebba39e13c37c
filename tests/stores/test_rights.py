"""Who may do what with stores: nobody reads what they may not hear, and nobody but a store acknowledges."""

from __future__ import annotations

import msgspec
import pytest

from heliograph.broker.config import AccessConfig, RuleConfig
from heliograph.errors import Reason
from heliograph.machine import Instant
from heliograph.sim.storing.publisher import ReliablePublisher
from heliograph.sim.storing.store_user import StoreUser
from heliograph.stores.config import StoreConfig
from heliograph.wire import bodies, stores
from heliograph.wire.frames import Frame, Kind, event
from tests.stores.stage import Stage, sequences

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
