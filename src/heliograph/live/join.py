"""Joining: a broker without links searches for another broker and links to it, and searches again when no link is left.

In:    how to search; the broker's notes about its links.
Out:   orders to the broker: links to keep, and links to keep no longer; log lines.
State: the links that were found, and the brokers that refused us recently.
Not here: the search (discovery/brokers/search.py), making and watching links (broker/routing/peering.py).
Paper: [brokers] §1: the same search serves clients and brokers that join.

Brokers that join at the same time may find each other in pairs. So a broker that has joined searches at intervals for
brokers of another island, and links to the nearest: the islands become one, whichever began.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heliograph.broker.commands import KeepLink
from heliograph.broker.config import LinkConfig
from heliograph.client.config import parse_target
from heliograph.discovery.brokers.config import DiscoveryConfig, written
from heliograph.discovery.brokers.result import Finding, SearchResult
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.live.chance import system_seed
from heliograph.live.lone import run_alone
from heliograph.live.loop import Driver
from heliograph.live.resolver import in_number
from heliograph.machine import Address
from heliograph.node import BROKER
from heliograph.notes import NeighbourLinked, Note
from heliograph.observe.log import NodeLog

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

LINK_S = 5.0  # for a handshake; then the next broker is tried
AGAIN_S = 10.0  # between checks whether there is a link
MEND_S = 60.0  # roughly, between searches for other islands: brokers should not all search at once
REFUSED_S = 600.0  # a broker that refused us is not tried again for this long, unless we are alone
FIRST_S = 0.1  # our own sockets are opened first
KEPT_MAX = 8  # links kept for joining; the oldest is dropped


class Joining:
    """Keeps one broker linked to a network."""

    def __init__(
        self,
        driver: Driver,
        log: NodeLog,
        config: DiscoveryConfig,
        named: tuple[Address, ...],
        host: str,
        keyring: Keyring | None = None,
    ) -> None:
        self._driver = driver
        self._log = log
        self._config = config
        self._named = named  # directories whose names have to be resolved
        self._host = host
        self._keyring = keyring
        self._wanted = ""  # the broker that is being tried
        self._linked = asyncio.Event()
        self._kept: list[LinkConfig] = []
        self._refused: dict[str, float] = {}  # broker -> until when
        self._alone = False  # we have no link, and have logged that

    def heard(self, note: Note) -> None:
        """The broker noted something."""
        if isinstance(note, NeighbourLinked) and note.broker == self._wanted:
            self._linked.set()

    async def run(self) -> None:
        """Search for a broker whenever there is no link, and at intervals for other islands, until cancelled."""
        await asyncio.sleep(FIRST_S)
        mend_at = 0.0
        while self._driver.failure is None:
            if not self._usage()["links"]:
                await self._join()
            elif self._driver.loop.time() >= mend_at:
                if mend_at:
                    await self._mend()
                mend_at = self._driver.loop.time() + MEND_S * (0.5 + secrets.randbelow(1_000) / 1_000)
            await asyncio.sleep(min(AGAIN_S, MEND_S))

    def _usage(self) -> dict[str, Any]:
        report: dict[str, Any] = self._driver.report(BROKER, "usage")
        return report

    async def _join(self) -> None:
        result = await self._search()
        self._refused.clear()
        if await self._link_to_one_of(result.findings):
            self._alone = False
            return
        if not self._alone:
            why = result.text if not result.findings else f"none of {len(result.findings)} brokers let this one in"
            self._log.say("warning", f"joined no broker: {why}; running alone, looking again every {AGAIN_S:.0f} s")
        self._alone = True

    async def _mend(self) -> None:
        """Link to the nearest broker that is not linked to us, however far."""
        result = await self._search()
        now, island = self._driver.loop.time(), self._usage()["island"]
        self._refused = {name: until for name, until in self._refused.items() if until > now}
        others = [one for one in result.findings if one.island != island and one.broker not in self._refused]
        await self._link_to_one_of(others[:1])

    async def _search(self) -> SearchResult:
        found = [address for name in self._named if (address := await in_number(name)) is not None]
        config = replace(self._config, directories=(*self._config.directories, *map(written, found)))
        search = BrokerSearch(config, seed=system_seed(), keyring=self._keyring)
        await run_alone(search, BrokerSearch.sockets(config, self._host, config.multicast.interface or self._host))
        assert search.result is not None  # a search stops when it has a result
        return search.result

    async def _link_to_one_of(self, findings: tuple[Finding, ...] | list[Finding]) -> bool:
        for finding in findings:
            for url in finding.urls:
                if await self._link(finding, url):
                    return True
            self._refused[finding.broker] = self._driver.loop.time() + REFUSED_S
        return False

    async def _link(self, finding: Finding, url: str) -> bool:
        """Order the broker to keep a link there; if it does not come up, withdraw the order."""
        target = parse_target(url)
        link = LinkConfig(host=target.host, port=target.port, secure=target.secure)
        self._wanted = finding.broker
        self._linked.clear()
        self._driver.tell(BROKER, KeepLink(link))
        try:
            async with asyncio.timeout(LINK_S):
                await self._linked.wait()
        except TimeoutError:
            if link not in self._kept:
                self._driver.tell(BROKER, KeepLink(link, keep=False))
            self._log.say("warning", f"{finding.broker} at {url} was found, but no link could be made")
            return False
        self._keep(link)
        away = "" if finding.round_trip_ms is None else f", {finding.round_trip_ms:.1f} ms away"
        self._log.say("info", f"joined {finding.broker} at {url}{away}")
        return True

    def _keep(self, link: LinkConfig) -> None:
        if link not in self._kept:
            self._kept.append(link)
        if len(self._kept) > KEPT_MAX:
            self._driver.tell(BROKER, KeepLink(self._kept.pop(0), keep=False))
