"""A node: one broker with its services in one process, built by one function for the live and the simulated world.

In:    a BrokerConfig, a seed and an incarnation number.
Out:   Node: machines by name, the pipes that join them, and who answers each listener.
State: none here; each machine has its own.
Not here: running it (live/node.py, sim/world.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.broker.broker import Broker
from heliograph.broker.config import BrokerConfig
from heliograph.machine import Machine
from heliograph.services.admin import Admin

BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Pipe:
    """An in-process link between the broker and a service. Both sides see an attach with transport "pipe"."""

    broker: str
    service: str


@dataclass(frozen=True, slots=True)
class Node:
    """What a driver needs to run one process."""

    name: str
    machines: dict[str, Machine]
    pipes: tuple[Pipe, ...]
    listeners: dict[str, str]  # listener name -> the machine that its links belong to


def build(config: BrokerConfig, *, seed: int, incarnation: int) -> Node:
    """A broker with its services."""
    broker = Broker(config, seed=seed, incarnation=incarnation)
    admin = Admin()
    return Node(
        name=config.name,
        machines={BROKER: broker, "admin": admin},
        pipes=(Pipe(BROKER, "admin"),),
        listeners={listener.name: BROKER for listener in config.listeners},
    )
