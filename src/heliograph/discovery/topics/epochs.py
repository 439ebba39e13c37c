"""Epochs of encrypted topics: the keys that we have, and the holders that get the next one.

In:    topics that we own, the grants that we made for them, revocations; keys that owners sent us.
Out:   the key to encrypt with, the keys to decrypt with; after a revocation, the new key and the holders left.
State: keys and holders, bounded; in memory only.
Not here: encrypting (encryption.py), sending keys (handover.py, live/topic_keys.py).

A revocation begins a new epoch: from then on, events are encrypted with a key that the revoked holder never gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heliograph.discovery.topics.encryption import KEY_BYTES, TopicKey
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder

TOPICS_MAX = 4_096
EPOCHS_MAX = 64  # of one topic: older events can no longer be read
GRANTS_MAX = 10_000  # of one topic, with a key


@dataclass(slots=True)
class _Topic:
    keys: dict[int, TopicKey] = field(default_factory=dict)
    grants: dict[bytes, tuple[Holder, int]] = field(default_factory=dict)  # grant -> its holder, when it expires (ms)

    def keep(self, key: TopicKey) -> None:
        self.keys[key.epoch] = key
        if len(self.keys) > EPOCHS_MAX:
            del self.keys[min(self.keys)]

    @property
    def newest(self) -> TopicKey:
        return self.keys[max(self.keys)]


class TopicEpochs:
    """The keys of one party."""

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._topics: dict[bytes, _Topic] = {}

    def keys(self, topic: bytes) -> dict[int, TopicKey]:
        """The keys that we have, by epoch."""
        found = self._topics.get(topic)
        return {} if found is None else dict(found.keys)

    def newest(self, topic: bytes) -> TopicKey | None:
        """The key of the last epoch that we know; None without any."""
        found = self._topics.get(topic)
        return None if found is None or not found.keys else found.newest

    def own(self, topic: bytes) -> TopicKey:
        """The key of a topic of ours; the first one is drawn now."""
        found = self._topic(topic)
        if not found.keys:
            found.keep(TopicKey(1, self._draw(KEY_BYTES)))
        return found.newest

    def learn(self, topic: bytes, key: TopicKey) -> None:
        """The owner gave us this key, or a program of ours drew it."""
        self._topic(topic).keep(key)

    def granted(self, topic: bytes, grant: bytes, holder: Holder, expires_ms: int) -> None:
        """We gave the key to a holder, with this grant."""
        grants = self._topic(topic).grants
        if len(grants) >= GRANTS_MAX:
            raise UsageError(f"at most {GRANTS_MAX} grants of an encrypted topic are kept")
        grants[grant] = (holder, expires_ms)

    def revoke(self, topic: bytes, grant: bytes, wall_ms: int) -> tuple[TopicKey, list[Holder]] | None:
        """Begin a new epoch without this grant: its key and the holders that get it. None without a key of this topic.

        A holder that has another grant which is still valid remains.
        """
        found = self._topics.get(topic)
        if found is None or not found.keys:
            return None
        found.grants.pop(grant, None)
        found.grants = {id: given for id, given in found.grants.items() if given[1] > wall_ms}
        found.keep(TopicKey(found.newest.epoch + 1, self._draw(KEY_BYTES)))
        holders = {holder.identity.entity: holder for holder, _ in found.grants.values()}
        return found.newest, list(holders.values())

    def forget(self, topic: bytes) -> None:
        """The topic is gone."""
        self._topics.pop(topic, None)

    def _topic(self, topic: bytes) -> _Topic:
        found = self._topics.get(topic)
        if found is None:
            if len(self._topics) >= TOPICS_MAX:
                raise UsageError(f"at most {TOPICS_MAX} encrypted topics at once")
            found = self._topics[topic] = _Topic()
        return found
