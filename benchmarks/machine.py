"""The machine: what it is, which core does what, and how much CPU time a broker has used.

In:    process ids.
Out:   CPU seconds, resident memory, facts to print beside the figures.
State: none.
Not here: starting and stopping servers (peers/server.py).
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

MIB = 1 << 20


def cores() -> list[int]:
    """The cores this run may use."""
    return sorted(os.sched_getaffinity(0))


def split_cores() -> tuple[set[int], set[int]]:
    """One core for the broker, one for the load generator; with a single core they share it."""
    usable = cores()
    return {usable[-1]}, {usable[0]}


@contextmanager
def confined(to_cores: Iterable[int]) -> Iterator[None]:
    """A process started within has only these cores, from its first thread on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, to_cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes, all threads included, ended ones too.

    Linux gives every process a CPU clock with nanoseconds; /proc counts in hundredths of a second, which is too coarse
    for intervals of half a second.
    """
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


def waited_seconds(pids: Iterable[int]) -> float:
    """How long these processes were ready to run while others had their core. Under load, this shows disturbed runs."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def rss_mib(pids: Iterable[int]) -> float:
    """Resident memory."""
    return sum(int(psutil.Process(pid).memory_info().rss) for pid in pids) / MIB


def facts() -> dict[str, Any]:
    """What a reader needs to know before comparing figures."""
    broker, generator = split_cores()
    return {
        "cpu": _cpu_name(),
        "cores": len(cores()),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "pinned": f"broker on core {min(broker)}, load generator on core {min(generator)}, for all systems alike",
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
