"""Joining: a broker without links looks for another broker, links to it, and looks again when no link is left.

In:    how to search; what the broker notes of its links.
Out:   orders to the broker: links to keep, and to keep no longer; log lines.
State: the link that was found last.
Not here: the search (discovery/brokers/finder.py), making and watching links (broker/routing/peering.py).
Paper: [brokers] §1: the same search serves clients and brokers that join.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from heliograph.broker.commands import KeepLink
from heliograph.broker.config import LinkConfig
from heliograph.client.config import parse_target
from heliograph.discovery.brokers.config import DiscoveryConfig
from heliograph.discovery.brokers.finder import Finder
from heliograph.discovery.brokers.result import Finding, Result
from heliograph.live.lone import run_alone
from heliograph.live.loop import Driver
from heliograph.node import BROKER
from heliograph.notes import NeighbourLinked, Note
from heliograph.observe.log import Log

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

LINK_S = 5.0  # for a handshake; then the next one is tried
AGAIN_S = 10.0  # between looks whether there is a link
FIRST_S = 0.1  # our own sockets come first


class Joining:
    """Looks after one broker's place in a network."""

    def __init__(
        self, driver: Driver, log: Log, config: DiscoveryConfig, host: str, keyring: Keyring | None = None
    ) -> None:
        self._driver = driver
        self._log = log
        self._config = config
        self._host = host
        self._keyring = keyring
        self._linked = asyncio.Event()
        self._kept: LinkConfig | None = None
        self._alone = False  # and said so

    def heard(self, note: Note) -> None:
        """The broker noted something."""
        if isinstance(note, NeighbourLinked):
            self._linked.set()

    async def run(self) -> None:
        """Look for a broker whenever there is no link, until cancelled."""
        await asyncio.sleep(FIRST_S)
        while self._driver.failure is None:
            if not self._links():
                await self._join()
            await asyncio.sleep(AGAIN_S)

    def _links(self) -> int:
        return int(self._driver.report(BROKER, "usage")["links"])

    async def _join(self) -> None:
        result = await self._search()
        for finding in result.findings:
            for url in finding.urls:
                if await self._link(finding, url):
                    self._alone = False
                    return
        if not self._alone:
            why = result.text if not result.findings else f"none of {len(result.findings)} brokers let this one in"
            self._log.say("warning", f"joined nobody: {why}; running alone, looking again every {AGAIN_S:.0f} s")
        self._alone = True

    async def _search(self) -> Result:
        config = self._config
        finder = Finder(config, seed=secrets.randbits(64), keyring=self._keyring)
        await run_alone(finder, Finder.sockets(config, self._host, config.multicast.interface or self._host))
        assert finder.result is not None  # a finder says stop when it has one
        return finder.result

    async def _link(self, finding: Finding, url: str) -> bool:
        """Have the broker keep a link there; if it does not come about, keep what there was before."""
        target = parse_target(url)
        link = LinkConfig(host=target.host, port=target.port, secure=target.secure)
        self._linked.clear()
        self._driver.tell(BROKER, KeepLink(link))
        try:
            async with asyncio.timeout(LINK_S):
                await self._linked.wait()
        except TimeoutError:
            if link != self._kept:
                self._driver.tell(BROKER, KeepLink(link, keep=False))
            self._log.say("warning", f"{finding.broker} at {url} was found, but no link came about; trying the next")
            return False
        if self._kept is not None and self._kept != link:
            self._driver.tell(BROKER, KeepLink(self._kept, keep=False))
        self._kept = link
        away = "" if finding.round_trip_ms is None else f", {finding.round_trip_ms:.1f} ms away"
        self._log.say("info", f"joined {finding.broker} at {url}{away}")
        return True
