"""Keys of encrypted topics: one counts only with the owner's statement, whoever carries it or passes it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from heliograph.discovery.topics.encryption import TopicKey
from heliograph.discovery.topics.grants import Revocation, sign_revocation
from heliograph.discovery.topics.handover import KeyOffer, KeyWait
from heliograph.discovery.topics.key_statements import EPOCH_MAX, KEY_STATEMENT_DOMAIN, check_key, sign_key
from heliograph.discovery.topics.statements import Statements
from heliograph.errors import ProtocolError, Reason, UsageError
from tests.discovery.topics.stage import WALL_NS, keyring_of
from tests.trust.parties import garbled

WALL_MS = WALL_NS // 1_000_000
TOPIC = bytes(range(16))
KEY = b"k" * 32
ALICE = keyring_of("alice")


def offered(giver: str, key: TopicKey, holder: str, number: int = 0) -> bytes:
    """What the giver sends to the holder."""
    says, ring = Statements(keyring_of(giver)), keyring_of(holder)
    assert ring.own is not None
    there = says.keyring.learn(ring.own.chain, WALL_NS)
    offer = KeyOffer(says, TOPIC, key, there, number.to_bytes(32, "big"), timeout_ms=4_000)
    offer.start(WALL_NS, 0)
    return offer.outgoing[0][1]


def a_wait(holder: str = "carol", delegator: str = "bob") -> KeyWait:
    wait = KeyWait(
        Statements(keyring_of(holder)), TOPIC, "alice", bytes(32), timeout_ms=60_000_000, delegator=delegator
    )
    wait.start(WALL_NS, 0)
    return wait


@pytest.mark.req("T12", "O6")
def test_a_delegate_refuses_the_false_keys_of_its_delegator_and_takes_the_owners_next_one() -> None:
    wait = a_wait()
    for number in range(65):
        false = TopicKey(2**31 - number, bytes([number]) * 32)
        wait.hear(offered("bob", false, "carol", number), 1)
        assert not wait.is_over, "a key without the owner's statement makes no epoch"
    assert wait.refused == {"topic_key_unsigned": 65}
    assert wait.outgoing == [], "none of them was acknowledged"
    next_one = sign_key(ALICE, TOPIC, 2, KEY, WALL_MS)
    wait.hear(offered("alice", next_one, "carol"), 2)
    assert wait.result == next_one


@pytest.mark.req("T12")
def test_delegators_pass_the_owners_statement_on_so_the_owner_may_be_away() -> None:
    key = sign_key(ALICE, TOPIC, 2, KEY, WALL_MS)
    for giver, holder in (("alice", "bob"), ("bob", "carol"), ("carol", "dan")):
        wait = a_wait(holder, giver)  # of these, only bob ever meets alice
        wait.hear(offered(giver, key, holder), 1)
        assert wait.result == key
        key = wait.result


def signed(signer: str = "alice", topic: bytes = TOPIC, key: bytes = KEY, ms: int = 0) -> TopicKey:
    return sign_key(keyring_of(signer), topic, 1, key, WALL_MS + ms)


def raw(payload: bytes) -> TopicKey:
    return replace(signed(), statement=ALICE.sign(KEY_STATEMENT_DOMAIN, payload))


def an_epoch(number: int) -> bytes:
    import msgspec

    said = {"topic": TOPIC, "epoch": number, "issued_ms": WALL_MS, "digest": bytes(32)}
    return msgspec.msgpack.encode(said)


def for_another_purpose() -> TopicKey:
    said = sign_revocation(ALICE, Revocation(TOPIC, WALL_MS, bytes(16)))
    return replace(signed(), statement=said)


FALSE: dict[str, tuple[Callable[[], TopicKey], Reason]] = {
    "no statement": (lambda: TopicKey(1, KEY), Reason.TOPIC_KEY_UNSIGNED),
    "a statement of another entity": (lambda: signed("bob"), Reason.TOPIC_KEY_UNSIGNED),
    "a statement about another topic": (lambda: signed(topic=bytes(16)), Reason.TOPIC_KEY_UNSIGNED),
    "a statement about another key": (lambda: replace(signed(), key=b"x" * 32), Reason.TOPIC_KEY_UNSIGNED),
    "a key of another length": (lambda: replace(signed(), key=KEY[:-1]), Reason.TOPIC_KEY_UNSIGNED),
    "a statement of the future": (lambda: signed(ms=61_000), Reason.STALE),
    "a statement for another purpose": (for_another_purpose, Reason.SIGNATURE_WRONG),
    "no statement but words": (lambda: raw(b"words"), Reason.TOPIC_KEY_UNSIGNED),
    "an epoch without end": (lambda: raw(an_epoch(2**31)), Reason.TOPIC_KEY_UNSIGNED),
    "an epoch before the first": (lambda: raw(an_epoch(0)), Reason.TOPIC_KEY_UNSIGNED),
    "a certificate that nobody showed": (lambda: replace(signed(), chain=b""), Reason.CERTIFICATE_UNKNOWN),
}


@pytest.mark.req("T12", "O6")
@pytest.mark.parametrize(("make", "reason"), FALSE.values(), ids=FALSE.keys())
def test_a_key_that_its_owner_did_not_sign_for_is_refused_with_its_reason(
    make: Callable[[], TopicKey], reason: Reason
) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_key(keyring_of("bob"), TOPIC, "alice", make(), WALL_NS)
    assert caught.value.reason is reason


@given(garbled(signed().statement))
@settings(max_examples=100, deadline=None)
def test_whatever_is_changed_in_a_statement_it_is_refused(statement: bytes) -> None:
    assume(statement != signed().statement)
    with pytest.raises(ProtocolError):
        check_key(keyring_of("bob"), TOPIC, "alice", replace(signed(), statement=statement), WALL_NS)


def test_a_statement_counts_whatever_a_program_says_about_its_key() -> None:
    lied = replace(signed(), epoch=7, issued_ms=WALL_MS + 9)
    assert check_key(keyring_of("bob"), TOPIC, "alice", lied, WALL_NS) == signed()
    for epoch, key in ((0, KEY), (EPOCH_MAX + 1, KEY), (1, b"short")):
        with pytest.raises(UsageError):
            sign_key(ALICE, TOPIC, epoch, key, WALL_MS)
