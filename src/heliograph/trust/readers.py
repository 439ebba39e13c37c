"""Seals for many readers: one content key, sealed to each of them.

In:    up to 256 holders, a domain, a plaintext.
Out:   one string of bytes that each of them can open; or the plaintext, with ProtocolError for a broken seal.
State: none.
Not here: seals for one holder (sealing.py), which holders may read what (discovery/topics/).

    u8 version = 1 | u16 readers | for each: first 16 bytes of the chain hash, sealed content key (114) |
    nonce (12) | AES-256-GCM ciphertext, with the head up to the nonce as associated data
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.trust.domains import framed
from heliograph.trust.sealing import SEAL_BYTES

READERS_MAX = 256
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
NAME_BYTES = 16

_HEAD = Struct("<BH")
_VERSION = 1
_SEALED_KEY_BYTES = SEAL_BYTES + KEY_BYTES
_ENTRY_BYTES = NAME_BYTES + _SEALED_KEY_BYTES
_PURPOSE = b"heliograph readers 1"

SealKey = Callable[[bytes], bytes]
"""The content key, sealed for one reader."""


def seal_for(
    readers: Sequence[tuple[bytes, SealKey]], domain: bytes, plaintext: bytes, draw: Callable[[int], bytes]
) -> bytes:
    """The plaintext, sealed for these readers, each with the hash of its chain."""
    if not 1 <= len(readers) <= READERS_MAX:
        raise UsageError(f"a seal has 1 to {READERS_MAX} readers, this one has {len(readers)}")
    key = draw(KEY_BYTES)
    entries = b"".join(name[:NAME_BYTES] + seal(key) for name, seal in readers)
    head = _HEAD.pack(_VERSION, len(readers)) + entries
    nonce = draw(NONCE_BYTES)
    return head + nonce + AESGCM(key).encrypt(nonce, plaintext, framed(_PURPOSE, domain, head))


def open_for(name: bytes, open_key: Callable[[bytes], bytes], domain: bytes, sealed: bytes) -> bytes:
    """The plaintext for the reader whose chain has this hash; ProtocolError(SEAL_BROKEN) if it is not for us."""
    if len(sealed) < _HEAD.size:
        raise ProtocolError(Reason.SEAL_BROKEN, "a seal for several readers is too short")
    version, count = _HEAD.unpack_from(sealed)
    end = _HEAD.size + count * _ENTRY_BYTES
    if version != _VERSION or not 1 <= count <= READERS_MAX or len(sealed) < end + NONCE_BYTES + TAG_BYTES:
        raise ProtocolError(Reason.SEAL_BROKEN, "not a seal for several readers")
    for start in range(_HEAD.size, end, _ENTRY_BYTES):
        if sealed[start : start + NAME_BYTES] == name[:NAME_BYTES]:
            key = open_key(sealed[start + NAME_BYTES : start + _ENTRY_BYTES])
            return _decrypt(key, domain, sealed, end)
    raise ProtocolError(Reason.SEAL_BROKEN, "it was sealed for others")


def _decrypt(key: bytes, domain: bytes, sealed: bytes, end: int) -> bytes:
    nonce, body = sealed[end : end + NONCE_BYTES], sealed[end + NONCE_BYTES :]
    try:
        return AESGCM(key).decrypt(nonce, body, framed(_PURPOSE, domain, sealed[:end]))
    except (InvalidTag, ValueError):
        raise ProtocolError(Reason.SEAL_BROKEN, "changed since it was sealed") from None
