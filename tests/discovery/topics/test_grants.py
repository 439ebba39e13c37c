"""Rights: owners grant them, holders prove their key, brokers check them, and what is revoked ends everywhere."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.bundle import GrantBundle, decode_bundle, encode_bundle
from heliograph.discovery.topics.encryption import TopicKey, decrypt, encrypt
from heliograph.discovery.topics.grants import (
    Revocation,
    TopicGrant,
    glance_grant,
    right_of,
    sign_grant,
    sign_revocation,
)
from heliograph.discovery.topics.handover import KeyOffer, KeyWait
from heliograph.discovery.topics.key_statements import sign_key
from heliograph.discovery.topics.listing import TopicAdvertisement, advertised, id_of
from heliograph.discovery.topics.messages import TopicKind, TopicQuery
from heliograph.discovery.topics.possession import POSSESSION_DOMAIN, possession_payload
from heliograph.discovery.topics.rights import RightsKeeper
from heliograph.discovery.topics.statements import Statements
from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import Role
from heliograph.sim.topic_party import AskService, Hear, Say
from heliograph.trust.keyring import Keyring
from tests.discovery.topics.stage import WALL_NS, TopicStage, a_creation, keyring_of, with_id
from tests.trust.parties import garbled

WALL_MS = WALL_NS // 1_000_000
NONCE = bytes(range(16))
TOPIC = id_of("alice", NONCE)


def an_advertisement(creator: str = "alice") -> TopicAdvertisement:
    return advertised(a_creation(creator), NONCE, "tdn-1", WALL_MS, WALL_MS, WALL_MS + 1_000_000)


def a_grant(signer: str, holder: str, number: int = 1, parent: bytes = b"", **fields: Any) -> bytes:
    made: dict[str, Any] = {
        "id": number.to_bytes(16, "big"),
        "topic": TOPIC,
        "begins_ms": WALL_MS - 10,
        "expires_ms": WALL_MS + 500_000,
        "subscribe": True,
    }
    grant = TopicGrant(holder=holder, parent=sha256(parent).digest() if parent else b"", **made | fields)
    return sign_grant(keyring_of(signer), grant)


def a_judge() -> Keyring:
    judge = keyring_of("b1", Role.BROKER)
    for entity in ("alice", "bob", "carol", "dan", "eve", "frank"):
        own = keyring_of(entity).own
        assert own is not None
        judge.learn(own.chain, WALL_NS)
    return judge


def judged(*grants: bytes, wall_ns: int = WALL_NS) -> Any:
    try:
        return right_of(a_judge(), an_advertisement(), grants, wall_ns, lambda what: False)
    except ProtocolError as error:
        return error.reason


@pytest.mark.req("T11")
def test_a_chain_of_grants_narrows_from_the_owner_on() -> None:
    first = a_grant("alice", "bob", publish=True, delegate=True)
    second = a_grant("bob", "carol", 2, first)
    right = judged(first, second)
    assert (right.holder, right.publish, right.subscribe, right.delegate) == ("carol", False, True, False)
    assert right.grants == ((1).to_bytes(16, "big"), (2).to_bytes(16, "big"))


WIDE = a_grant("alice", "bob", delegate=True, discover=True)
ATTACKS = {
    "a grant of somebody who is not the owner": ([a_grant("eve", "eve")], Reason.GRANT_FOREIGN),
    "a grant for another topic": ([a_grant("alice", "bob", topic=bytes(16))], Reason.GRANT_FOREIGN),
    "an expired grant": ([a_grant("alice", "bob", expires_ms=WALL_MS - 1)], Reason.GRANT_EXPIRED),
    "a grant of the future": ([a_grant("alice", "bob", begins_ms=WALL_MS + 60_000)], Reason.GRANT_EXPIRED),
    "a delegation wider than its parent": (
        [WIDE, a_grant("bob", "carol", 2, WIDE, publish=True)],
        Reason.GRANT_TOO_WIDE,
    ),
    "a delegation longer than its parent": (
        [WIDE, a_grant("bob", "carol", 2, WIDE, expires_ms=WALL_MS + 900_000)],
        Reason.GRANT_TOO_WIDE,
    ),
    "a delegation without the right to": (
        [first := a_grant("alice", "bob"), a_grant("bob", "carol", 2, first)],
        Reason.GRANT_TOO_WIDE,
    ),
    "a delegation of another grant": ([WIDE, a_grant("bob", "carol", 2)], Reason.GRANT_FOREIGN),
    "a delegation that its holder did not sign": ([WIDE, a_grant("eve", "carol", 2, WIDE)], Reason.GRANT_FOREIGN),
    "no grant at all": ([], Reason.GRANT_INVALID),
    "a statement for another purpose": (
        [sign_revocation(keyring_of("alice"), Revocation(TOPIC, WALL_MS))],
        Reason.SIGNATURE_WRONG,
    ),
}


@pytest.mark.req("T11")
@pytest.mark.parametrize(("grants", "reason"), ATTACKS.values(), ids=ATTACKS.keys())
def test_a_grant_that_is_worth_nothing_is_refused_with_its_reason(grants: list[bytes], reason: Reason) -> None:
    assert judged(*grants) is reason


@pytest.mark.req("T11")
def test_a_chain_of_five_is_refused_and_four_are_not() -> None:
    names = ("alice", "bob", "carol", "dan", "eve", "frank")
    chain: list[bytes] = []
    for number, (signer, holder) in enumerate(pairwise(names), 1):
        parent = chain[-1] if chain else b""
        chain.append(a_grant(signer, holder, number, parent, delegate=True))
    assert judged(*chain[:4]).holder == "eve"
    assert judged(*chain) is Reason.GRANT_INVALID


BUNDLE = encode_bundle(GrantBundle(b"x" * 300, [b"chain"], [b"grant"]))


@given(st.one_of(garbled(BUNDLE.encode()), st.binary(max_size=200)))
@settings(deadline=None)
def test_bundles_of_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        assert isinstance(decode_bundle(data.decode("latin-1")), GrantBundle)
    except ProtocolError as error:
        assert error.reason is Reason.GRANT_INVALID  # noqa: PT017 anything else fails the test


def test_a_bundle_that_would_grow_without_end_is_refused() -> None:
    from zlib import compress

    bomb = b64encode(compress(bytes(50_000_000), 9)).decode()
    with pytest.raises(ProtocolError):
        decode_bundle(bomb)


# -- at brokers ---------------------------------------------------------------------------------------------------


class Rights(TopicStage):
    """Three brokers in a line; alice's topic; grants for others."""

    def __init__(self, brokers: int = 3) -> None:
        super().__init__(brokers, entities=("alice", "bob", "carol"))
        own = self.create().result
        message = messages.unpack(own.record)
        self.advertisement: TopicAdvertisement = own.advertisement
        self.topic: str = own.topic
        self._base = (message.body, list(message.chains))
        self._number = 0

    def bundle(self, *grants: bytes, signers: tuple[str, ...] = ("alice",)) -> GrantBundle:
        chains = [own.chain for name in signers if (own := keyring_of(name).own) is not None]
        return GrantBundle(self._base[0], list(dict.fromkeys([*self._base[1], *chains])), list(grants))

    def grant(self, holder: str, **fields: Any) -> bytes:
        self._number += 1
        times = {"begins_ms": self.now_ms - 1_000, "expires_ms": self.now_ms + 500_000}
        signer, parent = fields.pop("signer", "alice"), fields.pop("parent", b"")
        return a_grant(signer, holder, self._number, parent, topic=self.advertisement.id, **times | fields)

    def tell(self, entity: str, command: Any) -> None:
        host = self.world.hosts[entity]
        host.tell(host.seat("party"), command)
        self.run(0.3)

    def present(self, entity: str, bundle: GrantBundle, **more: Any) -> Any:
        self.tell(entity, AskService("rights", {"do": "present", "bundle": encode_bundle(bundle), **more}))
        return self.machine(entity).answers[-1]

    def revoke(self, entity: str, *grants: bytes, signer: str = "alice", said: Revocation | None = None) -> Any:
        """Revoke the last of these grants; without any, withdraw the topic."""
        id = glance_grant(grants[-1]).id if grants else b""
        ring = keyring_of(signer)
        statement = sign_revocation(ring, said or Revocation(self.advertisement.id, self.now_ms, id))
        proof = self.bundle(*grants, signers=("alice", "bob", "carol"))
        request = {"do": "revoke", "statement": b64encode(statement).decode(), "bundle": encode_bundle(proof)}
        self.tell(entity, AskService("rights", request))
        return self.machine(entity).answers[-1]

    @property
    def now_ms(self) -> int:
        return WALL_MS + self.world.loop.now // 1_000_000

    def counts_at(self, broker: str) -> dict[str, int]:
        keeper = next(seat.machine for seat in self.world.hosts[broker].seats if seat.name == "rights")
        assert isinstance(keeper, RightsKeeper)
        counts: dict[str, int] = keeper.report("overview")["counts"]
        return counts


