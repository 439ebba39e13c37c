"""Hearer: what one reader may hear, or one publisher publish, as its broker said with the request.

In:    requests with the reader's identity, rules and rights.
Out:   whether it may hear a topic, or publish on it; whether a filter can give it anything.
State: none beyond what was said.
Not here: the rules themselves (broker/access.py), who says it (broker/hearings.py).
"""

from __future__ import annotations

from functools import cached_property

from heliograph.broker.access import Profile, heard_profile, spoken_profile
from heliograph.model.identity import ANONYMOUS, Identity, Role
from heliograph.wire.hearing import Hearing

KNOWN_ROLES = frozenset(Role)


class Hearer:
    """A reader, to its store."""

    def __init__(self, entity: str, roles: list[str], said: Hearing, source: str = "") -> None:
        self._entity = entity
        self._roles = roles
        self._said = said
        self.as_of = said.as_of
        self.holder = (entity, source if entity == ANONYMOUS.entity else "")  # whom its readings count for

    def is_same(self, other: Hearer) -> bool:
        """True if the other may hear the same, as of the same moment."""
        return (self._entity, self._roles, self._said) == (other._entity, other._roles, other._said)

    @cached_property
    def _identity(self) -> Identity:
        roles = tuple(Role(role) for role in self._roles if role in KNOWN_ROLES)
        return Identity(self._entity, roles, self._said.proof)

    @cached_property
    def _profile(self) -> Profile:
        return heard_profile(self._said.rules, self._said.default, self._identity)

    @cached_property
    def _roots(self) -> frozenset[bytes]:
        return frozenset(root.encode() for root in self._said.roots)

    @cached_property
    def _spoken(self) -> Profile:
        return spoken_profile(self._said.spoken, self._said.default, self._identity)

    @cached_property
    def _spoken_roots(self) -> frozenset[bytes]:
        return frozenset(root.encode() for root in self._said.spoken_roots)

    def may_publish(self, topic: bytes) -> bool:
        """True if it may publish on this topic."""
        return self._spoken.may_speak(topic, self._spoken_roots.__contains__)

    def may_hear(self, topic: bytes) -> bool:
        """True if the reader may hear this topic."""
        return self._profile.may_hear(topic, self._identity, self._roots.__contains__)

    def may_open(self, pattern: bytes) -> bool:
        """False if no reading of this filter could give the reader anything, unless it gets a right to a created topic
        later."""
        return self._profile.may_filter(pattern) and not self._profile.is_foreign(pattern, self._identity)
