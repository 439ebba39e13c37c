"""Epochs of encrypted topics: a revocation changes the key, and the holders that are left get the new one."""

from __future__ import annotations

import random

import pytest

from heliograph.discovery.topics import epochs
from heliograph.discovery.topics.encryption import TopicKey
from heliograph.discovery.topics.epochs import TopicEpochs
from heliograph.errors import UsageError
from heliograph.trust.chains import Holder
from tests.discovery.topics.stage import WALL_NS, keyring_of

TOPIC = bytes(16)


def a_holder(entity: str) -> Holder:
    ring = keyring_of(entity)
    assert ring.own is not None
    return ring.learn(ring.own.chain, WALL_NS)


def some_epochs() -> TopicEpochs:
    return TopicEpochs(random.Random(1).randbytes)


@pytest.mark.req("T12")
def test_a_revocation_begins_an_epoch_whose_key_the_remaining_holders_get() -> None:
    keys = some_epochs()
    first = keys.own(TOPIC)
    assert keys.own(TOPIC) == first
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
    assert keys.keys(TOPIC).keys() == {1, 2, 3}
    assert keys.newest(TOPIC) == again.key


@pytest.mark.req("T12")
def test_a_delegator_passes_a_new_key_on_except_to_holders_of_revoked_grants() -> None:
    owner, delegator = some_epochs(), some_epochs()
    owner.own(TOPIC)
    owner.granted(TOPIC, b"b", a_holder("bob"), 1_000)
    for grant, entity in ((b"c", "carol"), (b"d", "dan"), (b"e", "eve"), (b"f", "frank")):
        delegator.granted(TOPIC, grant, a_holder(entity), 50 if entity == "eve" else 1_000)
    delegator.withdraw(TOPIC, b"f", 0)
    changed = owner.revoke(TOPIC, b"c", 100, expires_ms=150)
    assert changed is not None
    assert changed.without == (b"c",), "the owner does not know its holder, but the delegator does"
    assert delegator.learn(TOPIC, changed.key)
    passed = delegator.pass_on(TOPIC, changed.key, changed.without, 100)
    assert [holder.identity.entity for holder in passed.holders] == ["dan"]
    assert passed.without == (b"c",)
    later = owner.revoke(TOPIC, b"x", 200, expires_ms=1_000)
    assert later is not None
    assert later.without == (b"x",), "a grant that has expired is no longer named"


@pytest.mark.req("T12")
def test_a_key_that_is_known_is_replaced_only_by_the_owner() -> None:
    keys = some_epochs()
    assert keys.learn(TOPIC, TopicKey(1, b"a" * 32), by_owner=False)
    assert not keys.learn(TOPIC, TopicKey(1, b"b" * 32), by_owner=False)
    assert not keys.learn(TOPIC, TopicKey(1, b"a" * 32))
    assert keys.learn(TOPIC, TopicKey(1, b"b" * 32))


@pytest.mark.req("T12")
def test_without_a_key_nothing_changes_and_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = some_epochs()
    assert keys.revoke(TOPIC, bytes(1), 0) is None
    assert keys.newest(TOPIC) is None
    monkeypatch.setattr(epochs, "EPOCHS_MAX", 2)
    for epoch in (1, 2, 3):
        keys.learn(TOPIC, TopicKey(epoch, bytes(32)))
    assert keys.keys(TOPIC).keys() == {2, 3}
    monkeypatch.setattr(epochs, "TOPICS_MAX", 1)
    with pytest.raises(UsageError):
        keys.own(b"x" * 16)
    keys.forget(TOPIC)
    keys.own(b"x" * 16)
    monkeypatch.setattr(epochs, "GRANTS_MAX", 0)
    with pytest.raises(UsageError):
        keys.granted(b"x" * 16, bytes(1), a_holder("bob"), 1)
