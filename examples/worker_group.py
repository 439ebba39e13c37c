"""Three workers share the jobs of one topic: each job goes to one of them.

Run a broker (`heliograph broker run`), then: python examples/worker_group.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    clients = [await heliograph.connect(address) for _ in range(3)]
    workers = [await client.subscribe("jobs", group="workers", wide=True) for client in clients]
    await clients[0].publish_batch("jobs", [f"job {number}" for number in range(9)])
    for worker in workers:
        print("done:", [(await worker.next()).payload.decode() for _ in range(3)])
    for client in clients:
        await client.close()


asyncio.run(main(*sys.argv[1:2]))
