"""Epochs of encrypted topics: the keys that we have, and the holders that get the next one.

In:    topics that we own or may delegate, the grants that we made for them, revocations; keys that were sent to us.
Out:   the key to encrypt with, the keys to decrypt with; of a new epoch, the key and the holders that get it from us.
State: keys, holders and revoked grants, bounded; in memory only.
Not here: encrypting (encryption.py), sending keys (handover.py, live/topic_keys.py).

A revocation by the owner begins a new epoch: from then on, events are encrypted with a key that the revoked holder
never gets. The owner sends it to the holders of its own grants, and these to the holders of grants that they delegated;
with it goes the list of revoked grants, so that nobody passes the key on to their holders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heliograph.discovery.topics.encryption import KEY_BYTES, TopicKey
from heliograph.discovery.topics.messages import WITHOUT_MAX
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
    revoked: dict[bytes, int] = field(default_factory=dict)  # grant of this topic -> when it expires (ms)

    def keep(self, key: TopicKey) -> None:
        self.keys[key.epoch] = key
        if len(self.keys) > EPOCHS_MAX:
            del self.keys[min(self.keys)]

    @property
    def newest(self) -> TopicKey:
        return self.keys[max(self.keys)]

    def drop(self, grants: Iterable[bytes], wall_ms: int) -> None:
        """Forget these grants, and what has expired."""
        for grant in grants:
            self.grants.pop(grant, None)
        self.grants = {id: given for id, given in self.grants.items() if given[1] > wall_ms}
        self.revoked = {id: ends for id, ends in self.revoked.items() if ends > wall_ms}

    def holders(self) -> list[Holder]:
        """Each entity once."""
        return list({holder.identity.entity: holder for holder, _ in self.grants.values()}.values())


@dataclass(frozen=True, slots=True)
class Handing:
    """The key of a new epoch, and who gets it from us."""

    key: TopicKey
    holders: tuple[Holder, ...]
    without: tuple[bytes, ...]  # revoked grants, whose holders do not get it


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

    def learn(self, topic: bytes, key: TopicKey, *, by_owner: bool = True) -> bool:
        """Someone gave us this key, or a program of ours drew it. True if it is new: only the owner replaces a key."""
        known = self._topic(topic).keys.get(key.epoch)
        if known == key or (known is not None and not by_owner):
            return False
        self._topic(topic).keep(key)
        return True

    def granted(self, topic: bytes, grant: bytes, holder: Holder, expires_ms: int) -> None:
        """We gave the key to a holder, with this grant."""
        grants = self._topic(topic).grants
        if len(grants) >= GRANTS_MAX:
            raise UsageError(f"at most {GRANTS_MAX} grants of an encrypted topic are kept")
        grants[grant] = (holder, expires_ms)

    def revoke(self, topic: bytes, grant: bytes, wall_ms: int, expires_ms: int = 1 << 62) -> Handing | None:
        """Begin a new epoch of our topic without this grant: its key and who gets it. None without a key of this topic.

        A holder that has another grant which is still valid remains.
        """
        found = self._topics.get(topic)
        if found is None or not found.keys:
            return None
        found.revoked[grant] = expires_ms
        found.drop([grant], wall_ms)
        while len(found.revoked) > WITHOUT_MAX:
            del found.revoked[next(iter(found.revoked))]
        found.keep(TopicKey(found.newest.epoch + 1, self._draw(KEY_BYTES)))
        return Handing(found.newest, tuple(found.holders()), tuple(found.revoked))

    def withdraw(self, topic: bytes, grant: bytes, wall_ms: int) -> None:
        """We revoked a grant that we delegated. The topic is not ours, so its key does not change."""
        if topic in self._topics:
            self._topics[topic].drop([grant], wall_ms)

    def pass_on(self, topic: bytes, key: TopicKey, without: Sequence[bytes], wall_ms: int) -> Handing:
        """We got the key of a new epoch: the holders of grants that we delegated get it too, except of these."""
        found = self._topic(topic)
        found.drop(without, wall_ms)
        return Handing(key, tuple(found.holders()), tuple(without))

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
