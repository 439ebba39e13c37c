"""Broker status: where a broker is and how busy it is, as reported to others.

In:    samples of the computer (UsageSample), the broker's own report "usage" with its network time, the wall clock.
Out:   usage, ports and place for responses and broker advertisements.
State: the last of each; of the CPU a mean over the last seconds.
Not here: reading CPU and memory (live/), keeping time (timekeeping/), sending anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

from msgspec import Struct

from heliograph.discovery.brokers.config import address_of
from heliograph.discovery.brokers.messages import ISLANDS_MAX, Usage
from heliograph.machine import Instant
from heliograph.timekeeping.clock import shown

NS_PER_S = 1_000_000_000
START_NS = 2 * NS_PER_S  # a broker has just started …
CHANGE_NS = 2 * NS_PER_S  # … or its island has just changed: others may not know yet
BEFORE_NS = 600 * NS_PER_S  # former islands are reported for this long: a partition may last
LINKING_NS = 10 * NS_PER_S  # a link still being dialled after this will not come up soon
# How fast the CPU mean follows its samples. A sample of one second moves it by less than a fifth of the difference, so
# a single 100 % sample repels no client; after 12 s at 100 % an idle computer exceeds the load limit of 90 %. A client
# stays connected for minutes or longer, so load that is over in seconds should not send it farther away.
CPU_NS = 5 * NS_PER_S
TRANSPORTS = {"heliograph": "tcp", "heliographs": "tls"}


class UsageSample(Struct, frozen=True):
    """How busy the computer is, sent regularly by the driver."""

    cpu_permille: int
    memory_total: int
    memory_used: int


class BrokerStatus:
    """What a responder knows of its own broker."""

    def __init__(self) -> None:
        self._sample = UsageSample(0, 0, 0)
        self._cpu_permille = 0.0
        self._sampled_at: Instant | None = None
        self._time: dict[str, Any] = {"synchronised": False}
        self._wall_offset_ns: int | None = None
        self._connections = 0
        self._links = 0
        self.ports: dict[str, int] = {}
        self.address = ""
        self.network = ""
        self.island = ""
        self._settled_at: Instant = 0
        self._before: dict[str, Instant] = {}  # former islands, and until when they are reported
        self._linking_since: Instant | None = None
        self.brokers = 1
        self.distances: dict[str, int] = {}  # to the landmarks of directories
        self.willing = False  # False until the broker has reported, and when it drains or is full

    def sampled(self, sample: UsageSample, now: Instant) -> None:
        """The computer's load was sampled. The first sample counts in full, as there is no mean yet."""
        cpu_permille = min(1_000, max(0, sample.cpu_permille))
        weight = 1.0 if self._sampled_at is None else 1 - exp((self._sampled_at - now) / CPU_NS)
        self._cpu_permille += weight * (cpu_permille - self._cpu_permille)
        self._sampled_at = now
        self._sample = UsageSample(round(self._cpu_permille), max(0, sample.memory_total), max(0, sample.memory_used))

    def stopped(self) -> None:
        """The broker has stopped: it accepts no clients."""
        self.willing = False

    def surveyed(self, distances: Mapping[str, int]) -> None:
        """The broker's distances to landmarks were measured."""
        self.distances = dict(distances)

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The wall clock was read."""
        self._wall_offset_ns = wall_ns - now

    def heard(self, report: Any, udp_port: int, now: Instant) -> None:
        """The broker's own report "usage"; None if it refused."""
        if not isinstance(report, dict):
            return
        self._connections, self._links = int(report["connections"]), int(report["links"])
        self._settle(str(report["island"]), int(report["linking"]), now)
        self.address, self.network = str(report["address"]), str(report["network"])
        self.brokers = max(1, int(report["brokers"]))
        self._time = report["time"]
        self.ports = {"udp": udp_port} if udp_port else {}
        for url in report["addresses"]:
            scheme, _, rest = ("heliograph://" + url if "://" not in url else url).partition("://")
            address = address_of(rest)
            if address is not None and scheme in TRANSPORTS:
                self.ports.setdefault(TRANSPORTS[scheme], address[1])
        self.willing = len(self.ports) > 1 and not report["draining"] and not report["full"]

    def _settle(self, island: str, linking: int, now: Instant) -> None:
        if island != self.island:
            self._settled_at = now + (CHANGE_NS if self.island else START_NS)
            self._before.pop(island, None)
            if self.island:
                self._before[self.island] = now + BEFORE_NS
            self.island = island
        if not linking:
            self._linking_since = None
        elif self._linking_since is None:
            self._linking_since = now

    def before(self, now: Instant) -> list[str]:
        """The last few islands that the broker was on recently."""
        told = [island for island, until in self._before.items() if now < until][-ISLANDS_MAX:]
        self._before = {island: self._before[island] for island in told}
        return told

    def is_settling(self, now: Instant) -> bool:
        """True if the broker has just started or is linking, so that its island may change soon."""
        links = self._linking_since is not None and now < self._linking_since + LINKING_NS
        return links or now < self._settled_at

    @property
    def usage(self) -> Usage:
        """How busy the broker is."""
        sample = self._sample
        return Usage(self._connections, self._links, sample.cpu_permille, sample.memory_total, sample.memory_used)

    def wall_ns(self, now: Instant) -> int | None:
        """The wall clock's time; None before the first reading."""
        return None if self._wall_offset_ns is None else now + self._wall_offset_ns

    def network_ns(self, now: Instant) -> tuple[int, int]:
        """Network time and its error bound; below 0: the broker is not synchronised, so this is its wall clock."""
        return shown(self._time, now) if self._time["synchronised"] else (self.wall_ns(now) or 0, -1)
