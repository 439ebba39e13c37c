"""Epochs of encrypted topics: a revocation changes the key, and the holders that are left get the new one."""

from __future__ import annotations

import random

import pytest

from heliograph.discovery.topics import epochs
from heliograph.discovery.topics.encryption import TopicKey, decrypt, encrypt
from heliograph.discovery.topics.epochs import TopicEpochs
from heliograph.discovery.topics.key_statements import sign_key
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.trust.chains import Holder
from tests.discovery.topics.stage import WALL_NS, keyring_of

TOPIC = bytes(16)
WALL_MS = WALL_NS // 1_000_000


def a_holder(entity: str) -> Holder:
    ring = keyring_of(entity)
    assert ring.own is not None
    return ring.learn(ring.own.chain, WALL_NS)


def some_epochs(entity: str = "alice", seed: int = 1) -> TopicEpochs:
    return TopicEpochs(keyring_of(entity), random.Random(seed).randbytes)


def a_key(epoch: int, content: int = 1, *, ms: int = 0, by: str = "alice") -> TopicKey:
    return sign_key(keyring_of(by), TOPIC, epoch, bytes([content]) * 32, WALL_MS + ms)


@pytest.mark.req("T12")
def test_a_revocation_begins_an_epoch_whose_key_the_remaining_holders_get() -> None:
    keys = some_epochs()
    first = keys.own(TOPIC, 100)
    assert keys.own(TOPIC, 101) == first
    for number, entity in enumerate(("bob", "carol", "dan", "dan")):
        keys.granted(TOPIC, bytes([number]), a_holder(entity), 1_000 if entity != "carol" else 10)
    changed = keys.revoke(TOPIC, bytes([0]), 100)
    assert changed is not None
    key, holders = changed.key, changed.holders
    assert key.epoch == 2
    assert key.key != first.key
    assert [holder.identity.entity for holder in holders] == ["dan"], "carol's grant has expired, bob's is revoked"
    again = keys.revoke(TOPIC, bytes([2]), 100)
    assert again is not None
    assert [holder.identity.entity for holder in again.holders] == ["dan"], "it has another grant"
    assert [one.epoch for one in keys.keys(TOPIC)] == [3, 2, 1]
    assert keys.newest(TOPIC) == again.key
    assert [one.issued_ms for one in keys.keys(TOPIC)] == [102, 101, 100], "later, though the clock stands still"


@pytest.mark.req("T12")
def test_a_delegator_passes_a_new_key_on_except_to_holders_of_revoked_grants() -> None:
    owner, delegator = some_epochs(), some_epochs("bob")
    owner.own(TOPIC, 0)
    owner.granted(TOPIC, b"b", a_holder("bob"), 1_000)
    for grant, entity in ((b"c", "carol"), (b"d", "dan"), (b"e", "eve"), (b"f", "frank")):
        delegator.granted(TOPIC, grant, a_holder(entity), 50 if entity == "eve" else 1_000)
    delegator.withdraw(TOPIC, b"f", 0)
    changed = owner.revoke(TOPIC, b"c", 100, expires_ms=150)
    assert changed is not None
    assert changed.without == (b"c",), "the owner does not know its holder, but the delegator does"
    assert delegator.learn(TOPIC, "alice", changed.key, WALL_NS)
    passed = delegator.pass_on(TOPIC, changed.key, changed.without, 100)
    assert [holder.identity.entity for holder in passed.holders] == ["dan"]
    assert (passed.key, passed.without) == (changed.key, (b"c",)), "with the owner's statement"
    later = owner.revoke(TOPIC, b"x", 200, expires_ms=1_000)
    assert later is not None
    assert later.without == (b"x",), "a grant that has expired is no longer named"


@pytest.mark.req("T12", "O6")
def test_only_the_statement_of_the_owner_makes_an_epoch_and_false_keys_push_out_nothing() -> None:
    keys = some_epochs("carol")
    for epoch in range(1, epochs.KEYS_MAX + 1):
        assert keys.learn(TOPIC, "alice", a_key(epoch, ms=epoch), WALL_NS)
    before = keys.keys(TOPIC)
    for number in range(epochs.KEYS_MAX):
        for false in (TopicKey(2**31, bytes([number]) * 32), a_key(100_000 + number, number, ms=number, by="bob")):
            with pytest.raises(ProtocolError) as caught:
                keys.learn(TOPIC, "alice", false, WALL_NS)
            assert caught.value.reason is Reason.TOPIC_KEY_UNSIGNED
    assert keys.keys(TOPIC) == before
    after = a_key(epochs.KEYS_MAX + 1, ms=1_000)
    assert keys.learn(TOPIC, "alice", after, WALL_NS)
    assert keys.newest(TOPIC) == after
    assert keys.keys(TOPIC) == [after, *before[:-1]], "the oldest is dropped"
    assert not keys.learn(TOPIC, "alice", before[-1], WALL_NS), "there is no room for a key that old"
    assert not keys.learn(TOPIC, "alice", after, WALL_NS), "it is known"


@pytest.mark.req("T12")
@pytest.mark.parametrize("later_first", [False, True])
@pytest.mark.parametrize("revocations", [0, 3])
def test_after_an_owner_restarts_the_later_key_encrypts_and_both_decrypt(later_first: bool, revocations: int) -> None:
    owner, restarted, holder = some_epochs(), some_epochs(seed=2), some_epochs("bob")
    given = [owner.own(TOPIC, WALL_MS)]
    for number in range(revocations):
        handing = owner.revoke(TOPIC, bytes([number]), WALL_MS)
        assert handing is not None
        given.append(handing.key)
    anew = restarted.own(TOPIC, WALL_MS + 1_000)
    assert (anew.epoch, given[0].epoch) == (1, 1)
    for key in [anew, *given] if later_first else [*given, anew]:
        assert holder.learn(TOPIC, "alice", key, WALL_NS)
    assert holder.newest(TOPIC) == anew, "its owner has no other"
    for key in (*given, anew):
        sent = encrypt(key, "Topics/x", b"secret", random.Random(3).randbytes)
        assert decrypt(holder.keys(TOPIC), "Topics/x", sent) == b"secret"


@pytest.mark.req("T12")
def test_an_epoch_has_a_few_keys_at_most_and_the_latest_stay() -> None:
    keys = some_epochs("bob")
    for number in range(epochs.KEYS_PER_EPOCH_MAX + 2):
        keys.learn(TOPIC, "alice", a_key(1, number, ms=number), WALL_NS)
    keys.learn(TOPIC, "alice", a_key(2, ms=-1), WALL_NS)
    numbers = range(epochs.KEYS_PER_EPOCH_MAX + 1, 1, -1)
    assert [one.key[0] for one in keys.keys(TOPIC) if one.epoch == 1] == list(numbers)
    assert len(keys.keys(TOPIC)) == epochs.KEYS_PER_EPOCH_MAX + 1


@pytest.mark.req("T12")
def test_without_a_key_nothing_changes_and_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = some_epochs()
    assert keys.revoke(TOPIC, bytes(1), 0) is None
    assert keys.newest(TOPIC) is None
    keys.own(TOPIC, 0)
    monkeypatch.setattr(epochs, "TOPICS_MAX", 1)
    with pytest.raises(UsageError):
        keys.own(b"x" * 16, 0)
    keys.forget(TOPIC)
    keys.own(b"x" * 16, 0)
    monkeypatch.setattr(epochs, "GRANTS_MAX", 0)
    with pytest.raises(UsageError):
        keys.granted(b"x" * 16, bytes(1), a_holder("bob"), 1)
