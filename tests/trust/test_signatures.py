"""Signatures and seals: good for one key, one domain and the very same bytes."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import Reason, UsageError
from heliograph.trust.domains import DOMAIN_BYTES_MAX, framed
from heliograph.trust.sealing import SEAL_BYTES, open_sealed, seal
from heliograph.trust.signatures import SIGNATURE_BYTES, sign, verify
from tests.trust.parties import BROKER, CLIENT, flips_of, garbled, outcome, own, refused

KEY, OTHER = own(BROKER).key, own(CLIENT).key
PUBLIC = KEY.public_key()
DOMAIN, MESSAGE, AAD = b"test/statement/1", b"the least loaded broker is broker-1", b"request 7"
SIGNATURE = sign(KEY, DOMAIN, MESSAGE)
SEALED = seal(PUBLIC, DOMAIN, MESSAGE, AAD)
ORDER = ec.SECP256R1.group_order

domains = st.binary(min_size=1, max_size=DOMAIN_BYTES_MAX)


@given(domains, st.binary(max_size=2_000))
def test_what_a_key_signed_is_verified_with_it(domain: bytes, message: bytes) -> None:
    signature = sign(KEY, domain, message)
    assert len(signature) == SIGNATURE_BYTES
    assert signature == sign(KEY, domain, message)  # nothing random in it: a simulated run repeats to the byte
    verify(PUBLIC, domain, message, signature)


@pytest.mark.req("B17")
@pytest.mark.parametrize(
    ("key", "domain", "message", "signature"),
    [
        (OTHER.public_key(), DOMAIN, MESSAGE, SIGNATURE),
        (PUBLIC, b"test/other/1", MESSAGE, SIGNATURE),
        (PUBLIC, DOMAIN + MESSAGE[:1], MESSAGE[1:], SIGNATURE),
        (PUBLIC, DOMAIN, MESSAGE + b" ", SIGNATURE),
        (PUBLIC, DOMAIN, b"", SIGNATURE),
        (PUBLIC, DOMAIN, MESSAGE, SIGNATURE[:-1]),
        (PUBLIC, DOMAIN, MESSAGE, SIGNATURE + b"\0"),
        (PUBLIC, DOMAIN, MESSAGE, b""),
        (PUBLIC, DOMAIN, MESSAGE, bytes(SIGNATURE_BYTES)),
        (PUBLIC, DOMAIN, MESSAGE, b"\xff" * SIGNATURE_BYTES),
    ],
    ids=["key", "domain", "border", "longer", "empty", "cut", "extended", "none", "zeros", "ones"],
)
def test_a_signature_is_worth_nothing_for_anything_else(
    key: ec.EllipticCurvePublicKey, domain: bytes, message: bytes, signature: bytes
) -> None:
    assert refused(verify, key, domain, message, signature) is Reason.SIGNATURE_WRONG


def test_a_signature_has_one_form_only() -> None:
    r, s = SIGNATURE[:32], int.from_bytes(SIGNATURE[32:], "big")
    twin = r + (ORDER - s).to_bytes(32, "big")  # mathematically as good
    assert refused(verify, PUBLIC, DOMAIN, MESSAGE, twin) is Reason.SIGNATURE_WRONG


@given(flips_of(SIGNATURE + MESSAGE))
def test_no_bit_of_a_signature_or_message_can_be_changed(changed: bytes) -> None:
    signature, message = changed[:SIGNATURE_BYTES], changed[SIGNATURE_BYTES:]
    assert refused(verify, PUBLIC, DOMAIN, message, signature) is Reason.SIGNATURE_WRONG


@given(st.binary(max_size=200))
def test_any_bytes_as_a_signature_are_refused_with_a_reason(signature: bytes) -> None:
    assert refused(verify, PUBLIC, DOMAIN, MESSAGE, signature) is Reason.SIGNATURE_WRONG


@given(domains, st.binary(max_size=2_000), st.binary(max_size=64))
def test_what_was_sealed_for_a_key_is_opened_with_it(domain: bytes, plaintext: bytes, aad: bytes) -> None:
    sealed = seal(PUBLIC, domain, plaintext, aad)
    assert len(sealed) == len(plaintext) + SEAL_BYTES
    assert open_sealed(KEY, domain, sealed, aad) == plaintext


@pytest.mark.req("B17")
@pytest.mark.parametrize(
    ("key", "domain", "sealed", "aad"),
    [
        (OTHER, DOMAIN, SEALED, AAD),
        (KEY, b"test/other/1", SEALED, AAD),
        (KEY, DOMAIN, SEALED, b"request 8"),
        (KEY, DOMAIN + AAD[:1], SEALED, AAD[1:]),
        (KEY, DOMAIN, SEALED[:-1], AAD),
        (KEY, DOMAIN, SEALED + b"\0", AAD),
        (KEY, DOMAIN, b"\2" + SEALED[1:], AAD),
        (KEY, DOMAIN, b"", AAD),
        (KEY, DOMAIN, b"\1" + bytes(SEAL_BYTES), AAD),
    ],
    ids=["key", "domain", "aad", "border", "cut", "extended", "suite", "none", "zeros"],
)
def test_a_seal_opens_for_nobody_and_nothing_else(
    key: ec.EllipticCurvePrivateKey, domain: bytes, sealed: bytes, aad: bytes
) -> None:
    assert refused(open_sealed, key, domain, sealed, aad) is Reason.SEAL_BROKEN


@given(flips_of(SEALED))
def test_no_bit_of_a_seal_can_be_changed(changed: bytes) -> None:
    assert refused(open_sealed, KEY, DOMAIN, changed, AAD) is Reason.SEAL_BROKEN


@given(garbled(SEALED))
def test_any_sealed_bytes_give_the_plaintext_or_a_reason(sealed: bytes) -> None:
    found = outcome(open_sealed, KEY, DOMAIN, sealed, AAD)
    assert found == (MESSAGE if sealed == SEALED else Reason.SEAL_BROKEN)


def test_two_seals_of_the_same_bytes_differ() -> None:
    assert seal(PUBLIC, DOMAIN, MESSAGE) != seal(PUBLIC, DOMAIN, MESSAGE)


@given(st.tuples(domains, st.binary(max_size=80)), st.tuples(domains, st.binary(max_size=80)))
def test_no_two_pairs_of_domain_and_content_are_framed_alike(
    one: tuple[bytes, bytes], other: tuple[bytes, bytes]
) -> None:
    assert (framed(b"p", *one) == framed(b"p", *other)) == (one == other)


@pytest.mark.parametrize("domain", [b"", bytes(DOMAIN_BYTES_MAX + 1)])
def test_a_domain_without_a_name_or_with_too_long_a_one_is_the_callers_mistake(domain: bytes) -> None:
    with pytest.raises(UsageError, match="domain"):
        sign(KEY, domain, MESSAGE)
