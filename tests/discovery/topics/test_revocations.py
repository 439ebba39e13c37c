"""Revocations: proven by the grant that they end, kept within shares, known to directories, in force everywhere."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from heliograph.discovery.revocation_lists import ListsRenewed
from heliograph.discovery.topics import messages
from heliograph.discovery.topics.bundle import GrantBundle, encode_bundle
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.creation import DirectoryRoll, Renewal, TopicCreation
from heliograph.discovery.topics.finder import TopicFinder
from heliograph.discovery.topics.grants import Revocation, glance_grant, sign_revocation
from heliograph.discovery.topics.messages import Advertise, TopicQuery, decode_body
from heliograph.discovery.topics.revocation_news import RevocationNews, token_of
from heliograph.discovery.topics.revocations import KEPT_BYTES, KnownRevocations, ProvenRevocation, prove
from heliograph.discovery.topics.rights import RightsKeeper
from heliograph.discovery.topics.statements import Statement, Statements
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import Reason
from heliograph.machine import Outbox, Timers
from heliograph.model.identity import Role
from heliograph.services.broker_session import BrokerSession
from heliograph.sim.topic_party import AskService, Hear, Say
from heliograph.trust import envelope
from heliograph.trust.certificates import issue, revoke
from heliograph.trust.chains import Authorities
from heliograph.trust.keyring import Keyring, Own
from heliograph.trust.seeded_hpke import SimulatedSealer
from heliograph.wire.frames import Frame, ServiceFlag, service
from tests.discovery.topics.stage import (
    AUTHORITIES,
    AUTHORITY,
    NOW,
    WALL_NS,
    TopicStage,
    a_creation,
    keyring_of,
    pair_of,
)
from tests.discovery.topics.test_grants import Rights, a_grant
from tests.trust.parties import outcome

WALL_MS = WALL_NS // 1_000_000


class Revoking(Rights):
    """Three brokers in a line, alice's topic, and lists of revoked certificates."""

    def keeper(self, broker: str) -> RightsKeeper:
        keeper = next(seat.machine for seat in self.world.hosts[broker].seats if seat.name == "rights")
        assert isinstance(keeper, RightsKeeper)
        return keeper

    def revoke_certificate(self, broker: str, entity: str, role: Role = Role.CLIENT) -> None:
        pem = revoke(AUTHORITY, [pair_of(entity, role).certificate], b"", NOW)
        ring = self.keeper(broker)._keyring
        ring.renew(Keyring(Authorities.from_pem(AUTHORITY.certificate, pem), ring.own))
        host = self.world.hosts[broker]
        host.tell(host.seat("rights"), ListsRenewed())
        self.run(1.0)

    def hears(self, entity: str, payload: bytes) -> bool:
        """Whether this entity receives what alice publishes."""
        self.tell("alice", Say(self.topic, payload))
        self.run(0.2)
        return payload in self.machine(entity).heard

    def using(self, entity: str, *grants: bytes) -> None:
        """This entity presents its grants and subscribes."""
        assert self.present(entity, self.bundle(*grants, signers=("alice", "bob")))["ok"]
        self.tell(entity, Hear(f"{self.topic}/#"))


@pytest.mark.req("O6", "T11")
def test_a_revocation_that_arrives_before_the_grant_was_ever_presented_still_counts() -> None:
    stage = Revoking()
    grant = stage.grant("carol")
    assert stage.revoke("alice", grant) == {"ok": True, "new": True}
    assert stage.revoke("alice", grant) == {"ok": True, "new": False}
    stage.run(1)
    assert stage.present("carol", stage.bundle(grant)) is None
    assert stage.counts_at("b3")["grant_revoked"] == 1


@pytest.mark.req("O6", "T11")
def test_a_revocation_without_its_grant_with_another_or_of_anothers_is_refused_and_kept_nowhere() -> None:
    stage = Revoking()
    grant, other = stage.grant("bob"), stage.grant("carol")
    id = glance_grant(grant).id
    topic = stage.advertisement.id
    stage.revoke("alice", said=Revocation(topic, WALL_MS, id))  # with an advertisement only
    stage.revoke("alice", other, said=Revocation(topic, WALL_MS, id))
    stage.revoke("alice", other, said=Revocation(bytes(16), WALL_MS, glance_grant(other).id))
    stage.revoke("carol", grant, signer="carol")
    stage.revoke("carol", signer="carol")  # she withdraws alice's topic
    stage.run(1)
    assert stage.counts_at("b1")["grant_invalid"] == 1
    assert stage.counts_at("b1")["grant_foreign"] == 2
    assert (stage.counts_at("b3")["grant_foreign"], stage.counts_at("b3")["owner_other"]) == (1, 1)
    assert [stage.keeper(name).report("overview")["revocations"] for name in stage.brokers] == [0, 0, 0]


