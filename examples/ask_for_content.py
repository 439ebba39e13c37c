"""Ask for what publications say, not only for their topic: a condition beside the filter.

Run a broker (`heliograph broker run`), then: python examples/ask_for_content.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    async with heliograph.connect(address) as client:
        subscription = await client.subscribe("hosts/#", where="disk > 120 and system = 'linux'")
        await client.publish("hosts/h1", "too small", headers={"disk": 12, "system": "linux"})
        await client.publish("hosts/h2", "another system", headers={"disk": 200, "system": "plan9"})
        await client.publish("hosts/h3", "this one", headers={"disk": 200, "system": "linux"})
        publication = await subscription.next()
        print(publication.topic, publication.payload.decode(), publication.headers["disk"])


asyncio.run(main(*sys.argv[1:2]))
