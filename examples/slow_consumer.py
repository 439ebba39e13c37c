"""A reader that does not keep up loses the oldest publications, and can see how many. Others are not slowed down.

Run a broker (`heliograph broker run`), then: python examples/slow_consumer.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    async with heliograph.connect(address) as client:
        slow = await client.subscribe("ticks", policy="drop_oldest", inbox_frames_max=10)
        await client.publish_batch("ticks", [f"{number}" for number in range(1_000)])
        await client.flush()  # what we publish ourselves has come back by now, but nobody reads it
        newest = [(await slow.next()).payload.decode() for _ in range(10)]
        print(f"lost {slow.lost}, kept {newest[0]} to {newest[-1]}")


asyncio.run(main(*sys.argv[1:2]))
