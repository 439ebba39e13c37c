"""Publish and subscribe in a program without an event loop.

Run a broker (`heliograph broker run`), then: python examples/blocking.py [heliograph://host:port]
"""

import sys

import heliograph


def main(address: str | None = None) -> None:
    with heliograph.connect_blocking(address) as client, client.subscribe("sensors/+") as subscription:
        client.publish("sensors/kitchen", "21.5", headers={"unit": "celsius"})
        publication = subscription.next(timeout=10)
        print(publication.topic, publication.payload.decode(), publication.headers["unit"])
        client.publish_batch("sensors/cellar", ["8.5", "8.4", "8.3"])
        for number, publication in enumerate(subscription, start=1):
            print(publication.topic, publication.payload.decode())
            if number == 3:
                break


main(*sys.argv[1:2])
