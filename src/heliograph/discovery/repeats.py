"""Repeats: remembers the last requests, so that a repeated request costs nothing.

In:    request ids with the proven address of the requester and their attempts.
Out:   whether an attempt is new, and the value kept with a request.
State: a bounded number of requests; the oldest is forgotten first.
Not here: duplicates of publications (broker/routing/seen.py), replays of what was signed (trust/freshness.py).
Paper: [brokers] §4: the last 1000 requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from heliograph.machine import Address

T = TypeVar("T")


class Repeats(Generic[T]):
    """Requests with their highest attempt and a value that the owner chose.

    A request is an id at an address. Ids are no secrets, so whoever uses another's id at its own address has made a
    request of its own, and takes nothing from the other.
    """

    __slots__ = ("_requests", "_requests_max")

    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._requests: OrderedDict[tuple[bytes, Address], tuple[int, T]] = OrderedDict()

    def is_new(self, id: bytes, address: Address, attempt: int) -> bool:
        """True if this attempt of this request was not seen before."""
        known = self._requests.get((id, address))
        return known is None or attempt > known[0]

    def add(self, id: bytes, address: Address, attempt: int, value: T) -> None:
        """Remember an attempt."""
        self._requests.pop((id, address), None)
        self._requests[id, address] = (attempt, value)
        if len(self._requests) > self._requests_max:
            self._requests.popitem(last=False)

    def get(self, id: bytes, address: Address) -> T | None:
        """The value kept with a request."""
        known = self._requests.get((id, address))
        return None if known is None else known[1]

    def limit(self, requests_max: int) -> None:
        """Change how many requests are remembered."""
        self._requests_max = requests_max
        while len(self._requests) > requests_max:
            self._requests.popitem(last=False)

    def __len__(self) -> int:
        return len(self._requests)
