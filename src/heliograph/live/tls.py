"""TLS for live links: contexts from files, identities from verified certificates, reasons from failures.

In:    paths of certificate, key and authority files; what the ssl module raises.
Out:   TlsContexts; the certificate of a peer, checked; a Reason and a readable text.
State: none; new links get new contexts when files have changed (``TlsContexts.take``, ``FreshContext``).
Not here: making certificates (trust/), access rights (broker/access.py).
"""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from heliograph.errors import ConfigError, ProtocolError, Reason, UnreadableError
from heliograph.model.identity import Identity, Role
from heliograph.trust.config import TlsConfig

_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_REVOKED = 23  # X509_V_ERR_CERT_REVOKED
_REASONS = {  # what OpenSSL calls it -> our reason
    "CERTIFICATE_VERIFY_FAILED": Reason.CERTIFICATE_UNTRUSTED,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": Reason.CREDENTIAL_MISSING,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": Reason.CERTIFICATE_EXPIRED,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": Reason.CERTIFICATE_REVOKED,
    "SSLV3_ALERT_BAD_CERTIFICATE": Reason.CERTIFICATE_UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": Reason.CERTIFICATE_UNTRUSTED,
    "TLSV1_ALERT_UNKNOWN_CA": Reason.CERTIFICATE_UNTRUSTED,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": Reason.CREDENTIAL_MISSING,
}
_PLAIN_TEXT = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "UNKNOWN_PROTOCOL")


class TlsFiles(Struct, frozen=True, kw_only=True):
    """The files of a party: its certificate, its key, and the authority that it trusts."""

    certificate: Path | None = None  # PEM: its own certificate first, then the chain
    key: Path | None = None
    authority: Path | None = None  # PEM; None: a client trusts the system's authorities, a server trusts none
    revoked: Path | None = None  # PEM revocation lists of the authority

    @classmethod
    def named_in(cls, tls: TlsConfig) -> TlsFiles | None:
        """The files that settings name; None if they name none."""
        if not tls.is_used:
            return None
        return cls(
            certificate=Path(tls.certificate) if tls.certificate else None,
            key=Path(tls.key) if tls.key else None,
            authority=Path(tls.authority) if tls.authority else None,
            revoked=Path(tls.revoked) if tls.revoked else None,
        )


class PeerCertificate(Struct, frozen=True, kw_only=True):
    """What TLS has verified about a peer; all fields are empty if it has shown no certificate."""

    identity: Identity | None = None  # None: it does not meet what is asked of an entity's certificate (``flaw``)
    serial: str = ""  # upper-case hexadecimal
    expires_ms: int | None = None
    flaw: str = ""


class TlsContexts(Struct):
    """What a driver needs for secure listeners and secure dials; either may be missing. Ask for it at every link: a
    context cannot forget an authority, so a reload brings new ones."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    fresh: FreshContext | None = None  # in place of ``client``: for a program, which nobody tells to reload

    @property
    def dialling(self) -> ssl.SSLContext | None:
        """The context for the next dial."""
        return self.client if self.fresh is None else self.fresh.context()

    def take(self, renewed: TlsContexts) -> None:
        """Use these for new links."""
        self.server, self.client = renewed.server, renewed.client


class FreshContext:
    """A client's context, made again when its files have changed: a renewed certificate is used by the next dial."""

    def __init__(self, files: TlsFiles) -> None:
        """ConfigError if the files are not usable."""
        self._files = files
        self._stamp = _stamp(files)
        self._context = client_context(files)

    def context(self) -> ssl.SSLContext:
        """The context for the next dial. While the files cannot be used, perhaps half written, it stays the same."""
        stamp = _stamp(self._files)
        if stamp != self._stamp:
            try:
                self._context = client_context(self._files)
                self._stamp = stamp
            except (ConfigError, OSError):
                pass  # the next dial looks again; if the old certificate has ended, the broker says so
        return self._context


