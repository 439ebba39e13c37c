"""Remembered brokers: the last target set, kept so that it can be asked when no directory answers.

In:    the target set of a search and the wall time; or the bytes of a file.
Out:   bytes to be written; the brokers that are recent enough.
State: none.
Not here: the file (live/ writes it, atomically), asking them (search.py).
Paper: [brokers] §7.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from heliograph.discovery.brokers.config import address_of

BROKERS_MAX = 64
Vouched = dict[tuple[str, str], tuple[str, ...]]
"""By name and address of a remembered broker: the directories that knew it, of those that the user names now."""


class Remembered(msgspec.Struct, frozen=True):
    """A broker that was near."""

    broker: str
    address: str  # host:port, where it receives requests
    at_s: int  # Unix time when it answered
    listed: tuple[str, ...] = ()  # the directories, host:port, that the user had named and that knew it


_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder(list[Remembered]).decode


def encode(brokers: Sequence[Remembered]) -> bytes:
    """The file's content."""
    return _encoder.encode(list(brokers[:BROKERS_MAX]))


def decode(data: bytes, now_s: int, age_s_max: int) -> tuple[Remembered, ...]:
    """The brokers that are not too old; none if the file is not valid. Times in the future are ignored."""
    try:
        brokers = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(
        broker
        for broker in brokers[:BROKERS_MAX]
        if 0 <= now_s - broker.at_s <= age_s_max and address_of(broker.address) is not None
    )
