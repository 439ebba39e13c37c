"""Identities: the entity and roles that a peer has proven; and valid names of entities and networks.

In:    what a transport or a credential proved.
Out:   Identity and Role; whether a name is valid.
State: none.
Not here: proving it (broker/credentials.py, live/tls.py), access rights (broker/access.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

ENTITY_LENGTH_MAX = 128
ENTITY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@-]*\Z"
NETWORK_LENGTH_MAX = 64
NETWORK_PATTERN = rf"{ENTITY_PATTERN}|^\Z"  # empty: unnamed
NETWORK_RULE = f"at most {NETWORK_LENGTH_MAX} letters, digits and . _ @ -, the first a letter or digit"
_ENTITY = re.compile(ENTITY_PATTERN)


class Role(StrEnum):
    """What kind of party an entity is. A certificate or token names one or more."""

    CLIENT = "client"
    BROKER = "broker"
    ADMIN = "admin"
    DIRECTORY = "directory"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Identity:
    """A proven entity and its roles."""

    entity: str
    roles: tuple[Role, ...] = (Role.CLIENT,)
    proof: str = "none"  # "certificate", "token", "local" (the node's own admin token), "pipe" or "none"

    def has(self, role: Role) -> bool:
        """True if the entity was given this role."""
        return role in self.roles

    @property
    def is_proven(self) -> bool:
        """True if the entity was proven by something; a merely claimed entity id proves nothing."""
        return self.proof != "none"


ANONYMOUS = Identity("anonymous")


def entity_is_valid(entity: str) -> bool:
    """True if this can be an entity id. Ids become topic levels and file names, so they are short and plain."""
    return len(entity) <= ENTITY_LENGTH_MAX and _ENTITY.match(entity) is not None


def network_is_valid(name: str) -> bool:
    """True if this can be a network name. Names are sent in datagrams and typed in shells; they are not empty."""
    return len(name) <= NETWORK_LENGTH_MAX and _ENTITY.match(name) is not None


def describe_network(name: str) -> str:
    """A network in messages for people: its name, or that it has none."""
    return f"network {name!r}" if name else "a network without a name"
