"""The clients of a live network: where they are, what they want, and what they publish and when.

In:    a seed, the brokers that may have clients, a running network.
Out:   publications on the wire; a verdict about what came.
State: the clients and their deliveries.
Not here: what is right (oracle.py), faults (runs.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.independent.client import Client, Delivery, Publication
from tests.independent.network import Network
from tests.independent.oracle import Subscriber, Verdict, expect, judge
from tests.independent.workload import Draft, Interest, random_draft, random_group, random_interests

SETTLED_S = 2.0  # after the last link came up or the last fault
QUIET_S = 1.0  # nothing arrives for so long: everything is there, if nothing is missing
GIVEN_UP_S = 10.0  # nothing arrives for so long: what is missing is lost
POLL_S = 0.05
BURST_MAX = 60
GROUPS = 3
MARK = 1_000_000  # subscription numbers of marks begin here


@dataclass(frozen=True)
class Burst:
    """Publications of one client that leave in one write."""

    at_s: float
    client: int
    drafts: Sequence[Draft]


class Crowd:
    """Clients with the interests given, each at one broker."""

    def __init__(self, seed: str, places: Sequence[str], interests: Sequence[Sequence[Interest]]) -> None:
        draw = Random(f"secrets {seed}")
        self.places = places
        self.clients = [Client(f"client-{place}", draw.randbytes(32)) for place in range(len(places))]
        self.subscribers = [
            Subscriber(client.name, client.origin, dict(enumerate(wanted)))
            for client, wanted in zip(self.clients, interests, strict=True)
        ]
        self._marks = MARK

    async def join(self, network: Network) -> None:
        """Connect, subscribe, and wait until every broker knows and the network has settled."""
        brokers = [network.brokers[place] for place in self.places]
        pairs = zip(self.clients, brokers, strict=True)
        await asyncio.gather(*(client.join(broker.host, broker.port) for client, broker in pairs))
        wishes = zip(self.clients, self.subscribers, strict=True)
        await asyncio.gather(
            *(
                client.subscribe(number, interest.body)
                for client, subscriber in wishes
                for number, interest in subscriber.interests.items()
            )
        )
        await self.settle()

    async def settle(self) -> None:
        """Two seconds, and until every broker in reach answers a mark of every client."""
        await asyncio.sleep(SETTLED_S)
        self._marks += 1
        body = {"filter": f"marks/{self._marks}", "wide": True}
        await asyncio.gather(*(client.subscribe(self._marks, body) for client in self.clients))

    async def publish(self, plan: Sequence[Burst]) -> list[Publication]:
        """Send what is planned, each burst at its time or as soon as possible; return when it is routed."""
        clock = asyncio.get_running_loop().time
        begin = clock()
        sent: list[Publication] = []
        for burst in plan:
            await asyncio.sleep(max(0.0, begin + burst.at_s - clock()))
            client = self.clients[burst.client]
            made = [client.make(draft) for draft in burst.drafts]
            client.send(b"".join(one.raw for one in made))
            sent += made
        await asyncio.gather(*(client.flush() for client in self.clients))
        return sent

    async def verdict(self, publications: Sequence[Publication]) -> Verdict:
        """What came of these, once nothing comes any more."""
        due = expect(self.subscribers, publications)
        await self._quiet(QUIET_S)
        found = judge(self.subscribers, publications, self._deliveries(), due)
        if found.lost:
            await self._quiet(GIVEN_UP_S)
            found = judge(self.subscribers, publications, self._deliveries(), due)
        for client in self.clients:
            assert not client.ended, f"{client.name}: {client.ended}"
            assert not client.lost, f"{client.name} was slow and lost {client.lost}"
        return found

    def leave(self) -> None:
        for client in self.clients:
            client.leave()

    def _deliveries(self) -> dict[str, list[Delivery]]:
        return {client.name: client.deliveries for client in self.clients}

    async def _quiet(self, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        before, since = -1, clock()
        while clock() - since < seconds:
            count = sum(len(client.deliveries) for client in self.clients)
            if count != before:
                before, since = count, clock()
            await asyncio.sleep(POLL_S)


def random_crowd(seed: str, brokers: Sequence[str], clients: int) -> Crowd:
    """Clients at random brokers with one to three interests of any kind; some are members of a group too."""
    draw = Random(f"crowd {seed}")
    interests = [random_interests(draw) for _ in range(clients)]
    for number in range(GROUPS):
        shared = random_group(draw, f"group-{number}")
        for member in draw.sample(range(clients), draw.randint(2, 5)):
            interests[member].append(shared)
    return Crowd(seed, [draw.choice(brokers) for _ in range(clients)], interests)


def random_plan(seed: str, clients: int, publications: int, seconds: float) -> list[Burst]:
    """Half of the writes are single publications; the others are bursts."""
    draw = Random(f"plan {seed}")
    plan: list[Burst] = []
    left = publications
    while left:
        size = min(left, 1 if draw.random() < 0.5 else draw.randint(2, BURST_MAX))
        drafts = [random_draft(draw) for _ in range(size)]
        plan.append(Burst(draw.uniform(0, seconds), draw.randrange(clients), drafts))
        left -= size
    return sorted(plan, key=lambda burst: burst.at_s)
