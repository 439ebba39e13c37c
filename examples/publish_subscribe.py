"""Publish on a topic and read it back: publish/subscribe in ten lines.

Run a broker (`heliograph broker run`), then: python examples/publish_subscribe.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    async with heliograph.connect(address) as client, client.subscribe("sensors/+/temperature") as subscription:
        await client.publish("sensors/kitchen/temperature", "21.5", headers={"unit": "celsius"})
        async for publication in subscription:
            print(publication.topic, publication.payload.decode(), publication.headers["unit"])
            break


asyncio.run(main(*sys.argv[1:2]))
