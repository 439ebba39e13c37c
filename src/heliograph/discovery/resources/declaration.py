"""The resource service, as a service of a node.

In:    its settings.
Out:   RESOURCES_SERVICE, for the list of node.py.
State: none.
Not here: its machine (service.py).
"""

from __future__ import annotations

from typing import Any

from heliograph.discovery.resources.config import RESOURCES, ResourcesConfig
from heliograph.machine import Machine
from heliograph.services.declared import Service, Surroundings
from heliograph.wire.requests import RequestTypes


class ResourcesService(Service[ResourcesConfig]):
    """Registers and discovers resources at a broker."""

    name = RESOURCES
    config = ResourcesConfig

    def is_wanted(self, config: ResourcesConfig) -> bool:
        """True if it is enabled."""
        return config.enabled

    def build(self, config: ResourcesConfig, around: Surroundings) -> Machine:
        """Its machine."""
        from heliograph.discovery.resources.service import ResourceService

        return ResourceService(config, seed=around.seed, incarnation=around.incarnation)

    def requests(self) -> RequestTypes[Any]:
        """Those of owners and of requesters."""
        from heliograph.discovery.resources.calls import REQUESTS

        return REQUESTS


RESOURCES_SERVICE = ResourcesService()
