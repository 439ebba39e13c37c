"""Tokens: how a simple set-up proves a client's identity, and how a token is stored as a hash.

In:    a token as shown by a client; the text of a token file.
Out:   its scrypt digest; TokenRecords; the text of a token file.
State: none.
Not here: making random tokens and writing the file (cli/token.py), checks in a handshake (broker/credentials.py).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from hashlib import scrypt
from hmac import compare_digest
from typing import Any

from msgspec import Struct

from heliograph.errors import ConfigError
from heliograph.model.identity import Role, entity_is_valid

# 50 to 100 ms and 16 MiB per check. These are constants: with other values, a valid token would look like a wrong one.
SCRYPT_N = 2**14
SCRYPT_R = 8
SCRYPT_P = 1
SALT_BYTES = 16
DIGEST_BYTES = 32

_KEYS = ("entity", "roles", "salt", "digest")
_HEAD = "# Heliograph tokens: salts and scrypt digests. The tokens themselves are kept by their entities only.\n"


class TokenRecord(Struct, frozen=True):
    """A token as it is stored: never the token itself, only its scrypt hash."""

    entity: str
    roles: tuple[Role, ...]
    salt: bytes
    digest: bytes


def token_digest(token: str, salt: bytes) -> bytes:
    """The digest that is stored for a token. Slow by intention: in a broker this is a job."""
    return scrypt(token.encode(), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, dklen=DIGEST_BYTES)


def hash_token(entity: str, roles: Iterable[Role], token: str, salt: bytes) -> TokenRecord:
    """The record to store for a new token."""
    return TokenRecord(entity, tuple(dict.fromkeys(roles)), salt, token_digest(token, salt))


def verify(record: TokenRecord, token: str) -> bool:
    """True if this is the token that the record was made from."""
    return compare_digest(record.digest, token_digest(token, record.salt))


def load_tokens(text: str, path: str = "tokens") -> tuple[TokenRecord, ...]:
    """The records of a token file. A ConfigError lists everything wrong with it and names the file by ``path``."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from None
    problems = [
        f"{path}: unknown key {key!r}: only [[token]] tables are allowed here" for key in document if key != "token"
    ]
    entries = document.get("token", [])
    if not isinstance(entries, list):
        raise ConfigError([*problems, f"{path}: token must be written as [[token]] tables"])
    records: dict[str, TokenRecord] = {}
    for number, entry in enumerate(entries):
        where = f"{path}: token[{number}]"
        faults = _entry_faults(entry, where)
        problems += faults
        if faults:
            continue
        if entry["entity"] in records:
            problems.append(f"{where}.entity = {entry['entity']!r}: has a token already; an entity has one")
        roles = tuple(dict.fromkeys(Role(role) for role in entry["roles"]))
        salt, digest = bytes.fromhex(entry["salt"]), bytes.fromhex(entry["digest"])
        records[entry["entity"]] = TokenRecord(entry["entity"], roles, salt, digest)
    if problems:
        raise ConfigError(problems)
    return tuple(records.values())


def save_tokens(records: Iterable[TokenRecord]) -> str:
    """The text of a token file; every value is plain, so nothing needs escaping."""
    parts = [_HEAD]
    for record in records:
        roles = ", ".join(f'"{role}"' for role in record.roles)
        parts.append(
            f'\n[[token]]\nentity = "{record.entity}"\nroles = [{roles}]\n'
            f'salt = "{record.salt.hex()}"\ndigest = "{record.digest.hex()}"\n'
        )
    return "".join(parts)


def _entry_faults(entry: Any, where: str) -> list[str]:
    if not isinstance(entry, dict):
        return [f"{where}: must be a table with {', '.join(_KEYS)}"]
    found = [f"{where}: unknown key {key!r}; the keys are {', '.join(_KEYS)}" for key in entry if key not in _KEYS]
    entity, roles = entry.get("entity"), entry.get("roles")
    if not isinstance(entity, str) or not entity_is_valid(entity):
        found.append(f"{where}.entity = {entity!r}: must be an entity id (letters, digits and . _ @ -)")
    if not isinstance(roles, list) or not roles or any(role not in list(Role) for role in roles):
        found.append(f"{where}.roles = {roles!r}: must be a list of {', '.join(Role)}")
    for key, size in (("salt", SALT_BYTES), ("digest", DIGEST_BYTES)):
        # The message does not repeat the value: it is not secret, but useless in a log.
        if not _is_hex(entry.get(key), size):
            found.append(f"{where}.{key}: must be {2 * size} hex digits")
    return found


def _is_hex(value: Any, size: int) -> bool:
    if not isinstance(value, str) or len(value) != 2 * size:
        return False
    return all(digit in "0123456789abcdefABCDEF" for digit in value)
