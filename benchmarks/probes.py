"""Probes: how long until a subscription at one end of a network is in force at the other.

In:    commands from the benchmark, one JSON object per line on stdin; the ports of the two ends.
Out:   per trial the two times below, in µs.
State: the two links, or sessions, of each system.
Not here: starting the brokers and the order of measurements (interest.py).

A trial: subscribe at the far end to a topic that is new, wait for a delay, publish one probe to it at the near end. It
arrives or it does not. If it did, the next trial's delay is a step shorter, otherwise a step longer. So the delays
gather where half of the probes arrive, and their median is the median time until a subscription is in force (as the
publisher sees it: the probe's way to the first broker is not in it). Nothing but one probe is ever on the way; a stream
of them would keep the brokers busy and measure that. Every system gets the same loop; what differs is how a probe is
sent and waited for, in two small classes.
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
from time import perf_counter_ns, sleep
from typing import Any, Protocol

from benchmarks.arrivals import Arrivals
from benchmarks.links import READ_BYTES, LinkEndedError
from benchmarks.peers.ours import SUBSCRIBE, UNSUBSCRIBE, Session, control, event
from benchmarks.peers.zenoh import settings
from benchmarks.sinks import MismatchError

FIRST_NS = 1_000_000
STEPS_NS = (100_000, 20_000)  # while the delay is being found, and then
ARRIVE_S = 0.01  # a probe that has not arrived by then met no subscription
DELAY_S_MAX = 1.0  # a subscription that is not in force by then never will be
QUIET_S = 0.002  # between trials
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

    def subscribe(self, topic: str) -> None:
        """A new number for each."""
        self._asked += 1
        self._far.send_all(control(SUBSCRIBE, self._asked, {"number": self._asked, "filter": topic}))

    def unsubscribe(self) -> None:
        """The last number."""
        self._far.send_all(control(UNSUBSCRIBE, self._asked, {"number": self._asked}))

    def publish(self, topic: str, number: int) -> None:
        """Its sequence carries the number."""
        self._near.send_all(event(topic, bytes(PAYLOAD_BYTES), self._near.origin, number))

    def arrived(self, timeout_s: float) -> tuple[int, int] | None:
        """Read once, at most; confirmations are not arrivals."""
        if not self._waiting and select.select([self._far.socket], [], [], timeout_s)[0]:
            data = self._far.socket.recv(READ_BYTES)
            now = perf_counter_ns()
            if not data:
                raise LinkEndedError("the broker closed the subscriber's link")
            self._waiting = [(number, now) for number in self._arrivals.feed(data)]
        return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        """End both links."""
        self._far.close()
        self._near.close()


class ZenohEnds:
    """Two sessions in client mode."""

    def __init__(self, near_port: int, far_port: int) -> None:
        import zenoh  # here, where it is surely installed

        opened = [zenoh.open(zenoh.Config.from_json5(settings("client", None, [to]))) for to in (far_port, near_port)]
        self._far: Any = opened[0]
        self._near: Any = opened[1]
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
            return self._waiting.get(timeout=timeout_s)
        return None

    def close(self) -> None:
        """End both sessions."""
        self._far.close()
        self._near.close()


ENDS: dict[str, Callable[[int, int], Ends]] = {"ours": OurEnds, "zenoh": ZenohEnds}


def trial(ends: Ends, topic: str, number: int, delay_ns: int) -> tuple[int, int | None]:
    """Nanoseconds from subscribing until the probe was sent, and until it arrived if it did."""
    begin = perf_counter_ns()
    ends.subscribe(topic)
    sleep(max(0, begin + delay_ns - perf_counter_ns()) / 1e9)
    sent = perf_counter_ns()
    ends.publish(topic, number)
    arrival, end = None, sent + ARRIVE_S * 1e9
    while (now := perf_counter_ns()) < end and (arrival is None or arrival[0] != number):
        arrival = ends.arrived((end - now) / 1e9)
    return sent - begin, None if arrival is None else arrival[1] - begin


class Staircase:
    """The delay of the next trial."""

    def __init__(self) -> None:
        self.delay_ns = FIRST_NS

    def step(self, arrived: bool, step_ns: int) -> None:
        """Down if the probe arrived, up if it did not."""
        self.delay_ns = max(0, self.delay_ns + (-step_ns if arrived else step_ns))
        if self.delay_ns > DELAY_S_MAX * 1e9:
            raise MismatchError(f"subscriptions are not in force after {DELAY_S_MAX} s")


class Station:
    """The process that probes."""

    def __init__(self) -> None:
        self._ends: dict[str, Ends] = {}
        self._stairs: dict[str, Staircase] = {}
        self._trials = 0

    def open(self, system: str, near_port: int, far_port: int) -> dict[str, Any]:
        """Connect to both ends."""
        self._ends[system] = ENDS[system](near_port, far_port)
        self._stairs[system] = Staircase()
        return {}

    def trials(self, system: str, count: int, settled: bool) -> dict[str, Any]:
        """Some, one after another: when each probe was sent and when it arrived, if it did, in µs."""
        found = []
        for _ in range(count):
            self._trials += 1
            sent, arrived = trial(
                self._ends[system], f"plant/probe/{self._trials}", self._trials, self._stairs[system].delay_ns
            )
            self._stairs[system].step(arrived is not None, STEPS_NS[settled])
            found.append((sent / 1e3, None if arrived is None else arrived / 1e3))
            self._ends[system].unsubscribe()
            sleep(QUIET_S)
        return {"trials": found}

    def close(self) -> None:
        """End all links."""
        for ends in self._ends.values():
            ends.close()


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
