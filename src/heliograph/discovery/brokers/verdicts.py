"""Verdicts: the reason why each candidate was or was not taken, for people.

In:    candidates as they were judged, measured and ranked.
Out:   the verdict of each.
State: none: functions only.
Not here: the choice that is explained (selection.py), showing it (cli/).
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DiscoveryConfig
from heliograph.discovery.brokers.pinging import TRIES_MORE
from heliograph.discovery.brokers.selection import as_near


def explain(candidates: Sequence[Candidate], ranked: Sequence[Candidate], config: DiscoveryConfig) -> None:
    """Set the reason why each candidate was or was not taken; ``ranked`` are those that answered pings, best first."""
    best, near = ranked[0], as_near(ranked, config)
    by_landmarks = any(candidate.apart_ns is not None for candidate in candidates)
    for candidate in candidates:
        if not candidate.target:
            candidate.explained(f"not pinged: {_unpinged(candidate, best, by_landmarks)}")
        elif not candidate.round_trips_ns:
            candidate.explained(_unanswered(candidate, best, config))
        elif candidate.loaded and not best.loaded:
            candidate.explained(f"over the load limit: {candidate.loaded}")
        else:
            too = "; over the load limit too" if candidate.loaded else ""
            candidate.explained((_equal(candidate, best) if candidate in near else _farther(candidate, best)) + too)
    best.explained(f"chosen: {_ms(best)}, {_praise(candidates, ranked, near)}{_though(ranked, 'that answered pings')}")


def explain_estimate(ranked: Sequence[Candidate]) -> None:
    """The same if no ping was answered: the first candidate was taken for its score."""
    best = ranked[0]
    for candidate in ranked[1:]:
        if candidate.loaded and not best.loaded:
            candidate.explained(f"over the load limit: {candidate.loaded}")
        elif candidate.pings and not best.pings:
            candidate.explained(f"{_times(candidate)} without an answer")
        else:
            candidate.explained(f"its score of {candidate.score:.2f} is not above {best.score:.2f}")
    best.explained(
        f"chosen by its score of {best.score:.2f}: pings reached no broker{_though(ranked, 'that answered')}"
    )


def _unpinged(candidate: Candidate, best: Candidate, by_landmarks: bool) -> str:
    if candidate.datagrams is None:
        return "its address for pings is unknown"
    if candidate.loaded and not best.loaded:
        return f"over the load limit, {candidate.loaded}"
    if candidate.loaded:
        return f"over the load limit as {best.name} is, and farther by its estimate"
    if candidate.apart_ns is not None:
        return "others see the landmarks more as we do, so they are nearer"
    if by_landmarks:
        return "it does not say how far it is from the landmarks"
    return f"its score of {candidate.score:.2f} is not among the best"


def _unanswered(candidate: Candidate, best: Candidate, config: DiscoveryConfig) -> str:
    """A candidate that is not waited for any longer may be up, only farther away."""
    if candidate.pings >= config.pings + TRIES_MORE:
        return f"{_times(candidate)} without an answer"
    return f"{_times(candidate)} without an answer while {best.name} was measured: farther, or gone"


def _equal(candidate: Candidate, best: Candidate) -> str:
    mine, its = _idle(candidate), _idle(best)
    if mine == its:
        return f"as near and as busy as {best.name}"
    return f"as near as {best.name}, but busier (idle {mine} against {its})"


def _farther(candidate: Candidate, best: Candidate) -> str:
    return f"farther: {_ms(candidate)} against {_ms(best)}"


def _praise(candidates: Sequence[Candidate], ranked: Sequence[Candidate], near: Sequence[Candidate]) -> str:
    best = ranked[0]
    if len(candidates) == 1:
        return "the only one that answered"
    if len(ranked) == 1:
        return "the only one that answered pings"
    others = [candidate for candidate in near if candidate is not best]
    if any(_idle(candidate) == _idle(best) for candidate in others):
        reason = f"as near as {_others(len(others))} and no busier"
    elif others:
        reason = f"as near as {_others(len(others))} and the least busy"
    else:
        reason = "the lowest delay"
    hot = any(_trip(candidate) < _trip(best) for candidate in ranked if candidate not in near)
    return f"{reason} of those under the load limit" if hot else reason


def _though(ranked: Sequence[Candidate], those: str) -> str:
    """The load limit comes first: an overloaded broker is taken only if all are."""
    loaded = ranked[0].loaded
    if loaded and len(ranked) > 1:
        return f"; all {those} are over the load limit, this one with {loaded}"
    return f", though over the load limit: {loaded}" if loaded else ""


def _others(count: int) -> str:
    return "1 other" if count == 1 else f"{count} others"


def _times(candidate: Candidate) -> str:
    return "pinged once" if candidate.pings == 1 else f"pinged {candidate.pings} times"


def _idle(candidate: Candidate) -> str:
    return f"{candidate.usage:.4f}"  # with the precision of a result: small differences decide among equals


def _trip(candidate: Candidate) -> int:
    return candidate.round_trip_ns or 0


def _ms(candidate: Candidate) -> str:
    return f"{_trip(candidate) / 1e6:.2f} ms"
