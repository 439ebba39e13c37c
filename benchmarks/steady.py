"""A steady stream: one publisher that keeps time, one subscriber, and what became of every publication.

In:    the ports of two of our brokers.
Out:   when each publication was sent and when it arrived, how often; gaps.
State: two links, the times.
Not here: what happens to the brokers meanwhile (reroute.py).
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter, sleep

from benchmarks.arrivals import Arrivals
from benchmarks.cases import SPREAD_S
from benchmarks.links import READ_BYTES, LinkEndedError
from benchmarks.peers.ours import FIRST_SEQUENCE, SUBSCRIBE, Session, event

TOPIC = "plant/steady"
PAYLOAD = bytes(64)
LATE_S = 3.0  # so long after the last publication, what has not arrived counts as lost


@dataclass(slots=True)
class Log:
    """Seconds on one clock, by sequence and in order of arrival."""

    sent: dict[int, float] = field(default_factory=dict)
    arrived: list[tuple[float, int]] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Publications that never arrived."""
        return len(self.sent.keys() - {number for _, number in self.arrived})

    @property
    def repeated(self) -> int:
        """Arrivals of what had arrived before."""
        return len(self.arrived) - len({number for _, number in self.arrived})

    @property
    def overtaken(self) -> int:
        """Arrivals after one with a higher number."""
        highest, found = 0, 0
        for _, number in self.arrived:
            found += number < highest
            highest = max(highest, number)
        return found

    def gap(self, begin: float, end: float, period: float) -> float:
        """The longest interval between arrivals that touches this time, less what lies between two publications."""
        return longest([at for at, _ in self.arrived], begin, end) - period

    def quiet_gap(self, until: float, period: float) -> float:
        """The same of all that arrived until then."""
        times = [at for at, _ in self.arrived if at <= until]
        return longest(times, times[0], until) - period

    def delay(self, begin: float, end: float) -> float:
        """The longest way of a publication that was sent within this time, first arrivals only."""
        first: dict[int, float] = {}
        for at, number in self.arrived:
            first.setdefault(number, at)
        return max((first[n] - at for n, at in self.sent.items() if begin <= at < end and n in first), default=0.0)


def longest(times: Sequence[float], begin: float, end: float) -> float:
    """The longest interval between neighbours in ``times`` that has a part within begin and end."""
    return max((after - before for before, after in pairwise(times) if after > begin and before < end), default=0.0)


class Stream:
    """The publisher and its subscriber."""

    def __init__(self, near_port: int, far_port: int, period: float) -> None:
        self.log = Log()
        self._period = period
        self._arrivals = Arrivals()
        self._near, self._far = Session(near_port, None), Session(far_port, None)
        self._far.ask([(SUBSCRIBE, {"number": 1, "filter": TOPIC})])
        sleep(SPREAD_S)
        self._next = FIRST_SEQUENCE
        self._due = perf_counter()

    def run(self, seconds: float) -> None:
        """Publish in time, and read."""
        end = max(perf_counter(), self._due) + seconds
        self._due = max(self._due, perf_counter())
        while self._due < end:
            self._read(self._due)
            self._near.send_all(event(TOPIC, PAYLOAD, self._near.origin, self._next))
            self.log.sent[self._next] = perf_counter()
            self._next += 1
            self._due += self._period

    def drain(self) -> None:
        """Publish no more; wait until everything has arrived, and a little longer for what should not."""
        until = perf_counter() + LATE_S
        while self.log.lost and perf_counter() < until:
            self._read(perf_counter() + 0.05)
        self._read(perf_counter() + 0.1)

    def _read(self, until: float) -> None:
        while True:
            left = until - perf_counter()
            if not select.select([self._far.socket], [], [], max(0.0, left))[0]:
                return
            data = self._far.socket.recv(READ_BYTES)
            now = perf_counter()
            if not data:
                raise LinkEndedError("the broker closed the subscriber's link")
            self.log.arrived += [(now, number) for number in self._arrivals.feed(data)]
            if self._arrivals.replies:
                self._far.send_all(self._arrivals.replies)
                self._arrivals.replies = b""

    def close(self) -> None:
        """End both links."""
        self._near.close()
        self._far.close()