@pytest.mark.req("O6", "T11")
def test_every_signer_above_a_grant_revokes_it_and_none_below() -> None:
    stage = Revoking()
    first = stage.grant("bob", delegate=True)
    second = stage.grant("carol", signer="bob", parent=first)
    assert stage.revoke("carol", first, second, signer="carol") is None, "the holder signed nothing of it"
    stage.present("alice", stage.bundle())
    stage.using("carol", first, second)
    assert stage.hears("carol", b"before")
    assert stage.revoke("alice", first, second)["new"]
    stage.run(1)
    assert not stage.hears("carol", b"after")
    assert stage.present("bob", stage.bundle(first))["ok"], "only the second one was revoked"


@pytest.mark.req("O6", "T11")
@pytest.mark.parametrize("revoked", ["owner", "delegator", "directory"])
def test_a_right_ends_at_every_broker_with_each_certificate_that_it_rests_on(revoked: str) -> None:
    stage = Revoking()
    first = stage.grant("bob", delegate=True, publish=True)
    second = stage.grant("carol", signer="bob", parent=first, publish=True)
    stage.using("carol", first, second)
    stage.tell("carol", Say(stage.topic, b"a"))
    assert stage.machine("carol").refused == []
    entity, role = {
        "owner": ("alice", Role.CLIENT),
        "delegator": ("bob", Role.CLIENT),
        "directory": ("tdn-1", Role.DIRECTORY),
    }[revoked]
    stage.revoke_certificate("b1", entity, role)
    stage.tell("carol", Say(stage.topic, b"b"))
    assert "certificate_revoked" in stage.machine("carol").refused[0]
    assert "publish_denied" in stage.machine("carol").refused[-1]


@pytest.mark.req("O6", "T11")
def test_withdrawing_a_topic_ends_all_rights_and_refuses_all_grants_at_every_broker_for_good() -> None:
    stage = Revoking()
    stage.present("alice", stage.bundle())
    grant, later = stage.grant("bob"), stage.grant("carol")
    stage.using("bob", grant)
    assert stage.hears("bob", b"before")
    assert stage.revoke("alice")["new"]
    stage.run(1)
    assert not stage.hears("bob", b"after")
    assert "topic_withdrawn" in stage.machine("bob").refused[-1]
    assert stage.present("carol", stage.bundle(later)) is None, "presented for the first time"
    assert stage.present("alice", stage.bundle()) is None
    assert stage.counts_at("b3")["topic_withdrawn"] == stage.counts_at("b1")["topic_withdrawn"] == 1
    stage.run(1.2)
    assert stage.counts()["withdrawn"] == 1, "the directory forgot it"
    message = stage._base
    signed = decode_body(Advertise, envelope.decode(message[0]).payload).advertisement
    renewal = Renewal(signed, tuple(message[1]), 9_000)
    renewed = stage.finish(stage.begin("alice", lambda say, seed: TopicCreation(say, renewal, seed)))
    assert renewed.error is not None
    assert stage.counts()["topic_withdrawn"] >= 1


@pytest.mark.req("O6", "T11")
def test_a_broker_that_was_away_learns_that_a_topic_was_withdrawn() -> None:
    stage = Revoking()
    grant = stage.grant("carol")
    away = stage.world.hosts["b3"]
    stage.world.crash(away)
    stage.run(1)
    stage.revoke("alice")
    stage.world.start(away)
    stage.run(8)
    assert stage.present("carol", stage.bundle(grant)) is None
    assert stage.counts_at("b3")["topic_withdrawn"] == 1


@pytest.mark.req("O6", "T11")
def test_a_revocation_is_kept_no_longer_than_the_grant() -> None:
    stage = Revoking()
    grant = stage.grant("bob", expires_ms=stage.now_ms + 30_000)
    stage.revoke("alice", grant)
    stage.run(1)
    assert [stage.keeper(name).report("overview")["revocations"] for name in stage.brokers] == [1, 1, 1]
    stage.run(1)
    assert stage.machine("tdn-1").report("overview")["revocations"] == 1, "a directory asks for them every second"
    stage.run(45)
    said = [stage.keeper(name).report("overview") for name in stage.brokers]
    assert [(one["revocations"], one["revocations_bytes"]) for one in said] == [(0, 0)] * 3
    assert stage.machine("tdn-1").report("overview")["revocations"] == 0
    assert stage.revoke("alice", grant) is None
    assert stage.counts_at("b1")["grant_expired"] == 1


