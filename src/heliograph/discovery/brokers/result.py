"""The result of a search: which broker, why, what else there was, and what was tried.

In:    candidates and what the search counted.
Out:   SearchResult, frozen; the same as plain values for JSON.
State: none.
Not here: choosing (selection.py), showing it to people (cli/).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from heliograph.discovery.brokers.asked import AskedParties
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DiscoveryConfig, written
from heliograph.discovery.brokers.remembered import Remembered
from heliograph.errors import Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """One candidate: what was measured, and why it was or was not taken."""

    broker: str
    urls: tuple[str, ...]
    answered_from: str
    relayed: bool
    delay_ms: float  # estimated from its timestamp …
    delay_error_ms: float  # … and how wrong that may be
    synchronised: bool  # False: estimated from the time of its arrival only
    round_trip_ms: float | None  # measured
    usage: dict[str, int]
    idle: float  # 0 (busy) to 1
    score: float
    verdict: str
    island: str = ""  # a name that linked brokers share
    network: str = ""  # the network's name; empty: it has none


@dataclass(frozen=True, slots=True)
class SearchResult:
    """How a search ended."""

    broker: str = ""  # the chosen one; "" if there is none, or if only its address is known
    network: str = ""  # the network it belongs to; empty: an unnamed one
    urls: tuple[str, ...] = ()  # where to connect, in order of preference
    proven: bool = False  # it has just answered a ping
    reason: Reason | None = None  # why there is none
    text: str = ""  # for people: how it was found, or what to do
    settling: bool = False  # several networks, which may turn out to be one: search again
    findings: tuple[Finding, ...] = ()  # best first
    tried: tuple[str, ...] = ()
    targets: tuple[Remembered, ...] = ()  # to remember for the next time
    times_ms: dict[str, float] = field(default_factory=dict)  # by sub-activity
    counts: dict[str, int] = field(default_factory=dict)  # datagrams sent and taken, and what was dropped and why

    @property
    def found(self) -> bool:
        """True if there is an address to connect to."""
        return bool(self.urls)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        reason = None if self.reason is None else self.reason.word
        return asdict(self) | {
            "found": self.found,
            "reason": reason,
            "targets": [{"broker": one.broker, "address": one.address, "at_s": one.at_s} for one in self.targets],
        }


def finding_of(candidate: Candidate, transports: tuple[str, ...]) -> Finding:
    """A candidate as results show it."""
    usage = candidate.response.usage
    round_trip = candidate.round_trip_ns
    return Finding(
        broker=candidate.name,
        urls=tuple(candidate.urls(transports)),
        answered_from=written(candidate.source),
        relayed=candidate.relayed,
        delay_ms=candidate.delay.ns / 1e6,
        delay_error_ms=candidate.delay.bound_ns / 1e6,
        synchronised=candidate.delay.by_clock,
        round_trip_ms=None if round_trip is None else round_trip / 1e6,
        usage={name: getattr(usage, name) for name in usage.__struct_fields__},
        idle=round(candidate.usage, 4),
        score=round(candidate.score, 4),
        verdict=candidate.verdict,
        island=candidate.response.island,
        network=candidate.response.network,
    )


def result_of(
    ranked: Sequence[Candidate],
    rest: Sequence[Candidate],
    config: DiscoveryConfig,
    wall_ns: int | None,
    parties: AskedParties,
    *,
    proven: bool,
) -> SearchResult:
    """The first ranked candidate is taken; the best ones are remembered, with the directories that know them."""
    best, lists, vouched = ranked[0], parties.lists, parties.vouched
    targets = tuple(
        Remembered(
            candidate.name,
            written(address),
            (wall_ns or 0) // 1_000_000_000,
            lists or vouched.get((candidate.name, written(address)), ()),
        )
        for candidate in ranked[: config.targets_max]
        if (address := candidate.seen) is not None
    )
    return SearchResult(
        broker=best.name,
        network=best.response.network,
        urls=tuple(best.urls(config.transports)),
        proven=proven,
        text=f"{best.name}: {best.verdict}",
        findings=tuple(finding_of(candidate, config.transports) for candidate in (*ranked, *rest)),
        targets=targets,
    )