@pytest.mark.req("T11")
def test_a_granted_entity_receives_what_the_owner_publishes_and_no_other_does() -> None:
    stage = Rights()
    stage.tell("bob", Hear(f"{stage.topic}/#"))
    assert "subscribe_denied" in stage.machine("bob").refused[0]
    stage.present("alice", stage.bundle())
    answer = stage.present("bob", stage.bundle(stage.grant("bob")))
    assert (answer["ok"], answer["holder"], answer["publish"], answer["subscribe"]) == (True, "bob", False, True)
    stage.tell("bob", Hear(f"{stage.topic}/#"))
    stage.tell("alice", Say(stage.topic, b"21.5"))
    assert stage.machine("bob").heard == [b"21.5"]
    stage.tell("bob", Say(stage.topic, b"forged"))
    assert "publish_denied" in stage.machine("bob").refused[-1]
    assert stage.machine("bob").heard == [b"21.5"]


@pytest.mark.req("T6", "T11", "O6")
def test_a_directory_that_signs_anothers_uuid_gets_nobody_a_right() -> None:
    stage = Rights()
    stage.present("alice", stage.bundle())
    directory, carol = Statements(keyring_of("tdn-9", Role.DIRECTORY)), keyring_of("carol")
    stolen = structs.replace(stage.advertisement, directory="tdn-9", creation=a_creation("carol"))
    signed = directory.sign_advertisement(with_id(stolen, stage.advertisement.id))
    body = messages.encode_body(messages.Advertise(bytes(16), WALL_MS, signed))
    advertise = carol.sign(messages.domain_of(TopicKind.ADVERTISE), body)
    chains = [own.chain for ring in (directory.keyring, carol) if (own := ring.own) is not None]
    assert stage.present("carol", GrantBundle(advertise, chains)) is None
    assert stage.counts_at("b3")["topic_id_unbound"] == 1
    stage.tell("carol", Hear(f"{stage.topic}/#"))
    stage.tell("alice", Say(stage.topic, b"21.5"))
    assert stage.machine("carol").heard == []
    stage.tell("carol", Say(stage.topic, b"forged"))
    assert "publish_denied" in stage.machine("carol").refused[-1]


