"""Directories by name: looks up the host names of a broker's directories, again and again, and tells the responder.

In:    addresses with names; DNS.
Out:   DirectoriesFound, whenever something was found.
State: a timer.
Not here: addresses in numbers, which need no looking up (services.py).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from heliograph.discovery.brokers.advertisement import DirectoriesFound
from heliograph.live.loop import Driver
from heliograph.machine import Address
from heliograph.node import DISCOVERY
from heliograph.observe.log import Log

AGAIN_S = 60.0  # a directory may move
SOON_S = 5.0  # where a name was not found


async def look_up(driver: Driver, log: Log, addresses: Sequence[Address]) -> None:
    """Keep a responder informed where the directories of these names are, until cancelled."""
    known: dict[Address, Address] = {}
    missing: set[Address] = set()
    while driver.failure is None:
        for name in addresses:
            try:
                infos = await driver.loop.getaddrinfo(*name, family=socket.AF_INET, type=socket.SOCK_DGRAM)
            except (OSError, UnicodeError) as error:
                if name not in missing:  # said once, not every few seconds
                    log.say("warning", f"discovery.directories: {name[0]} is not found ({error}); looking again later")
                missing.add(name)
                continue
            missing.discard(name)
            known[name] = (str(infos[0][4][0]), name[1])
        driver.tell(DISCOVERY, DirectoriesFound(tuple(dict.fromkeys(known.values()))))
        await asyncio.sleep(SOON_S if missing else AGAIN_S)
