"""Trust settings: the files with which a node proves itself and checks others.

In:    values of the right type.
Out:   frozen configs.
State: none.
Not here: reading the files (config/keyring_files.py, live/tls.py), the network key (broker/routing/config.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.model.settings import PATH, setting

_PEM = "a path to a PEM file; relative to the settings file"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The certificate of a node and the authority of others.

    A reload reads the files again, and takes other names of them if the node had certificates when it started. The name
    of the authority stays: no certificate that was accepted so far may become worthless by a slip.
    """

    certificate: str = setting("", "the node's certificate, made by `heliograph ca issue`", allowed=_PEM, is_file=True)
    key: str = setting(
        "",
        "the certificate's private key, readable by its owner only",
        allowed=_PEM,
        is_file=True,
    )
    authority: str = setting(
        "",
        "the authority whose certificates are accepted, made by `heliograph ca init`",
        allowed=_PEM,
        reloads=False,
        is_file=True,
    )

    revoked: str = setting(
        "",
        "certificates that the authority revoked, made by `heliograph ca revoke`",
        allowed=_PEM,
        is_file=True,
    )

    @property
    def is_complete(self) -> bool:
        """True if a node can prove itself and check others."""
        return bool(self.certificate and self.key and self.authority)

    @property
    def is_used(self) -> bool:
        """True if at least one file is named."""
        return bool(self.certificate or self.key or self.authority)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensConfig:
    """Where token digests are kept."""

    file: str = setting("", "the token file, made by `heliograph token add`", allowed=PATH, is_file=True)
