"""Measuring: measures the distance to each landmark, and compares two such sets of distances.

In:    addresses of landmarks, pongs, time.
Out:   pings, a few to each landmark, a millisecond apart; at the end, the distances.
State: which pings are under way, what came back.
Not here: which brokers are landmarks (landmarks.py), choosing among targets (pinging.py).

A distance is a round trip in microseconds: the mean of what came back, without the slowest quarter. Brokers and
requesters measure in the same way, so a constant error of pings does not matter when their distances are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import sqrt

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import written
from heliograph.discovery.brokers.messages import Ping
from heliograph.discovery.cookies import COOKIE_BYTES
from heliograph.machine import Address, Instant, Timers

NS_PER_MS = 1_000_000
PINGS = 8  # of each landmark
ENOUGH = 4  # pongs that are enough for a distance
COMMON_MIN = 3  # landmarks: with fewer, places far from each other look alike
SPACE_NS = NS_PER_MS  # between two pings, so that they do not delay each other
LATE_NS = 3 * NS_PER_MS  # extra wait beyond the slowest pong so far, for missing ones
LIMIT_NS = 400 * NS_PER_MS


def apart(one: Mapping[str, int], other: Mapping[str, int]) -> float | None:
    """How differently two parties see the landmarks, in microseconds; None if they share too few.

    The difference for one landmark never exceeds the round trip between the two; the mean over several grows with it.
    """
    squares = [(one[name] - other[name]) ** 2 for name in one if name in other]
    return sqrt(sum(squares) / len(squares)) if len(squares) >= COMMON_MIN else None


class Measuring:
    """One measurement."""

    def __init__(
        self,
        secret: bytes,
        timers: Timers,
        send: Callable[[Address, bytes], None],
        over: Callable[[Instant], None],
    ) -> None:
        self._secret = secret
        self._timers = timers
        self._send = send
        self._over = over
        self._count = 0
        self._rounds = 0
        self._sent_at: Instant = 0
        self._limit: Instant = 0
        self._open: dict[bytes, tuple[Address, Instant]] = {}  # nonce -> landmark and instant
        self._took: dict[Address, list[int]] = {}
        self.ended = False

    def start(self, addresses: Sequence[Address], now: Instant) -> None:
        """Ping them."""
        self._took = {address: [] for address in addresses}
        self._limit = now + LIMIT_NS
        self._timers.set("measured", self._limit, self._end)
        self._ping(now)

    def _ping(self, now: Instant) -> None:
        self._rounds += 1
        self._sent_at = now
        for address in self._took:
            self._count += 1
            nonce = sha256(self._secret + b"measure" + self._count.to_bytes(4, "big")).digest()[:COOKIE_BYTES]
            self._open[nonce] = (address, now)
            self._send(address, messages.write(Ping(now), nonce))
        if self._rounds < PINGS:
            self._timers.set("measure", now + SPACE_NS, self._ping)

    def receive(self, nonce: bytes, now: Instant) -> bool:
        """A pong. Returns False if it is not one of ours."""
        pinged = self._open.pop(nonce, None)
        if pinged is None or self.ended:
            return False
        address, sent = pinged
        self._took[address].append(now - sent)
        if self._rounds == PINGS and not self._open:
            self._end(now)
        elif self._rounds == PINGS and all(len(took) >= ENOUGH for took in self._took.values()):
            slowest = max(max(took) for took in self._took.values())
            self._timers.set("measured", min(self._limit, max(now, self._sent_at + slowest) + LATE_NS), self._end)
        return True

    def _end(self, now: Instant) -> None:
        self.ended = True
        self._timers.cancel("measure")
        self._timers.cancel("measured")
        self._over(now)

    def took(self, address: Address) -> list[int]:
        """The round trips to one landmark, in nanoseconds."""
        return self._took.get(address, [])

    @property
    def distances(self) -> dict[str, int]:
        """The measured distances, by the landmark's address as text."""
        return {written(address): _typical(took) for address, took in self._took.items() if len(took) >= ENOUGH}


def _typical(took: list[int]) -> int:
    """The typical round trip in microseconds, without the slowest, which were delayed."""
    quick = sorted(took)[: (3 * len(took) + 3) // 4]
    return sum(quick) // len(quick) // 1_000
