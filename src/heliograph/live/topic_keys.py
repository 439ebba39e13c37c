"""Keys of encrypted topics, for programs: drawn, granted, handed over, and used.

In:    calls of a program.
Out:   encrypted payloads and plaintexts; keys.
State: none; the desk has the keys that were given and taken (topic_desk.py).
Not here: the encryption (discovery/topics/encryption.py), when a new epoch begins (topics.py: at a revocation).
"""

from __future__ import annotations

import secrets
from time import time_ns

from heliograph.discovery.topics.bundle import GrantBundle
from heliograph.discovery.topics.creation import OwnTopic
from heliograph.discovery.topics.encryption import KEY_BYTES, KEY_DOMAIN, TopicKey, decrypt, encrypt
from heliograph.discovery.topics.finder import FoundTopic
from heliograph.discovery.topics.handover import KeyOffer, KeyWait
from heliograph.discovery.topics.key_statements import check_key, read_key, sign_key
from heliograph.discovery.topics.listing import TopicAdvertisement, decode_advertisement
from heliograph.discovery.topics.messages import Advertise, decode_body
from heliograph.errors import ProtocolError, Reason, RefusedError, UsageError
from heliograph.live.topic_desk import TopicDesk, chain_of, ms_of
from heliograph.model.publication import Publication
from heliograph.trust import envelope


class TopicKeyCalls:
    """The methods of a client for encrypted topics. Mixed into Client, which has the session."""

    _desk: TopicDesk

    def topic_key(self, bundle: GrantBundle) -> TopicKey:
        """The key of an encrypted topic that came with a grant.

        RefusedError if it was sealed for others, or if it is not the key that the topic's owner signed for.
        """
        statements, wall_ns = self._desk.statements, time_ns()
        try:
            statements.learn(bundle.chains, wall_ns)
            topic, _, _ = statements.read_advertise(bundle.advertise, wall_ns)
        except ProtocolError as error:
            raise RefusedError(error.reason, error.detail) from None
        try:
            key = statements.keyring.open(KEY_DOMAIN, bundle.key, topic.id)
        except ProtocolError as error:
            raise RefusedError(Reason.TOPIC_KEY_MISSING, error.detail) from None
        try:
            return read_key(statements.keyring, topic.id, topic.creator, key, bundle.statement, wall_ns)
        except ProtocolError as error:
            raise RefusedError(error.reason, f"the key in this grant: {error.detail}") from None

    def _learn_key(self, topic: TopicAdvertisement, key: TopicKey) -> None:
        """Keep a key; RefusedError if it is not one that the topic's owner signed for."""
        try:
            self._desk.epochs.learn(topic.id, topic.creator, key, time_ns())
        except ProtocolError as error:
            raise RefusedError(error.reason, error.detail) from None

    async def give_topic_key(
        self, topic: OwnTopic, key: TopicKey, certificate: bytes | str, *, timeout: float = 10.0
    ) -> str:
        """Give the key of a new epoch to the waiting holder of this PEM certificate; returns the holder's name."""
        statements, advertisement = self._desk.statements, topic.advertisement
        try:
            key = check_key(statements.keyring, advertisement.id, advertisement.creator, key, time_ns())
        except ProtocolError as error:
            raise RefusedError(error.reason, error.detail) from None
        holder = statements.keyring.learn(chain_of(certificate), time_ns())
        offer = KeyOffer(statements, advertisement.id, key, holder, secrets.token_bytes(32), timeout_ms=ms_of(timeout))
        given: str = await self._desk.converse(offer)
        return given

    async def await_topic_key(self, topic: FoundTopic, *, timeout: float = 60.0) -> TopicKey:
        """Wait for the next key from the topic's owner: that of the epoch after a revocation."""
        id, owner, seed = topic.advertisement.id, topic.advertisement.creator, secrets.token_bytes(32)
        key: TopicKey = await self._desk.converse(
            KeyWait(self._desk.statements, id, owner, seed, timeout_ms=ms_of(timeout))
        )
        return key

    def new_topic_key(self, topic: OwnTopic | FoundTopic, epoch: int = 1) -> TopicKey:
        """A key for an encrypted topic of ours, with our statement, for a program that looks after keys itself."""
        keyring, advertisement = self._desk.statements.keyring, topic.advertisement
        if advertisement.creator != self._desk.entity:
            raise UsageError(f"only {advertisement.creator}, who owns {advertisement.uuid}, makes keys for it")
        key = secrets.token_bytes(KEY_BYTES)
        return sign_key(keyring, advertisement.id, epoch, key, time_ns() // 1_000_000)

    def encrypt_event(self, key: TopicKey | None, topic: str, payload: bytes) -> bytes:
        """A payload for an encrypted topic, to be published on it; None: with the newest key that we have for it."""
        key = key or self._desk.epochs.newest(topic_id(topic))
        if key is None:
            raise RefusedError(Reason.TOPIC_KEY_MISSING, f"no key of {topic} is known here")
        return encrypt(key, topic, payload, secrets.token_bytes)

    def decrypt_event(self, publication: Publication, *keys: TopicKey) -> bytes:
        """The payload of an encrypted event; RefusedError without the key of its epoch, or if it was altered.

        Without ``keys``: with those that came with grants (``use_topic``) and from the topic's owner since.
        """
        known = keys or self._desk.epochs.keys(topic_id(publication.topic))
        try:
            return decrypt(known, publication.topic, publication.payload)
        except ProtocolError as error:
            raise RefusedError(error.reason, error.detail) from None


def advertised_in(bundle: GrantBundle) -> TopicAdvertisement:
    """The topic that a grant is for, unverified."""
    advertise = decode_body(Advertise, envelope.decode(bundle.advertise).payload)
    return decode_advertisement(envelope.decode(advertise.advertisement).payload)


def topic_id(text: str) -> bytes:
    """A UUID as text, or a created topic, as bytes."""
    digits = text.removeprefix("Topics/").split("/", 1)[0].replace("-", "")
    try:
        id = bytes.fromhex(digits)
    except ValueError:
        id = b""
    if len(id) != 16:
        raise UsageError(f"{text!r} is not the UUID of a topic")
    return id
