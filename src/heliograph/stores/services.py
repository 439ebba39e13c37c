"""The services of stores in a node: the store itself, and `stores`, which every broker has.

In:    their settings.
Out:   STORE_SERVICE and STORES_SERVICE, for the list of node.py.
State: none.
Not here: their machines (store.py, desk.py).
"""

from __future__ import annotations

from typing import Any

from heliograph.machine import Machine
from heliograph.model.places import masked
from heliograph.services.declared import NoSettings, Opened, Service, Surroundings
from heliograph.stores.config import STORE, StoreConfig
from heliograph.vault import Vault
from heliograph.wire.requests import RequestTypes

PLACE = "heliograph-stores"


class StoreService(Service[StoreConfig]):
    """A store attached to a broker."""

    name = STORE
    config = StoreConfig

    def is_wanted(self, config: StoreConfig) -> bool:
        """True if it is enabled."""
        return config.enabled

    def build(self, config: StoreConfig, around: Surroundings) -> Machine:
        """The machine."""
        from heliograph.stores.store import Store

        return Store(config, seed=around.seed, incarnation=around.incarnation)

    def vault(self, config: StoreConfig) -> Vault:
        """A vault named after the store."""
        return Vault(name=config.name, place=config.place or PLACE, bytes_max=config.bytes_max or None)

    def reload(self, config: StoreConfig) -> object:
        """Retention and limits."""
        from heliograph.stores.store import ReloadStore

        return ReloadStore(config)

    def farewell(self) -> object:
        """Publishers and readers should look for another store."""
        from heliograph.stores.store import WithdrawStore

        return WithdrawStore()

    def describe(self, config: StoreConfig, opened: Opened) -> str:
        """What it serves."""
        fast = ", UNSAFE: acknowledges before the data is on disk" if config.unsafe_ack else ""
        where = masked(config.place) or PLACE
        return f"store {config.name} for {', '.join(config.patterns)} in {where}{fast}"


class StoresService(Service[NoSettings]):
    """Every broker has it; without stores in the network it has nothing to say."""

    name = "stores"
    config = NoSettings

    def build(self, config: NoSettings, around: Surroundings) -> Machine:
        """The machine."""
        from heliograph.stores.desk import StoresDesk

        return StoresDesk(around.seed)

    def requests(self) -> RequestTypes[Any]:
        """Those that it answers itself, and those for stores."""
        from heliograph.wire.stores import REQUESTS

        return REQUESTS


STORE_SERVICE = StoreService()
STORES_SERVICE = StoresService()
