"""Usage: how busy this computer is, told to the responder every second.

In:    psutil.
Out:   UsageSample.
State: a timer.
Not here: the broker's own counters (the responder asks for them on its pipe), what is made of them (selection.py).
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from heliograph.discovery.brokers.standing import UsageSample
from heliograph.live.loop import Driver
from heliograph.node import DISCOVERY

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


def _sample(psutil: Any) -> UsageSample:
    memory = psutil.virtual_memory()
    return UsageSample(round(psutil.cpu_percent() * 10), memory.total, memory.total - memory.available)
