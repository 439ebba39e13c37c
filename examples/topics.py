"""A topic with an owner: created at a topic directory, described, found by what it is about, and verified.

Run a network with one (`heliograph network up 1 --secure --detach`) and use the exports that it prints. Then:

    python examples/topics.py
"""

import asyncio

import heliograph


async def main() -> None:
    async with heliograph.connect() as client:  # certificate, key, authority and address come from the exports
        topic = await client.create_topic("plant/hall-3", keywords=["sensor"], properties={"floor": 3})
        await client.use_topic(topic)  # the owner's own right, shown to this broker
        async with client.subscribe(topic.topic) as subscription:
            await client.publish(topic.topic, "21.5")
            print((await subscription.next()).payload.decode())
        async for found in client.discover_topics("floor > 2", "sql", owner=client.entity):
            print("found a topic of", client.verify_topic(found))
            break


asyncio.run(main())
