"""A topic directory in its own process learns which certificates were revoked, from any broker that it is linked to."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.discovery.brokers.config import DirectoryConfig
from heliograph.discovery.list_learner import PATIENCE_NS, USELESS_NS, ListLearner
from heliograph.discovery.revocation_lists import PART_BYTES, parts_of
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.rights import RightsKeeper
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Outbox, Peer
from heliograph.model.identity import Role
from heliograph.services.broker_session import BrokerSession
from heliograph.sim.loop import SECOND
from heliograph.trust.certificates import revoke
from heliograph.wire.frames import Frame, ServiceFlag, service
from tests.discovery.topics.stage import NOW, WALL_NS, TopicStage, keyring_of
from tests.discovery.topics.test_revoked_certificates import RIVAL, Lists, a_list, der_of, many
from tests.trust.parties import refused


class WithDirectory(Lists):
    """The same three brokers in a line, and a directory in its own process at the last."""

    def __init__(self) -> None:
        TopicStage.__init__(self, 3, directories={"tdn-1": TopicDirectoryConfig()}, entities=("alice", "bob", "carol"))

    def refuses(self, entity: str) -> bool:
        """The directory no longer accepts this entity's certificate."""
        chain = keyring_of(entity).own.chain  # type: ignore[union-attr]
        try:
            self.machine("tdn-1")._keyring.learn(chain, WALL_NS)
        except ProtocolError as error:
            return error.reason is Reason.CERTIFICATE_REVOKED
        return False


@pytest.mark.req("T11", "B17", "T4")
def test_a_directory_in_its_own_process_refuses_a_revoked_certificate_within_two_seconds() -> None:
    stage = WithDirectory()
    assert stage.create("alice").result
    stage.reload("b1", a_list("alice"))
    stage.run(2.0)
    assert stage.refuses("alice")
    assert not stage.refuses("bob")
    assert stage.counts()["lists"] == 1
    stage.run(5.0)
    assert stage.counts()["lists"] == 1, "a list that is known is not fetched again"
    stage.reload("b2", a_list("bob", before=a_list("alice")))
    stage.run(2.0)
    assert stage.refuses("bob")


@pytest.mark.req("T11", "B17", "T4")
def test_a_directory_that_was_away_learns_of_the_list_when_it_comes_back() -> None:
    stage = WithDirectory()
    away = stage.world.hosts["tdn-1"]
    stage.world.crash(away)
    stage.reload("b1", a_list("carol"))
    stage.run(1)
    stage.world.start(away)
    stage.run(4)
    assert stage.refuses("carol")


@pytest.mark.req("T11", "B17", "B1")
def test_a_directory_of_brokers_in_its_own_process_learns_of_a_list_within_two_seconds() -> None:
    stage = Lists()
    config: Any = DirectoryConfig(name="bdn-1", links_secure=True)
    stage.add_directory("bdn-1", config, "b3")
    stage.run(3)
    directory = stage.machine("bdn-1")
    alice = keyring_of("alice").own
    assert alice is not None
    ring = directory._learner._keyring
    assert ring.learn(alice.chain, WALL_NS).identity.entity == "alice"
    stage.reload("b1", a_list("alice"))
    stage.run(2.0)
    assert refused(ring.learn, alice.chain, WALL_NS) is Reason.CERTIFICATE_REVOKED
    assert directory._counts["lists"] == 1


MALFORMED: list[dict[str, Any]] = [
    {},
    {"digest": "00"},
    {"digest": "00" * 32, "at": []},
    {"digest": "00" * 32, "at": -1},
    {"digest": "zz", "at": 0},
    {"digest": 7, "at": 0},
    {"digest": "00" * 32, "at": 0},
]


@pytest.mark.req("T11", "B17")
@pytest.mark.parametrize("request_body", MALFORMED)
def test_a_request_for_a_part_that_no_list_has_is_refused_and_counted(request_body: dict[str, Any]) -> None:
    keeper = RightsKeeper("b1", seed=1, keyring=keyring_of("b1", Role.BROKER))
    keeper.clock(WALL_NS, 0)
    keeper.attach(9, Peer("pipe", "broker"), 0)
    keeper.take()
    keeper.receive(9, service(b"rights", msgspec.json.encode({"do": "list"} | request_body), 4, 7, b"{}"), 0)
    [(_, [answer])] = keeper.take().writes
    assert Frame(answer).flags & ServiceFlag.REFUSAL
    counts = keeper.report("overview")["counts"]
    assert sum(counts[reason] for reason in counts if reason in ("body_malformed", "question_unknown")) == 1


