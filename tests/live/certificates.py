"""Certificate files for tests, good and bad.

In:    a folder.
Out:   TlsFiles.
State: one authority per folder.
Not here: making certificates (trust/certificates.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from heliograph.live.tls import TlsFiles
from heliograph.model.identity import Role
from heliograph.trust.certificates import Pair, issue, make_authority, revoke

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
DAY = timedelta(days=1)


class Authority:
    """Issues certificate files into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._pair = make_authority(name, datetime.now(UTC) - timedelta(days=100), 1_000)
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self._pair.certificate)

    def files(
        self,
        entity: str,
        *,
        roles: Sequence[Role] = (Role.CLIENT,),
        days_ago: int = 0,
        days: int = 30,
        trust: bool = True,
    ) -> TlsFiles:
        """A certificate for 127.0.0.1, begun ``days_ago`` and good for ``days`` from then."""
        begin = datetime.now(UTC) - timedelta(days=days_ago, hours=1)
        pair: Pair = issue(self._pair, entity, roles, ["127.0.0.1", "localhost"], begin, days)
        return self._keep(entity, pair, trust)

    def _keep(self, entity: str, pair: Pair, trust: bool = True) -> TlsFiles:
        certificate, key = self._folder / f"{entity}.crt", self._folder / f"{entity}.key"
        certificate.write_bytes(pair.certificate)
        key.unlink(missing_ok=True)
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        return TlsFiles(certificate=certificate, key=key, authority=self.file if trust else None)

    def odd(
        self,
        entity: str,
        *,
        roles: Sequence[Role] = (Role.BROKER,),
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        purposes: Sequence[x509.ObjectIdentifier] = (SERVER, CLIENT),
        rsa_key: bool = False,
    ) -> TlsFiles:
        """A certificate that this authority signs but that `heliograph ca issue` would not make."""
        now = datetime.now(UTC)
        good = x509.load_pem_x509_certificate(issue(self._pair, entity, roles, hosts, now).certificate)
        key = rsa.generate_private_key(65_537, 2_048) if rsa_key else ec.generate_private_key(ec.SECP256R1())
        builder = x509.CertificateBuilder(
            good.issuer, good.subject, key.public_key(), good.serial_number, now - timedelta(hours=1), now + DAY
        )
        for extension in good.extensions:
            if not isinstance(extension.value, x509.ExtendedKeyUsage | x509.SubjectKeyIdentifier):
                builder = builder.add_extension(extension.value, extension.critical)
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        signer = serialization.load_pem_private_key(self._pair.key, None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        certificate = builder.sign(signer, hashes.SHA256())
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._keep(entity, Pair(certificate.public_bytes(serialization.Encoding.PEM), plain))

    def revoke(self, *entities: str) -> Path:
        """A list of the certificates of these entities as they are in the folder now; empty without any."""
        listed = self._folder / "revoked.crl"
        certificates = [(self._folder / f"{entity}.crt").read_bytes() for entity in entities]
        listed.write_bytes(revoke(self._pair, certificates, b"", datetime.now(UTC)))
        return listed
