"""Token buckets: limit how often one source may ask.

In:    sources and the time.
Out:   whether a source may ask now.
State: the tokens left per source; the least recently seen source is forgotten first.
Not here: what happens to requests over the limit (they are counted and dropped).
"""

from __future__ import annotations

from collections import OrderedDict

from heliograph.machine import Instant

NS_PER_S = 1_000_000_000


class Buckets:
    """A token bucket per source host."""

    __slots__ = ("_burst", "_left", "_rate", "_sources_max")

    def __init__(self, rate_per_s: float, burst: int, sources_max: int) -> None:
        self._rate = rate_per_s / NS_PER_S
        self._burst = float(burst)
        self._sources_max = sources_max
        self._left: OrderedDict[str, tuple[float, Instant]] = OrderedDict()

    def may(self, source: str, now: Instant) -> bool:
        """Take one token of this source. Returns False if there is none."""
        left, at = self._left.pop(source, (self._burst, now))
        left = min(self._burst, left + max(0, now - at) * self._rate)
        may = left >= 1.0
        self._left[source] = (left - 1.0 if may else left, max(now, at))
        if len(self._left) > self._sources_max:
            self._left.popitem(last=False)
        return may

    def __len__(self) -> int:
        return len(self._left)
