"""Seals for many readers: each of them can open it, nobody else can, and nobody can change it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given

from heliograph.errors import Reason, UsageError
from heliograph.trust.keyring import Keyring
from heliograph.trust.readers import READERS_MAX
from heliograph.trust.sealing import SEAL_BYTES
from heliograph.trust.seeded_hpke import SimulatedSealer
from tests.trust.parties import (
    AUTHORITIES,
    BROKER,
    CLIENT,
    LATER,
    WALL_NS,
    chain,
    garbled,
    keyring,
    outcome,
    own,
    refused,
)

DOMAIN = b"heliograph/test/1"


def holders(*pairs: Any) -> list[Any]:
    ring = keyring()
    return [ring.learn(chain(pair), WALL_NS) for pair in pairs]


def test_every_reader_opens_it_and_others_do_not() -> None:
    sealed = keyring(BROKER).seal_for(holders(BROKER, CLIENT), DOMAIN, b"secret")
    assert keyring(BROKER).open_shared(DOMAIN, sealed) == b"secret"
    assert keyring(CLIENT).open_shared(DOMAIN, sealed) == b"secret"
    assert refused(keyring(LATER).open_shared, DOMAIN, sealed) is Reason.SEAL_BROKEN
    assert refused(keyring(CLIENT).open_shared, b"other", sealed) is Reason.SEAL_BROKEN


def test_256_readers_fit_and_257_do_not() -> None:
    one = holders(CLIENT)
    sealed = keyring(BROKER).seal_for(one * READERS_MAX, DOMAIN, b"x")
    assert len(sealed) < 1 << 16
    with pytest.raises(UsageError, match="256"):
        keyring(BROKER).seal_for(one * (READERS_MAX + 1), DOMAIN, b"x")


SEALED = keyring(BROKER).seal_for(holders(BROKER, CLIENT), DOMAIN, b"secret")


@given(garbled(SEALED))
def test_what_was_changed_is_refused(data: bytes) -> None:
    assert data == SEALED or outcome(keyring(CLIENT).open_shared, DOMAIN, data) is Reason.SEAL_BROKEN


def simulated(seed: int, pair: Any) -> Keyring:
    return Keyring(AUTHORITIES, own(pair), sealer=SimulatedSealer(random.Random(seed).randbytes))


def test_a_simulated_seal_repeats_has_the_same_length_and_opens_only_for_its_reader() -> None:
    (client,) = holders(CLIENT)
    first, again = (simulated(1, BROKER).seal(client, DOMAIN, b"hello") for _ in range(2))
    assert first == again != simulated(2, BROKER).seal(client, DOMAIN, b"hello")
    assert len(first) == SEAL_BYTES + 5 == len(keyring(BROKER).seal(client, DOMAIN, b"hello"))
    assert simulated(3, CLIENT).open(DOMAIN, first) == b"hello"
    assert refused(simulated(3, BROKER).open, DOMAIN, first) is Reason.SEAL_BROKEN
    assert refused(keyring(CLIENT).open, DOMAIN, first) is Reason.SEAL_BROKEN, "live keyrings do not take it"


@given(garbled(simulated(1, BROKER).seal(holders(CLIENT)[0], DOMAIN, b"hello")))
def test_a_simulated_seal_that_was_changed_is_refused(data: bytes) -> None:
    assert outcome(simulated(3, CLIENT).open, DOMAIN, data) in (b"hello", Reason.SEAL_BROKEN)
