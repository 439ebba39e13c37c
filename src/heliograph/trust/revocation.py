"""Revocation lists (X.509 CRLs): certificates that an authority revoked before they expired.

In:    an authority's key and serial numbers; or PEM bytes of lists, with the authorities' certificates.
Out:   a signed list, PEM; Revocations: whether a certificate was revoked.
State: none; Revocations are constant.
Not here: files (cli/ca.py, config/keyring_files.py), TLS handshakes (live/tls.py), chains (chains.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from heliograph.errors import UsageError

REVOKED_MAX = 100_000  # serial numbers: about 10 MiB
_LIST_DAYS = 3_650  # long, because an expired list would lock out all entities
_END = b"-----END X509 CRL-----"


class Revocations:
    """The revoked certificates, by issuer and serial number."""

    __slots__ = ("_serials",)

    def __init__(self, serials: Iterable[tuple[bytes, int]] = ()) -> None:
        self._serials = frozenset(serials)

    def __len__(self) -> int:
        return len(self._serials)

    @classmethod
    def from_pem(cls, pem: bytes, authorities: Sequence[x509.Certificate]) -> Revocations:
        """All lists of a PEM file; UsageError if one of them was not signed by one of these authorities."""
        found: set[tuple[bytes, int]] = set()
        for crl in _load(pem):
            issuer = crl.issuer.public_bytes()
            if not any(_is_signed(crl, authority) for authority in authorities):
                raise UsageError(f"a revocation list of {crl.issuer.rfc4514_string()} is not signed by tls.authority")
            found.update((issuer, entry.serial_number) for entry in crl)
        if len(found) > REVOKED_MAX:
            raise UsageError(f"a revocation list has at most {REVOKED_MAX} certificates; this one has {len(found)}")
        return cls(found)

    def has(self, certificate: x509.Certificate) -> bool:
        """True if this certificate was revoked."""
        return bool(self._serials) and (certificate.issuer.public_bytes(), certificate.serial_number) in self._serials

    def serials(self) -> frozenset[str]:
        """The serial numbers as TLS shows them: upper-case hexadecimal."""
        return frozenset(f"{serial:X}" for _, serial in self._serials)


def make_list(
    authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, serials: Sequence[int], now: datetime
) -> bytes:
    """A list of these serial numbers, signed by the authority, as PEM."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - timedelta(minutes=5))
        .next_update(min(now + timedelta(days=_LIST_DAYS), authority.not_valid_after_utc))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.CRLNumber(int(now.timestamp())), critical=False)
    )
    for serial in dict.fromkeys(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.PEM)


def serials_of(pem: bytes) -> list[int]:
    """The serial numbers of all lists of a PEM file, unverified."""
    return [entry.serial_number for crl in _load(pem) for entry in crl]


def _load(pem: bytes) -> list[x509.CertificateRevocationList]:
    try:
        pieces = [piece.strip() + b"\n" + _END for piece in pem.split(_END)[:-1]]
        lists = [x509.load_pem_x509_crl(piece) for piece in pieces]
        for crl in lists:
            len(crl)  # fails if its entries cannot be read
    except (ValueError, TypeError):
        raise UsageError("not a file of PEM revocation lists; `heliograph ca revoke` makes one") from None
    if not lists and pem.strip():
        raise UsageError("not a file of PEM revocation lists; `heliograph ca revoke` makes one")
    return lists


def _is_signed(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    key = authority.public_key()
    if crl.issuer != authority.subject or not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        return crl.is_signature_valid(key)
    except (ValueError, TypeError):
        return False
