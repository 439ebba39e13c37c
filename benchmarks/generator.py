"""The load generator: one process that drives every system in the same way.

In:    commands from the benchmark, one JSON object per line on stdin.
Out:   one JSON object per command on stdout: figures, or {"error": …}.
State: the crowds of idle subscribers that it keeps for our brokers, by port.
Not here: starting brokers (peers/server.py), the order of measurements (route.py, latency.py).

It never decodes what it need not: frames are encoded before the run, written up to 64 KiB at a time, and what comes
back is compared as memory. So a broker in C or Go is busy long before this process; ``generator_busy`` tells.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter_ns, sleep
from types import TracebackType
from typing import Any

from benchmarks.batches import Load
from benchmarks.cases import CASES, SPREAD_S, build
from benchmarks.flow import Usage
from benchmarks.links import LinkEndedError
from benchmarks.machine import confined, cpu_seconds, rss_mib, waited_seconds
from benchmarks.peers import SYSTEMS
from benchmarks.peers.crowd import Crowd
from benchmarks.peers.system import System
from benchmarks.sinks import MismatchError

READ_SMALL_BYTES = 4096


class RunError(Exception):
    """A system lost, swapped or altered something, or failed: there is no figure."""


class Generator:
    """The benchmark's end of the generator process."""

    def __init__(self, on_cores: Iterable[int], module: str = "benchmarks.generator") -> None:
        command = [sys.executable, "-m", module]
        root = Path(__file__).parent.parent
        with confined(on_cores):
            self._process = subprocess.Popen(
                command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Have it do something; what went wrong there is raised here."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do} | fields) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the load generator ended"}
        if "error" in answer:
            raise RunError(f"{fields.get('system', 'ours')} {fields.get('case', do)}: {answer['error']}")
        return answer

    def __enter__(self) -> Generator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()


class Station:
    """The generator process itself."""

    def __init__(self) -> None:
        self._crowds: dict[int, Crowd] = {}

    def crowd(self, port: int, ca_file: str | None) -> dict[str, Any]:
        """Open the idle subscribers of one of our brokers."""
        self._crowds[port] = Crowd(port, ca_file)
        return {}

    def measure(
        self,
        system: str,
        port: int,
        ca_file: str | None,
        case: str,
        pids: list[int],
        warm_s: float,
        measure_s: float,
        far_port: int | None = None,
    ) -> dict[str, Any]:
        """One case under load; the subscribers are at ``far_port`` if it is given."""
        self._tend()
        pump = build(CASES[case], SYSTEMS[system], port, ca_file, far_port)
        try:
            interval = pump.measure(warm_s, measure_s, lambda: _usage(pids))
            rss = rss_mib(pids)
        finally:
            pump.close()
        usage = interval.usage
        return {
            "cpu_us": usage.broker_s / interval.messages * 1e6,
            "kmsg_s": interval.messages / interval.seconds / 1e3,
            "broker_busy": usage.broker_s / interval.seconds,
            "broker_waited": usage.waited_s / interval.seconds,
            "generator_busy": usage.generator_s / interval.seconds,
            "rss_mib": rss,
            "messages": interval.messages,
            **({"changes_s": interval.acts / interval.seconds} if interval.acts else {}),
        }

    def pingpong(
        self,
        system: str,
        port: int,
        ca_file: str | None,
        payload_bytes: int,
        messages: int,
        warm: int,
        pids: list[int],
        far_port: int | None = None,
    ) -> dict[str, Any]:
        """One message at a time; each is checked, after the clock has been read."""
        self._tend()
        pair = Pair(SYSTEMS[system], port, ca_file, payload_bytes, far_port)
        try:
            for _ in range(warm):
                pair.exchange()
            cpu = cpu_seconds(pids)
            taken = sorted(pair.exchange() for _ in range(messages))
            cpu = cpu_seconds(pids) - cpu
        finally:
            pair.close()
        return {
            "p50_us": taken[len(taken) // 2] / 1e3,
            "p99_us": taken[len(taken) * 99 // 100] / 1e3,
            "cpu_us": cpu / messages * 1e6,
        }

    def _tend(self) -> None:
        for crowd in self._crowds.values():
            crowd.tend()


class Pair:
    """A publisher and its subscriber, in blocking mode."""

    def __init__(
        self, system: System, port: int, ca_file: str | None, payload_bytes: int, far_port: int | None = None
    ) -> None:
        load = Load(("plant/bench/00/00",), payload_bytes=payload_bytes)
        self._subscriber, self._publisher = (system.connect(to, ca_file) for to in (far_port or port, port))
        system.subscribe(self._subscriber, load.topics[0])
        if far_port is not None:
            sleep(SPREAD_S)
        self._batches = system.batches(load, self._publisher)
        self._sink = system.sink(load.topics[0], payload_bytes)
        self._frames: list[bytes] = []
        self._buffer = memoryview(bytearray(READ_SMALL_BYTES))
        self._kept = 0

    def exchange(self) -> int:
        """Publish one message; returns the nanoseconds until it has been read."""
        if not self._frames:
            self._refill()
        frame, wanted = self._frames.pop(), self._sink.frames + 1
        begin = end = perf_counter_ns()
        self._publisher.socket.send(frame)
        while self._sink.frames < wanted:
            count = self._subscriber.socket.recv_into(self._buffer[self._kept :])
            end = perf_counter_ns()
            self._check(count)
        return end - begin

    def _refill(self) -> None:
        batch, (expected, *_) = self._batches.next()
        self._sink.expect(expected)
        size = self._batches.frame_bytes
        self._frames = [batch[at : at + size] for at in range(0, len(batch), size)][::-1]

    def _check(self, count: int) -> None:
        if not count:
            raise LinkEndedError("the broker closed the subscriber's link")
        end = self._kept + count
        settled = self._sink.feed(self._buffer[:end])
        self._kept = end - settled
        self._buffer[: self._kept] = bytes(self._buffer[settled:end])
        if self._sink.replies:
            self._subscriber.send_all(self._sink.replies)
            self._sink.replies = b""

    def close(self) -> None:
        """End both links."""
        self._subscriber.close()
        self._publisher.close()


def _usage(pids: list[int]) -> Usage:
    return Usage(cpu_seconds(pids), cpu_seconds([os.getpid()]), waited_seconds(pids))


def main() -> None:
    """Answer commands until stdin ends."""
    station = Station()
    gc.disable()  # nothing here is cyclic, and a collection in the middle of a run would be somebody's latency
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(station, command.pop("do"))(**command)
        except (MismatchError, LinkEndedError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
