"""Which one-time requests a broker remembers, on whose behalf, and until when.

In:    requests by name, each with the source that it counts for; when they are answered; network time.
Out:   requests to forget: they have expired, or give way to others.
State: places by source; a heap of times.
Not here: what is known of a request (forwarding.py), shares in general (broker/shares.py).

When all places are taken, the oldest request of the source that has most gives its place to a new one, if need be to
one of the same source.
"""

from __future__ import annotations

from heapq import heappop, heappush

from heliograph.broker.shares import Shares
from heliograph.discovery.resources.messages import RequestId

Key = tuple[RequestId, int]
"""A request and its attempt."""


class RememberedRequests:
    """Requests by source and by time."""

    def __init__(self) -> None:
        self._shares: Shares[Key] = Shares()
        self._until: dict[Key, int] = {}
        self._expiries: list[tuple[int, Key]] = []  # a heap; the old entry of an earlier time stays until it comes up

    def add(self, source: str, key: Key, until: int) -> None:
        """Remember a request."""
        self._shares.add(source, key)
        self._keep(key, until)

    def shorten(self, key: Key, until: int) -> None:
        """Remember it no longer than that."""
        if until < self._until.get(key, 0):
            self._keep(key, until)

    def _keep(self, key: Key, until: int) -> None:
        self._until[key] = until
        heappush(self._expiries, (until, key))
        if len(self._expiries) > 4 * len(self._until) + 64:
            self._expiries = sorted((until, key) for key, until in self._until.items())

    def remove(self, key: Key) -> None:
        """It is forgotten."""
        self._shares.remove(key)
        self._until.pop(key, None)

    def giving_way(self, source: str) -> Key | None:
        """The request whose place a new one of this source may have."""
        return self._shares.victim(source) or self._shares.oldest(source)

    def expired(self, time: int, most: int) -> list[Key]:
        """The requests that have expired, at most so many."""
        found: dict[Key, None] = {}
        while self._expiries and self._expiries[0][0] <= time and len(found) < most:
            key = heappop(self._expiries)[1]
            if self._until.get(key, time + 1) <= time:
                found[key] = None
        return list(found)
