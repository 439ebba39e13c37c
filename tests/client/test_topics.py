"""A program's side of topics: grants, keys and sealed descriptors, as files and certificates make them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.discovery.topics.creation import OwnTopic
from heliograph.discovery.topics.listing import Descriptors, advertised
from heliograph.discovery.topics.messages import Advertise, TopicKind, TopicMessage, domain_of, encode_body, pack
from heliograph.errors import Reason, RefusedError, UsageError
from heliograph.live.topic_desk import TopicDesk
from heliograph.live.topics import TopicCalls
from heliograph.model.identity import Role
from heliograph.model.publication import Publication
from heliograph.trust.certificates import issue, make_authority
from tests.discovery.topics.stage import a_creation


class Person(TopicCalls):
    """The topic methods of a client, without a broker: everything here is signed and sealed on this side."""

    def __init__(self, folder: Path, name: str) -> None:
        named = {"authority": "authority.crt", "certificate": f"{name}.crt", "key": f"{name}.key"}
        files: Any = {what: folder / file for what, file in named.items()}
        self.certificate = (folder / f"{name}.crt").read_bytes()
        self._desk = TopicDesk(SimpleNamespace(entity=name, inbox="Inbox/0/1"), files)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    now = datetime.now(UTC)
    authority = make_authority("test", now)
    (tmp_path / "authority.crt").write_bytes(authority.certificate)
    for name in ("alice", "bob", "carol"):
        pair = issue(authority, name, [Role.CLIENT], [], now)
        (tmp_path / f"{name}.crt").write_bytes(pair.certificate)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
        (tmp_path / f"{name}.key").chmod(0o600)
    return tmp_path


def a_topic(alice: Person, **fields: Any) -> OwnTopic:
    """As if a directory had signed it; who signed does not matter here."""
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    made = advertised(a_creation(**fields), bytes(16), "tdn-1", now_ms, now_ms, now_ms + 60_000)
    statements = alice._desk.statements
    body = encode_body(Advertise(bytes(16), now_ms, statements.sign_advertisement(made)))
    signed = statements.keyring.sign(domain_of(TopicKind.ADVERTISE), body)
    assert statements.keyring.own is not None
    return OwnTopic(made, pack(TopicMessage(TopicKind.ADVERTISE, 1, (statements.keyring.own.chain,), signed)), "tdn-1")


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
    topic, key = a_topic(alice, encrypted=True), alice.new_topic_key()
    bundle = alice.grant_topic(topic, "bob", subscribe=True, key=key, certificate=bob.certificate)
    sent = alice.encrypt_event(key, topic.topic, b"21.5")
    event = Publication(topic.topic, sent, 1, 1, b"")
    assert bob.decrypt_event(event, bob.topic_key(bundle)) == b"21.5"
    with pytest.raises(RefusedError) as caught:
        carol.topic_key(bundle)
    assert caught.value.reason is Reason.TOPIC_KEY_MISSING
    later = Publication(topic.topic, alice.encrypt_event(alice.new_topic_key(2), topic.topic, b"22"), 1, 2, b"")
    with pytest.raises(RefusedError, match="topic_key_missing"):
        bob.decrypt_event(later, bob.topic_key(bundle))


def test_without_a_certificate_of_ones_own_there_are_no_topics(folder: Path) -> None:
    nobody = Person(folder, "alice")
    nobody._desk = TopicDesk(SimpleNamespace(entity="alice"), {})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="certificate, key and authority"):
        nobody.new_topic_key() and nobody._desk.statements
    other = Person(folder, "alice")
    other._desk = TopicDesk(SimpleNamespace(entity="eve"), other._desk._files)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="knows this client as eve"):
        _ = other._desk.statements
