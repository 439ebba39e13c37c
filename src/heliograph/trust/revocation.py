"""Revocation lists (X.509 CRLs): certificates that an authority revoked before they expired.

In:    an authority's key and serial numbers; or lists, PEM or DER, with the authorities' certificates.
Out:   a signed list, PEM; RevocationList; Revocations: whether a certificate was revoked.
State: none; Revocations are constant.
Not here: files (cli/ca.py, config/keyring_files.py), TLS handshakes (live/tls.py), chains (chains.py), spreading lists
          in the network (discovery/revocation_lists.py).

Lists of one authority are numbered; a list replaces those with lower numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from heliograph.errors import ProtocolError, Reason, UsageError

REVOKED_MAX = 100_000  # serial numbers: about 10 MiB
_LIST_DAYS = 3_650  # long, because an expired list would lock out all entities
_END = b"-----END X509 CRL-----"
_END_OF_TIME = 1 << 40  # seconds: a list without an end


@dataclass(frozen=True, slots=True)
class RevocationList:
    """A list whose signature was verified."""

    issuer: bytes = field(repr=False)  # the authority's name, DER
    number: int
    begins: int  # Unix seconds
    ends: int
    serials: frozenset[int] = field(repr=False)
    der: bytes = field(repr=False)

    @property
    def shown(self) -> list[str]:
        """The serial numbers as TLS shows them: upper-case hexadecimal."""
        return sorted(map(shown_serial, self.serials))


class Revocations:
    """The revoked certificates, by issuer and serial number."""

    __slots__ = ("_revoked", "_serials", "lists")

    def __init__(self, lists: Iterable[RevocationList] = ()) -> None:
        self.lists = tuple(lists)
        self._revoked = frozenset((one.issuer, serial) for one in self.lists for serial in one.serials)
        self._serials = frozenset(serial for one in self.lists for serial in one.serials)

    def __len__(self) -> int:
        return len(self._revoked)

    @classmethod
    def from_pem(cls, pem: bytes, authorities: Sequence[x509.Certificate]) -> Revocations:
        """All lists of a PEM file; UsageError if one of them was not signed by one of these authorities."""
        found = cls(_verified(crl, authorities) for crl in _load(pem))
        if len(found) > REVOKED_MAX:
            raise UsageError(f"a revocation list has at most {REVOKED_MAX} certificates; this one has {len(found)}")
        return found

    def with_list(self, new: RevocationList) -> Revocations:
        """These and a further list, in place of the same authority's lists with lower numbers."""
        kept = [one for one in self.lists if one.issuer != new.issuer or one.number >= new.number]
        return Revocations((*kept, new))

    def has_list(self, new: RevocationList) -> bool:
        """True if this list is known, or one that replaces it."""
        return any(one.issuer == new.issuer and one.number >= new.number for one in self.lists)

    def has(self, certificate: x509.Certificate) -> bool:
        """True if this certificate was revoked."""
        return bool(self._revoked) and (certificate.issuer.public_bytes(), certificate.serial_number) in self._revoked

    def has_any(self, serials: Iterable[int]) -> bool:
        """True if one of these serial numbers was revoked. They are random, so that two authorities share none."""
        return bool(self._serials) and not self._serials.isdisjoint(serials)

    def serials(self) -> tuple[str, ...]:
        """The serial numbers of all lists, as TLS shows them."""
        return tuple(dict.fromkeys(serial for one in self.lists for serial in one.shown))


def shown_serial(serial: int) -> str:
    """A serial number as TLS shows it."""
    return f"{serial:X}"


def read_list(der: bytes, authorities: Sequence[x509.Certificate]) -> RevocationList:
    """A list, DER; ProtocolError (CERTIFICATE_…) if it cannot be read, or if none of these authorities signed it."""
    try:
        crl = x509.load_der_x509_crl(der)
        count = len(crl)
    except (ValueError, TypeError):
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, "a revocation list cannot be read") from None
    if count > REVOKED_MAX:
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, f"a revocation list has at most {REVOKED_MAX} certificates")
    try:
        return _verified(crl, authorities)
    except UsageError as error:
        raise ProtocolError(Reason.CERTIFICATE_UNTRUSTED, str(error)) from None


def make_list(
    authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, serials: Sequence[int], now: datetime, after: int = 0
) -> bytes:
    """A list of these serial numbers, signed by the authority, as PEM. Its number is above ``after``."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - timedelta(minutes=5))
        .next_update(min(now + timedelta(days=_LIST_DAYS), authority.not_valid_after_utc))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.CRLNumber(max(after + 1, int(now.timestamp() * 1_000))), critical=False)
    )
    for serial in dict.fromkeys(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.PEM)


def serials_of(pem: bytes) -> list[int]:
    """The serial numbers of all lists of a PEM file, unverified."""
    return [entry.serial_number for crl in _load(pem) for entry in crl]


def number_of(pem: bytes) -> int:
    """The highest number of the lists of a PEM file, unverified."""
    return max((_number(crl) for crl in _load(pem)), default=0)


def _verified(crl: x509.CertificateRevocationList, authorities: Sequence[x509.Certificate]) -> RevocationList:
    if not any(_is_signed(crl, authority) for authority in authorities):
        raise UsageError(f"a revocation list of {_named(crl)} is not signed by tls.authority")
    try:
        ends = _END_OF_TIME if crl.next_update_utc is None else int(crl.next_update_utc.timestamp())
        return RevocationList(
            crl.issuer.public_bytes(),
            _number(crl),
            int(crl.last_update_utc.timestamp()),
            ends,
            frozenset(entry.serial_number for entry in crl),
            crl.public_bytes(Encoding.DER),
        )
    except (ValueError, TypeError):
        raise UsageError("not a revocation list") from None


def _named(crl: x509.CertificateRevocationList) -> str:
    try:
        return crl.issuer.rfc4514_string()
    except (ValueError, TypeError):
        return "an authority whose name cannot be read"


def _number(crl: x509.CertificateRevocationList) -> int:
    """Lists of other makers may have no number: then their time counts, in milliseconds as ours do."""
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError, TypeError):
        return int(crl.last_update_utc.timestamp() * 1_000)


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
    try:
        if crl.issuer != authority.subject or not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        return crl.is_signature_valid(key)
    except (ValueError, TypeError):
        return False
