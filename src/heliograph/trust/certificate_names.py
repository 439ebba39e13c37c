"""Names in certificates: how an entity id and its roles are written and read.

In:    an entity and its roles; or the URIs of a certificate's subject alternative name.
Out:   the URIs; or the Identity that they prove.
State: none.
Not here: making and checking certificates (certificates.py), the TLS handshake (live/tls.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.model.identity import Identity, Role, entity_is_valid

ENTITY_URI = "heliograph:entity:"
ROLE_URI = "heliograph:role:"


def uris_of(entity: str, roles: Iterable[Role]) -> list[str]:
    """The URIs of an entity and its roles in a certificate."""
    return [ENTITY_URI + entity, *(ROLE_URI + role for role in dict.fromkeys(roles))]


def identity_of(uris: Iterable[str]) -> Identity | None:
    """The entity that these URIs name; None unless there is exactly one with at least one role. Other URIs are
    ignored."""
    entities, roles = [], []
    for uri in uris:
        if uri.startswith(ENTITY_URI):
            entities.append(uri.removeprefix(ENTITY_URI))
        elif uri.startswith(ROLE_URI):
            roles.append(uri.removeprefix(ROLE_URI))
    known = tuple(dict.fromkeys(Role(role) for role in roles if role in list(Role)))  # a later version may know more
    if len(entities) != 1 or not entity_is_valid(entities[0]) or not known:
        return None
    return Identity(entities[0], known, "certificate")
