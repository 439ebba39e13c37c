"""Heliograph: publish and subscribe through a network of brokers.

In:    nothing.
Out:   the public names: connect, connect_blocking, discover, Discover, clients, subscriptions, what their methods give,
       Publication, Policy and the errors; ``__version__``.
State: none. Names are loaded when they are first used, so that ``import heliograph`` costs next to nothing.
Not here: everything else; what is not listed below may change at any time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heliograph import errors
    from heliograph.client.discover import Discover
    from heliograph.client.refusals import RefusedPublication
    from heliograph.discovery.resources.watching import ResourceChange
    from heliograph.discovery.topics.bundle import GrantBundle
    from heliograph.discovery.topics.creation import OwnTopic
    from heliograph.discovery.topics.finder import FoundTopic
    from heliograph.errors import (
        ClosedError,
        ConfigError,
        HeliographError,
        NoRespondersError,
        NotConnectedError,
        Reason,
        RefusedError,
        UsageError,
    )
    from heliograph.live.blocking import BlockingClient, BlockingSubscription, connect_blocking
    from heliograph.live.client import Client
    from heliograph.live.connect import connect
    from heliograph.live.discover import discover
    from heliograph.live.resources import DiscoveredResource, ResourceAnswer, ResourceRegistration, ResourceWatch
    from heliograph.live.subscription import Subscribing, Subscription
    from heliograph.model.publication import Publication
    from heliograph.model.subscription import Policy

__all__ = [
    "BlockingClient",
    "BlockingSubscription",
    "Client",
    "ClosedError",
    "ConfigError",
    "Discover",
    "DiscoveredResource",
    "FoundTopic",
    "GrantBundle",
    "HeliographError",
    "NoRespondersError",
    "NotConnectedError",
    "OwnTopic",
    "Policy",
    "Publication",
    "Reason",
    "RefusedError",
    "RefusedPublication",
    "ResourceAnswer",
    "ResourceChange",
    "ResourceRegistration",
    "ResourceWatch",
    "Subscribing",
    "Subscription",
    "UsageError",
    "connect",
    "connect_blocking",
    "discover",
    "errors",
]

_HOMES = {
    "BlockingClient": "heliograph.live.blocking",
    "BlockingSubscription": "heliograph.live.blocking",
    "Client": "heliograph.live.client",
    "Discover": "heliograph.client.discover",
    "DiscoveredResource": "heliograph.live.resources",
    "FoundTopic": "heliograph.discovery.topics.finder",
    "GrantBundle": "heliograph.discovery.topics.bundle",
    "OwnTopic": "heliograph.discovery.topics.creation",
    "Policy": "heliograph.model.subscription",
    "Publication": "heliograph.model.publication",
    "RefusedPublication": "heliograph.client.refusals",
    "ResourceAnswer": "heliograph.live.resources",
    "ResourceChange": "heliograph.discovery.resources.watching",
    "ResourceRegistration": "heliograph.live.resources",
    "ResourceWatch": "heliograph.live.resources",
    "Subscribing": "heliograph.live.subscription",
    "Subscription": "heliograph.live.subscription",
    "connect": "heliograph.live.connect",
    "connect_blocking": "heliograph.live.blocking",
    "discover": "heliograph.live.discover",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("heliograph")
    if name not in __all__:
        raise AttributeError(f"module 'heliograph' has no attribute {name!r}")
    home = import_module(_HOMES.get(name, "heliograph.errors"))
    value = home if name == "errors" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
