"""The parties of these tests: two authorities, a broker, a client and an impostor, the same in every run.

In:    nothing; keys come from a fixed seed.
Out:   Pairs, keyrings, and bytes made wrong in chosen ways.
State: none.
Not here: what is claimed about them (test_*.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from hypothesis import strategies as st

from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import Role
from heliograph.trust.certificates import Pair, issue, make_authority
from heliograph.trust.chains import Authorities
from heliograph.trust.keyring import Keyring, Own

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WALL_NS = int(NOW.timestamp()) * 1_000_000_000
DAY_NS = 86_400 * 1_000_000_000
DRAW = random.Random(2026).randbytes

AUTHORITY = make_authority("test-authority", NOW, draw=DRAW)
RIVAL = make_authority("test-authority", NOW, draw=DRAW)  # the same name, another key
BROKER = issue(AUTHORITY, "broker-1", [Role.BROKER], ["localhost"], NOW, draw=DRAW)
CLIENT = issue(AUTHORITY, "sensor-7", [Role.CLIENT], [], NOW, draw=DRAW)
IMPOSTOR = issue(RIVAL, "broker-1", [Role.BROKER], ["localhost"], NOW, draw=DRAW)
LATER = issue(AUTHORITY, "broker-2", [Role.BROKER], [], NOW + timedelta(days=30), draw=DRAW)

AUTHORITIES = Authorities.from_pem(AUTHORITY.certificate)


def own(pair: Pair) -> Own:
    return Own.from_pem(pair.certificate, pair.key)


def chain(pair: Pair) -> bytes:
    return own(pair).chain


def keyring(pair: Pair | None = None, **limits: int) -> Keyring:
    return Keyring(AUTHORITIES, own(pair) if pair else None, **limits)


def framed_chain(*ders: bytes) -> bytes:
    return b"".join(len(der).to_bytes(2, "little") + der for der in ders)


def certificate(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def refused(call: Callable[..., Any], *arguments: Any) -> Reason:
    """Why a call was refused; any other exception, and success, fail the test."""
    with pytest.raises(ProtocolError) as caught:
        call(*arguments)
    return caught.value.reason


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returned, or the Reason for which it was refused; any other exception fails the test."""
    try:
        return call(*arguments)
    except ProtocolError as error:
        return error.reason


def flipped(data: bytes, bit: int) -> bytes:
    """The same bytes but for one bit."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flips_of(data: bytes) -> st.SearchStrategy[bytes]:
    return st.integers(0, 8 * len(data) - 1).map(lambda bit: flipped(data, bit))


def garbled(data: bytes) -> st.SearchStrategy[bytes]:
    """Nearly right bytes: a cut, a splice, bytes overwritten; parsers get further with these than with chance."""
    places = st.integers(0, len(data))
    cut = places.map(lambda end: data[:end])
    splice = st.tuples(places, places, st.binary(max_size=8)).map(lambda t: data[: t[0]] + t[2] + data[t[1] :])
    return st.one_of(cut, splice, flips_of(data), st.binary(max_size=400))