@pytest.mark.req("O6", "T11")
def test_a_revocation_ends_rights_however_many_orders_the_service_has_under_way() -> None:
    outbox = Outbox()
    session = BrokerSession(1, outbox, b"s" * 16)
    for _ in range(100):
        session.order({"do": "report", "question": "usage"}, lambda answer, now: None)
    outbox.empty(None)
    news = RevocationNews(Statements(keyring_of("b1", Role.BROKER)), WallTime(), Timers(), Counter(), lambda link: None)
    news.join(session)
    news.take(a_revocation("alice", 1))
    news.take(a_revocation("alice", 2))
    sent = b"".join(frame for _, frames in outbox.empty(None).writes for frame in frames)
    assert json.loads(Frame(sent).payload)["grants"] == [token_of(a_revocation("alice", 1).what)]

    session.receive(service(b"broker", b'{"ok":true}', Frame(sent).sequence, flags=ServiceFlag.ANSWER), 1)
    sent = b"".join(frame for _, frames in outbox.empty(None).writes for frame in frames)
    assert json.loads(Frame(sent).payload)["grants"] == [token_of(a_revocation("alice", 2).what)]


# -- shares -------------------------------------------------------------------------------------------------------

SIZE = 1_000


def a_revocation(owner: str, number: int, revoker: str = "", until_ms: int = 100) -> ProvenRevocation:
    what = (owner.encode(), number.to_bytes(16, "big"), revoker or owner)
    data = f"{owner}/{number}/{revoker}/{until_ms}".encode().ljust(SIZE - KEPT_BYTES)
    return ProvenRevocation(what, (), owner, until_ms, data)


@pytest.mark.req("O6", "T11")
def test_one_owner_fills_its_own_share_and_many_together_never_keep_another_out() -> None:
    known = KnownRevocations(bytes_max=10 * SIZE, owner_bytes_max=4 * SIZE)
    mallorys = [outcome(known.add, a_revocation("mallory", number)) for number in range(6)]
    assert mallorys == [True] * 4 + [Reason.RIGHTS_OVER_LIMIT] * 2
    for signer in range(6):
        for number in range(6):
            outcome(known.add, a_revocation(f"mallory-{signer}", number))
    assert known.bytes_used == 10 * SIZE == SIZE * len(known)
    assert known.add(a_revocation("alice", 1))
    for number in range(6):
        outcome(known.add, a_revocation("mallory-9", number))
    assert known.has(a_revocation("alice", 1).what)
    assert known.bytes_used == 10 * SIZE == SIZE * len(known)


@pytest.mark.req("O6", "T11")
def test_a_delegator_does_not_use_up_the_share_of_the_owner_above_it() -> None:
    known = KnownRevocations(bytes_max=10 * SIZE, owner_bytes_max=4 * SIZE)
    assert known.add(a_revocation("alice", 0))
    bobs = [outcome(known.add, a_revocation("alice", number, "bob")) for number in range(1, 6)]
    assert bobs == [True] * 3 + [Reason.RIGHTS_OVER_LIMIT] * 2
    assert known.add(a_revocation("alice", 20, "carol")), "of two delegators the one with more loses"
    assert all(known.add(a_revocation("alice", number)) for number in range(10, 13))
    assert known.has(a_revocation("alice", 0).what)
    assert outcome(known.add, a_revocation("alice", 13)) is Reason.RIGHTS_OVER_LIMIT
    known.expire(100)
    assert (len(known), known.bytes_used) == (0, 0)
    assert known._shares == known._used == known._owners == known._digests == {}


@pytest.mark.req("O6", "T11")
def test_expired_revocations_leave_their_owner_its_whole_share() -> None:
    known = KnownRevocations(bytes_max=10 * SIZE, owner_bytes_max=4 * SIZE)
    for round_number in range(3):
        ends = 100 * (round_number + 1)
        added = [outcome(known.add, a_revocation("alice", number, until_ms=ends)) for number in range(5)]
        assert added == [True] * 4 + [Reason.RIGHTS_OVER_LIMIT]
        known.expire(ends)
        assert (len(known), known.bytes_used) == (0, 0)


