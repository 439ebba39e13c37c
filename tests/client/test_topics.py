"""A program's side of topics: grants, keys and sealed descriptors, as files and certificates make them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import time_ns
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from heliograph.discovery.topics.creation import OwnTopic
from heliograph.discovery.topics.encryption import KEY_DOMAIN, TopicKey
from heliograph.discovery.topics.key_statements import sign_key
from heliograph.discovery.topics.listing import Descriptors, advertised, uuid_text
from heliograph.discovery.topics.messages import Advertise, TopicKind, TopicMessage, domain_of, encode_body, pack
from heliograph.errors import Reason, RefusedError, UsageError
from heliograph.live.topic_desk import TopicDesk, chain_of
from heliograph.live.topics import TopicCalls
from heliograph.model.identity import Role
from heliograph.model.publication import Publication
from heliograph.trust.certificates import issue, make_authority
from tests.discovery.topics.stage import a_creation

KEY = b"k" * 32


class Person(TopicCalls):
    """The topic methods of a client, without a broker: everything here is signed and sealed on this side."""

    def __init__(self, folder: Path, name: str) -> None:
        named = {"authority": "authority.crt", "certificate": f"{name}.crt", "key": f"{name}.key"}
        files: Any = {what: folder / file for what, file in named.items()}
        self.folder = folder
        self.certificate = (folder / f"{name}.crt").read_bytes()
        self._desk = TopicDesk(SimpleNamespace(entity=name, inbox="Inbox/0/1"), files)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    now = datetime.now(UTC)
    authority = make_authority("test", now)
    (tmp_path / "authority.crt").write_bytes(authority.certificate)
    for name in ("alice", "bob", "carol", "tdn-1"):
        pair = issue(authority, name, [Role.DIRECTORY if name == "tdn-1" else Role.CLIENT], [], now)
        (tmp_path / f"{name}.crt").write_bytes(pair.certificate)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
        (tmp_path / f"{name}.key").chmod(0o600)
    return tmp_path


def a_topic(alice: Person, **fields: Any) -> OwnTopic:
    """As if alice had created it, and the directory tdn-1 had signed it."""
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    made = advertised(a_creation(**fields), bytes(16), "tdn-1", now_ms, now_ms, now_ms + 60_000)
    directory, keyring = Person(alice.folder, "tdn-1")._desk.statements, alice._desk.statements.keyring
    body = encode_body(Advertise(bytes(16), now_ms, directory.sign_advertisement(made)))
    chains = tuple(own.chain for own in (keyring.own, directory.keyring.own) if own is not None)
    signed = keyring.sign(domain_of(TopicKind.ADVERTISE), body)
    return OwnTopic(made, pack(TopicMessage(TopicKind.ADVERTISE, 1, chains, signed)), "tdn-1")


@pytest.mark.req("T12")
def test_descriptors_sealed_for_readers_are_read_by_them_and_by_the_owner_only(folder: Path) -> None:
    alice, bob, carol = (Person(folder, name) for name in ("alice", "bob", "carol"))
    sealed = alice._desk.seal(Descriptors(text="the vault's code"), [bob.certificate])
    topic = a_topic(alice, sealed=sealed)
    for reader in (alice, bob):
        assert reader.open_topic(topic).text == "the vault's code"
    with pytest.raises(RefusedError) as caught:
        carol.open_topic(topic)
    assert caught.value.reason is Reason.SEAL_BROKEN


@pytest.mark.req("T12")
def test_the_key_of_an_encrypted_topic_comes_with_a_grant_and_the_next_epoch_does_not(folder: Path) -> None:
    alice, bob, carol = (Person(folder, name) for name in ("alice", "bob", "carol"))
    topic = a_topic(alice, encrypted=True)
    key = alice.new_topic_key(topic)
    bundle = alice.grant_topic(topic, "bob", subscribe=True, key=key, certificate=bob.certificate)
    sent = alice.encrypt_event(key, topic.topic, b"21.5")
    event = Publication(topic.topic, sent, 1, 1, b"")
    assert bob.decrypt_event(event, bob.topic_key(bundle)) == b"21.5"
    with pytest.raises(RefusedError) as caught:
        carol.topic_key(bundle)
    assert caught.value.reason is Reason.TOPIC_KEY_MISSING
    later = Publication(topic.topic, alice.encrypt_event(alice.new_topic_key(topic, 2), topic.topic, b"22"), 1, 2, b"")
    with pytest.raises(RefusedError, match="topic_key_missing"):
        bob.decrypt_event(later, bob.topic_key(bundle))


@pytest.mark.req("T12", "O6")
def test_a_key_that_was_exchanged_in_a_grant_is_found_out(folder: Path) -> None:
    alice, bob, carol = (Person(folder, name) for name in ("alice", "bob", "carol"))
    topic = a_topic(alice, encrypted=True)
    bundle = alice.grant_topic(topic, "bob", subscribe=True, certificate=bob.certificate)
    ring = carol._desk.statements.keyring  # carol carries the file; anybody can seal something for bob
    sealed = ring.seal(ring.learn(chain_of(bob.certificate), time_ns()), KEY_DOMAIN, b"x" * 32, topic.advertisement.id)
    for swapped in (structs.replace(bundle, key=sealed), structs.replace(bundle, key=sealed, statement=b"")):
        for use in (bob.topic_key, lambda bundle: asyncio.run(bob.use_topic(bundle))):
            with pytest.raises(RefusedError, match=r"the key in this grant.*alice") as caught:
                use(swapped)
            assert caught.value.reason is Reason.TOPIC_KEY_UNSIGNED
    assert bob._desk.epochs.newest(topic.advertisement.id) is None
    assert bob.topic_key(bundle) == alice._desk.epochs.newest(topic.advertisement.id)


@pytest.mark.req("T12")
def test_a_delegated_grant_carries_the_key_with_the_statement_of_the_owner(folder: Path) -> None:
    alice, bob, carol = (Person(folder, name) for name in ("alice", "bob", "carol"))
    topic = a_topic(alice, encrypted=True)
    first = alice.grant_topic(topic, "bob", subscribe=True, delegate=True, certificate=bob.certificate)
    second = bob.grant_topic(
        topic, "carol", subscribe=True, using=first, key=bob.topic_key(first), certificate=carol.certificate
    )
    as_text = carol.certificate.decode()
    third = bob.grant_topic(topic, "carol", subscribe=True, using=first, certificate=as_text)
    assert carol.topic_key(second) == carol.topic_key(third) == alice._desk.epochs.newest(topic.advertisement.id)
    with pytest.raises(UsageError, match="only alice"):
        bob.new_topic_key(topic)
    for false in (TopicKey(2, b"x" * 32), sign_key(bob._desk.statements.keyring, topic.advertisement.id, 2, KEY, 1)):
        with pytest.raises(RefusedError, match="topic_key_unsigned"):
            bob.grant_topic(topic, "carol", using=first, key=false, certificate=carol.certificate)
        with pytest.raises(RefusedError, match="topic_key_unsigned"):
            asyncio.run(bob.give_topic_key(topic, false, carol.certificate))


@pytest.mark.req("T12")
def test_an_owner_that_restarted_is_read_and_so_is_what_it_sent_before(folder: Path) -> None:
    alice, again, bob = (Person(folder, name) for name in ("alice", "alice", "bob"))
    topic = a_topic(alice, encrypted=True)
    keys, events = [], []
    for number, owner in enumerate((alice, again)):
        bundle = owner.grant_topic(topic, "bob", subscribe=True, certificate=bob.certificate)
        keys.append(bob.topic_key(bundle))
        bob._learn_key(topic.advertisement, keys[-1])
        sent = owner.encrypt_event(None, topic.topic, b"%d" % number)
        events.append(Publication(topic.topic, sent, 1, number, b""))
    assert [key.epoch for key in keys] == [1, 1]
    assert [bob.decrypt_event(event) for event in events] == [b"0", b"1"]
    assert [bob.decrypt_event(event, *keys) for event in events] == [b"0", b"1"]
    answer = Publication(topic.topic, bob.encrypt_event(None, topic.topic, b"yes"), 1, 3, b"")
    assert again.decrypt_event(answer) == b"yes", "bob encrypts with the later one"


def test_without_a_certificate_of_ones_own_there_are_no_topics(folder: Path) -> None:
    nobody = Person(folder, "alice")
    nobody._desk = TopicDesk(SimpleNamespace(entity="alice"), {})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="certificate, key and authority"):
        nobody.encrypt_event(None, f"Topics/{uuid_text(bytes(16))}", b"")
    other = Person(folder, "alice")
    other._desk = TopicDesk(SimpleNamespace(entity="eve"), other._desk._files)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="knows this client as eve"):
        _ = other._desk.statements


@pytest.mark.req("T11")
def test_a_grant_that_no_broker_would_take_is_not_made(folder: Path) -> None:
    alice, bob, carol = (Person(folder, name) for name in ("alice", "bob", "carol"))
    topic = a_topic(alice)
    other = replace(topic, advertisement=structs.replace(topic.advertisement, id=b"o" * 16))
    with pytest.raises(UsageError, match="belongs to alice, and you are bob"):
        bob.grant_topic(topic, "carol", subscribe=True)
    with pytest.raises(UsageError, match="does not allow it"):
        bob.grant_topic(topic, "carol", subscribe=True, using=alice.grant_topic(topic, "bob", subscribe=True))
    lent = alice.grant_topic(topic, "bob", subscribe=True, delegate=True)
    with pytest.raises(UsageError, match="was given to bob, and you are carol"):
        carol.grant_topic(topic, "bob", subscribe=True, using=lent)
    with pytest.raises(UsageError, match="for another topic"):
        bob.grant_topic(other, "carol", subscribe=True, using=lent)
    with pytest.raises(UsageError, match="'bo b' is not an entity id"):
        alice.grant_topic(topic, "bo b", subscribe=True)
    assert len(bob.grant_topic(topic, "carol", subscribe=True, using=lent).grants) == 2
