"""Grants that let a requester find hidden topics: checked when a search begins, and again before each answer.

In:    searches with bundles; revocations that the directory knows; the clock.
Out:   the rights that a search rests on; whether an entry may still be shown for one of them.
State: none; a search keeps its rights.
Not here: what grants mean (grants.py), searching (topic_searches.py), learning revocations (revocation_learner.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.discovery.topics.bundle import decode_bundle
from heliograph.discovery.topics.grants import TopicRight, right_of
from heliograph.discovery.topics.messages import Search
from heliograph.discovery.topics.revocations import KnownRevocations
from heliograph.discovery.topics.statements import NS_PER_MS, Statements
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError
from heliograph.machine import Instant
from heliograph.repository import EVERYBODY, TopicEntry

CHAINS_MAX = 8  # of one bundle: each costs time to verify

Held = Mapping[bytes, TopicRight]
"""The rights with which a search finds hidden topics, by topic."""


class HeldGrants:
    """Judges the grants of searches, for one directory."""

    def __init__(self, statements: Statements, known: KnownRevocations, clock: WallTime) -> None:
        self._statements = statements
        self._known = known
        self._clock = clock

    def of(self, search: Search, entity: str, wall_ns: int) -> Held:
        """The rights to discover that this entity shows; invalid grants are ignored."""
        found: dict[bytes, TopicRight] = {}
        for text in search.grants:
            try:
                bundle = decode_bundle(text.decode("ascii", "replace"))
                self._statements.learn(bundle.chains[:CHAINS_MAX], wall_ns)
                advertisement, creator, directory = self._statements.read_advertise(bundle.advertise, wall_ns)
                keyring = self._statements.keyring
                right = right_of(keyring, advertisement, bundle.grants, wall_ns, self._known.has)
            except ProtocolError:
                continue
            if right.discover and right.holder == entity:
                found[advertisement.id] = right.resting_on(creator, directory)
        return found

    def may_see(self, entry: TopicEntry, asker: str, held: Held, now: Instant) -> bool:
        """True if this entity may be shown this entry now, as a reader or by a right that is still in force."""
        if EVERYBODY in entry.readers or entry.owner == asker or asker in entry.readers:
            return True
        right = held.get(entry.id)
        return right is not None and self._is_in_force(right, now)

    def _is_in_force(self, right: TopicRight, now: Instant) -> bool:
        wall_ns = self._clock.at(now)
        if wall_ns is None or right.until_ms * NS_PER_MS <= wall_ns:
            return False
        if any(self._known.has(what) for what in right.ends_with if what[1]):
            return False  # of a topic that was withdrawn, its end is still told
        return not self._statements.keyring.authorities.revoked.has_any(right.serials)
