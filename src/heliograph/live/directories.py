"""Directories by name: looks up the host names of a broker's directories, for its responder and for its own searches.

In:    addresses with names; DNS.
Out:   numeric addresses; sent to the responder as DirectoriesFound, at intervals.
State: a timer.
Not here: numeric addresses, which need no lookup (beside.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from heliograph.discovery.brokers.advertisement import DirectoriesFound
from heliograph.live.loop import Driver
from heliograph.live.resolver import in_number
from heliograph.machine import Address
from heliograph.node import DISCOVERY
from heliograph.observe.log import NodeLog

AGAIN_S = 60.0  # a directory may move
SOON_S = 5.0  # if a name was not found


async def look_up(
    driver: Driver, log: NodeLog, addresses: Sequence[Address], known_too: tuple[Address, ...] = ()
) -> None:
    """Until cancelled, tell a responder the addresses of these directories, along with those already known."""
    known: dict[Address, Address] = {}
    missing: set[Address] = set()
    while driver.failure is None:
        for name in addresses:
            found = await in_number(name)
            if found is not None:
                missing.discard(name)
                known[name] = found
            elif name not in missing:  # logged once, not every few seconds
                log.say("warning", f"discovery.directories: {name[0]} is not found; looking again later")
                missing.add(name)
        driver.tell(DISCOVERY, DirectoriesFound(tuple(dict.fromkeys((*known_too, *known.values())))))
        await asyncio.sleep(SOON_S if missing else AGAIN_S)
