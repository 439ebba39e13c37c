"""Usage: tells the responder how busy this computer is, and the broker how busy its thread is.

In:    psutil; the CPU time of the thread that runs the loop.
Out:   UsageSample and Busy, every second.
State: one timer each.
Not here: the broker's own counters (the responder asks for them on its pipe), smoothing (status.py), how they are used
          (selection.py).

The first sample is the load of the last minute: the cost of a node's own start says nothing about the time after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from time import monotonic, thread_time
from typing import Any

from heliograph.broker.commands import Busy
from heliograph.discovery.brokers.status import UsageSample
from heliograph.live.loop import Driver
from heliograph.node import BROKER, DISCOVERY

EVERY_S = 1.0


async def sample_usage(driver: Driver) -> None:
    """Tell the responder of a running node how busy the computer is, until cancelled."""
    psutil = await asyncio.to_thread(import_module, "psutil")  # here, so that no start waits for it
    look = _last_minute
    while driver.failure is None:
        try:
            driver.tell(DISCOVERY, _sample(psutil, look))
            look = _last_second
        except OSError:
            pass  # peers hold all descriptors, so no file can be opened; the last sample stays valid
        await asyncio.sleep(EVERY_S)


async def sample_load(driver: Driver) -> None:
    """Until cancelled, tell the broker how much of its core it uses. Workers that check tokens do not count."""
    used, at = thread_time(), monotonic()
    while driver.failure is None:
        await asyncio.sleep(EVERY_S)
        used_now, now = thread_time(), monotonic()
        driver.tell(BROKER, Busy(round(1_000 * (used_now - used) / (now - at))))
        used, at = used_now, now


def _sample(psutil: Any, look: Callable[[Any], float]) -> UsageSample:
    memory = psutil.virtual_memory()
    return UsageSample(round(look(psutil)), memory.total, memory.total - memory.available)


def _last_minute(psutil: Any) -> float:
    psutil.cpu_percent()  # the next call measures from here
    return min(1_000.0, 1_000 * float(psutil.getloadavg()[0]) / (psutil.cpu_count() or 1))


def _last_second(psutil: Any) -> float:
    return float(psutil.cpu_percent() * 10)
