"""Delays between hosts, and how links behave when nothing is wrong.

In:    the settings of a simulated network; or a function that knows the distance between any two hosts.
Out:   delays.
State: delays already computed.
Not here: what travels (network.py, datagrams.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from heliograph.sim.loop import MILLISECOND

Ruler = Callable[[str, str], float]
"""The delay from one host to another, one way, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The one-way delay between some hosts, for links and datagrams."""

    target: str  # "from > to", patterns of hosts
    delay_ms: float

    def problems(self, path: str) -> list[str]:
        """All problems with it."""
        found = []
        if self.target.count(">") != 1:
            found.append(f'{path}.target = {self.target!r}: a distance needs "from > to"')
        if not 0 <= self.delay_ms <= 60_000:
            found.append(f"{path}.delay_ms = {self.delay_ms}: must be between 0 and 60000")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """How links behave when nothing is wrong with them."""

    delay_ms: float = 0.2  # one way
    jitter_ms: float = 0.1  # up to this much more, drawn for each chunk
    split: float = 0.1  # probability that a chunk arrives in two parts
    join: float = 0.1  # probability that a chunk waits for the next and arrives with it
    bandwidth_kib_s: int = 0  # per link and direction; 0: no limit
    buffer_kib: int = 64  # the mark above which a driver presses; each link draws its own around it
    distance: tuple[Distance, ...] = ()  # the first match replaces delay_ms

    def problems(self, path: str = "network") -> list[str]:
        """All problems with it."""
        found = []
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) <= 60_000:
                found.append(f"{path}.{name} = {getattr(self, name)}: must be between 0 and 60000")
        for name in ("split", "join"):
            if not 0 <= getattr(self, name) <= 1:
                found.append(f"{path}.{name} = {getattr(self, name)}: a probability is between 0 and 1")
        if self.split + self.join > 1:
            found.append(f"{path}.split and {path}.join add up to more than 1")
        if self.bandwidth_kib_s < 0:
            found.append(f"{path}.bandwidth_kib_s = {self.bandwidth_kib_s}: must not be below 0 (0: no limit)")
        if not 1 <= self.buffer_kib <= 1 << 20:
            found.append(f"{path}.buffer_kib = {self.buffer_kib}: must be between 1 and {1 << 20}")
        for number, distance in enumerate(self.distance):
            found += distance.problems(f"{path}.distance[{number}]")
        return found


class Distances:
    """Delays between hosts."""

    def __init__(self, settings: NetworkSettings, ruler: Ruler | None = None) -> None:
        self.jitter_ns = float(int(settings.jitter_ms * MILLISECOND))
        self._settings = settings
        self._ruler = ruler  # used instead of the settings
        self._delay = int(settings.delay_ms * MILLISECOND)
        self._delays: dict[tuple[str, str], int] = {}

    def delay_ns(self, source: str, sink: str) -> int:
        """The minimum time from one host to another."""
        if not (self._settings.distance or self._ruler):
            return self._delay
        delay = self._delays.get((source, sink))
        if delay is None:
            delay = self._delays[source, sink] = self._measure(source, sink)
        return delay

    def _measure(self, source: str, sink: str) -> int:
        if self._ruler is not None:
            return int(self._ruler(source, sink) * MILLISECOND)
        fitting = (one for one in self._settings.distance if _fits(one.target, source, sink))
        distance = next(fitting, None)
        return self._delay if distance is None else int(distance.delay_ms * MILLISECOND)


def _fits(target: str, source: str, sink: str) -> bool:
    here, there = (part.strip() for part in target.split(">"))
    return fnmatchcase(source, here) and fnmatchcase(sink, there)
