"""Heliograph: publish and subscribe through a network of brokers.

In:    nothing.
Out:   the public names: connect, connect_blocking, discover, Discover, clients, subscriptions, Publication, Policy and
       the errors; ``__version__``.
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
    from heliograph.live.subscription import Subscription
    from heliograph.model.publication import Publication
    from heliograph.model.subscription import Policy

__all__ = [
    "BlockingClient",
    "BlockingSubscription",
    "Client",
    "ClosedError",
    "ConfigError",
    "Discover",
    "HeliographError",
    "NoRespondersError",
    "NotConnectedError",
    "Policy",
    "Publication",
    "Reason",
    "RefusedError",
    "RefusedPublication",
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
    "Policy": "heliograph.model.subscription",
    "Publication": "heliograph.model.publication",
    "RefusedPublication": "heliograph.client.refusals",
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
