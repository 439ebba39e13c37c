"""Usage: how busy this computer is, told to the responder, and how busy this thread is, told to the broker.

In:    psutil; the CPU time of the thread that runs the loop.
Out:   UsageSample and Busy, every second.
State: a timer each.
Not here: the broker's own counters (the responder asks for them on its pipe), smoothing (status.py), what is made of
       them (selection.py).

The first sample has the load of the last minute: what a node's own start costs says nothing of the time after it.
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
            pass  # no file can be opened while peers hold them all; what was told last still holds
        await asyncio.sleep(EVERY_S)


async def sample_load(driver: Driver) -> None:
    """Tell the broker how much of its core it uses, until cancelled. Workers that check tokens do not count."""
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
    psutil.cpu_percent()  # from here the next call measures
    return min(1_000.0, 1_000 * float(psutil.getloadavg()[0]) / (psutil.cpu_count() or 1))


def _last_second(psutil: Any) -> float:
    return float(psutil.cpu_percent() * 10)
