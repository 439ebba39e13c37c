"""The relocation policy: when a client that found its broker by a search searches again, and whether it moves.

In:    the session's health, observed now and then; results of searches.
Out:   whether to search now; whether to move to the broker that was found.
State: when it last searched and moved, the broker's best round trip, links made recently.
Not here: searching (live/client_search.py), moving (client/roaming.py, client/dialler.py).
Paper: [grid] §1.1, a client that returns looks for the nearest broker; the rest is ours.

A client moves rarely: a move needs a clear gain, and a minimum stay at the present broker. All pauses have jitter,
so that a thousand clients of one broker do not search, or leave, at the same moment.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from heliograph.machine import Instant

if TYPE_CHECKING:  # most sessions never search
    from heliograph.discovery.brokers.result import Finding, SearchResult

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
AWAY_NS = 5 * NS_PER_S  # the client was away for long: it no longer waits for its last broker
AWAY_NS_MAX = 60 * NS_PER_S  # between searches while no broker accepts us
STAY_NS = 60 * NS_PER_S  # at a broker, before a better one is considered
PAUSE_NS = 30 * NS_PER_S  # between searches for any other reason
RESTLESS_LINKS = 3  # this many new links …
RESTLESS_NS = 60 * NS_PER_S  # … in this time: something is wrong with the broker or the path to it
SLOW_RATIO = 3  # the broker is slow if a round trip takes this many times as long as the best one …
SLOW_NS = 20 * NS_PER_MS  # … and at least this much longer …
SLOW_TIMES = 3  # … this often in a row
GAIN_RATIO = 0.7  # a clear gain: at most this fraction of the present round trip …
GAIN_NS = 2 * NS_PER_MS  # … and at least this much less


@dataclass(frozen=True, slots=True)
class SessionHealth:
    """How well a session works."""

    broker: str  # the broker that welcomed it last
    is_connected: bool
    links: int  # links so far
    round_trip_ns: int | None  # the last measurement; None: not yet on this link
    measured: int = 0  # number of measurements


class RelocationPolicy:
    """One client's decisions."""

    def __init__(self, look_s: int, seed: int, now: Instant) -> None:
        self._look_ns = look_s * NS_PER_S
        self._random = Random(seed)
        self._look_at = now + self._spread(self._look_ns)
        self._looked_at: Instant = now
        self._came_at: Instant = now
        self._broker = ""
        self._away_since: Instant | None = None
        self._away_wait = AWAY_NS
        self._links = 0
        self._made: deque[Instant] = deque(maxlen=RESTLESS_LINKS)
        self._best_ns: int | None = None
        self._measured = 0
        self._slow = 0
        self.why = ""  # why it last searched

    def observe(self, health: SessionHealth, now: Instant) -> bool:
        """True if the client should search for a broker now."""
        self._follow(health, now)
        why = self._reason(health, now)
        if why:
            self.why = why
            self._looked_at = now
            self._look_at = now + self._spread(self._look_ns)
        return bool(why)

    def _follow(self, health: SessionHealth, now: Instant) -> None:
        if health.links > self._links:
            self._made.extend([now] * min(health.links - self._links, RESTLESS_LINKS) if self._links else [])
            self._links = health.links
            self._best_ns, self._slow = None, 0
        if health.broker != self._broker:
            self._broker, self._came_at = health.broker, now
        if health.is_connected:
            self._away_since, self._away_wait = None, AWAY_NS
        elif self._away_since is None:
            self._away_since = now
        took = health.round_trip_ns
        if took is not None and health.measured != self._measured:
            self._measured = health.measured
            self._best_ns = took if self._best_ns is None else min(took, self._best_ns)
            slow = took > max(SLOW_RATIO * self._best_ns, self._best_ns + SLOW_NS)
            self._slow = self._slow + 1 if slow else 0

    def _reason(self, health: SessionHealth, now: Instant) -> str:
        if self._away_since is not None:
            if now < max(self._away_since, self._looked_at) + self._away_wait:
                return ""
            self._away_wait = min(AWAY_NS_MAX, self._spread(2 * self._away_wait))
            return "no broker for long"
        if now >= self._look_at:
            return "now and then"
        if now < self._looked_at + PAUSE_NS:
            return ""
        if len(self._made) == RESTLESS_LINKS and now - self._made[0] < RESTLESS_NS:
            return "the link breaks again and again"
        return "the broker got slow" if self._slow >= SLOW_TIMES else ""

    def choose(self, result: SearchResult, health: SessionHealth, now: Instant) -> bool:
        """True if the client should move to the broker that this search found."""
        if not result.found or (health.is_connected and result.broker == health.broker):
            return False
        if not health.is_connected:
            return True
        if now < self._came_at + STAY_NS or not result.proven:
            return False
        findings = {finding.broker: finding for finding in result.findings}
        best, present = findings.get(result.broker), findings.get(health.broker)
        if present is None or present.round_trip_ms is None:
            return self.why != "now and then"  # the present broker does not answer: leave it if it had problems
        return best is not None and _is_kin(best, present) and _gains(best, present)

    def _spread(self, wait_ns: int) -> int:
        return int(wait_ns * self._random.uniform(0.5, 1.5))


def _is_kin(best: Finding, present: Finding) -> bool:
    """True if both belong to one network: a client does not leave its network for a nearer broker."""
    return best.network == present.network and (bool(best.network) or best.island == present.island)


def _gains(best: Finding, present: Finding) -> bool:
    if best.round_trip_ms is None or present.round_trip_ms is None:
        return False
    saved_ns = (present.round_trip_ms - best.round_trip_ms) * NS_PER_MS
    return best.round_trip_ms <= GAIN_RATIO * present.round_trip_ms and saved_ns >= GAIN_NS
