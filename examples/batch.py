"""Publish ten thousand readings as one batch, and read them in batches: far cheaper than one by one.

Run a broker (`heliograph broker run`), then: python examples/batch.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    async with heliograph.connect(address) as client, client.subscribe("readings") as subscription:
        await client.publish_batch("readings", (f"{number}" for number in range(10_000)))
        await client.flush()  # the broker has routed them all
        count = 0
        async for publications in subscription.batches():
            count += len(publications)
            if count == 10_000:
                break
        print(f"{count} readings, the last one {publications[-1].payload.decode()}")


asyncio.run(main(*sys.argv[1:2]))
