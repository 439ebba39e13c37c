"""Epochs of encrypted topics: the keys that we have, and the holders that get the next one.

In:    topics that we own or may delegate, the grants that we made for them, revocations; keys that were sent to us,
       which count only with the statement of the topic's owner.
Out:   the key to encrypt with, the keys to decrypt with; of a new epoch, the key and the holders that get it from us.
State: keys, holders and revoked grants, bounded; in memory only.
Not here: encrypting (encryption.py), statements (key_statements.py), sending keys (handover.py, live/topic_keys.py).

A revocation by the owner begins a new epoch: from then on, events are encrypted with a key that the revoked holder
never gets. The owner sends it to the holders of its own grants, and these to the holders of grants that they delegated;
with it goes the list of revoked grants, so that nobody passes the key on to their holders.

The key whose statement is the latest encrypts. Keys are in memory only, so an owner that restarts draws epoch 1 anew:
its statement is later than those from before, whose keys still decrypt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heliograph.discovery.topics.encryption import KEY_BYTES, TopicKey
from heliograph.discovery.topics.key_statements import check_key, sign_key
from heliograph.discovery.topics.messages import WITHOUT_MAX
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

TOPICS_MAX = 4_096
KEYS_MAX = 64  # of one topic: older events can no longer be read
KEYS_PER_EPOCH_MAX = 4  # each may have to be tried for an event
GRANTS_MAX = 10_000  # of one topic, with a key


@dataclass(slots=True)
class _Topic:
    keys: list[TopicKey] = field(default_factory=list)  # the latest last
    grants: dict[bytes, tuple[Holder, int]] = field(default_factory=dict)  # grant -> its holder, when it expires (ms)
    revoked: dict[bytes, int] = field(default_factory=dict)  # grant of this topic -> when it expires (ms)

    def keep(self, key: TopicKey) -> bool:
        """False if there is no room for a key that old."""
        self.keys = sorted([*self.keys, key], key=lambda one: one.age)
        same = [one for one in self.keys if one.epoch == key.epoch]
        if len(same) > KEYS_PER_EPOCH_MAX:
            self.keys.remove(same[0])
        if len(self.keys) > KEYS_MAX:
            del self.keys[0]
        return key in self.keys

    @property
    def newest(self) -> TopicKey:
        return self.keys[-1]

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

    def __init__(self, keyring: Keyring, draw: Callable[[int], bytes]) -> None:
        self._keyring = keyring
        self._draw = draw
        self._topics: dict[bytes, _Topic] = {}

    def keys(self, topic: bytes) -> list[TopicKey]:
        """The keys that we have, the latest first."""
        found = self._topics.get(topic)
        return [] if found is None else found.keys[::-1]

    def newest(self, topic: bytes) -> TopicKey | None:
        """The key to encrypt with: that of the latest statement; None without any."""
        found = self._topics.get(topic)
        return None if found is None or not found.keys else found.newest

    def own(self, topic: bytes, wall_ms: int) -> TopicKey:
        """The key of a topic of ours; the first one is drawn now."""
        found = self._topic(topic)
        if not found.keys:
            found.keep(sign_key(self._keyring, topic, 1, self._draw(KEY_BYTES), wall_ms))
        return found.newest

    def learn(self, topic: bytes, owner: str, key: TopicKey, wall_ns: int) -> bool:
        """Someone gave us this key, or a program of ours kept it. True if it is new.

        ProtocolError without a statement of the owner for exactly this key: then nothing changes.
        """
        key = check_key(self._keyring, topic, owner, key, wall_ns)
        found = self._topic(topic)
        known = any((one.epoch, one.key, one.issued_ms) == (key.epoch, key.key, key.issued_ms) for one in found.keys)
        return not known and found.keep(key)

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
        # Later than the last one also if our clock was set back, or if there are many revocations in a millisecond.
        issued_ms = max(wall_ms, found.newest.issued_ms + 1)
        epoch = max(one.epoch for one in found.keys) + 1
        found.keep(sign_key(self._keyring, topic, epoch, self._draw(KEY_BYTES), issued_ms))
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
