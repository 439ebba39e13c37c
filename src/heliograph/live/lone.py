"""A lone machine: runs one on the present loop with its sockets, links, timers and jobs, until it stops.

In:    a machine that is not part of a node (a search, a probe), and its sockets.
Out:   nothing; the machine has its result.
State: none beyond the driver's.
Not here: carrying effects out (loop.py), whole nodes with listeners and signals (node.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from heliograph.live.loop import Driver
from heliograph.machine import Machine, Socket
from heliograph.notes import Note

if TYPE_CHECKING:
    from heliograph.live.tls import TlsContexts

MACHINE = "lone"


@asynccontextmanager
async def running(
    machine: Machine,
    sockets: Sequence[Socket] = (),
    *,
    tls: TlsContexts | None = None,
    heard: Callable[[str, Note], None] | None = None,
    carried: Callable[[str], None] | None = None,
) -> AsyncIterator[Driver]:
    """Run a machine during the ``async with`` block; it is told of each socket before the block begins."""
    driver = Driver({MACHINE: machine}, tls=tls, heard=heard, carried=carried)
    driver.start()
    try:
        for socket in sockets:
            await driver.open(MACHINE, socket)
        yield driver
    finally:
        await driver.stop()


async def run_alone(
    machine: Machine,
    sockets: Sequence[Socket] = (),
    *,
    commands: Sequence[Any] = (),
    tls: TlsContexts | None = None,
    heard: Callable[[str, Note], None] | None = None,
) -> None:
    """Run a machine until it stops. If it crashes, its error is raised here; cancelling ends it cleanly."""
    async with running(machine, sockets, tls=tls, heard=heard) as driver:
        for command in commands:
            driver.tell(MACHINE, command)
        await driver.stopped.wait()
    if driver.failure is not None:
        raise driver.failure
