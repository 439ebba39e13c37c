"""A node: one broker with its services in one process, built by one function for the live and the simulated world.

In:    a BrokerConfig, a seed and an incarnation number.
Out:   Node: machines by name, the pipes that join them, who answers each listener, and who has which datagram sockets.
State: none here; each machine has its own.
Not here: running it (live/node.py, sim/world.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.broker.broker import Broker
from heliograph.broker.config import BrokerConfig
from heliograph.machine import Machine, Socket
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
    sockets: Mapping[str, tuple[Socket, ...]] = field(default_factory=dict)  # machine -> its datagram sockets


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
