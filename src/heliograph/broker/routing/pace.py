"""Pace: how long good news about ourselves waits for more good news.

In:    when news was told.
Out:   when the next news may be told.
State: one instant, and how long the last wait was.
Not here: what is told (announcements.py, leadership.py). Bad news never waits: others would send into the void.

The first news is told at once. While more follows, as when a network starts or a partition heals, each wait is longer
than the one before. So while links come up, the number of updates grows with the logarithm of the time this takes, not
with the number of links.
"""

from __future__ import annotations

from heliograph.machine import Instant

WAIT_NS = 10_000_000  # the first wait …
WAIT_NS_MAX = 250_000_000  # … and the longest
LONGER = 5  # times as long as the last one


class Pace:
    """When to tell the next news."""

    __slots__ = ("_wait_ns", "next_at")

    def __init__(self) -> None:
        self.next_at: Instant = 0
        self._wait_ns = WAIT_NS

    def told(self, now: Instant) -> None:
        """News was told. If that was soon after the last time, the next has to wait longer."""
        soon = now < self.next_at + self._wait_ns
        self._wait_ns = min(LONGER * self._wait_ns, WAIT_NS_MAX) if soon and self.next_at else WAIT_NS
        self.next_at = now + self._wait_ns
