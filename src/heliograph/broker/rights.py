"""Rights: which link may use which created topic, and until when.

In:    what the service "rights" allows and forbids, after it checked advertisements, grants and keys; serial numbers of
       revoked certificates.
Out:   may_publish and may_subscribe; a call for every root whose rights changed.
State: per link the roots it may use; for a minute, those of sessions whose link broke; what each rests on. All of them
       together are bounded, and sessions without a link give way first.
Not here: checking grants (discovery/topics/rights.py), rules for all other topics (access.py).

A right belongs to one link and one root (``Topics/<uuid>``). It is not part of an access profile, so ten thousand
holders of different grants share one profile and its route table. It rests on grants and on certificates, and ends
when one of them is revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId, Timers
from heliograph.model.identity import Identity

RIGHTS_PER_LINK_MAX = 1_024
RIGHTS_MAX = 200_000  # with those of sessions whose link broke: about 300 MiB if each differs in all it rests on
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
    grants: tuple[str, ...]  # the right ends when one of these is revoked; empty for the topic's owner
    serials: tuple[str, ...] = ()  # and when one of these certificates is


class Rights:
    """All rights in force."""

    def __init__(self, timers: Timers, changed: Callable[[bytes], None], lost: Lost, tell: Tell) -> None:
        self._timers = timers
        self._changed = changed
        self._lost = lost
        self._tell = tell
        self._links: dict[LinkId, dict[bytes, Right]] = {}
        self._count = 0
        self._parked: dict[Session, tuple[Instant, dict[bytes, Right]]] = {}  # oldest first
        self._parked_count = 0
        self._resting: dict[str, dict[tuple[LinkId | Session, bytes], None]] = {}  # grant or serial -> rights

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

    @property
    def parked(self) -> int:
        """How many rights are kept for sessions that have no link at the moment."""
        return self._parked_count

    def heard(self, link: LinkId) -> list[str]:
        """The roots below which this link may subscribe."""
        return [root.decode() for root, right in self._links.get(link, {}).items() if right.subscribe]

    def spoken(self, link: LinkId) -> list[str]:
        """The roots below which this link may publish."""
        return [root.decode() for root, right in self._links.get(link, {}).items() if right.publish]

    def allow(self, link: LinkId, root: bytes, right: Right, now: Instant) -> bool:
        """Put a right in force, replacing the previous one; False if there are too many."""
        rights = self._links.setdefault(link, {})
        before = rights.get(root)
        if before is None and (len(rights) >= RIGHTS_PER_LINK_MAX or self._count >= RIGHTS_MAX):
            return False
        self._make_room(1 if before is None else 0)
        if before is not None:
            self._unrest(link, root, before)
        rights[root] = right
        self._rest(link, root, right)
        self._tell(link, root, right.publish)
        self._count += before is None
        self._timers.set(("right", link, root), right.until, lambda now: self._expire(link, root, now))
        if before is None or (before.publish, before.subscribe) != (right.publish, right.subscribe):
            self._changed(root)
        return True

    def forbid(self, grants: Iterable[str]) -> int:
        """End the rights that rest on one of these grants. Returns how many there were on links."""
        return self._end_resting(grants, Reason.GRANT_REVOKED)

    def expel(self, serials: Iterable[str]) -> int:
        """End the rights that rest on one of these certificates. Returns how many there were on links."""
        return self._end_resting(serials, Reason.CERTIFICATE_REVOKED)

    def _end_resting(self, names: Iterable[str], reason: Reason) -> int:
        ended = 0
        for name in names:
            for holder, root in list(self._resting.get(name, ())):
                if isinstance(holder, int):
                    self._end(holder, root, reason)
                    ended += 1
                else:
                    self._unpark(holder, root)
        return ended

    def forbid_root(self, root: bytes) -> int:
        """Nobody may use this topic any more: its owner withdrew it. Returns how many rights there were on links."""
        links = [link for link, rights in self._links.items() if root in rights]
        for link in links:
            self._end(link, root, Reason.TOPIC_WITHDRAWN)
        for session in [session for session, (_, parked) in self._parked.items() if root in parked]:
            self._unpark(session, root)
        return len(links)

    def _rest(self, holder: LinkId | Session, root: bytes, right: Right) -> None:
        for name in (*right.grants, *right.serials):
            self._resting.setdefault(name, {})[holder, root] = None

    def _unrest(self, holder: LinkId | Session, root: bytes, right: Right) -> None:
        for name in (*right.grants, *right.serials):
            resting = self._resting.get(name, {})
            resting.pop((holder, root), None)
            if not resting:
                self._resting.pop(name, None)

    def _unpark(self, session: Session, root: bytes) -> None:
        self._unrest(session, root, self._parked[session][1].pop(root))
        self._parked_count -= 1

    def _make_room(self, wanted: int) -> None:
        """Sessions without a link give way, those that have been away longest first."""
        while self._parked and self._count + self._parked_count + wanted > RIGHTS_MAX:
            self._forget_parked(next(iter(self._parked)))

    def leave(self, link: LinkId, session: Session, now: Instant) -> None:
        """The link is gone. Its session keeps its rights for a while, in case it resumes on another link."""
        rights = self._links.pop(link, None)
        if rights is None:
            return
        self._forget_parked(session)
        for root, right in rights.items():
            self._count -= 1
            self._timers.cancel(("right", link, root))
            self._unrest(link, root, right)
            self._rest(session, root, right)
        self._parked[session] = (now + PARKED_NS, rights)
        self._parked_count += len(rights)
        if len(self._parked) > PARKED_MAX:
            self._forget_parked(next(iter(self._parked)))
        if len(self._parked) == 1:
            self._timers.set("parked", now + PARKED_NS, self._forget_late)

    def _forget_late(self, now: Instant) -> None:
        """Forget the rights of sessions that did not come back, the oldest first, one session at a time."""
        oldest = next(iter(self._parked), None)
        if oldest is not None and self._parked[oldest][0] <= now:
            self._forget_parked(oldest)
        if self._parked:
            self._timers.set("parked", max(now, next(iter(self._parked.values()))[0]), self._forget_late)

    def _forget_parked(self, session: Session) -> tuple[Instant, dict[bytes, Right]]:
        until, rights = self._parked.pop(session, (0, {}))
        self._parked_count -= len(rights)
        for root, right in rights.items():
            self._unrest(session, root, right)
        return until, rights

    def resume(self, link: LinkId, session: Session, now: Instant) -> None:
        """A session has a link again: with the same identity and secret, it gets its rights back."""
        until, rights = self._forget_parked(session)
        for root, right in rights.items() if now < until else ():
            if now < right.until:
                self.allow(link, root, right, now)

    def _expire(self, link: LinkId, root: bytes, now: Instant) -> None:
        if root in self._links.get(link, {}):
            self._end(link, root, Reason.GRANT_EXPIRED)

    def _end(self, link: LinkId, root: bytes, reason: Reason) -> None:
        rights = self._links[link]
        self._unrest(link, root, rights.pop(root))
        self._tell(link, root, False)
        self._count -= 1
        if not rights:
            del self._links[link]
        self._timers.cancel(("right", link, root))
        self._changed(root)
        self._lost(link, root, reason)