def server_context(files: TlsFiles, *, require_certificate: bool) -> ssl.SSLContext:
    """For listeners. Peers may show a certificate if an authority is named, and must if it is required."""
    problems = [] if files.certificate and files.key else ["tls.certificate and tls.key: a secure listener needs both"]
    if require_certificate and files.authority is None:
        problems.append("tls.authority: a listener that asks for certificates needs the authority that issues them")
    context = _context(ssl.PROTOCOL_TLS_SERVER, files, problems)
    context.verify_mode = ssl.CERT_NONE
    if files.authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED if require_certificate else ssl.CERT_OPTIONAL
    context.num_tickets = 0  # links are long-lived, so sessions are not resumed
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """For dials: the broker's certificate must be valid for its name. What it must prove besides: ``check_dialled``."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files, [])
    context.hostname_checks_common_name = False  # the common name is the entity, which may look like a host
    if files.authority is None:
        context.load_default_certs()
    return context


def check_files(files: TlsFiles) -> list[str]:
    """Texts for everything that is wrong with the files."""
    problems = []
    for what in ("certificate", "key", "authority", "revoked"):
        path: Path | None = getattr(files, what)
        if path is None:
            continue
        if not path.is_file():
            problems.append(f"tls.{what} = {path}: there is no such file")
        elif what == "key" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            problems.append(f"tls.key = {path}: others can read this key; run: chmod 600 {path}")
        elif what == "certificate":
            problems += _dates(path)
    return problems


def _dates(path: Path) -> list[str]:
    """Refuse a certificate that is not valid today at the start, rather than let every peer refuse it later."""
    from cryptography import x509  # takes 30 ms, and only nodes with TLS need it

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        return [f"tls.certificate = {path}: not a PEM certificate ({error})"]
    now = datetime.now(UTC)
    start, end = (
        f"{date:%Y-%m-%d %H:%M} UTC" for date in (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    )
    if certificate.not_valid_after_utc <= now:
        return [f"tls.certificate = {path}: expired on {end}; issue a new one"]
    if certificate.not_valid_before_utc > now:
        return [f"tls.certificate = {path}: not valid before {start}; is this machine's clock right?"]
    return []


def _context(protocol: int, files: TlsFiles, problems: list[str]) -> ssl.SSLContext:
    problems = problems + check_files(files)
    if any(path is not None and not path.is_file() for path in _named(files)):
        raise UnreadableError(problems)
    if problems:
        raise ConfigError(problems)
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        if files.authority is not None:
            context.load_verify_locations(files.authority)
        if files.authority is not None and files.revoked is not None:
            context.load_verify_locations(files.revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except ssl.SSLError as error:
        if files.certificate is not None and files.key is None:
            raise ConfigError([f"tls.certificate = {files.certificate}: its key is missing; name it too"]) from error
        raise ConfigError(
            [f"tls: certificate, key and authority do not fit together ({error.reason or error})"]
        ) from error
    return context


def _stamp(files: TlsFiles) -> tuple[tuple[int, int, int] | None, ...]:
    """It differs if one of the files was replaced."""
    return tuple(None if path is None else _stamp_of(path) for path in _named(files))


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _named(files: TlsFiles) -> tuple[Path | None, ...]:
    return files.certificate, files.key, files.authority, files.revoked


def _no_password() -> str:
    """Without this OpenSSL would ask on the terminal, and a node started at boot would wait for ever."""
    return ""


def peer_certificate(tls: ssl.SSLObject | ssl.SSLSocket, *, dialled: bool) -> PeerCertificate:
    """The certificate that the peer has shown; ``dialled``: it accepted our dial, so it must be one of a server."""
    shown, der = tls.getpeercert(), tls.getpeercert(binary_form=True)
    if not shown or der is None:  # an empty dict: presented but not verified
        return PeerCertificate()
    from cryptography import x509  # takes 30 ms, and only nodes with TLS need it

    from heliograph.trust.chains import check_holder

    identity, flaw = None, ""
    try:
        identity = check_holder(x509.load_der_x509_certificate(der), serves=dialled)
    except ProtocolError as error:
        flaw = error.detail
    except ValueError:
        flaw = "the certificate cannot be read"
    return PeerCertificate(
        identity=identity,
        serial=str(shown["serialNumber"]).lstrip("0"),
        expires_ms=int(ssl.cert_time_to_seconds(str(shown["notAfter"]))) * 1_000,
        flaw=flaw,
    )


def check_dialled(shown: PeerCertificate, role: Role) -> None:
    """ProtocolError unless the party that we dialled has proven this role: nothing is sent to it before."""
    if shown.identity is None:
        raise ProtocolError(Reason.CERTIFICATE_MALFORMED, shown.flaw or "it has shown no certificate")
    if not shown.identity.has(role):
        raise ProtocolError(Reason.ROLE_MISSING, f"its certificate names {shown.identity.entity}, which is no {role}")


def reason_of(error: BaseException, otherwise: Reason = Reason.RESET) -> Reason:
    """Our reason for an error of a transport."""
    if isinstance(error, ProtocolError):
        return error.reason
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code == _EXPIRED:
        return Reason.CERTIFICATE_EXPIRED
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code == _REVOKED:
        return Reason.CERTIFICATE_REVOKED
    if isinstance(error, ssl.SSLError):
        return _REASONS.get(error.reason or "", Reason.TLS_FAILED)
    if isinstance(error, ConnectionAbortedError):  # asyncio: the handshake took too long
        return Reason.HANDSHAKE_TOO_SLOW
    if isinstance(error, TimeoutError):
        return Reason.TIME_OUT
    return otherwise


def explain(error: BaseException) -> str:
    """A readable text for the same, with the likely cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in _PLAIN_TEXT:
            return "not TLS 1.3; is the peer set up for plain text or an older TLS?"
        return f"the TLS handshake failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, ConnectionAbortedError):
        return "the TLS handshake took too long"
    return "the peer closed the connection during the TLS handshake"
