"""The cast: owners and requesters as a scenario lists them.

In:    the tables [[resource]] and [[discovery]] of a scenario.
Out:   a host for each.
State: none beyond the world's.
Not here: what they do (party.py), the tables (plans.py).
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256

from heliograph.node import Node
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.resourcing.party import ResourceOwner, ResourceRequester
from heliograph.sim.resourcing.plans import DiscoveryPlan, ResourcePlan
from heliograph.sim.world import World

PARTY = "party"


class ResourceCast:
    """All owners of resources and requesters."""

    def __init__(
        self, world: World, resources: tuple[ResourcePlan, ...], requests: tuple[DiscoveryPlan, ...], duration_s: float
    ) -> None:
        self._world = world
        for plan in resources:
            owner = world.add(plan.name, partial(self._owner, plan))
            world.loop.at(int(plan.from_s * SECOND), self._start, owner)
            ends = min(plan.until_s or duration_s, duration_s)
            world.loop.at(int(ends * SECOND), self._tell, (owner, "withdraw" if plan.until_s else "rest"))
        for request in requests:
            requester = world.add(request.name, partial(self._requester, request))
            world.loop.at(int(request.at_s * SECOND), self._start, requester)

    def _start(self, host: Host, _instant: int) -> None:
        self._world.start(host)

    def _tell(self, what: tuple[Host, str], _instant: int) -> None:
        host, command = what
        if host.up:
            host.tell(host.seat(PARTY), command)

    def _seed(self, name: str) -> bytes:
        return sha256(f"{self._world.seed}/{name}".encode()).digest()

    def _owner(self, plan: ResourcePlan, incarnation: int) -> Node:
        random = self._world.random(f"resource/{plan.name}")
        return _alone(plan.name, ResourceOwner(plan, random, self._seed(plan.name), self._world.journal.write))

    def _requester(self, plan: DiscoveryPlan, incarnation: int) -> Node:
        return _alone(plan.name, ResourceRequester(plan, self._seed(plan.name), self._world.journal.write))


def _alone(name: str, party: ResourceOwner | ResourceRequester) -> Node:
    return Node(name=name, machines={PARTY: party}, pipes=(), listeners={})
