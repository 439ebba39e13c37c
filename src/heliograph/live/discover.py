"""``await discover(…)``: look for a broker with a real socket, names from DNS, and remembered brokers.

In:    Discover, or the options in the environment and the settings file; certificates, where answers must be signed.
Out:   the SearchResult of the search.
State: none beyond the file of remembered brokers.
Not here: the search (discovery/brokers/search.py), connecting (live/connect.py), the options (client/discover.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from heliograph.client.discover import LOCAL, Discover
from heliograph.discovery.brokers.config import DiscoveryConfig, written
from heliograph.discovery.brokers.result import SearchResult
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.errors import NotConnectedError, Reason
from heliograph.live import remembered_file
from heliograph.live.chance import system_seed
from heliograph.live.environment import local_broker, local_directory, network_from
from heliograph.live.environment import options_from as options_from
from heliograph.live.lone import run_alone
from heliograph.live.resolver import directories_of, in_numbers
from heliograph.machine import Address
from heliograph.notes import Note, SocketRefused

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

NAMES_S = 1.0  # for DNS; names not found by then are left out of this search
SETTLE_S = 3.0  # longer than brokers take to start and link
AGAIN_S = 0.25
ANYWHERE = "0.0.0.0"  # noqa: S104 answers come from everywhere, and nothing else is heard there


async def discover(
    options: Discover | None = None,
    *,
    name: str = "",
    transports: Sequence[str] = ("tcp", "tls"),
    keyring: Keyring | None = None,
    resolvers: Sequence[Address] | None = None,
    local: bool = True,
    patience_s: float = SETTLE_S,
) -> SearchResult:
    """Look for the nearest broker that accepts us. The result tells what was found and what was tried.

    Without options, those of the environment are used. With a keyring, only answers signed by a broker count.
    ``local``: if the options name no party to ask, the broker on this machine's default port is asked as well. If
    several networks may turn out to be one, because they are just starting, the search is repeated until ``patience_s``
    is over.
    """
    options = options_from() if options is None else options
    if options.network is None:
        options = replace(options, network=network_from(None))
    options.check()
    config, problems = await _search(options, name, tuple(transports), resolvers, local=local)
    until = monotonic() + patience_s
    while True:
        result = await _look(options, config, keyring)
        if not result.settling or monotonic() + AGAIN_S >= until:
            return replace(result, tried=(*result.tried, *problems))
        await asyncio.sleep(AGAIN_S)


async def _look(options: Discover, config: DiscoveryConfig, keyring: Keyring | None) -> SearchResult:
    """One search."""
    network = [] if options.network is None else [f"network {options.network}"]
    group = written(config.multicast.address)
    asked = (*options.bdns, *options.bdn_links, *options.brokers, group, *network)
    file = remembered_file.file_for(asked) if options.remember else None
    known = () if file is None else remembered_file.read(file, config.remembered_s_max)
    search = BrokerSearch(config, seed=system_seed(), remembered=known, keyring=keyring)
    refused: list[Note] = []

    def heard(_: str, note: Note) -> None:
        if isinstance(note, SocketRefused):
            refused.append(note)

    await run_alone(search, BrokerSearch.sockets(config, _host(options), options.multicast_interface), heard=heard)
    assert search.result is not None  # a search stops when it has a result
    result = search.result
    if file is not None and result.proven:
        remembered_file.write(file, result.targets)
    problems = [f"no socket: {note.problem}" for note in refused if isinstance(note, SocketRefused)]
    return replace(result, tried=(*result.tried, *problems))


def failure_of(result: SearchResult, why: str = "") -> NotConnectedError:
    """The error that says why there is no broker and, a line each, who was asked."""
    return NotConnectedError(result.reason or Reason.BROKER_NOT_FOUND, with_tried(why or result.text, result.tried))


def with_tried(text: str, tried: Sequence[str]) -> str:
    """A text for people, followed by what was tried, a line each."""
    return "\n".join([text, *(f"  asked {each}" for each in tried or ("nobody: there is no party to ask",))])


async def _search(
    options: Discover, name: str, transports: tuple[str, ...], resolvers: Sequence[Address] | None, *, local: bool
) -> tuple[DiscoveryConfig, list[str]]:
    """The settings of the search with numeric addresses, and the names that could not be resolved."""
    bdns = [bdn for bdn in options.bdns if ":" in bdn]
    if not options.names_somebody:
        bdns = [local_directory()]
    brokers = (local_broker(),) if local and not options.names_somebody else options.brokers
    looked_up = await asyncio.gather(
        in_numbers(bdns, NAMES_S), directories_of(options.domains, NAMES_S, resolvers), in_numbers(brokers, NAMES_S)
    )
    (directories, _), (served, _), (listed, _) = looked_up
    config = options.config((*directories, *served), options.bdn_links, tuple(listed), name=name, transports=transports)
    return config, [problem for _, problems in looked_up for problem in problems]


def _host(options: Discover) -> str:
    """The address of the search's only socket: loopback if only this computer is asked."""
    return LOCAL if options.is_local else ANYWHERE