@pytest.mark.req("O6", "T11")
def test_of_two_revocations_of_one_thing_the_one_that_lasts_longer_is_kept_and_repeats_cost_nothing() -> None:
    known = KnownRevocations()
    assert known.add(a_revocation("alice", 1, until_ms=100))
    assert not known.add(a_revocation("alice", 1, until_ms=50))
    assert known.add(a_revocation("alice", 1, until_ms=200))
    assert (len(known), known.bytes_used) == (1, SIZE)
    assert [number for number, _ in known.after(0)] == [2]
    known.expire(150)
    assert known.has(a_revocation("alice", 1).what)


@pytest.mark.req("T11")
def test_a_revocation_is_kept_if_the_one_above_it_ends_before() -> None:
    """A delegator signed two grants with one id, revoked the shorter, and would so save what is below the longer."""
    known = KnownRevocations()
    short = a_revocation("alice", 1, "bob", until_ms=100)
    assert known.add(short)
    below = replace(a_revocation("alice", 2, until_ms=500), above=(short.what,))
    assert known.add(below)
    assert not known.add(replace(a_revocation("alice", 3, until_ms=100), above=(short.what,)))
    known.expire(100)
    assert known.has(below.what)


@pytest.mark.req("O6", "T11")
def test_a_notice_has_nothing_but_what_proves_it() -> None:
    ring = keyring_of("alice")
    grant = a_grant("alice", "bob")
    said = glance_grant(grant)
    statement = sign_revocation(ring, Revocation(said.topic, WALL_MS, said.id))
    own, other = ring.own, keyring_of("carol").own
    assert own is not None
    assert other is not None
    judge = Statements(keyring_of("b1", Role.BROKER))
    padded = GrantBundle(b"x" * 40_000, [own.chain, other.chain], [grant], 9, b"y" * 40_000)
    proven = prove(judge, statement, padded, WALL_NS)
    assert len(proven.data) < len(own.chain) + 700
    assert proven.until_ms == said.expires_ms
    assert prove(judge, statement, GrantBundle(b"", [own.chain], [grant]), WALL_NS).data == proven.data


# -- directories --------------------------------------------------------------------------------------------------


class InOneProcess(Revoking):
    """The directory is a service of the third broker."""

    def services(self) -> list[Any]:
        return [*super().services(), TopicDirectoryConfig(enabled=True)]

    def broker_keyring(self, name: str) -> Keyring:
        roles, draw = [Role.BROKER, Role.DIRECTORY], random.Random(name).randbytes
        pair = issue(AUTHORITY, name, roles, [], NOW - timedelta(hours=1), 90, draw=draw)
        return Keyring(AUTHORITIES, Own.from_pem(pair.certificate, pair.key), sealer=SimulatedSealer(draw))


def hidden_topic(stage: Revoking) -> tuple[bytes, bytes]:
    """A topic of alice that only grants let others find: bob's grant, and the bundle that shows it."""
    hidden = stage.create(creation=a_creation(readers=[], space="hidden")).result
    message = messages.unpack(hidden.record)
    stage.advertisement, stage._base = hidden.advertisement, (message.body, list(message.chains))
    grant = stage.grant("bob", discover=True)
    return grant, encode_bundle(stage.bundle(grant)).encode()


HIDDEN = TopicQuery(space="hidden")


@pytest.mark.req("O6", "T12")
def test_a_revoked_grant_finds_nothing_at_a_directory_and_its_standing_search_is_told_nothing() -> None:
    stage = Revoking()
    grant, bundle = hidden_topic(stage)
    watch = stage.begin("bob", lambda say, seed: TopicFinder(say, HIDDEN, seed, watch=True, grants=(bundle,)))
    assert isinstance(watch, TopicFinder)
    stage.run(2)
    assert len(watch.take()) == 1
    renewed = renew(stage)
    assert [found.change for found in watch.take()] == ["changed"]
    stage.revoke("alice", grant)
    stage.run(2)
    assert stage.counts()["revocations"] == 1
    assert stage.search("bob", HIDDEN, grants=(bundle,)).result.topics == 0
    assert renew(stage).advertisement.issued_ms > renewed.advertisement.issued_ms
    assert watch.take() == []


