"""Bundles: everything that a holder presents to use a topic, encoded as one string.

In:    a countersigned advertisement, grants from the owner's on, the chains of their signers; perhaps a sealed key with
       the owner's statement about it.
Out:   bytes for a file or a message; or a GrantBundle; ProtocolError for anything else.
State: none.
Not here: what grants mean (grants.py), checking them at a broker (rights.py), statements (key_statements.py).

A bundle is not secret: it is useless without the holder's key. Whoever carries it can change nothing in it unnoticed.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated
from zlib import compress, decompressobj
from zlib import error as zlib_error

import msgspec

from heliograph.discovery.topics.grants import DEPTH_MAX
from heliograph.errors import ProtocolError, Reason

BUNDLE_BYTES_MAX = 1 << 18
TEXT_MAX = 60_000  # length of a bundle as text: it has to fit in a request to a broker

Bytes = Annotated[bytes, msgspec.Meta(max_length=BUNDLE_BYTES_MAX)]


class GrantBundle(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a holder presents."""

    advertise: Bytes  # the creator's Advertise in its envelope
    chains: Annotated[list[Bytes], msgspec.Meta(max_length=8)]
    grants: Annotated[list[Bytes], msgspec.Meta(max_length=DEPTH_MAX)] = []
    key: Bytes = b""  # of an encrypted topic, sealed for the holder
    statement: Bytes = b""  # of the topic's owner, about the key


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(GrantBundle)


def encode_bundle(bundle: GrantBundle) -> str:
    """A bundle as text, for files and for requests to a broker."""
    return b64encode(pack_bundle(bundle)).decode()


def pack_bundle(bundle: GrantBundle) -> bytes:
    """The same as bytes."""
    return compress(_encoder.encode(bundle), 6)


def decode_bundle(text: str) -> GrantBundle:
    """A bundle from text; ProtocolError(GRANT_INVALID) if it is not one."""
    try:
        packed = b64decode(text.strip(), validate=True)
    except ValueError as error:
        raise ProtocolError(Reason.GRANT_INVALID, f"not a grant: {error}") from None
    return unpack_bundle(packed)


def unpack_bundle(packed: bytes) -> GrantBundle:
    """A bundle from bytes; ProtocolError(GRANT_INVALID) if they are not one."""
    try:
        unpacking = decompressobj()
        data = unpacking.decompress(packed, BUNDLE_BYTES_MAX)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise ValueError("it is too long, or cut")
        return _decoder.decode(data)
    except (ValueError, zlib_error, msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(Reason.GRANT_INVALID, f"not a grant: {error}") from None
