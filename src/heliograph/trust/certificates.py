"""Certificates: a small private authority, and the certificates with which entities prove themselves.

In:    names, roles, hosts, and the time; PEM bytes of earlier certificates and keys; in a simulation, seeded bytes.
Out:   PEM bytes to write to files; Facts about a certificate.
State: none.
Not here: files and permissions (cli/ca.py), names inside certificates (certificate_names.py), TLS handshakes
          (live/tls.py).

Keys are ECDSA P-256: one key per entity for identity, signatures and sealing. Certificates have the extensions that
OpenSSL, Python's ssl in its strict mode and the verifier of ``cryptography`` require.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from heliograph.errors import UsageError
from heliograph.model.identity import Identity, Role, entity_is_valid
from heliograph.trust.certificate_names import identity_of, uris_of
from heliograph.trust.revocation import make_list, number_of, serials_of

AUTHORITY_DAYS = 3_650
LEAF_DAYS = 90
LEAF_DAYS_MAX = 3_650
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
SERVERS = frozenset((Role.BROKER, Role.DIRECTORY))  # roles of parties that are dialled: only they may be TLS servers
_SKEW = timedelta(minutes=5)  # so that a peer whose clock is a little behind accepts a new certificate
_COMMON_NAME_MAX = 64  # the limit of X.509; the whole entity id is in the URI
_HOST = re.compile(
    r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9])?)*\Z"
)
_HOST_LENGTH_MAX = 253
_SERIAL_BYTES = 20  # the limit of X.509, less one bit
_CHANCE_BYTES = 40  # reduced to P-256's order with negligible bias

Draw = Callable[[int], bytes]
"""Returns this many random bytes."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """The content of a certificate, for people."""

    subject: str
    issuer: str
    identity: Identity | None  # None: an authority, or a certificate that is not ours
    hosts: tuple[str, ...]
    authority: bool
    begins: datetime
    ends: datetime
    fingerprint: str  # SHA-256 of the DER form


def make_authority(name: str, now: datetime, days: int = AUTHORITY_DAYS, draw: Draw | None = None) -> Pair:
    """A new self-signed authority. ``now`` must have a time zone.

    With ``draw``, keys and serial numbers come from it, and equal draws make equal certificates: for simulations only.
    """
    if not entity_is_valid(name):
        raise UsageError(f"{name!r} is not a name for an authority: letters, digits and . _ @ - only")
    key = _new_key(draw)
    subject = _name(name)
    usage = _usage(certificates=True)
    certificate = (
        _builder(subject, subject, key.public_key(), key.public_key(), now, now + timedelta(days=days), draw)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    )
    return _pair(certificate, key)


def issue(
    authority: Pair,
    entity: str,
    roles: Sequence[Role],
    hosts: Sequence[str],
    now: datetime,
    days: int = LEAF_DAYS,
    draw: Draw | None = None,
) -> Pair:
    """A certificate for an entity, signed by the authority; it never outlives the authority. ``draw``: as above."""
    if not entity_is_valid(entity):
        raise UsageError(f"{entity!r} is not an entity id: letters, digits and . _ @ - only, at most 128")
    if not roles:
        raise UsageError(f"a certificate needs a role: {', '.join(Role)}")
    if not 1 <= days <= LEAF_DAYS_MAX:
        raise UsageError(f"{days} days: must be between 1 and {LEAF_DAYS_MAX}")
    signer, signer_key = _open_authority(authority, now)
    key = _new_key(draw)
    ends = min(now + timedelta(days=days), signer.not_valid_after_utc)
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris_of(entity, roles)]
    names += [_host(host) for host in dict.fromkeys(hosts)]
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if not SERVERS.isdisjoint(roles):
        purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    certificate = (
        _builder(_name(entity), signer.subject, key.public_key(), signer_key.public_key(), now, ends, draw)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer_key, hashes.SHA256(), ecdsa_deterministic=True)
    )
    return _pair(certificate, key)


def revoke(authority: Pair, certificates: Sequence[bytes], before: bytes, now: datetime) -> bytes:
    """A revocation list, PEM: the entries of the previous list, and these certificates, which the authority issued."""
    signer, key = _open_authority(authority, now)
    serials = serials_of(before) if before else []
    for pem in certificates:
        certificate = _load(pem)
        if certificate.issuer != signer.subject:
            raise UsageError(f"{certificate.subject.rfc4514_string()} was not issued by this authority")
        serials.append(certificate.serial_number)
    return make_list(signer, key, serials, now, number_of(before) if before else 0)


def facts_of(pem: bytes) -> Facts:
    """The content of the first certificate of a PEM file."""
    certificate = _load(pem)
    names = _names(certificate)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    hosts = names.get_values_for_type(x509.DNSName) if names else []
    addresses = names.get_values_for_type(x509.IPAddress) if names else []
    return Facts(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        identity=identity_of(uris),
        hosts=(*hosts, *(str(address) for address in addresses)),
        authority=_is_authority(certificate),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime,
    ends: datetime,
    draw: Draw | None,
) -> x509.CertificateBuilder:
    serial = int.from_bytes(draw(_SERIAL_BYTES), "big") >> 1 if draw else x509.random_serial_number()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - _SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _new_key(draw: Draw | None) -> ec.EllipticCurvePrivateKey:
    if draw is None:
        return ec.generate_private_key(ec.SECP256R1())
    number = int.from_bytes(draw(_CHANCE_BYTES), "big") % (ec.SECP256R1.group_order - 1) + 1
    return ec.derive_private_key(number, ec.SECP256R1())


def _usage(*, certificates: bool) -> x509.KeyUsage:
    """An authority signs certificates; an entity signs statements, and agrees on keys with parties that seal for it."""
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_agreement=not certificates,
        key_cert_sign=certificates,
        crl_sign=certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        encipher_only=False,
        decipher_only=False,
    )


def _open_authority(authority: Pair, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate = _load(authority.certificate)
    try:
        key = serialization.load_pem_private_key(authority.key, password=None)
    except (ValueError, TypeError):  # TypeError: it is encrypted
        raise UsageError("the authority's key is not a plain PEM private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise UsageError("the authority's key does not belong to its certificate")
    if not _is_authority(certificate):
        raise UsageError("the certificate is not an authority's; `heliograph ca init` makes one")
    if certificate.not_valid_after_utc <= now:
        raise UsageError(f"the authority expired on {certificate.not_valid_after_utc:%Y-%m-%d}; make a new one")
    return certificate, key


def _load(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise UsageError("not a PEM certificate") from None


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):  # ValueError: an extension that cannot be parsed
        return False


def _names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return None


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_MAX])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass  # it is a name
    if len(host) > _HOST_LENGTH_MAX or not _HOST.match(host):
        raise UsageError(f"{host!r} is neither a host name nor an IP address")
    return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
