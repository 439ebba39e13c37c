"""The surveyor: measures a broker's distances to the landmarks that its directories named.

In:    landmarks, pongs, time.
Out:   pings; ``over`` when there are new distances.
State: the last distances to at most LANDMARKS_MAX landmarks, when each was measured, one measurement.
Not here: which parties may name landmarks (responder.py), what the distances are for (landmarks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heliograph.discovery.brokers.config import address_of, written
from heliograph.discovery.brokers.measuring import Measuring
from heliograph.discovery.brokers.messages import LANDMARKS_MAX
from heliograph.machine import Address, Instant, Timers

FRESH_NS = 60_000_000_000  # distances measured within this are not measured again
SMOOTH = 2  # the weight of a new distance is a half


class Surveyor:
    """Measures for one broker."""

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
        self._measuring: Measuring | None = None
        self._measured_at: dict[str, Instant] = {}
        self.distances: dict[str, int] = {}

    def told(self, landmarks: Sequence[str], now: Instant) -> None:
        """A directory named these landmarks. One measurement runs at a time; others named meanwhile will be named
        again."""
        if self._measuring is not None:
            return
        due: list[Address] = []
        for text in landmarks[:LANDMARKS_MAX]:
            address = address_of(text)
            if address is not None and now - self._measured_at.get(written(address), now - FRESH_NS) >= FRESH_NS:
                due.append(address)
        if due:
            self._count += 1
            secret = self._secret + self._count.to_bytes(8, "big")
            self._measuring = Measuring(secret, self._timers, self._send, self._measured)
            self._measuring.start(due, now)

    def receive(self, nonce: bytes, now: Instant) -> bool:
        """A pong. Returns False if it is not one of ours."""
        return self._measuring is not None and self._measuring.receive(nonce, now)

    def _measured(self, now: Instant) -> None:
        assert self._measuring is not None
        for landmark, took in self._measuring.distances.items():
            before = self.distances.pop(landmark, took)
            self.distances[landmark] = before + (took - before) // SMOOTH
            self._measured_at.pop(landmark, None)
            self._measured_at[landmark] = now
        for landmark in list(self.distances)[:-LANDMARKS_MAX]:  # the oldest
            del self.distances[landmark]
        self._measured_at = {landmark: self._measured_at[landmark] for landmark in self.distances}
        self._measuring = None
        self._over(now)
