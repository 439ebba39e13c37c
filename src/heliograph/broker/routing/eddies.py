"""Eddies: parcels whose next hop is where they came from wait until the brokers agree on the paths.

In:    what ``Plans`` sends to the eddy (holds.py): parcels that would turn back, and those that follow them.
Out:   the same parcels, sent on along the paths of that later moment.
State: the parcels that wait.
Not here: when a parcel turns back (plans.py), orderly changes (changeover.py).

While a new cost spreads, brokers have different views for some tens of milliseconds, and two of them may each use the
other as the next hop. Parcels that go back and forth between them would be overtaken, and would run out of hops before
the brokers agree. So these parcels wait, and everything else for their destination waits behind them, until our own
path changes or a MARK comes. A MARK shows that a broker before us takes another path and holds back what is newer, so
the parcels can go back to it. Otherwise they go back after a while.

After a loss they wait much less: a parcel may have to turn back because a link on its path is gone.
"""

from __future__ import annotations

from heliograph.broker.routing.holds import Holds
from heliograph.broker.routing.plans import Plans
from heliograph.broker.routing.ports import HopSink, Sink
from heliograph.broker.routing.targets import TargetedRun
from heliograph.broker.routing.view import View
from heliograph.machine import Instant, Timers
from heliograph.wire.frames import Kind
from heliograph.wire.scan import frames_of

WAIT_NS = 2_000_000_000  # views agree after half a second on an idle computer (pace.py), but a busy one takes longer
WAIT_TROUBLED_NS = 50_000_000  # after a loss
BYTES_MAX = 8 << 20  # of waiting parcels, as much as for one slow link; beyond it they are sent on
KIND = 4  # the offset of a frame's kind


class Eddies:
    """Keeps parcels that would turn back."""

    def __init__(self, view: View, holds: Holds, plans: Plans, timers: Timers) -> None:
        self._view = view
        self._holds = holds
        self._plans = plans
        self._timers = timers
        self._runs: list[TargetedRun] = []
        self._bytes = 0
        self._counts = dict.fromkeys(("waited", "timed_out", "overflowed", "unroutable"), 0)

    def report(self) -> dict[str, int]:
        """How many runs had to wait, how often a wait ended by time or size, and how many then had no path."""
        return {**self._counts, "waiting_bytes": self._bytes}

    def take(self, sink: Sink, frames: bytes, now: Instant) -> None:
        """Keep parcels that would turn back, or that follow one that would."""
        assert isinstance(sink, HopSink)
        run = sink.run(frames, self._view.me)
        new = [each for each in self._plans.destinations(run.targets) if each not in self._holds.turning]
        if not self._holds.turning:
            wait_ns = WAIT_TROUBLED_NS if self._plans.is_troubled else WAIT_NS
            self._timers.set("eddy", now + wait_ns, self._time_out)
        self._holds.turning.update(dict.fromkeys(new))
        self._runs.append(run)
        self._bytes += len(frames)
        self._counts["waited"] += 1
        if new:
            self._plans.forget_ways(self._view.paths, now)  # what follows has to wait too
        if self._bytes > BYTES_MAX:
            self._counts["overflowed"] += 1
            self.release(now)
        elif _has_mark(frames):
            self._release(self._plans.destinations(run.targets), now)

    def _time_out(self, now: Instant) -> None:
        self._counts["timed_out"] += 1
        self.release(now)

    def release(self, now: Instant) -> None:
        """Send on what waits, even back where it came from."""
        if self._holds.turning:
            self._release(list(self._holds.turning), now)

    def _release(self, destinations: list[int], now: Instant) -> None:
        """The same for some destinations; the others keep waiting."""
        turning = self._holds.turning
        for destination in destinations:
            turning.pop(destination, None)
        if not turning:
            self._timers.cancel("eddy")
        runs, self._runs, self._bytes = self._runs, [], 0
        self._plans.forget_ways(self._view.paths, now)
        for run in runs:
            self._send(run, now)

    def _send(self, run: TargetedRun, now: Instant) -> None:
        waiting, free = self._plans.sort(run.targets, self._holds.turning.__contains__)
        if waiting is not None:
            self._runs.append(TargetedRun(waiting, run.ttl, run.trace, run.frames))
            self._bytes += len(run.frames)
        if free is not None:
            run = TargetedRun(free, run.ttl, run.trace, run.frames)
            self._counts["unroutable"] += self._plans.send(run, self._holds.eddy.link, now, turns_back=True)


def _has_mark(frames: bytes) -> bool:
    """True if one of these frames is a MARK."""
    start = 0
    for end in frames_of(frames, 0):
        if frames[start + KIND : start + KIND + 1] == bytes([Kind.MARK]):
            return True
        start = end
    return False
