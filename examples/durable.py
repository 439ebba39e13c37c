"""Orders that a reader must not miss: they are stored before they are acknowledged, and wait while it is away.

Run a broker with a store (`heliograph broker run --store`), then: python examples/durable.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    async with heliograph.connect(address) as shop, heliograph.connect(address) as office:
        async with office.subscribe("orders/#", durable="lamps"):
            pass  # from now on the store keeps a place for it
        for number in range(3):
            await shop.publish(f"orders/{number}", f"{number + 1} lamps", reliable=True)
        async with office.subscribe("orders/#", durable="lamps") as orders:
            for _ in range(3):
                order = await orders.next()
                print(order.position, order.topic, order.payload.decode())
        await office.drop_subscription("lamps")


asyncio.run(main(*sys.argv[1:2]))
