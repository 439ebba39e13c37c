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
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from benchmarks.batches import Load
from benchmarks.cases import CASES, build
from benchmarks.links import LinkEndedError
from benchmarks.machine import confined, cpu_seconds, rss_mib
from benchmarks.peers import SYSTEMS
from benchmarks.peers.crowd import Crowd
from benchmarks.sinks import MismatchError

READ_SMALL_BYTES = 4096


class RunError(Exception):
    """A system lost, swapped or altered something, or failed: there is no figure."""


class Generator:
    """The benchmark's end of the generator process."""

    def __init__(self, on_cores: Iterable[int]) -> None:
        command = [sys.executable, "-m", "benchmarks.generator"]
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
        self, system: str, port: int, ca_file: str | None, case: str, pids: list[int], warm_s: float, measure_s: float
    ) -> dict[str, Any]:
        """One case under load."""
        self._tend()
        pump = build(CASES[case], SYSTEMS[system], port, ca_file)
        try:
            interval = pump.measure(warm_s, measure_s, lambda: (cpu_seconds(pids), cpu_seconds([os.getpid()])))
            rss = rss_mib(pids)
        finally:
            pump.close()
        return {
            "cpu_us": interval.broker_s / interval.messages * 1e6,
            "kmsg_s": interval.messages / interval.seconds / 1e3,
            "broker_busy": interval.broker_s / interval.seconds,
            "generator_busy": interval.generator_s / interval.seconds,
            "rss_mib": rss,
            "messages": interval.messages,
        }

    def pingpong(
        self, system: str, port: int, ca_file: str | None, payload_bytes: int, messages: int, warm: int, pids: list[int]
    ) -> dict[str, Any]:
        """One message at a time, there and back; each is checked."""
        self._tend()
        load = Load(("plant/bench/00/00",), payload_bytes=payload_bytes)
        subscriber, publisher = (SYSTEMS[system].connect(port, ca_file) for _ in range(2))
        SYSTEMS[system].subscribe(subscriber, load.topics[0])
        batches, sink = SYSTEMS[system].batches(load, publisher), SYSTEMS[system].sink(load.topics[0], payload_bytes)
        buffer, kept, taken, pieces = memoryview(bytearray(READ_SMALL_BYTES)), 0, [], list[bytes]()
        cpu = 0.0
        for number in range(-warm, messages):
            if number == 0:
                cpu = cpu_seconds(pids)
            if not pieces:
                batch, (expected, *_) = batches.next()
                sink.expect(expected)
                size = batches.frame_bytes
                pieces = [batch[at : at + size] for at in range(0, len(batch), size)][::-1]
            piece, wanted = pieces.pop(), sink.frames + 1
            begin = perf_counter_ns()
            publisher.socket.send(piece)
            while sink.frames < wanted:
                end = kept + subscriber.socket.recv_into(buffer[kept:])
                if end == kept:
                    raise LinkEndedError("the broker closed the subscriber's link")
                settled = sink.feed(buffer[:end])
                kept = end - settled
                buffer[:kept] = bytes(buffer[settled:end])
            taken.append(perf_counter_ns() - begin)
        cpu = cpu_seconds(pids) - cpu
        subscriber.close()
        publisher.close()
        taken = sorted(taken[warm:])
        return {
            "p50_us": taken[len(taken) // 2] / 1e3,
            "p99_us": taken[len(taken) * 99 // 100] / 1e3,
            "cpu_us": cpu / messages * 1e6,
        }

    def _tend(self) -> None:
        for crowd in self._crowds.values():
            crowd.tend()


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
