"""Candidates: brokers that answered, and what is known of each.

In:    a response, where it came from and when.
Out:   Candidate, which selection.py fills in and verdicts.py explains; the addresses where clients reach it.
State: one candidate's measurements.
Not here: judging it (selection.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heliograph.discovery.brokers.config import written
from heliograph.discovery.brokers.messages import DiscoveryResponse
from heliograph.machine import Address

UNSPECIFIED = ("", "0.0.0.0", "::")  # noqa: S104 - not bound to: "as you see me"
SCHEMES = {"tls": "heliographs", "tcp": "heliograph"}  # in the order in which they are tried


@dataclass(frozen=True, slots=True)
class Delay:
    """The time a datagram takes from a broker to us, as far as its answer shows."""

    low_ns: int
    high_ns: int
    by_clock: bool  # False: only the time of its arrival is known

    @property
    def ns(self) -> int:
        """The estimate."""
        return (self.low_ns + self.high_ns) // 2

    @property
    def bound_ns(self) -> int:
        """How wrong the estimate may be."""
        return (self.high_ns - self.low_ns + 1) // 2


@dataclass(slots=True, eq=False)
class Candidate:
    """One broker that would accept us."""

    response: DiscoveryResponse
    source: Address  # of the answer; if it was relayed, what the directory saw, possibly nothing: ("", 0)
    relayed: bool
    raw_ns: int | None  # our wall clock when it arrived, less its timestamp; None: we have no clock yet
    elapsed_ns: int  # since the request left
    delay: Delay = Delay(0, 0, False)
    apart_ns: int | None = (
        None  # how differently it and we see the landmarks: about its round trip, less what all share
    )
    usage: float = 0.0  # 0 (busy) to 1 (idle)
    score: float = 0.0
    loaded: str = ""  # what exceeds the load limit; such a broker is taken only if there is no other
    target: bool = False
    pings: int = 0
    round_trips_ns: list[int] = field(default_factory=list)
    verdict: str = ""
    at_named: bool = False  # its pings go to the host that it names, where clients dial it first
    seen_ns: int | None = None  # the round trip to where its answer came from, before the named host was pinged

    def __post_init__(self) -> None:
        self.at_named = self.relayed and self.named is not None

    @property
    def name(self) -> str:
        """The broker's name."""
        return self.response.broker

    @property
    def place(self) -> str:
        """Where it claims to be, which distinguishes it from another broker with the same name."""
        return f"{self.response.host} {sorted(self.response.ports.items())}"

    @property
    def round_trip_ns(self) -> int | None:
        """The mean round trip of its pings; None if none was answered."""
        return sum(self.round_trips_ns) // len(self.round_trips_ns) if self.round_trips_ns else None

    @property
    def named(self) -> Address | None:
        """Where the host that it names receives pings; None if it names none, or names the one that its answer came
        from."""
        host, port = self.response.host, self.response.ports.get("udp", 0)
        return None if host in UNSPECIFIED or host == self.source[0] or not port else (host, port)

    @property
    def seen(self) -> Address | None:
        """Where its answer came from or, if relayed, where the directory saw it."""
        if not self.relayed:
            return self.source
        host, port = self.source[0] or self.response.host, self.response.ports.get("udp", 0)
        return None if host in UNSPECIFIED or not port else (host, port)

    @property
    def datagrams(self) -> Address | None:
        """Where it is pinged."""
        return self.named if self.at_named else self.seen

    # -- what happens to it -----------------------------------------------------------------------------------------

    def estimated(self, delay: Delay) -> None:
        """Its delay, as far as its answer shows."""
        self.delay = delay

    def judged(self, usage: float, score: float, loaded: str) -> None:
        """How idle it is, its score, and what exceeds the load limit, if anything."""
        self.usage, self.score, self.loaded = usage, score, loaded

    def compared(self, apart_ns: int | None) -> None:
        """How differently it and we see the landmarks; None: there is too little data."""
        self.apart_ns = apart_ns

    def chosen_to_ping(self) -> None:
        """It belongs to the target set."""
        self.target = True

    def measured_as_landmark(self, round_trips_ns: Sequence[int], pings: int) -> None:
        """It is a landmark, so it was pinged already."""
        self.target, self.pings = True, pings
        self.round_trips_ns = list(round_trips_ns)

    def pinged(self) -> None:
        """One more ping is sent to it."""
        self.pings += 1

    def ponged(self, round_trip_ns: int) -> None:
        """It answered a ping."""
        self.round_trips_ns.append(round_trip_ns)

    def answered_where_seen(self, round_trip_ns: int) -> None:
        """It answered at the address its answer came from. From now on the host that it names is pinged."""
        self.seen_ns = round_trip_ns
        self.at_named = True

    def name_answers(self) -> None:
        """The host that it names answers pings after all: only what is measured there counts."""
        self.at_named, self.round_trips_ns = True, []

    def explained(self, verdict: str) -> None:
        """Why it was or was not chosen."""
        self.verdict = verdict

    def name_is_silent(self) -> None:
        """The host that it names does not answer pings, so the distance of its answer's address is used."""
        self.at_named = False
        self.round_trips_ns = [] if self.seen_ns is None else [self.seen_ns]

    def urls(self, transports: tuple[str, ...]) -> list[str]:
        """Where clients reach it: at the host it names, and, if that differs, at the address we saw (NAT, B20)."""
        hosts = [] if self.response.host in UNSPECIFIED else [self.response.host]
        if self.source[0] and self.source[0] not in hosts:
            hosts.append(self.source[0])
        return [
            f"{scheme}://{written((host, port))}"
            for host in hosts
            for transport, scheme in SCHEMES.items()
            if transport in transports and (port := self.response.ports.get(transport, 0))
        ]
