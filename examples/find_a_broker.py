"""Connect to the nearest broker that has room, wherever it is, and say how it was found.

Run a network (`heliograph network up 3 --detach`), then: python examples/find_a_broker.py [name of the network]
"""

import asyncio
import sys

import heliograph


async def main(network: str | None = None) -> None:
    async with heliograph.connect(network=network, discover=True) as client:
        print(client.broker, "at", client.address, "in", client.network)
        print(client.report("discovery")["text"])


asyncio.run(main(*sys.argv[1:2]))