def renew(stage: Revoking) -> Any:
    signed = decode_body(Advertise, envelope.decode(stage._base[0]).payload).advertisement
    renewal = Renewal(signed, tuple(stage._base[1]), 9_000)
    done = stage.finish(stage.begin("alice", lambda say, seed: TopicCreation(say, renewal, seed))).result
    stage.run(0.5)
    return done


@pytest.mark.req("O6", "T12")
def test_a_grant_that_expired_shows_nothing_more_in_a_standing_search() -> None:
    stage = Revoking()
    hidden_topic(stage)
    short = stage.grant("bob", discover=True, expires_ms=stage.now_ms + 6_000)
    bundle = encode_bundle(stage.bundle(short)).encode()
    watch = stage.begin("bob", lambda say, seed: TopicFinder(say, HIDDEN, seed, watch=True, grants=(bundle,)))
    assert isinstance(watch, TopicFinder)
    stage.run(2)
    assert len(watch.take()) == 1
    stage.run(5)
    renew(stage)
    assert watch.take() == []


@pytest.mark.req("O6", "T12")
def test_a_directory_in_a_brokers_process_knows_revoked_grants() -> None:
    stage = InOneProcess()
    grant, bundle = hidden_topic(stage)
    ask: Any = {"directories": ("b3",), "grants": (bundle,)}
    directory = next(seat.machine for seat in stage.world.hosts["b3"].seats if seat.name == "tdn")
    assert stage.search("bob", HIDDEN, **ask).result.topics == 1
    stage.revoke("alice", grant)
    stage.run(2)
    assert directory.report("overview")["counts"]["revocations"] == 1
    assert stage.search("bob", HIDDEN, **ask).result.topics == 0


@pytest.mark.req("O6", "T12")
def test_only_directories_are_told_what_was_revoked() -> None:
    stage = Revoking()
    stage.revoke("alice", stage.grant("bob"))
    stage.tell("carol", AskService("rights", {"do": "revocations"}))
    assert stage.machine("carol").answers[-1] is None
    assert stage.counts_at("b3")["ask_denied"] == 1


class Listening(DirectoryRoll):
    """Keeps what directories answer."""

    payloads: list[bytes]

    def _hear(self, said: Statement, now: int) -> None:
        self.payloads = [said.payload]
        super()._hear(said, now)


@pytest.mark.req("O6", "T12")
def test_a_directory_tells_nobody_how_many_topics_it_has() -> None:
    stage = TopicStage(1)
    stage.create(creation=a_creation(readers=[]))
    roll = stage.finish(stage.begin("bob", lambda say, seed: Listening(say, seed)))
    assert roll.result == ["tdn-1"]
    assert isinstance(roll, Listening)
    assert [set(msgspec.msgpack.decode(payload)) for payload in roll.payloads] == [{"id", "directory"}]


# -- races --------------------------------------------------------------------------------------------------------


@pytest.mark.req("O6", "T11")
@pytest.mark.parametrize("seed", range(4))
def test_after_a_partition_nobody_keeps_a_right_that_was_revoked_meanwhile(seed: int) -> None:
    """Grants are presented, revoked and withdrawn while links between brokers are cut and come back."""
    draw = random.Random(seed)
    stage = Revoking()
    stage.present("alice", stage.bundle())
    hosts = [stage.world.hosts[name] for name in stage.brokers]
    grants = {"bob": stage.grant("bob"), "carol": stage.grant("carol")}
    steps: list[Any] = []
    for entity, grant in grants.items():
        steps += [lambda entity=entity, grant=grant: stage.present(entity, stage.bundle(grant))] * 2
        steps.append(lambda entity=entity: stage.tell(entity, Hear(f"{stage.topic}/#")))
        steps.append(lambda grant=grant: stage.revoke("alice", grant))
    draw.shuffle(steps)
    cut = draw.randrange(2)
    at = sorted(draw.sample(range(len(steps)), 2))
    for number, step in enumerate(steps):
        if number == at[0]:
            stage.world.block(hosts[cut], hosts[cut + 1])
            stage.world.block(hosts[cut + 1], hosts[cut])
        if number == at[1]:
            stage.run(draw.uniform(0, 20))
            stage.world.unblock(hosts[cut], hosts[cut + 1])
            stage.world.unblock(hosts[cut + 1], hosts[cut])
        step()
    stage.run(40)
    for entity, grant in grants.items():
        assert not stage.hears(entity, entity.encode()), entity
        assert stage.present(entity, stage.bundle(grant)) is None
