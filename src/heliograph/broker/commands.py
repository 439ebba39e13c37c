"""What the program around a broker tells it, and what the broker asks of that program.

In:    values.
Out:   frozen commands for ``Broker.tell``; LoadSettings, a job that only a driver can do.
State: none.
Not here: what clients ask for (wire/bodies.py).
"""

from __future__ import annotations

from msgspec import Struct

from heliograph.broker.config import BrokerConfig, LinkConfig


class Stop(Struct, frozen=True):
    """Say goodbye to every peer and end now; output that was already written is still flushed."""


class Drain(Struct, frozen=True):
    """Accept no new links, ask clients to leave, and end when they have left or the grace period is over."""

    grace_ms: int | None = None


class Listening(Struct, frozen=True):
    """The addresses at which clients can dial this broker, preferred first; clients of other brokers are told them."""

    addresses: tuple[str, ...]


class Room(Struct, frozen=True):
    """The number of links that this process can have at once, whatever the settings allow."""

    links_max: int


class Busy(Struct, frozen=True):
    """How much of its one core the broker has used since the last such command."""

    cpu_permille: int


class KeepLink(Struct, frozen=True):
    """Keep a link to another broker from now on, or no longer."""

    link: LinkConfig
    keep: bool = True


class Reload(Struct, frozen=True):
    """Put these rules, tokens, limits and links in force; listeners, name and place in the network stay."""

    config: BrokerConfig
    taken: tuple[str, ...] = ()  # keys that changed, of the whole process, and are in force with this
    restart: tuple[str, ...] = ()  # keys of other parts of the process that changed and wait for a restart


class Expel(Struct, frozen=True):
    """End the links of peers whose certificates have these serial numbers, and accept no new ones."""

    serials: tuple[str, ...]


class LoadSettings(Struct, frozen=True):
    """A job whose result is a Reload, read again from where the first settings came from. Drivers know its type."""

    def run(self) -> Reload:
        """Drivers answer this job themselves: only they know where settings are kept."""
        raise LookupError("this node has no settings to load")
