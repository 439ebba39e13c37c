"""Statements about keys: what the owner of an encrypted topic signs for each key, and what travels with the key.

In:    a key that we drew for a topic of ours; or a key with its statement, from any sender.
Out:   TopicKey, which carries its statement; ProtocolError unless the topic's owner signed for exactly this key.
State: none.
Not here: which keys are kept (epochs.py), how they travel (bundle.py, handover.py), encrypting (encryption.py).

A key is sealed for its receiver, but anybody can seal. So every key comes with the owner's statement over topic, epoch,
time and the SHA-256 of the key. Whoever carries a key or passes it on can withhold it, but not replace it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

import msgspec

from heliograph.discovery.topics.encryption import KEY_BYTES, TopicKey
from heliograph.discovery.topics.listing import Digest, Id, Stamp
from heliograph.discovery.topics.statements import NS_PER_MS
from heliograph.errors import ProtocolError, Reason, UsageError

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

KEY_STATEMENT_DOMAIN = b"heliograph/topic-key-statement/1"
EPOCH_MAX = 1_000_000  # each revocation begins one: a topic that has more is better created anew
AHEAD_MS_MAX = 60_000  # a statement of the future would stay the latest one until then

Epoch = Annotated[int, msgspec.Meta(ge=1, le=EPOCH_MAX)]


class KeyStatement(msgspec.Struct, frozen=True):
    """What the owner of a topic says about one of its keys."""

    topic: Id
    epoch: Epoch
    issued_ms: Stamp
    digest: Digest  # SHA-256 of the key


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeyStatement)


def sign_key(keyring: Keyring, topic: bytes, epoch: int, key: bytes, issued_ms: int) -> TopicKey:
    """A key of a topic of ours, with our statement."""
    if not 1 <= epoch <= EPOCH_MAX or len(key) != KEY_BYTES:
        raise UsageError(f"an epoch is a number from 1 to {EPOCH_MAX}, and its key has {KEY_BYTES} bytes")
    own = keyring.own
    assert own is not None, "a party without a certificate owns no topics"
    said = KeyStatement(topic, epoch, issued_ms, sha256(key).digest())
    return TopicKey(epoch, key, issued_ms, keyring.sign(KEY_STATEMENT_DOMAIN, _encoder.encode(said)), own.chain)


def read_key(keyring: Keyring, topic: bytes, owner: str, key: bytes, statement: bytes, wall_ns: int) -> TopicKey:
    """A key as received, if this owner of the topic signed for it; its chain is known to the keyring."""
    if not statement:
        raise ProtocolError(Reason.TOPIC_KEY_UNSIGNED, f"it came without a statement of {owner}, the topic's owner")
    signed = keyring.verify(KEY_STATEMENT_DOMAIN, statement, wall_ns)
    try:
        said = _decoder.decode(signed.payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(Reason.TOPIC_KEY_UNSIGNED, f"not a statement about a key: {error}") from None
    if signed.holder.identity.entity != owner:
        told = f"{signed.holder.identity.entity} signed for the key, but {owner} owns the topic"
        raise ProtocolError(Reason.TOPIC_KEY_UNSIGNED, told)
    if said.topic != topic:
        raise ProtocolError(Reason.TOPIC_KEY_UNSIGNED, f"the statement of {owner} is about another topic")
    if len(key) != KEY_BYTES or said.digest != sha256(key).digest():
        raise ProtocolError(Reason.TOPIC_KEY_UNSIGNED, f"it is not the key that {owner} signed for: it was exchanged")
    if said.issued_ms > wall_ns // NS_PER_MS + AHEAD_MS_MAX:
        raise ProtocolError(Reason.STALE, f"the statement of {owner} is of the future")
    return TopicKey(said.epoch, key, said.issued_ms, statement, signed.holder.chain)


def check_key(keyring: Keyring, topic: bytes, owner: str, key: TopicKey, wall_ns: int) -> TopicKey:
    """The same for a key that a program kept: what counts is its statement."""
    if key.chain:
        keyring.learn(key.chain, wall_ns)
    return read_key(keyring, topic, owner, key.key, key.statement, wall_ns)
