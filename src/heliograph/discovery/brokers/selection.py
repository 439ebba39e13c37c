"""Selection: from the brokers that answered to the one to use.

In:    candidates; weights and limits of the config.
Out:   the same candidates with delay, usage and score; a target set; a ranking.
State: none: functions only.
Not here: when to choose, and the choice without pongs (broker_choice.py), pinging (pinging.py), ties and weights
              (config.py), the reasons as text (verdicts.py).
Paper: [brokers] §6 and §9. Its weight adds megabytes to ratios; here every quantity is a number from 0 to 1.

The delay of an answer is its arrival less its timestamp, less the difference between our clock and the network's. That
difference is the same for all answers, so it does not affect the ranking; and since no answer was under way for longer
than we have waited, each answer bounds it. Most answers agree on an interval; an answer outside it has a wrong clock
and is judged by its time of arrival, as is one that declares itself unsynchronised. The ping decides later.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from heliograph.discovery.brokers.candidate import Candidate, Delay
from heliograph.discovery.brokers.config import DiscoveryConfig, WeightsConfig
from heliograph.discovery.brokers.messages import Usage

# Where an unbounded quantity counts half.
LINKS_HALF = 16
CONNECTIONS_HALF = 1_000
MEMORY_HALF = 4 << 30
DELAY_NS_MIN = 1_000_000  # in a score, delays below a millisecond are equally good


def estimate(candidates: Sequence[Candidate]) -> None:
    """Set the delay of each candidate from its timestamp, with its error bound."""
    spans = [_offset_span(candidate) for candidate in candidates]
    agreed = _most_common([span for span in spans if span is not None])
    for candidate, span in zip(candidates, spans, strict=True):
        if agreed is None or span is None or span[0] > agreed[0] or span[1] < agreed[1]:
            candidate.estimated(Delay(0, candidate.elapsed_ns, False))
            continue
        assert candidate.raw_ns is not None
        error = candidate.response.error_ns
        low = max(0, candidate.raw_ns - agreed[1] - error)
        high = min(candidate.elapsed_ns, candidate.raw_ns - agreed[0] + error)
        candidate.estimated(Delay(min(low, high), max(low, high), True))


def _offset_span(candidate: Candidate) -> tuple[int, int] | None:
    """The bounds of our clock's lead over the network's, if this timestamp is right."""
    if candidate.raw_ns is None or candidate.response.error_ns < 0:
        return None
    error = candidate.response.error_ns
    return candidate.raw_ns - candidate.elapsed_ns - error, candidate.raw_ns + error


def _most_common(spans: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The interval that most spans contain."""
    edges = sorted([(low, 0) for low, _ in spans] + [(high, 1) for _, high in spans])
    best, depth, agreed = 0, 0, None
    for number, (edge, closes) in enumerate(edges):
        depth += -1 if closes else 1
        if depth > best:
            best, agreed = depth, (edge, edges[number + 1][0])
    return agreed


def usage_of(usage: Usage, weights: WeightsConfig) -> float:
    """How idle a broker is: 0 to 1. What it does not report counts as a half."""
    total = usage.memory_total
    parts = (
        (weights.free_memory, max(0, total - usage.memory_used) / total if total else 0.5),
        (weights.total_memory, total / (total + MEMORY_HALF) if total else 0.5),
        (weights.links, 1 / (1 + usage.links / LINKS_HALF)),
        (weights.cpu, 1 - usage.cpu_permille / 1_000),
        (weights.connections, 1 / (1 + usage.connections / CONNECTIONS_HALF)),
    )
    weight = sum(weight for weight, _ in parts)
    return sum(weight * good for weight, good in parts) / weight if weight else 0.0


def overload_of(usage: Usage, config: DiscoveryConfig) -> str:
    """Why a broker is too busy to be chosen while there is another; empty if it is not."""
    if usage.cpu_permille > config.cpu_permille_max:
        return f"CPU at {usage.cpu_permille / 10:.0f} %"
    free = usage.memory_total - usage.memory_used
    if usage.memory_total and free * 1_000 < config.memory_free_permille_min * usage.memory_total:
        return f"{max(0, free) * 100 // usage.memory_total} % of its memory free"
    return ""


def judge(candidates: Sequence[Candidate], config: DiscoveryConfig) -> None:
    """Set delay, usage, score and overload of each."""
    estimate(candidates)
    weights = config.weights
    shortest_ns = max(DELAY_NS_MIN, min((candidate.delay.ns for candidate in candidates), default=0))
    rest = weights.free_memory + weights.total_memory + weights.links + weights.cpu + weights.connections
    for candidate in candidates:
        usage = candidate.response.usage
        idle = usage_of(usage, weights)
        near = shortest_ns / max(shortest_ns, candidate.delay.ns)
        score = (weights.delay * near + rest * idle) / (weights.delay + rest)
        candidate.judged(idle, score, overload_of(usage, config))


def nearest(candidates: Sequence[Candidate], places: int) -> list[Candidate]:
    """The candidates to ping if landmarks show which are near, for which timestamps are not exact enough."""
    near = [candidate for candidate in candidates if candidate.apart_ns is not None and not candidate.target]
    near.sort(key=lambda candidate: (bool(candidate.loaded), candidate.apart_ns, candidate.name))
    return near[: max(1, places)]


def targets(candidates: Sequence[Candidate], config: DiscoveryConfig) -> list[Candidate]:
    """The candidates to ping: half the places for the nearest, so that load cannot hide them; some for those with an
    unknown clock; the rest by score. Brokers over the load limit only if places are left."""
    places = config.targets_max
    chosen: dict[Candidate, None] = {}
    free = [candidate for candidate in candidates if not candidate.loaded]
    by_delay = sorted(free, key=lambda candidate: (candidate.delay.ns, candidate.name))
    by_score = sorted(free, key=lambda candidate: (-candidate.score, candidate.name))
    doubtful = [candidate for candidate in by_delay if not candidate.delay.by_clock]
    chosen.update(dict.fromkeys(by_delay[: ceil(places / 2)]))
    chosen.update(dict.fromkeys(doubtful[: places // 4]))
    loaded = sorted(candidates, key=lambda candidate: (bool(candidate.loaded), candidate.delay.ns, candidate.name))
    for candidate in (*by_score, *loaded):
        if len(chosen) >= places:
            break
        chosen[candidate] = None
    return sorted(chosen, key=lambda candidate: (-candidate.score, candidate.name))


def rank(pinged: Sequence[Candidate], config: DiscoveryConfig) -> list[Candidate]:
    """Those that answered pings, best first: the lowest mean round trip; among equals the least busy."""
    measured = [candidate for candidate in pinged if candidate.round_trips_ns]
    measured.sort(key=lambda candidate: (bool(candidate.loaded), candidate.round_trip_ns, candidate.name))
    if not measured:
        return []
    equals = as_near(measured, config)
    equals.sort(key=lambda candidate: (-candidate.usage, candidate.round_trip_ns, candidate.name))
    return equals + [candidate for candidate in measured if candidate not in equals]


def as_near(measured: Sequence[Candidate], config: DiscoveryConfig) -> list[Candidate]:
    """Those that count as near as the nearest: load decides among them. Overloaded ones only if all are."""
    hot = all(candidate.loaded for candidate in measured)
    trips = [(candidate, candidate.round_trip_ns or 0) for candidate in measured if hot or not candidate.loaded]
    least_ns = min(trip for _, trip in trips)
    limit_ns = int(max(least_ns * config.tie_ratio, least_ns + config.tie_us * 1_000))
    return [candidate for candidate, trip in trips if trip <= limit_ns]
