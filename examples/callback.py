"""Handle publications in a callback, and end without losing one: `drain` waits until the callback is through.

Run a broker (`heliograph broker run`), then: python examples/callback.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def handle(publication: heliograph.Publication) -> None:
    await asyncio.sleep(0.01)  # plain functions will do as well
    print("done:", publication.payload.decode())


async def main(address: str | None = None) -> None:
    client = await heliograph.connect(address)
    await client.subscribe("jobs/#", callback=handle)
    for job in ("wash", "dry", "fold"):
        await client.publish(f"jobs/{job}", job)
    await client.drain()


asyncio.run(main(*sys.argv[1:2]))
