"""The keyring: what a machine holds to sign, verify, seal and open.

In:    our own key and chain (or none), authorities, bytes as received, the wall time.
Out:   envelopes, seals; Signed statements with their proven Holder; ProtocolError for a peer's mistakes.
State: our own key and authorities until ``renew`` or ``revoke``; verified holders and signatures, bounded.
Not here: reading files (config/keyring_files.py), freshness (freshness.py), what a holder may do (broker/access.py).

Machines call this inline; nothing here is a job: signing takes about 40 µs, verifying 100, a chain 200, sealing and
opening 100 each, and a cached result 4. Whoever has threads may lend them for many signatures (``check_with``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.model.identity import Role
from heliograph.trust import envelope, readers, signatures
from heliograph.trust.chains import Authorities, Holder, chain_hash, encode_chain, load_pem
from heliograph.trust.domains import framed
from heliograph.trust.recent import Recent
from heliograph.trust.revocation import RevocationList
from heliograph.trust.sealing import HpkeSealer, Sealer

HOLDERS_MAX = 1_024  # brokers and clients that sign, at one node; at most 8 KiB each, mostly 1
SIGNATURES_MAX = 4_096  # 32 bytes each, plus the table

_REMEMBERED = b"heliograph verified 1"


@dataclass(frozen=True, slots=True)
class Own:
    """The key and chain with which this party proves itself."""

    key: ec.EllipticCurvePrivateKey = field(repr=False, compare=False)
    chain: bytes = field(repr=False)
    chain_hash: bytes

    @classmethod
    def from_pem(cls, certificate: bytes, key: bytes) -> Own:
        """From the two files of `heliograph ca issue`; UsageError if they do not belong together."""
        certificates = load_pem(certificate)
        try:
            private = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError):  # TypeError: it is encrypted
            raise UsageError("not a plain PEM private key") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(private.curve, ec.SECP256R1):
            raise UsageError("the private key is not P-256; `heliograph ca issue` makes one that is")
        if private.public_key() != certificates[0].public_key():
            raise UsageError("the private key does not belong to the certificate")
        chain = encode_chain(certificates)
        return cls(private, chain, chain_hash(chain))


@dataclass(frozen=True, slots=True)
class Signed:
    """A statement whose signature was verified."""

    payload: bytes
    holder: Holder  # the signer


class Keyring:
    """Signs as its owner; verifies every entity that the authorities vouch for."""

    __slots__ = ("_authorities", "_check_all", "_holders", "_own", "_sealer", "_signatures")

    def __init__(
        self,
        authorities: Authorities,
        own: Own | None = None,
        *,
        holders_max: int = HOLDERS_MAX,
        signatures_max: int = SIGNATURES_MAX,
        sealer: Sealer | None = None,
    ) -> None:
        self._check_all: signatures.CheckAll = signatures.check_in_turn
        self._sealer: Sealer = sealer or HpkeSealer()
        self._authorities = authorities
        self._own = own
        self._holders: Recent[bytes, Holder] = Recent(holders_max)
        self._signatures: Recent[bytes, bool] = Recent(signatures_max)

    def __repr__(self) -> str:
        own = self._own.chain_hash.hex()[:16] if self._own else "none"
        return f"Keyring(own={own}, authorities={self._authorities.count}, holders={len(self._holders)})"

    @property
    def authorities(self) -> Authorities:
        """The authorities whose certificates are accepted."""
        return self._authorities

    @property
    def own(self) -> Own | None:
        """The key and chain with which this party proves itself, if it has them."""
        return self._own

    def renew(self, other: Keyring) -> None:
        """Use the key and the authorities of another keyring from now on; verified results are forgotten."""
        self._own, self._authorities = other._own, other._authorities
        self._holders.clear()
        self._signatures.clear()

    def revoke(self, new: RevocationList) -> bool:
        """Refuse the certificates of this list from now on. False if it is known, or a newer one of its authority."""
        if self._authorities.revoked.has_list(new):
            return False
        self._authorities = self._authorities.revoking(self._authorities.revoked.with_list(new))
        self._holders.clear()
        self._signatures.clear()
        return True

    def learn(self, chain: bytes, wall_ns: int, role: Role | None = None) -> Holder:
        """Verify a chain and remember its holder, so that signatures that name its hash can be verified.

        Raises ProtocolError: CERTIFICATE_MALFORMED, _UNTRUSTED, _EXPIRED, _NOT_YET_VALID, or ROLE_MISSING.
        """
        name = chain_hash(chain)
        holder = self._holders.get(name)
        if holder is None:
            holder = self._authorities.verify(chain, wall_ns)
            self._holders.keep(name, holder)
        self._check(holder, wall_ns, role)
        return holder

    def holder(self, name: bytes, wall_ns: int, role: Role | None = None) -> Holder:
        """The holder of the chain with this hash; on CERTIFICATE_UNKNOWN get the chain, ``learn`` it and try again."""
        holder = self._holders.get(name)
        if holder is None:
            if self._own is None or name != self._own.chain_hash:
                raise ProtocolError(Reason.CERTIFICATE_UNKNOWN, f"no chain is known for {name.hex()[:16]}…")
            return self.learn(self._own.chain, wall_ns, role)
        self._check(holder, wall_ns, role)
        return holder

    def chain(self, name: bytes) -> bytes | None:
        """The chain with this hash, for a peer that asks: our own, or one that was verified."""
        if self._own is not None and name == self._own.chain_hash:
            return self._own.chain
        holder = self._holders.get(name)
        return holder.chain if holder is not None else None

    def sign(self, domain: bytes, payload: bytes) -> bytes:
        """An envelope with this payload, signed as its owner for this domain."""
        own = self._require_own()
        signed = own.chain_hash + payload
        return envelope.encode(envelope.Envelope(signatures.sign(own.key, domain, signed), signed))

    def verify(self, domain: bytes, data: bytes, wall_ns: int, role: Role | None = None) -> Signed:
        """The signer and the payload of an envelope as received.

        Raises ProtocolError: BODY_MALFORMED, CERTIFICATE_UNKNOWN (see ``holder``), _EXPIRED, _NOT_YET_VALID,
        ROLE_MISSING or SIGNATURE_WRONG.
        """
        opened = envelope.decode(data)
        holder = self.holder(opened.chain_hash, wall_ns, role)
        remembered = sha256(framed(_REMEMBERED, domain, data)).digest()
        if not self._signatures.get(remembered):
            signatures.verify(holder.public_key, domain, opened.signed, opened.signature)
            self._signatures.keep(remembered, True)
        return Signed(opened.payload, holder)

    def check_with(self, check_all: signatures.CheckAll) -> None:
        """From now on, verify many signatures this way: a driver may have threads for it."""
        self._check_all = check_all

    def verify_all(
        self, domain: bytes, many: Sequence[bytes], wall_ns: int, role: Role | None = None
    ) -> list[Signed | ProtocolError]:
        """The same as ``verify`` for many envelopes at once: for each the signer and payload, or the error."""
        results: list[Signed | ProtocolError] = []
        new: list[tuple[int, bytes]] = []  # place in the results, and what to remember
        checks: list[signatures.Check] = []
        holders: dict[bytes, Holder] = {}
        for place, data in enumerate(many):
            try:
                opened = envelope.decode(data)
                holder = holders.get(name := opened.chain_hash)
                if holder is None:
                    holder = holders[name] = self.holder(name, wall_ns, role)
                remembered = sha256(framed(_REMEMBERED, domain, data)).digest()
                if not self._signatures.get(remembered):
                    checks.append(signatures.check_of(holder.public_key, domain, opened.signed, opened.signature))
                    new.append((place, remembered))
                results.append(Signed(opened.payload, holder))
            except ProtocolError as error:
                results.append(error)
        for (place, remembered), holds in zip(new, self._check_all(checks), strict=True):
            if holds:
                self._signatures.keep(remembered, True)
            else:
                results[place] = signatures.wrong()
        return results

    def seal(self, recipient: Holder, domain: bytes, plaintext: bytes, aad: bytes = b"") -> bytes:
        """The plaintext, sealed for one holder; ``aad`` is not sent: both sides must use the same."""
        return self._sealer.seal(recipient.public_key, domain, plaintext, aad)

    def seal_for(self, recipients: Sequence[Holder], domain: bytes, plaintext: bytes) -> bytes:
        """The plaintext, sealed for up to 256 holders."""

        def sealed_to(holder: Holder) -> readers.SealKey:
            return lambda key: self._sealer.seal(holder.public_key, domain, key, b"")

        named = [(holder.chain_hash, sealed_to(holder)) for holder in recipients]
        return readers.seal_for(named, domain, plaintext, self._sealer.draw)

    def open_shared(self, domain: bytes, sealed: bytes) -> bytes:
        """The plaintext of a seal for several holders; ProtocolError(SEAL_BROKEN) if we are not one of them."""
        if self._own is None:
            raise ProtocolError(Reason.SEAL_BROKEN, "there is no key here to open it with")
        own = self._own
        return readers.open_for(
            own.chain_hash, lambda key: self._sealer.open(own.key, domain, key, b""), domain, sealed
        )

    def draw(self, size: int) -> bytes:
        """This many random bytes, at most 32, from the same source as those of seals."""
        return self._sealer.draw(size)

    def open(self, domain: bytes, sealed: bytes, aad: bytes = b"") -> bytes:
        """The plaintext of a seal for us; ProtocolError(SEAL_BROKEN) if it is not for us, this domain and this aad."""
        if self._own is None:
            raise ProtocolError(Reason.SEAL_BROKEN, "there is no key here to open it with")
        return self._sealer.open(self._own.key, domain, sealed, aad)

    def report(self) -> dict[str, dict[str, int]]:
        """How full the caches are, and how often they were hit."""
        return {"holders": self._holders.report(), "signatures": self._signatures.report()}

    def _check(self, holder: Holder, wall_ns: int, role: Role | None) -> None:
        """A remembered holder is valid only as long as its certificates are."""
        try:
            holder.check_time(wall_ns)
        except ProtocolError:
            self._holders.drop(holder.chain_hash)
            raise
        holder.check_role(role)

    def _require_own(self) -> Own:
        if self._own is None:
            raise UsageError("there is no certificate to sign with: name tls.certificate and tls.key")
        return self._own
