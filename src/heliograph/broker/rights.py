"""Rights: which link may use which created topic, and until when.

In:    what the service "rights" allows and forbids, after it checked advertisements, grants and keys.
Out:   may_publish and may_subscribe; a call for every root whose rights changed.
State: per link the roots it may use, bounded; for a minute, those of sessions whose link broke.
Not here: checking grants (discovery/topics/rights.py), rules for all other topics (access.py).

A right belongs to one link and one root (``Topics/<uuid>``). It is not part of an access profile, so ten thousand
holders of different grants share one profile and its route table.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId, Timers
from heliograph.model.identity import Identity

RIGHTS_PER_LINK_MAX = 1_024
RIGHTS_MAX = 200_000  # about 100 MiB if every one differs
PARKED_NS = 60_000_000_000  # for a session that lost its link: a client reconnects within seconds
PARKED_MAX = 10_000  # sessions

Session = tuple[int, Identity]
"""A session's origin, which only the holder of its secret knows, and its identity."""
Tell = Callable[[LinkId, bytes, bool], None]
"""Called when a link may publish below a root, or no longer: links keep this themselves, for the shortcut."""
Lost = Callable[[LinkId, bytes, Reason], None]
"""Called with the reason when a link may no longer use all of a root."""


class Right(Struct, frozen=True):
    """What a link may do with one created topic."""

    publish: bool
    subscribe: bool
    until: Instant
    grants: tuple[str, ...]  # the right ends when one of these does; empty for the topic's owner


class Rights:
    """All rights in force."""

    def __init__(self, timers: Timers, changed: Callable[[bytes], None], lost: Lost, tell: Tell) -> None:
        self._timers = timers
        self._changed = changed
        self._lost = lost
        self._tell = tell
        self._links: dict[LinkId, dict[bytes, Right]] = {}
        self._count = 0
        self._parked: dict[Session, tuple[Instant, dict[bytes, Right]]] = {}  # of sessions whose link broke

    def __len__(self) -> int:
        return self._count

    def may_publish(self, link: LinkId, root: bytes) -> bool:
        """True if this link may publish below this root."""
        rights = self._links.get(link)
        right = None if rights is None else rights.get(root)
        return right is not None and right.publish

    def may_subscribe(self, link: LinkId, root: bytes) -> bool:
        """True if what is published below this root may be delivered to this link."""
        rights = self._links.get(link)
        right = None if rights is None else rights.get(root)
        return right is not None and right.subscribe

    def allow(self, link: LinkId, root: bytes, right: Right, now: Instant) -> bool:
        """Put a right in force, replacing the previous one; False if there are too many."""
        rights = self._links.setdefault(link, {})
        before = rights.get(root)
        if before is None and (len(rights) >= RIGHTS_PER_LINK_MAX or self._count >= RIGHTS_MAX):
            return False
        rights[root] = right
        self._tell(link, root, right.publish)
        self._count += before is None
        self._timers.set(("right", link, root), right.until, lambda now: self._expire(link, root, now))
        if before is None or (before.publish, before.subscribe) != (right.publish, right.subscribe):
            self._changed(root)
        return True

    def forbid(self, grants: frozenset[str], now: Instant) -> int:
        """End the rights that depend on one of these grants. Returns how many there were."""
        gone = [
            (link, root)
            for link, rights in self._links.items()
            for root, right in rights.items()
            if not grants.isdisjoint(right.grants)
        ]
        for link, root in gone:
            self._end(link, root, Reason.GRANT_REVOKED)
        for _, parked in self._parked.values():
            for root in [root for root, right in parked.items() if not grants.isdisjoint(right.grants)]:
                del parked[root]
        return len(gone)

    def forbid_root(self, root: bytes) -> None:
        """Nobody may use this topic any more: its owner withdrew it."""
        for link in [link for link, rights in self._links.items() if root in rights]:
            self._end(link, root, Reason.TOPIC_WITHDRAWN)
        for _, parked in self._parked.values():
            parked.pop(root, None)

    def leave(self, link: LinkId, session: Session, now: Instant) -> None:
        """The link is gone. Its session keeps its rights for a while, in case it resumes on another link."""
        rights = self._links.pop(link, None)
        if rights is None:
            return
        for root in rights:
            self._count -= 1
            self._timers.cancel(("right", link, root))
        self._parked.pop(session, None)
        self._parked[session] = (now + PARKED_NS, rights)
        if len(self._parked) > PARKED_MAX:
            del self._parked[next(iter(self._parked))]

    def resume(self, link: LinkId, session: Session, now: Instant) -> None:
        """A session has a link again: with the same identity and secret, it gets its rights back."""
        until, rights = self._parked.pop(session, (0, {}))
        for root, right in rights.items() if now < until else ():
            if now < right.until:
                self.allow(link, root, right, now)

    def _expire(self, link: LinkId, root: bytes, now: Instant) -> None:
        if root in self._links.get(link, {}):
            self._end(link, root, Reason.GRANT_EXPIRED)

    def _end(self, link: LinkId, root: bytes, reason: Reason) -> None:
        rights = self._links[link]
        del rights[root]
        self._tell(link, root, False)
        self._count -= 1
        if not rights:
            del self._links[link]
        self._timers.cancel(("right", link, root))
        self._changed(root)
        self._lost(link, root, reason)
