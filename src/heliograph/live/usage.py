"""Usage: how busy this computer is, told to the responder, and how busy this thread is, told to the broker.

In:    psutil; the CPU time of the thread that runs the loop.
Out:   UsageSample and Busy, every second.
State: a timer each.
Not here: the broker's own counters (the responder asks for them on its pipe), what is made of them (selection.py).
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from time import monotonic, thread_time
from typing import Any

from heliograph.broker.commands import Busy
from heliograph.discovery.brokers.standing import UsageSample
from heliograph.live.loop import Driver
from heliograph.node import BROKER, DISCOVERY

EVERY_S = 1.0


async def sample_usage(driver: Driver) -> None:
    """Tell the responder of a running node how busy the computer is, until cancelled."""
    psutil = await asyncio.to_thread(import_module, "psutil")  # here, so that no start waits for it
    psutil.cpu_percent()  # a load is measured from one call to the next
    while driver.failure is None:
        await asyncio.sleep(EVERY_S)
        try:
            sample = _sample(psutil)
        except OSError:
            continue  # no file can be opened while peers hold them all; what was told last still holds
        driver.tell(DISCOVERY, sample)


async def sample_load(driver: Driver) -> None:
    """Tell the broker how much of its core it uses, until cancelled. Workers that check tokens do not count."""
    used, at = thread_time(), monotonic()
    while driver.failure is None:
        await asyncio.sleep(EVERY_S)
        used_now, now = thread_time(), monotonic()
        driver.tell(BROKER, Busy(round(1_000 * (used_now - used) / (now - at))))
        used, at = used_now, now


def _sample(psutil: Any) -> UsageSample:
    memory = psutil.virtual_memory()
    return UsageSample(round(psutil.cpu_percent() * 10), memory.total, memory.total - memory.available)
