"""The demo's machines: two are registered, discovered and watched until one changes and vanishes.

In:    a function that connects a client to the demo's broker.
Out:   lines on standard output; what was found and reported, in the report.
State: none beyond the scene.
Not here: resource discovery (discovery/resources/), the client's side (live/resources.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from heliograph.cli.demo.report import Report
from heliograph.live.connect import Connecting

PATIENCE_S = 20.0
EXPECTED = ["appeared m2", "changed m2", "vanished m2"]


async def play_resources(connect: Callable[[str], Connecting], report: Report) -> None:
    """Two machines; one changes and goes away."""
    report.begin("Two machines are registered, discovered and watched: heliograph discover resource --watch")
    async with asyncio.timeout(PATIENCE_S), connect("owner") as owner, connect("seeker") as seeker:
        await owner.register_resource("memory <= 64 and load >= 0", name="m1", values={"memory": 2, "load": 0.1})
        second = await owner.register_resource(
            "memory <= 64 and load >= 0", name="m2", values={"memory": 16, "load": 0.5}
        )
        began = perf_counter()
        answer = await seeker.discover_resources("memory > 1", best=2, order="memory desc")
        took = (perf_counter() - began) * 1_000
        names = [each.name for each in answer]
        print(f"   memory > 1, most memory first: {', '.join(names)}, in {took:.1f} ms")
        report.check(names == ["m2", "m1"] and answer.complete, f"resources: found {names}")
        told = []
        async with seeker.watch_resources("memory > 8") as watch:
            for step in (None, second.update({"memory": 12, "load": 0.7}), second.withdraw()):
                if step is not None:
                    await step
                change = await watch.next()
                told.append(f"{change.kind} {change.name}")
                print(f"   told: {told[-1]} {change.values or ''}")
        report.check(told == EXPECTED, f"resources: a watcher was told {told}")
        report.add("resources", f"2 machines found in {took:.1f} ms; a watcher was told {', '.join(told)}")
