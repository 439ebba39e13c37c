"""Timing: the broker's network time, exchanged with neighbours, clients and NTP servers.

In:    the wall clock; PONGs of neighbours; datagrams of NTP servers.
Out:   bodies of PONGs; questions to servers; network time for the parts that need it.
State: the keeper (timekeeping/keeper.py), the servers (timekeeping/sntp.py).
Not here: sending PINGs (routing/peering.py: heartbeats; client/timing.py), which clock is the reference (keeper.py).

A heartbeat is also a question for the time: the PING carries our own instant, the PONG brings it back with the other's
network time. Nothing waits for any of this: until a broker is synchronised it uses its wall clock.
"""

from __future__ import annotations

from typing import Any

from heliograph.broker.config import TimeConfig
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.machine import Instant, Outbox, SocketOpened, Timers
from heliograph.model.chance import Seed
from heliograph.notes import ReferenceChanged
from heliograph.timekeeping.clock import Reference
from heliograph.timekeeping.keeper import Keeper
from heliograph.timekeeping.sntp import Servers
from heliograph.wire.frames import Frame
from heliograph.wire.times import pong, told_in

NS_PER_S = 1_000_000_000


class Timing:
    """Keeps network time, and tells it."""

    def __init__(
        self,
        broker: int,
        incarnation: int,
        config: TimeConfig,
        heartbeat_ms: int,
        seed: Seed,
        outbox: Outbox,
        timers: Timers,
    ) -> None:
        self.keeper = Keeper(broker, incarnation, heartbeat_ms * NS_PER_MS)
        self.ahead_ns: int | None = None  # network time = now + this; None until the wall clock is known
        self._servers = Servers(config.addresses, config.poll_s * NS_PER_S, seed, outbox)
        self._outbox = outbox
        self._timers = timers
        self._told: Reference | None = None

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The wall clock's time."""
        self.keeper.wall(wall_ns, now)
        self._review(now)

    def _review(self, now: Instant) -> None:
        """Check whether the reference is still there, now and again when that may have changed."""
        at = self.keeper.review(now)
        if at is not None:
            self._timers.set("time", at, self._review)
        if self.keeper.reference != self._told:
            self._told = self.keeper.reference
            report = self.keeper.report(now)
            self._outbox.note(ReferenceChanged(report["reference"] or "none", report["stratum"] or 0))
        time_ns = self.keeper.time_ns(now)
        if time_ns is not None:
            self.ahead_ns = time_ns - now

    # -- exchanges ----------------------------------------------------------------------------------------------

    def pong(self, number: int, now: Instant) -> bytes:
        """The answer to a PING that asks for the time."""
        return pong(number, self.keeper.tell(now))

    def heard(self, frame: Frame, now: Instant) -> None:
        """A neighbour's PONG: its number is the instant of our PING."""
        told = told_in(frame)
        if told is not None and self.keeper.hear(told, now - frame.sequence, now):
            self._review(now)

    def opened(self, command: SocketOpened, now: Instant) -> None:
        """The socket for NTP servers is open: ask now and at intervals."""
        self._ask(now)

    def _ask(self, now: Instant) -> None:
        at = self._servers.ask(now)
        if at is not None:
            self._timers.set("ask time", at, self._ask)

    def receive_datagram(self, data: bytes, now: Instant) -> None:
        """A datagram that may be a server's answer."""
        sample = self._servers.receive(data, now)
        if sample is not None and self.keeper.hear_server(sample, now):
            self._review(now)

    def report(self, now: Instant) -> dict[str, Any]:
        """Network time as this broker keeps it."""
        return self.keeper.report(now)