@pytest.mark.req("T11")
def test_a_stolen_grant_is_worth_nothing_without_its_key_and_a_proof_nothing_elsewhere() -> None:
    stage = Rights()
    stolen = stage.bundle(stage.grant("bob"), signers=("alice", "bob", "carol"))
    asked = stage.present("carol", stolen)
    assert "challenge" in asked
    session = f"{_origin(stage, 'carol'):016x}"
    for signer, challenge, expected in (("carol", asked["challenge"], None), ("bob", "0" * 64, None)):
        payload = possession_payload(challenge, asked["broker"], session)
        proof = b64encode(keyring_of(signer).sign(POSSESSION_DOMAIN, payload)).decode()
        assert stage.present("carol", stolen, proof=proof) is expected
        asked = stage.present("carol", stolen)
    payload = possession_payload(asked["challenge"], "b9", session)
    elsewhere = b64encode(keyring_of("bob").sign(POSSESSION_DOMAIN, payload)).decode()
    assert stage.present("carol", stolen, proof=elsewhere) is None
    assert stage.counts_at("b3")["possession_unproven"] == 3
    asked = stage.present("carol", stolen)
    payload = possession_payload(asked["challenge"], asked["broker"], session)
    proof = b64encode(keyring_of("bob").sign(POSSESSION_DOMAIN, payload)).decode()
    assert stage.present("carol", stolen, proof=proof)["ok"], "with bob's key, a session that TLS calls carol's may"


def _origin(stage: TopicStage, entity: str) -> int:
    session: Any = stage.machine(entity)._session
    return int(session._origin)


@pytest.mark.req("T11")
def test_a_revocation_ends_live_sessions_at_every_broker_within_two_seconds() -> None:
    stage = Rights()
    stage.present("alice", stage.bundle())
    grant = stage.grant("bob")
    stage.present("bob", stage.bundle(grant))
    stage.tell("bob", Hear(f"{stage.topic}/#"))
    stage.revoke("alice", grant)
    stage.run(1.0)
    stage.tell("alice", Say(stage.topic, b"after"))
    assert stage.machine("bob").heard == []
    assert "grant_revoked" in stage.machine("bob").refused[-1]
    assert stage.present("bob", stage.bundle(grant)) is None
    assert stage.counts_at("b2")["grant_revoked"] == 1


@pytest.mark.req("T11")
def test_a_broker_that_was_away_learns_of_revocations_when_it_comes_back() -> None:
    stage = Rights()
    grant = stage.grant("carol")
    away = stage.world.hosts["b3"]
    stage.world.crash(away)
    stage.run(1)
    stage.revoke("alice", grant)
    stage.world.start(away)
    stage.run(8)
    assert stage.present("carol", stage.bundle(grant)) is None
    assert stage.counts_at("b3")["grant_revoked"] == 1


