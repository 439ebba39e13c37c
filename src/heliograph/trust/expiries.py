"""Expiries: the ends of the certificates by which the peers of a machine's links proved themselves.

In:    links with their peers; readings of the wall clock.
Out:   calls of the owner: ``warn`` up to a minute before a certificate ends, ``end`` when it has ended.
State: per link the end of its certificate; the difference of the two clocks.
Not here: what the owner does about it (broker/broker.py, client/session.py, discovery/), verifying (live/tls.py).

The first warning of each link comes at another moment of the last minute, so that the links of a thousand clients whose
certificates were issued together do not all end at once. It is repeated, as ``late``, while the link is still there: a
certificate may be renewed in the last seconds. A link that comes in the last minute gets late warnings only.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from heliograph.machine import Instant, LinkId, Peer, Timers

NS_PER_MS = 1_000_000
LEAD_MS_MAX = 60_000  # the first warning comes at most this long before the end …
LEAD_MS_MIN = 20_000  # … and at least this long: enough to dial again and to move
AGAIN_MS = 8_000  # between warnings
STEP_NS = 100 * NS_PER_MS  # the wall clock was set, or has drifted so far, that the timers are set again

Warn = Callable[[LinkId, int, bool, Instant], None]
"""Takes the link, the milliseconds that are left, whether this is a late warning, and now."""
End = Callable[[LinkId, Instant], None]


class Expiries:
    """The certificates of one machine's links. The timers are the machine's."""

    def __init__(self, timers: Timers, warn: Warn, end: End) -> None:
        self._timers = timers
        self._warn = warn
        self._end = end
        self._ahead_ns: int | None = None  # the wall clock, less monotonic time
        self._ends: dict[LinkId, tuple[int, int, Instant]] = {}  # end in ms, lead in ms, when the link came

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The driver read the wall clock."""
        ahead_ns = wall_ns - now
        if self._ahead_ns is not None and abs(ahead_ns - self._ahead_ns) < STEP_NS:
            return
        self._ahead_ns = ahead_ns
        for link in list(self._ends):
            self._schedule(link, now, now)

    def add(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A link came. If its certificate has ended already, the link ends now."""
        if peer.expires_ms is None:
            return
        chance = int.from_bytes(sha256(f"{peer.serial}/{link}".encode()).digest()[:4], "big")
        self._ends[link] = (peer.expires_ms, LEAD_MS_MIN + chance % (LEAD_MS_MAX - LEAD_MS_MIN), now)
        self._schedule(link, now, now)

    def remove(self, link: LinkId) -> None:
        """A link is gone."""
        if self._ends.pop(link, None) is not None:
            self._timers.cancel(("expiry", link))

    def _schedule(self, link: LinkId, not_before: Instant, now: Instant) -> None:
        if self._ahead_ns is None:
            return
        ends_ms, lead_ms, _ = self._ends[link]
        end = ends_ms * NS_PER_MS - self._ahead_ns
        if end <= now:
            self.remove(link)
            self._end(link, now)
            return
        at = min(end, max(end - lead_ms * NS_PER_MS, not_before))
        self._timers.set(("expiry", link), at, lambda now: self._look(link, now))

    def _look(self, link: LinkId, now: Instant) -> None:
        assert self._ahead_ns is not None
        ends_ms, lead_ms, came = self._ends[link]
        left_ms = ends_ms - (now + self._ahead_ns) // NS_PER_MS
        if left_ms > 0:
            begins = ends_ms * NS_PER_MS - self._ahead_ns - lead_ms * NS_PER_MS
            is_first = came <= begins and now - begins < AGAIN_MS * NS_PER_MS
            self._warn(link, left_ms, not is_first, now)
        if link in self._ends:
            self._schedule(link, now + AGAIN_MS * NS_PER_MS, now)
