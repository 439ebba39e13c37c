"""A machine registers itself with what it has; another program finds it, and watches it change and go.

Run a broker (`heliograph broker run`), then: python examples/resources.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    async with heliograph.connect(address) as machine, heliograph.connect(address) as finder:
        registered = await machine.register_resource("memory <= 64", name="m1", values={"memory": 16})
        for found in await finder.discover_resources("memory > 8", best=3, order="memory desc"):
            print("found", found.name, "at", found.host, "with", found.values)
        async with finder.watch_resources("memory > 8") as watch:
            print((await watch.next()).kind)
            await registered.update({"memory": 4})
            print((await watch.next()).kind)


asyncio.run(main(*sys.argv[1:2]))