@pytest.mark.req("T11")
def test_only_the_owner_or_the_signer_of_a_grant_revokes_it() -> None:
    stage = Rights()
    grant = stage.grant("bob")
    stage.present("bob", stage.bundle(grant))
    assert stage.revoke("carol", grant, signer="carol") is None
    stage.run(1)
    assert stage.counts_at("b3")["grant_foreign"] == 1
    assert stage.present("bob", stage.bundle(grant))["ok"]


@pytest.mark.req("T12")
def test_a_grant_to_discover_lets_its_holder_find_a_restricted_topic() -> None:
    stage = Rights()
    hidden = stage.create(creation=a_creation(readers=[], space="hidden")).result
    query = TopicQuery(space="hidden")
    assert stage.search("bob", query).result.topics == 0
    message = messages.unpack(hidden.record)
    now_ms = WALL_MS + stage.world.loop.now // 1_000_000
    grant = a_grant(
        "alice", "bob", 9, topic=hidden.advertisement.id, discover=True, begins_ms=now_ms - 9, expires_ms=now_ms + 9_000
    )
    bundle = encode_bundle(GrantBundle(message.body, list(message.chains), [grant])).encode()
    assert stage.search("bob", query, grants=(bundle,)).result.topics == 1
    assert stage.search("carol", query, grants=(bundle,)).result.topics == 0, "it is bob's"


@pytest.mark.req("T12")
def test_encrypted_events_are_read_with_the_key_of_their_epoch_only() -> None:
    first, second, other = TopicKey(1, bytes(32)), TopicKey(2, b"k" * 32), TopicKey(2, bytes(32))
    sent = encrypt(second, "Topics/x", b"secret", lambda size: bytes(size))
    assert decrypt([first, other, second], "Topics/x", sent) == b"secret"
    for keys, topic, data, reason in (
        ([first], "Topics/x", sent, Reason.TOPIC_KEY_MISSING),
        ([other], "Topics/x", sent, Reason.SEAL_BROKEN),
        ([second], "Topics/y", sent, Reason.SEAL_BROKEN),
        ([second], "Topics/x", sent[:-1], Reason.SEAL_BROKEN),
        ([second], "Topics/x", b"plain", Reason.SEAL_BROKEN),
    ):
        with pytest.raises(ProtocolError) as caught:
            decrypt(keys, topic, data)
        assert caught.value.reason is reason
    assert "kkk" not in repr(second)


@pytest.mark.req("T12")
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_the_key_of_a_new_epoch_reaches_the_holder_that_waits_and_nobody_else(loss: float) -> None:
    stage = TopicStage(2, entities=("alice", "bob", "carol"), losses={TopicKind.HANDOVER: loss}, seed=4)
    id, key = TOPIC, sign_key(keyring_of("alice"), TOPIC, 2, b"k" * 32, WALL_MS)
    chain = keyring_of("bob").own.chain  # type: ignore[union-attr]
    waits = [
        stage.begin(name, lambda say, seed: KeyWait(say, id, "alice", seed, timeout_ms=9_000))
        for name in ("bob", "carol")
    ]
    forged = sign_key(keyring_of("carol"), TOPIC, 3, b"x" * 32, WALL_MS)
    for giver, what in (("carol", forged), ("alice", key)):

        def offer(say: Statements, seed: bytes, what: TopicKey = what) -> KeyOffer:
            return KeyOffer(say, id, what, say.keyring.learn(chain, WALL_NS), seed, timeout_ms=4_000)

        offered = stage.finish(stage.begin(giver, offer))
        assert offered.result == ("bob" if giver == "alice" else None)
    assert waits[0].result == key
    assert "owner_other" in waits[0].refusals[0]
    assert stage.finish(waits[1]).error.reason is Reason.TOPIC_KEY_MISSING  # type: ignore[union-attr]


@pytest.mark.req("T12")
def test_a_holder_by_delegation_takes_the_key_of_its_delegator_and_hears_whose_grants_it_excludes() -> None:
    stage = TopicStage(2, entities=("alice", "bob", "carol"))
    id, key = TOPIC, sign_key(keyring_of("alice"), TOPIC, 2, b"k" * 32, WALL_MS)
    chain = keyring_of("carol").own.chain  # type: ignore[union-attr]
    wait = stage.begin("carol", lambda say, seed: KeyWait(say, id, "alice", seed, timeout_ms=9_000, delegator="bob"))

    def offer(say: Statements, seed: bytes) -> KeyOffer:
        holder = say.keyring.learn(chain, WALL_NS)
        return KeyOffer(say, id, key, holder, seed, timeout_ms=4_000, without=[b"g" * 16])

    assert stage.finish(stage.begin("bob", offer)).result == "carol"
    assert isinstance(wait, KeyWait)
    assert (wait.result, wait.without) == (key, (b"g" * 16,))
