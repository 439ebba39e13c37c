"""A live stage for searches: broker processes, one directory, and clients, each at a place, with relays between them.

In:    a topology, a seed.
Out:   the SearchResult of each search.
State: processes, relays, and a party for each of them and for the clients of each site.
Not here: which experiments there are (topologies.py), how often they are repeated (experiment.py).

Every broker and the directory is a separate process, as `heliograph broker run` starts it. The relays and the searches
share this process and its loop. In the lab of the multicast experiment datagrams go straight over loopback: it is one
LAN, and relays do not receive multicasts. A search ends with the choice: the chosen broker is not dialled, so no relay
leads there.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Self

from heliograph.discovery.brokers.config import DiscoveryConfig, MulticastConfig, written
from heliograph.discovery.brokers.result import SearchResult
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.errors import HeliographError
from heliograph.evaluation import topologies
from heliograph.evaluation.live.probe import Probe
from heliograph.evaluation.live.processes import KEY, Opened, Processes
from heliograph.evaluation.live.relays import LOCAL, Party, Relays
from heliograph.evaluation.places import DIRECTORY_SITE, JITTER_MS, LAN_JITTER_MS, SITES
from heliograph.evaluation.topologies import MULTICAST, LabMember
from heliograph.live.lone import MACHINE, running

DIRECTORY_NAME = "bdn"
FIND_S_MAX = 30.0  # until all brokers are linked and found
SETTLE_S = 3.0  # after that, until each is known with its links and measured
TIMEOUT_MS = 2_000  # of the searches that wait for all brokers
# All brokers share one computer, so its load says nothing about a single broker: only distance counts.
ANY_LOAD = DiscoveryConfig(cpu_permille_max=1_000, memory_free_permille_min=0)


class LiveStage:
    """Runs searches; a context manager that ends everything it started."""

    def __init__(self, topology: str, seed: int) -> None:
        self.topology = topology
        self._members = topologies.members(topology)
        self._by_multicast = topology == MULTICAST
        self._random = Random(f"{seed}/{topology}")
        self._stack = AsyncExitStack()
        self._opened: dict[str, Opened] = {}
        self._parties: dict[str, Party] = {}
        self.config = ANY_LOAD

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # Parties.

    async def _begin(self) -> None:
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="heliograph-evaluation-")))
        self._processes = Processes(folder)
        self._stack.callback(self._processes.stop)
        self.relays = Relays(LAN_JITTER_MS if self._by_multicast else JITTER_MS, self._random)
        self._stack.push_async_callback(self.relays.close)
        if self._by_multicast:
            self.config = replace(ANY_LOAD, multicast=MulticastConfig(port=_free_port(), ttl=0))
        else:
            await self._start_directory()
        await self._start_brokers()
        self.probe = Probe(self.relays, SITES[DIRECTORY_SITE])
        self._stack.callback(self.probe.close)
        await self._settle()

    async def _start_directory(self) -> None:
        party = self.relays.add(SITES[DIRECTORY_SITE])
        settings = f'[bdn]\nname = "{DIRECTORY_NAME}"\nport = 0\nadvertise = "{written(party.outside)}"\n'
        self._processes.start(DIRECTORY_NAME, "bdn", settings)
        opened = await self._processes.ready(DIRECTORY_NAME)
        self.relays.locate(party, opened.datagrams)
        directories = (written(party.outside),)
        self.config = replace(ANY_LOAD, directories=directories, multicast=MulticastConfig(enabled=False))

    async def _start_brokers(self) -> None:
        for member in self._members:
            self._parties[member.name] = self.relays.add(SITES[member.site])
            self._processes.start(member.name, "broker", await self._settings(member))
        for member in self._members:
            opened = self._opened[member.name] = await self._processes.ready(member.name)
            self.relays.locate(self._parties[member.name], opened.datagrams)

    async def _settings(self, member: LabMember) -> str:
        multicast = self.config.multicast
        directories = list(self.config.directories) if member.registered else []
        lines = [
            "[broker]", f'name = "{member.name}"',
            "", "[[listener]]", "port = 0",
            "", "[network]", f'key_file = "{KEY}"',
            "", "[discovery]", f"directories = {directories}", f"public = {str(member.registered).lower()}",
            f"multicast = {str(multicast.enabled).lower()}", f"multicast_port = {multicast.port}",
        ]  # fmt: skip
        for other in member.links:
            host, port = await self._link(member.name, other)
            lines += ["", "[[network.links]]", f'host = "{host}"', f"port = {port}"]
        return "\n".join(lines) + "\n"

    async def _link(self, one: str, other: str) -> tuple[str, int]:
        def where() -> tuple[str, int] | None:
            opened = self._opened.get(other)
            return None if opened is None else opened.links

        return await self.relays.link(self._parties[one], self._parties[other], where)

    async def _settle(self) -> None:
        """Wait until a search finds all brokers, linked as they should be."""
        config = replace(self.config, answers_min=len(self._members), timeout_ms=TIMEOUT_MS)
        wanted = (len(self._members), topologies.islands(self.topology))
        deadline = monotonic() + FIND_S_MAX
        while (found := await self._found(config)) != wanted:
            self._processes.check()
            if monotonic() > deadline:
                raise HeliographError(f"{self.topology}: found {found} brokers and islands of {wanted}, and gave up")
        await asyncio.sleep(SETTLE_S)
        self.relays.forget_strangers()  # datagrams that arrived before the relays knew their senders

    async def _found(self, config: DiscoveryConfig) -> tuple[int, int]:
        """The number of brokers, and of islands."""
        result = await self.search(DIRECTORY_SITE, config)
        return len(result.findings), len({finding.island for finding in result.findings})

    # Searching.

    async def search(self, site: str, config: DiscoveryConfig | None = None) -> SearchResult:
        """A new client at this site searches for a broker. The clients of one site search one after another."""
        config = config or self.config
        search = BrokerSearch(config, seed=self._random.getrandbits(64))
        (spec,) = BrokerSearch.sockets(config, LOCAL, LOCAL)
        async with running(search) as driver:
            address = await driver.open(MACHINE, spec)
            if address is not None:  # its first output is still unread: there was no await in between
                self.relays.locate(self._client(site), address)
            await driver.stopped.wait()
        if driver.failure is not None:
            raise driver.failure
        assert search.result is not None  # a search stops only with a result
        return search.result

    def _client(self, site: str) -> Party:
        name = f"client-{site}"
        if name not in self._parties:
            self._parties[name] = self.relays.add(SITES[site])
        return self._parties[name]

    def check(self) -> None:
        """HeliographError if a process has ended, or a datagram bypassed the relays."""
        self._processes.check()
        if self.relays.strangers:
            raise HeliographError(f"{self.relays.strangers} datagrams came from senders that the relays do not know")


def _free_port() -> int:
    """A free port, for our own group."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((LOCAL, 0))
        port: int = probe.getsockname()[1]
        return port