class Learning:
    """A learner, and a broker that answers it as the test says."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.keyring = keyring_of("tdn-1", Role.DIRECTORY)
        clock = WallTime()
        clock.read(WALL_NS, 0)
        self.counts: Counter[str] = Counter()
        self.learner = ListLearner(self.keyring, clock, self.counts)
        self.session = BrokerSession(5, self.outbox, bytes(32))
        self.now = 0

    def ask(self, after_s: int = 1) -> None:
        self.now += after_s * SECOND
        self.learner.ask([self.session], self.now)

    def asked(self) -> list[tuple[int, dict[str, Any]]]:
        frames = [Frame(raw) for _, raws in self.outbox.empty(None).writes for raw in raws]
        return [(frame.sequence, msgspec.json.decode(frame.payload)) for frame in frames]

    def answer(self, number: int, body: bytes, flags: int = 0) -> None:
        self.session.receive(service(b"rights", body, number, flags=ServiceFlag.ANSWER | flags), self.now)

    def serve(self, *ders: bytes) -> int:
        """Answer every request as an honest broker does; returns how many there were."""
        by_digest = {sha256(der).hexdigest(): der for der in ders}
        count = 0
        while requests := self.asked():
            for number, request in requests:
                count += 1
                body: dict[str, Any] = {"lists": list(by_digest)}
                if request["do"] == "list":
                    der, at = by_digest[request["digest"]], request["at"]
                    body = {"size": len(der), "data": b64encode(der[at : at + PART_BYTES]).decode()}
                self.answer(number, msgspec.json.encode(body))
        return count


@pytest.mark.req("T11", "B17")
def test_a_long_list_is_fetched_in_parts_and_an_old_one_once_a_minute() -> None:
    long, old = many(5_000), der_of(a_list("carol"))
    learning = Learning()
    learning.ask()
    assert learning.serve(long) == 1 + len(parts_of(long))
    assert learning.counts == {"lists": 1}
    asked = []
    for after_s in (1, 1, USELESS_NS // SECOND):
        learning.ask(after_s)
        asked.append(learning.serve(long, old))
    assert asked == [2, 1, 2], "its number is not higher, so it is of no use"


@pytest.mark.req("T11", "B17")
def test_a_broker_that_lies_about_lists_changes_nothing_and_is_counted() -> None:
    learning = Learning()
    learning.ask()
    learning.serve(der_of(revoke(RIVAL, [], b"", NOW)), b"x" * 100)
    learning.ask()
    learning.serve(der_of(revoke(RIVAL, [], b"", NOW)), b"x" * 100)
    assert learning.counts == {"certificate_untrusted": 1, "certificate_malformed": 1}
    for body in ({"lists": ["zz"]}, {"lists": 7}, [], {"lists": [sha256(b"").hexdigest()]}):
        learning.ask()
        for answer in (body, {"size": 0, "data": ""}):
            for number, _ in learning.asked():
                learning.answer(number, msgspec.json.encode(answer))
    assert learning.counts["body_malformed"] == 4
    assert not learning.keyring.authorities.revoked.lists


@pytest.mark.req("T11", "B17")
def test_a_broker_that_is_silent_is_asked_again_and_one_without_the_service_is_no_fault() -> None:
    learning = Learning()
    learning.ask()
    [(first, _)] = learning.asked()
    learning.ask()
    assert learning.asked() == [], "the answer is still to come"
    learning.ask(PATIENCE_NS // SECOND)
    [(second, _)] = learning.asked()
    assert second != first
    learning.answer(second, b"{}", ServiceFlag.REFUSAL)
    learning.ask()
    assert len(learning.asked()) == 1
    assert not learning.counts


@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([b'{"lists":["00"]}', b'{"size":1,"data":"eA=="}']))))
@settings(deadline=None)
def test_answers_of_any_bytes_are_read_or_counted(bodies: list[bytes]) -> None:
    learning = Learning()
    for body in bodies:
        learning.ask(PATIENCE_NS // SECOND)
        for number, _ in learning.asked():
            learning.answer(number, body)
    assert not learning.keyring.authorities.revoked.lists
