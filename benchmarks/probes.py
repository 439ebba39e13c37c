"""Probes: how long until a subscription at one end of a network is in force at the other.

In:    commands from the benchmark, one JSON object per line on stdin; the ports of the two ends.
Out:   per trial the two times below, in µs.
State: the two links, or sessions, of each system.
Not here: starting the brokers and the order of measurements (interest.py).

A trial: subscribe at the far end to a topic that is new, and publish numbered probes to it at the near end, one every
100 µs, the first one after a random part of that. The first probe that arrives tells two things: when it was sent the
subscription was in force (or became so while the probe went to its broker), and when it arrived all was done. Probes
are so few that the near broker is idle most of the time, and the random start makes the grid's mean error half a step.
Every system gets the same loop; what differs is how a probe is sent and waited for, in two small classes.
"""

from __future__ import annotations

import gc
import json
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from time import perf_counter_ns, sleep
from typing import Any, Protocol

from benchmarks.arrivals import Arrivals
from benchmarks.links import READ_BYTES, LinkEndedError
from benchmarks.peers.ours import SUBSCRIBE, UNSUBSCRIBE, Session, control, event
from benchmarks.peers.zenoh import settings
from benchmarks.sinks import MismatchError

STEP_NS = 100_000
TRIAL_S = 2.0  # a subscription that is not in force by then never will be
QUIET_S = 0.005  # between trials
PAYLOAD_BYTES = 16


class Ends(Protocol):
    """Both ends of a network: a publisher at the near one, a subscriber at the far one."""

    def subscribe(self, topic: str) -> None:
        """Ask for it; do not wait."""
        ...

    def unsubscribe(self) -> None:
        """End the last subscription."""
        ...

    def publish(self, topic: str, number: int) -> None:
        """Send a probe."""
        ...

    def arrived(self, timeout_s: float) -> tuple[int, int] | None:
        """The number of the next probe and when it came, or None when the time is over."""
        ...

    def close(self) -> None:
        """End both."""
        ...


class OurEnds:
    """Two plain links."""

    def __init__(self, near_port: int, far_port: int) -> None:
        self._far, self._near = Session(far_port, None), Session(near_port, None)
        self._arrivals = Arrivals()
        self._waiting: list[tuple[int, int]] = []
        self._asked = 0
        self._base = 1  # the sequence that stands for probe 0
        self._next = 1

    def subscribe(self, topic: str) -> None:
        """A new number for each."""
        self._asked += 1
        self._base = self._next
        self._far.send_all(control(SUBSCRIBE, self._asked, {"number": self._asked, "filter": topic}))

    def unsubscribe(self) -> None:
        """The last number."""
        self._far.send_all(control(UNSUBSCRIBE, self._asked, {"number": self._asked}))

    def publish(self, topic: str, number: int) -> None:
        """Its sequence carries the number."""
        self._next = self._base + number + 1
        self._near.send_all(event(topic, bytes(PAYLOAD_BYTES), self._near.origin, self._base + number))

    def arrived(self, timeout_s: float) -> tuple[int, int] | None:
        """Read once, at most; confirmations are not arrivals."""
        if not self._waiting and select.select([self._far.socket], [], [], timeout_s)[0]:
            data = self._far.socket.recv(READ_BYTES)
            now = perf_counter_ns()
            if not data:
                raise LinkEndedError("the broker closed the subscriber's link")
            self._waiting = [(number - self._base, now) for number in self._arrivals.feed(data)]
        return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        """End both links."""
        self._far.close()
        self._near.close()


class ZenohEnds:
    """Two sessions in client mode."""

    def __init__(self, near_port: int, far_port: int) -> None:
        import zenoh  # type: ignore[import-untyped, import-not-found, unused-ignore]  # noqa: PLC0415 absent elsewhere

        opened = [zenoh.open(zenoh.Config.from_json5(settings("client", None, [to]))) for to in (far_port, near_port)]
        self._far, self._near = opened
        self._subscription: Any = None
        self._waiting: SimpleQueue[tuple[int, int]] = SimpleQueue()

    def subscribe(self, topic: str) -> None:
        """Samples are stamped in zenoh's own thread, as they come."""
        put, now = self._waiting.put, perf_counter_ns
        self._subscription = self._far.declare_subscriber(
            topic, lambda sample: put((int.from_bytes(sample.payload.to_bytes()[:8], "little"), now()))
        )

    def unsubscribe(self) -> None:
        """It is over when this returns."""
        self._subscription.undeclare()

    def publish(self, topic: str, number: int) -> None:
        """No publisher is declared: the router decides what becomes of a probe, as our broker does."""
        self._near.put(topic, number.to_bytes(8, "little") + bytes(PAYLOAD_BYTES - 8))

    def arrived(self, timeout_s: float) -> tuple[int, int] | None:
        """From the other thread."""
        with suppress(Empty):
            return self._waiting.get(timeout=timeout_s) if timeout_s > 0 else self._waiting.get_nowait()
        return None

    def close(self) -> None:
        """End both sessions."""
        self._far.close()
        self._near.close()


ENDS: dict[str, Callable[[int, int], Ends]] = {"ours": OurEnds, "zenoh": ZenohEnds}


def trial(ends: Ends, topic: str, offset_ns: int) -> tuple[int, int]:
    """Nanoseconds from subscribing until the first probe that arrives was sent, and until it arrived."""
    sent: list[int] = []
    begin = now = perf_counter_ns()
    ends.subscribe(topic)
    due = begin + offset_ns
    while now < begin + TRIAL_S * 1e9:
        arrival = ends.arrived(max(0.0, (due - now) / 1e9))
        if arrival is not None:
            number, at = arrival
            return sent[number] - begin, at - begin
        now = perf_counter_ns()
        if now >= due:
            sent.append(now)
            ends.publish(topic, len(sent) - 1)
            due = max(due + STEP_NS, now)
    raise MismatchError(f"not in force after {TRIAL_S} s and {len(sent)} probes")


class Station:
    """The process that probes."""

    def __init__(self) -> None:
        self._ends: dict[str, Ends] = {}
        self._trials = 0
        self._random = Random(1)

    def open(self, system: str, near_port: int, far_port: int) -> dict[str, Any]:
        """Connect to both ends."""
        self._ends[system] = ENDS[system](near_port, far_port)
        return {}

    def trials(self, system: str, count: int) -> dict[str, Any]:
        """Some, one after another."""
        return {"trials": [self._one(self._ends[system]) for _ in range(count)]}

    def close(self) -> None:
        """End all links."""
        for ends in self._ends.values():
            ends.close()

    def _one(self, ends: Ends) -> tuple[float, float]:
        self._trials += 1
        in_force, arrived = trial(ends, f"plant/probe/{self._trials}", self._random.randrange(STEP_NS))
        ends.unsubscribe()
        sleep(QUIET_S)
        while ends.arrived(0.0) is not None:
            pass
        return in_force / 1e3, arrived / 1e3


def main() -> None:
    """Answer commands until stdin ends."""
    gc.disable()
    with suppress(OSError):  # sleeps end on time, not up to 50 µs later
        Path("/proc/self/timerslack_ns").write_text("1")
    station = Station()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(station, command.pop("do"))(**command)
        except (MismatchError, LinkEndedError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    station.close()


if __name__ == "__main__":
    main()
