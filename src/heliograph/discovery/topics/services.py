"""The topic directory and the service "rights", as services of a node.

In:    their settings.
Out:   TOPIC_DIRECTORY_SERVICE and RIGHTS_SERVICE, for the list of node.py.
State: none.
Not here: the machines (directory.py, rights.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heliograph.broker.config import BrokerConfig, ListenerConfig
from heliograph.discovery.topics.config import TDN, RightsConfig, TopicDirectoryConfig
from heliograph.machine import Machine
from heliograph.model.hosts import is_loopback
from heliograph.model.places import masked
from heliograph.model.settings import Problem
from heliograph.repository import Repository
from heliograph.services.declared import Opened, Service, Surroundings
from heliograph.trust.config import TlsConfig
from heliograph.wire.requests import RequestTypes


class TopicDirectoryService(Service[TopicDirectoryConfig]):
    """A topic directory, in a broker's process or in its own."""

    name = TDN
    config = TopicDirectoryConfig
    protocol = TDN

    def is_wanted(self, config: TopicDirectoryConfig) -> bool:
        """True if it is enabled."""
        return config.enabled

    def build(self, config: TopicDirectoryConfig, around: Surroundings) -> Machine:
        """A directory that signs with the certificate of its process."""
        from heliograph.discovery.topics.directory import TopicDirectory

        assert around.keyring is not None
        if around.local_digest:
            config = replace(config, local_digest=around.local_digest)
        return TopicDirectory(config, seed=around.seed, keyring=around.keyring)

    def listeners(self, config: TopicDirectoryConfig) -> tuple[ListenerConfig, ...]:
        """For its administrator's questions, which carry a token."""
        return (ListenerConfig(name=TDN, protocol=TDN, host=config.host, port=config.port, allow_open=True),)

    def repository(self, config: TopicDirectoryConfig) -> Repository:
        """Where its topics are."""
        return Repository(name=TDN, place=config.place)

    def problems(self, config: TopicDirectoryConfig, broker: BrokerConfig, tls: TlsConfig) -> list[Problem]:
        """A directory signs, so it needs a certificate."""
        found = []
        if config.enabled and not tls.is_complete:
            said = " = true needs tls.certificate, tls.key and tls.authority; the certificate has the role directory"
            others = ("tls.certificate", "tls.key", "tls.authority")
            found.append(Problem("tdn.enabled", said, others))
        if config.enabled and any(listener.name == TDN for listener in broker.listeners):
            said = " = 'tdn': the listener of the directory in this process is called so; choose another"
            found.append(Problem("listener.tdn.name", said))
        return found

    def reload(self, config: TopicDirectoryConfig) -> object:
        """Policies, links and limits."""
        from heliograph.discovery.topics.directory import ReloadTopicDirectory

        return ReloadTopicDirectory(config)

    def describe(self, config: TopicDirectoryConfig, opened: Opened) -> str:
        """Where topics are kept, and where its administrator can ask."""
        reach = "this machine only" if is_loopback(config.host) else "the network"
        return f"topic directory: topics in {masked(config.place)}, questions on {config.host}:{config.port} ({reach})"


class RightsService(Service[RightsConfig]):
    """Every broker that can check certificates has it."""

    name = "rights"
    config = RightsConfig

    def is_wanted(self, config: RightsConfig) -> bool:
        """True if it is enabled."""
        return config.enabled

    def build(self, config: RightsConfig, around: Surroundings) -> Machine:
        """A service with the authorities of its broker."""
        from heliograph.discovery.topics.rights import RightsKeeper

        assert around.keyring is not None
        assert around.broker is not None
        return RightsKeeper(around.broker.name, seed=around.seed, keyring=around.keyring)

    def requests(self) -> RequestTypes[Any]:
        """Grants, revocations, and lists for directories."""
        from heliograph.discovery.topics.right_requests import REQUESTS

        return REQUESTS


RIGHTS_SERVICE = RightsService()
TOPIC_DIRECTORY_SERVICE = TopicDirectoryService()
