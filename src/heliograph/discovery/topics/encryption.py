"""Encrypted topics: events that only holders of the topic's key can read.

In:    a key of an epoch, payloads, the topic's name.
Out:   encrypted payloads, or the plaintext; ProtocolError if a payload is damaged.
State: none.
Not here: which entities get the key (grants.py, live/topic_keys.py): it is only ever sent sealed.

    3s magic "HGE"   u8 version   u32 epoch   12s nonce   AES-256-GCM ciphertext, with head and topic authenticated

An owner that revokes a grant begins a new epoch with a new key, which the revoked holder does not get. An owner that
lost its keys begins again with epoch 1, so an epoch can have more than one key: each of them is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from struct import Struct

from heliograph.errors import ProtocolError, Reason
from heliograph.trust.domains import framed

KEY_DOMAIN = b"heliograph/topic-key/1"
KEY_BYTES = 32
NONCE_BYTES = 12

_HEAD = Struct("<3sBI")
_MAGIC = b"HGE"
_VERSION = 1
_PURPOSE = b"heliograph event 1"


@dataclass(frozen=True, slots=True)
class TopicKey:
    """The key of one epoch of a topic, with what proves that it is the owner's (key_statements.py)."""

    epoch: int
    key: bytes = field(repr=False)
    issued_ms: int = 0  # of two keys the later one encrypts
    statement: bytes = field(default=b"", repr=False)  # as the topic's owner signed it
    chain: bytes = field(default=b"", repr=False)  # of the owner's certificates

    @property
    def age(self) -> tuple[int, int, bytes]:
        """Orders keys, the oldest first; the last part only decides in the same way everywhere."""
        return self.issued_ms, self.epoch, self.key


def encrypt(key: TopicKey, topic: str, payload: bytes, draw: Callable[[int], bytes]) -> bytes:
    """The payload, encrypted with the key."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to load

    head, nonce = _HEAD.pack(_MAGIC, _VERSION, key.epoch), draw(NONCE_BYTES)
    return head + nonce + AESGCM(key.key).encrypt(nonce, payload, framed(_PURPOSE, KEY_DOMAIN, head + topic.encode()))


def decrypt(keys: Iterable[TopicKey], topic: str, data: bytes) -> bytes:
    """The plaintext; ProtocolError if we have no key for it (TOPIC_KEY_MISSING), or it was changed (SEAL_BROKEN)."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(data) < _HEAD.size + NONCE_BYTES or data[: len(_MAGIC)] != _MAGIC:
        raise ProtocolError(Reason.SEAL_BROKEN, "not an encrypted event")
    _, version, epoch = _HEAD.unpack_from(data)
    fitting = [key for key in keys if key.epoch == epoch]
    if version != _VERSION or not fitting:
        raise ProtocolError(Reason.TOPIC_KEY_MISSING, f"no key for epoch {epoch} of {topic}")
    head, nonce = data[: _HEAD.size], data[_HEAD.size : _HEAD.size + NONCE_BYTES]
    aad = framed(_PURPOSE, KEY_DOMAIN, head + topic.encode())
    for key in fitting:
        try:
            return AESGCM(key.key).decrypt(nonce, data[_HEAD.size + NONCE_BYTES :], aad)
        except (InvalidTag, ValueError):
            continue
    raise ProtocolError(Reason.SEAL_BROKEN, "changed since it was encrypted, for another topic, or with another key")
