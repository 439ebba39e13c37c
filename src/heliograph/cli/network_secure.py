"""What `heliograph network up --secure` adds: an authority, certificates for brokers and two people, a topic directory.

In:    the folder of a network and the names of its brokers.
Out:   certificates in FOLDER/ca, sections for the brokers' settings, the address of the secure listener.
State: the folder; `network down` removes it.
Not here: brokers' processes (network_processes.py), certificates themselves (trust/certificates.py).

It is for trials: the authority's key is stored beside the others.
"""

from __future__ import annotations

import re
from pathlib import Path

from heliograph.cli.files import PUBLIC, private_folder, write_file
from heliograph.model.identity import Role

CA = "ca"
TOPICS = "topics"
PEOPLE = ("alice", "bob")

_SECURE = re.compile(r"127\.0\.0\.1:(\d+) \(this machine only, TLS")


def make_certificates(folder: Path, brokers: list[str]) -> None:
    """An authority, a certificate per broker (the first is a topic directory as well), and for alice, bob and admin."""
    from datetime import UTC, datetime

    from heliograph.trust.certificates import LOCAL_HOSTS, issue, make_authority

    where, now = folder / CA, datetime.now(UTC)
    private_folder(where)
    authority = make_authority("heliograph-trial", now)
    _write(where, "authority", authority.certificate, authority.key)
    roles = {name: [Role.BROKER] for name in brokers} | {name: [Role.CLIENT] for name in PEOPLE}
    roles[brokers[0]] = [Role.BROKER, Role.DIRECTORY]
    roles["admin"] = [Role.CLIENT, Role.ADMIN]
    for name, has in roles.items():
        pair = issue(authority, name, has, LOCAL_HOSTS if Role.BROKER in has else (), now)
        _write(where, name, pair.certificate, pair.key)


def _write(where: Path, name: str, certificate: bytes, key: bytes) -> None:
    write_file(where / f"{name}.key", key, force=True)
    write_file(where / f"{name}.crt", certificate, mode=PUBLIC, force=True)


def sections(broker: str, is_first: bool) -> list[str]:
    """Additional sections for a broker's settings."""
    lines = [
        "", "[[listener]]", 'name = "secure"', 'host = "127.0.0.1"', "port = 0", "secure = true",
        'auth = "certificate"', "", "[tls]", f'certificate = "{CA}/{broker}.crt"', f'key = "{CA}/{broker}.key"',
        f'authority = "{CA}/authority.crt"',
    ]  # fmt: skip
    if is_first:
        lines += ["", "[tdn]", "enabled = true", "port = 0", f'place = "{TOPICS}"']
    return lines


def secure_url(log: str) -> str:
    """Where clients connect to a broker with TLS, from its log."""
    found = _SECURE.search(log)
    return f"heliographs://localhost:{found[1]}" if found else ""


def environment(folder: Path, url: str, person: str) -> dict[str, str]:
    """The variables that make commands and programs act as this person, at this broker."""
    return {
        "HELIOGRAPH_URL": url,
        "HELIOGRAPH_AUTHORITY": str(folder / CA / "authority.crt"),
        "HELIOGRAPH_CERTIFICATE": str(folder / CA / f"{person}.crt"),
        "HELIOGRAPH_KEY": str(folder / CA / f"{person}.key"),
    }


def remove(folder: Path) -> None:
    """Remove these files."""
    import shutil

    for name in (CA, TOPICS):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name, ignore_errors=True)
