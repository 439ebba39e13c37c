"""Tasks of a live node beside its machines: load samples, names of directories, and the search of a joining broker.

In:    a running node and the settings of its services.
Out:   coroutines that run until cancelled; settings with addresses that machines can use.
State: none.
Not here: what a service is (services/declared.py), each of these tasks (usage.py, directories.py, join.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heliograph.broker.config import BrokerConfig
from heliograph.discovery.brokers.config import (
    DiscoveryConfig,
    ResponderConfig,
    address_of,
    is_number,
)
from heliograph.machine import Address

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring


def in_numbers(configs: Iterable[Any]) -> list[Any]:
    """The settings of services with only the directories that have a numeric address; ``named`` has the others."""
    return [
        replace(config, directories=_numbers(config)) if isinstance(config, ResponderConfig) else config
        for config in configs
    ]


def named(responder: ResponderConfig) -> tuple[Address, ...]:
    """The directories of a responder whose names have to be looked up at intervals."""
    addresses = (address_of(text) for text in responder.directories)
    return tuple(address for address in addresses if address is not None and not is_number(address[0]))


def joining(broker: BrokerConfig, responder: ResponderConfig, keyring: Keyring | None) -> DiscoveryConfig:
    """How a joining broker searches for one to link to."""
    certified = keyring is not None and keyring.own is not None and broker.network.certified
    return DiscoveryConfig(
        directories=_numbers(responder),
        directory_links=responder.directory_links,
        multicast=responder.multicast,
        network=broker.network.name,
        name=broker.name,
        role="broker",
        transports=(("tls",) if certified else ()) + (("tcp",) if broker.network.key else ()),
    )


def _numbers(responder: ResponderConfig) -> tuple[str, ...]:
    addresses = ((text, address_of(text)) for text in responder.directories)
    return tuple(text for text, address in addresses if address is not None and is_number(address[0]))
