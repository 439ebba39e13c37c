"""Chains: whose certificate this is, at this time, or why nobody can say so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import example, given

from heliograph.errors import Reason, UsageError
from heliograph.model.identity import Identity, Role
from heliograph.trust.certificate_names import uris_of
from heliograph.trust.certificates import LEAF_DAYS, Pair, issue, make_authority
from heliograph.trust.chains import CERTIFICATES_MAX, CHAIN_BYTES_MAX, Authorities, chain_hash, encode_chain
from tests.trust import parties
from tests.trust.parties import AUTHORITIES, BROKER, CLIENT, DAY_NS, NOW, WALL_NS, chain, framed_chain, refused

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
SECOND_NS = 1_000_000_000


def made(
    uris: list[str],
    *,
    key: ec.EllipticCurvePrivateKey | None = None,
    signer: Pair = parties.AUTHORITY,
    ca: bool = False,
    agree: bool = True,
    client: bool = True,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate that `heliograph ca` would not make."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    signer_key = serialization.load_pem_private_key(signer.key, None)
    assert isinstance(signer_key, ec.EllipticCurvePrivateKey)
    usage = x509.KeyUsage(not ca, False, False, False, agree and not ca, ca, False, False, False)
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.CODE_SIGNING
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")]))
        .issuer_name(parties.certificate(signer).subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
    )
    if uris:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer_key, hashes.SHA256()), key


def why(certificate: x509.Certificate, authorities: Authorities = AUTHORITIES) -> Reason:
    return refused(authorities.verify, encode_chain([certificate]), WALL_NS)


@pytest.mark.req("B17")
def test_a_good_chain_names_its_holder_with_the_holders_roles_and_dates() -> None:
    holder = AUTHORITIES.verify(chain(BROKER), WALL_NS)
    assert holder.identity == Identity("broker-1", (Role.BROKER,), "certificate")
    assert holder.chain_hash == chain_hash(chain(BROKER))
    assert holder.public_key == parties.own(BROKER).key.public_key()
    assert (holder.ends - WALL_NS // SECOND_NS) == LEAF_DAYS * 86_400
    holder.check_role(Role.BROKER)
    assert refused(holder.check_role, Role.ADMIN) is Reason.ROLE_MISSING


@pytest.mark.req("B17")
@pytest.mark.parametrize(
    ("later_ns", "reason"),
    [
        (-5 * 60 * SECOND_NS, None),
        (-5 * 60 * SECOND_NS - 1, Reason.CERTIFICATE_NOT_YET_VALID),
        (LEAF_DAYS * DAY_NS + SECOND_NS - 1, None),
        (LEAF_DAYS * DAY_NS + SECOND_NS, Reason.CERTIFICATE_EXPIRED),
        (20 * 365 * DAY_NS, Reason.CERTIFICATE_EXPIRED),
        (-56 * 365 * DAY_NS, Reason.CERTIFICATE_NOT_YET_VALID),
    ],
)
def test_a_chain_is_good_from_its_first_second_to_its_last(later_ns: int, reason: Reason | None) -> None:
    if reason is None:
        assert AUTHORITIES.verify(chain(CLIENT), WALL_NS + later_ns).identity.entity == "sensor-7"
    else:
        assert refused(AUTHORITIES.verify, chain(CLIENT), WALL_NS + later_ns) is reason


@pytest.mark.req("B17")
def test_another_authority_of_the_same_name_is_not_believed() -> None:
    assert refused(AUTHORITIES.verify, chain(parties.IMPOSTOR), WALL_NS) is Reason.CERTIFICATE_UNTRUSTED


def test_a_chain_that_was_never_good_is_untrusted_and_not_expired() -> None:
    assert refused(AUTHORITIES.verify, chain(parties.IMPOSTOR), WALL_NS + 400 * DAY_NS) is Reason.CERTIFICATE_UNTRUSTED


def test_without_authorities_nobody_is_believed() -> None:
    assert refused(Authorities().verify, chain(BROKER), WALL_NS) is Reason.CERTIFICATE_UNTRUSTED


def test_each_of_several_authorities_is_believed() -> None:
    both = Authorities.from_pem(parties.AUTHORITY.certificate + parties.RIVAL.certificate)
    assert both.count == 2
    assert both.verify(chain(BROKER), WALL_NS).public_key != both.verify(chain(parties.IMPOSTOR), WALL_NS).public_key


def test_an_authority_is_no_entity() -> None:
    assert why(parties.certificate(parties.AUTHORITY)) is Reason.CERTIFICATE_UNTRUSTED


def test_an_entity_cannot_make_itself_an_authority() -> None:
    """Its own certificate is good; what it signs with it is not."""
    sensor = parties.certificate(CLIENT)
    forged, _ = made(uris_of("admin-1", [Role.ADMIN]), signer=CLIENT)
    shown = encode_chain([forged, sensor])
    assert refused(AUTHORITIES.verify, shown, WALL_NS) is Reason.CERTIFICATE_UNTRUSTED


def test_certificates_in_between_are_followed_if_the_authority_allows_them() -> None:
    root_key = ec.generate_private_key(ec.SECP256R1())
    root = _self_signed(root_key)
    between, between_key = made([], signer=_pair(root, root_key), ca=True)
    leaf, _ = made(uris_of("b-1", [Role.BROKER]), signer=_pair(between, between_key))
    authorities = Authorities([root])
    assert authorities.verify(encode_chain([leaf, between]), WALL_NS).identity.entity == "b-1"
    assert why(leaf, authorities) is Reason.CERTIFICATE_UNTRUSTED


@pytest.mark.parametrize(
    ("uris", "shape", "reason"),
    [
        ([], {}, Reason.CERTIFICATE_UNTRUSTED),
        (["https://example.org"], {}, Reason.CERTIFICATE_MALFORMED),
        (["heliograph:entity:a", "heliograph:entity:b", "heliograph:role:client"], {}, Reason.CERTIFICATE_MALFORMED),
        (["heliograph:entity:a"], {}, Reason.CERTIFICATE_MALFORMED),
        (["heliograph:entity:a", "heliograph:role:client"], {"agree": False}, Reason.CERTIFICATE_MALFORMED),
        (["heliograph:entity:a", "heliograph:role:client"], {"client": False}, Reason.CERTIFICATE_UNTRUSTED),
    ],
    ids=["no name", "foreign name", "two entities", "no role", "not for sealing", "for signing code"],
)
def test_a_certificate_of_another_shape_proves_nothing(uris: list[str], shape: dict[str, bool], reason: Reason) -> None:
    certificate, _ = made(uris, client=shape.get("client", True), agree=shape.get("agree", True))
    assert why(certificate) is reason


def test_only_p256_keys_are_taken() -> None:
    other, _ = made(uris_of("a", [Role.CLIENT]), key=ec.generate_private_key(ec.SECP384R1()))
    assert why(other) is Reason.CERTIFICATE_MALFORMED


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\xff\xff",
        chain(BROKER)[:-1],
        chain(BROKER) + b"\x00",
        chain(BROKER)[2:],
        chain(BROKER) * 2,
        chain(BROKER) + chain(CLIENT) + chain(BROKER),
        chain(BROKER) * (CERTIFICATES_MAX + 1),
        bytes(CHAIN_BYTES_MAX + 1),
    ],
)
def test_what_is_no_chain_is_called_malformed(broken: bytes) -> None:
    assert refused(AUTHORITIES.verify, broken, WALL_NS) is Reason.CERTIFICATE_MALFORMED


@given(parties.garbled(chain(BROKER)))
@example(b"")
@example(chain(BROKER) * 2)
def test_any_bytes_give_a_holder_or_a_reason(data: bytes) -> None:
    found = parties.outcome(AUTHORITIES.verify, data, WALL_NS)
    assert isinstance(found, Reason) or data == chain(BROKER)


@given(parties.flips_of(chain(BROKER)))
def test_no_bit_of_a_chain_can_be_changed(changed: bytes) -> None:
    refused(AUTHORITIES.verify, changed, WALL_NS)


def test_only_p256_authorities_can_be_named_as_such() -> None:
    with pytest.raises(UsageError, match="not an authority"):
        Authorities.from_pem(BROKER.certificate)
    with pytest.raises(UsageError, match="PEM"):
        Authorities.from_pem(b"nonsense")
    with pytest.raises(UsageError, match="P-256"):
        Authorities([_self_signed(ec.generate_private_key(ec.SECP384R1()))])


def test_a_chain_too_long_to_travel_is_refused_at_home() -> None:
    with pytest.raises(UsageError, match="Leave out the authority"):
        encode_chain([parties.certificate(BROKER)] * (CERTIFICATES_MAX + 1))


def test_a_chain_that_names_a_certificate_twice_is_refused_at_home() -> None:
    with pytest.raises(UsageError, match="twice"):
        encode_chain([parties.certificate(BROKER), parties.certificate(BROKER)])


@pytest.mark.req("B17", "O6")
def test_a_certificate_with_its_signature_turned_over_is_still_the_same_one() -> None:
    """With (r, s), (r, n - s) is a valid ECDSA signature too, and needs no key to make."""
    twin = _other_signature(parties.certificate(BROKER))
    assert AUTHORITIES.verify(framed_chain(twin), WALL_NS).identity.entity == "broker-1"
    assert refused(AUTHORITIES.verify, chain(BROKER) + framed_chain(twin), WALL_NS) is Reason.CERTIFICATE_MALFORMED


def test_an_authority_that_expires_takes_its_entities_with_it() -> None:
    """A leaf that outlives its authority: ours never do, those of others may."""
    short = make_authority("short", NOW - timedelta(days=2), days=2)
    ends = parties.certificate(short).not_valid_after_utc
    leaf, _ = made(uris_of("a", [Role.CLIENT]), signer=short)
    assert leaf.not_valid_after_utc > ends
    after_ns = int(ends.timestamp() + 1) * SECOND_NS
    authorities = Authorities.from_pem(short.certificate)
    assert refused(authorities.verify, encode_chain([leaf]), after_ns) is Reason.CERTIFICATE_EXPIRED


def test_equal_chance_makes_equal_certificates() -> None:
    def pairs(seed: int) -> tuple[Pair, Pair]:
        draw = parties.random.Random(seed).randbytes
        authority = make_authority("a", NOW, draw=draw)
        return authority, issue(authority, "b", [Role.BROKER], [], NOW, draw=draw)

    assert pairs(1) == pairs(1)
    assert pairs(1) != pairs(2)


def _other_signature(certificate: x509.Certificate) -> bytes:
    """The DER of the same certificate with the other signature of the pair."""
    der, old = certificate.public_bytes(serialization.Encoding.DER), certificate.signature
    r, s = decode_dss_signature(old)
    new = encode_dss_signature(r, P256_ORDER - s)
    head = der[: len(der) - len(old)]  # ends with: BIT STRING, its length, no unused bits
    return _lengthened(head, len(new) - len(old)) + new


def _lengthened(head: bytes, by: int) -> bytes:
    """A certificate's bytes before its signature, with the two lengths that count the signature corrected."""
    outer = int.from_bytes(head[2:4], "big") + by
    return head[:2] + outer.to_bytes(2, "big") + head[4:-2] + bytes([head[-2] + by]) + head[-1:]


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return Pair(certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
