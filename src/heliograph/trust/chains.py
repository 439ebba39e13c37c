"""Chains: verifies a certificate chain at a given time and names its holder.

In:    a chain of certificates as bytes, the authorities, the wall time.
Out:   Holder, the proven owner of a key; or ProtocolError with what is wrong. ``check_holder``: what is asked of an
       entity's certificate beyond the signatures, here and in TLS.
State: none; Authorities are constant.
Not here: making certificates (certificates.py), remembering results (keyring.py), TLS handshakes (live/tls.py).

A chain is encoded as, for each certificate, u16 length (little-endian) | DER: the holder's own first, then the
intermediate ones, without the authority. Its hash is the SHA-256 of these bytes. All keys are P-256. Checking a chain
takes about 0.2 ms: machines do it inline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.model.identity import Identity, Role
from heliograph.trust.certificate_names import identity_of
from heliograph.trust.revocation import RevocationList, Revocations, read_list

CERTIFICATES_MAX = 4  # the holder's and three intermediate ones; `heliograph ca` makes chains of one
CHAIN_BYTES_MAX = 8_192  # ours have about 700; every remembered holder may cost this much

_SECOND_NS = 1_000_000_000
_LENGTH_BYTES = 2
# What `cryptography` raises for malformed certificates.
_UNREADABLE = (
    Warning,  # if warnings are errors: a serial number of zero causes one
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True)
class Holder:
    """An entity whose chain was verified: its key proves what it signs from ``begins`` to ``ends``."""

    identity: Identity
    chain_hash: bytes
    chain: bytes = field(repr=False, compare=False)
    public_key: ec.EllipticCurvePublicKey = field(repr=False, compare=False)
    begins: int  # in Unix seconds: when every certificate of the chain, and the authority's, is valid
    ends: int
    serials: tuple[int, ...] = ()  # of all these certificates

    def check_time(self, wall_ns: int) -> None:
        """ProtocolError if a certificate of the chain is not valid now."""
        check_dates(self.begins, self.ends, wall_ns)

    def check_role(self, role: Role | None) -> None:
        """ProtocolError(ROLE_MISSING) if the entity does not have this role; None requires no role."""
        if role is not None and not self.identity.has(role):
            raise ProtocolError(Reason.ROLE_MISSING, f"{self.identity.entity} is no {role}")


class Authorities:
    """The authorities whose certificates are accepted; without authorities, no certificate is."""

    __slots__ = ("_certificates", "_revoked", "_store", "count")

    def __init__(self, certificates: Sequence[x509.Certificate] = (), revoked: Revocations | None = None) -> None:
        self._revoked = revoked or Revocations()
        self._certificates = tuple(certificates)
        for certificate in certificates:
            _check_authority(certificate)
        self.count = len(certificates)
        self._store = Store(list(certificates)) if certificates else None

    @classmethod
    def from_pem(cls, pem: bytes, revoked: bytes = b"") -> Authorities:
        """All certificates of a PEM file, such as authority.crt, with revocation lists.

        UsageError if one of them is not an authority's, or if a list was not signed by one of them.
        """
        certificates = load_pem(pem)
        return cls(certificates, Revocations.from_pem(revoked, certificates) if revoked else None)

    def are_all_of(self, others: Authorities) -> bool:
        """True if each of these authorities is among the others."""
        return set(self._certificates) <= set(others._certificates)

    @property
    def revoked(self) -> Revocations:
        """The certificates that these authorities revoked."""
        return self._revoked

    def read_list(self, der: bytes, wall_ns: int) -> RevocationList:
        """A revocation list that one of these authorities signed, and that is valid now; ProtocolError otherwise."""
        found = read_list(der, self._certificates)
        check_dates(found.begins, found.ends, wall_ns)
        return found

    def revoking(self, revoked: Revocations) -> Authorities:
        """The same authorities, with these revocations."""
        return Authorities(self._certificates, revoked)

    def verify(self, chain: bytes, wall_ns: int) -> Holder:
        """The holder of this chain; ProtocolError (CERTIFICATE_…) if it is not proven at this time."""
        certificates = decode_chain(chain)
        try:
            verified = self._verify(certificates, wall_ns // _SECOND_NS)
        except VerificationError:
            raise self._why(certificates, wall_ns) from None
        except _UNREADABLE:
            raise ProtocolError(Reason.CERTIFICATE_MALFORMED, "a certificate cannot be read") from None
        identity = check_holder(verified[0])
        if any(self._revoked.has(certificate) for certificate in verified):
            raise ProtocolError(Reason.CERTIFICATE_REVOKED, f"the certificate of {identity.entity} was revoked")
        begins, ends = _dates(verified)
        serials = tuple(certificate.serial_number for certificate in verified)
        return Holder(identity, chain_hash(chain), chain, _checked_key(verified), begins, ends, serials)

    def _verify(self, certificates: Sequence[x509.Certificate], at: int) -> Sequence[x509.Certificate]:
        if self._store is None:
            raise VerificationError("no authorities")
        verifier = (
            PolicyBuilder()
            .store(self._store)
            .time(datetime.fromtimestamp(at, UTC))
            .max_chain_depth(CERTIFICATES_MAX - 1)
            .build_client_verifier()
        )
        return verifier.verify(certificates[0], list(certificates[1:])).chain

    def _why(self, certificates: Sequence[x509.Certificate], wall_ns: int) -> ProtocolError:
        """Only a chain that was or will be valid is called expired or not yet valid; any other is untrusted."""
        try:
            verified = self._verify(certificates, _dates(certificates)[0])
            check_dates(*_dates(verified), wall_ns)
        except ProtocolError as error:
            return error
        except VerificationError:
            pass  # it is valid at no time
        except _UNREADABLE:
            return ProtocolError(Reason.CERTIFICATE_MALFORMED, "a certificate cannot be read")
        return ProtocolError(Reason.CERTIFICATE_UNTRUSTED, "not issued by an authority that is trusted here")


def check_holder(certificate: x509.Certificate, *, serves: bool = False) -> Identity:
    """The entity that a certificate proves, once its signatures are verified; ProtocolError if it may not be used.

    One rule for signatures and for both ends of TLS: a P-256 key for signatures and key agreement, one entity with a
    role, and the purpose: client authentication, or server authentication where the holder was dialled (``serves``).
    """
    if not _is_p256(certificate):
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, "the key is not P-256")
    if not _may_sign_and_agree(certificate):
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, "the key may not be used for signatures and key agreement")
    if (ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH) not in _purposes(certificate):
        wanted = "server" if serves else "client"
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, f"the certificate is not for {wanted} authentication")
    identity = identity_of(_uris(certificate))
    if identity is None:
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, "the certificate names no entity with a role")
    return identity


def encode_chain(certificates: Sequence[x509.Certificate]) -> bytes:
    """A chain as it is sent; UsageError if it is too long."""
    ders = [certificate.public_bytes(Encoding.DER) for certificate in certificates]
    chain = b"".join(len(der).to_bytes(_LENGTH_BYTES, "little") + der for der in ders)
    if not 1 <= len(ders) <= CERTIFICATES_MAX or len(chain) > CHAIN_BYTES_MAX:
        raise UsageError(
            f"a chain has 1 to {CERTIFICATES_MAX} certificates and at most {CHAIN_BYTES_MAX} bytes; "
            f"this one has {len(ders)} and {len(chain)}. Leave out the authority"
        )
    if _has_repeats(certificates):
        raise UsageError("the chain contains a certificate twice; leave out the second")
    return chain


def decode_chain(chain: bytes) -> list[x509.Certificate]:
    """The certificates of a chain, unverified; ProtocolError(CERTIFICATE_MALFORMED) if it cannot be decoded."""
    if len(chain) > CHAIN_BYTES_MAX:
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, f"a chain has at most {CHAIN_BYTES_MAX} bytes")
    certificates: list[x509.Certificate] = []
    position = 0
    while position < len(chain) and len(certificates) < CERTIFICATES_MAX:
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(chain[position:start], "little")
        try:
            certificates.append(x509.load_der_x509_certificate(chain[start:position]))
        except _UNREADABLE:
            raise ProtocolError(Reason.CERTIFICATE_MALFORMED, "a certificate cannot be read") from None
    if position != len(chain) or not certificates:
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, f"not a chain of 1 to {CERTIFICATES_MAX} certificates")
    if _has_repeats(certificates):  # otherwise one holder could be learned and remembered under several hashes
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, "the chain contains a certificate twice")
    return certificates


def chain_hash(chain: bytes) -> bytes:
    """The hash that names a chain where the chain itself would be too long."""
    return sha256(chain).digest()


def check_dates(begins: int, ends: int, wall_ns: int) -> None:
    """ProtocolError unless begins ≤ now ≤ ends; these are Unix seconds, as in certificates."""
    now = wall_ns // _SECOND_NS
    if now > ends:
        raise ProtocolError(Reason.CERTIFICATE_EXPIRED, f"since {_word(ends)}")
    if now < begins:
        raise ProtocolError(Reason.CERTIFICATE_NOT_YET_VALID, f"before {_word(begins)}; is a clock wrong?")


def load_pem(pem: bytes | str) -> list[x509.Certificate]:
    """All certificates of a PEM file, in order."""
    try:
        return x509.load_pem_x509_certificates(pem.encode() if isinstance(pem, str) else pem)
    except _UNREADABLE:
        raise UsageError("not a file of PEM certificates") from None


def _check_authority(certificate: x509.Certificate) -> None:
    name = certificate.subject.rfc4514_string()
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (x509.ExtensionNotFound, *_UNREADABLE):
        constraints = None
    if constraints is None or not constraints.ca:
        raise UsageError(f"{name} is not an authority's certificate; `heliograph ca init` makes one")
    if not _is_p256(certificate):
        raise UsageError(f"the key of the authority {name} is not P-256")


def _checked_key(verified: Sequence[x509.Certificate]) -> ec.EllipticCurvePublicKey:
    """The holder's key. The authority's key was checked when the authority was loaded."""
    if not all(_is_p256(certificate) for certificate in verified[:-1]):
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, "a key of the chain is not P-256")
    key = verified[0].public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def _has_repeats(certificates: Sequence[x509.Certificate]) -> bool:
    """True if a certificate occurs twice. Signatures are left out of the comparison: anyone can turn an ECDSA
    signature into a second valid one."""
    return len({certificate.tbs_certificate_bytes for certificate in certificates}) < len(certificates)


def _is_p256(certificate: x509.Certificate) -> bool:
    try:
        key = certificate.public_key()
    except _UNREADABLE:
        return False
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)


def _may_sign_and_agree(certificate: x509.Certificate) -> bool:
    """True if the key may be used for signatures and for seals: an entity has one key for both."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return False
    return usage.digital_signature and usage.key_agreement


def _purposes(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return []


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return []


def _dates(certificates: Sequence[x509.Certificate]) -> tuple[int, int]:
    """The period in which all of them are valid, in Unix seconds."""
    begins = max(int(certificate.not_valid_before_utc.timestamp()) for certificate in certificates)
    return begins, min(int(certificate.not_valid_after_utc.timestamp()) for certificate in certificates)


def _word(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
