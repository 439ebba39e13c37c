"""``await discover(…)``: look for a broker with a real socket, names from DNS, and what was remembered.

In:    Discover, or what the environment and the settings file say; certificates, where answers must be signed.
Out:   the Result of the search.
State: none beyond the file of remembered brokers.
Not here: the search (discovery/brokers/finder.py), connecting (live/connect.py), the options (client/discover.py).
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.client.discover import LOCAL, LOCAL_BROKER, LOCAL_DIRECTORY, Discover
from heliograph.discovery.brokers.config import DiscoveryConfig, written
from heliograph.discovery.brokers.finder import Finder
from heliograph.discovery.brokers.result import Result
from heliograph.errors import NotConnectedError, Reason
from heliograph.live import remembered
from heliograph.live.lone import run_alone
from heliograph.live.names import directories_of, in_numbers
from heliograph.machine import Address
from heliograph.notes import Note, SocketRefused

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

BDNS_VARIABLE = "HELIOGRAPH_BDNS"
CONFIG_VARIABLE = "HELIOGRAPH_CONFIG"
OPTIONS_PREFIX = "HELIOGRAPH_DISCOVER__"
NAMES_S = 1.0  # for DNS; what is not found by then is left out of this search
ANYWHERE = "0.0.0.0"  # noqa: S104 answers come from everywhere, and nothing else is heard there


def options_from(environment: Mapping[str, str] | None = None, file: Path | None = None) -> Discover:
    """What $HELIOGRAPH_BDNS, $HELIOGRAPH_DISCOVER__… and the section [discover] of the settings file say."""
    environment = os.environ if environment is None else environment
    given = {name: text for name, text in environment.items() if name.startswith(OPTIONS_PREFIX)}
    if bdns := environment.get(BDNS_VARIABLE):
        given[f"{OPTIONS_PREFIX}BDNS"] = bdns
    if file is None and (named := environment.get(CONFIG_VARIABLE)):
        file = Path(named)
    if not given and file is None:
        return Discover()
    from heliograph.config import load_discover  # late: most programs set none of this

    return load_discover(file, given)


async def discover(
    options: Discover | None = None,
    *,
    name: str = "",
    transports: Sequence[str] = ("tcp", "tls"),
    keyring: Keyring | None = None,
    resolvers: Sequence[Address] | None = None,
) -> Result:
    """Look for the nearest broker that will have us. The result says what was found and what was tried.

    Without options, those of the environment. With a keyring only answers count that a broker has signed.
    """
    options = options_from() if options is None else options
    options.check()
    config, problems = await _search(options, name, tuple(transports), resolvers)
    asked = (*options.bdns, *options.bdn_links, *options.brokers, written(config.multicast.address))
    file = remembered.file_for(asked) if options.remember else None
    known = () if file is None else remembered.read(file, config.remembered_s_max)
    finder = Finder(config, seed=secrets.randbits(64), remembered=known, keyring=keyring)
    refused: list[Note] = []

    def heard(_: str, note: Note) -> None:
        if isinstance(note, SocketRefused):
            refused.append(note)

    await run_alone(finder, Finder.sockets(config, _host(options), options.multicast_interface), heard=heard)
    assert finder.result is not None  # a finder says stop when it has one
    result = finder.result
    if file is not None and result.proven:
        remembered.write(file, result.targets)
    problems += [f"no socket: {note.problem}" for note in refused if isinstance(note, SocketRefused)]
    return replace(result, tried=(*result.tried, *problems))


def failure_of(result: Result, why: str = "") -> NotConnectedError:
    """Why there is no broker, with everything that was tried."""
    tried = "; ".join(result.tried) or "nobody"
    return NotConnectedError(result.reason or Reason.BROKER_NOT_FOUND, f"{why or result.text}. Asked: {tried}")


async def _search(
    options: Discover, name: str, transports: tuple[str, ...], resolvers: Sequence[Address] | None
) -> tuple[DiscoveryConfig, list[str]]:
    """The search's settings with all addresses in numbers, and which of them could not be found."""
    bdns = [bdn for bdn in options.bdns if ":" in bdn]
    if not options.names_somebody:
        bdns = [LOCAL_DIRECTORY]
    brokers = options.brokers if options.names_somebody else (LOCAL_BROKER,)
    looked_up = await asyncio.gather(
        in_numbers(bdns, NAMES_S), directories_of(options.domains, NAMES_S, resolvers), in_numbers(brokers, NAMES_S)
    )
    (directories, _), (served, _), (listed, _) = looked_up
    config = options.config((*directories, *served), options.bdn_links, tuple(listed), name=name, transports=transports)
    return config, [problem for _, problems in looked_up for problem in problems]


def _host(options: Discover) -> str:
    """The address of the one socket: on this computer only, if only this computer is asked."""
    return LOCAL if options.is_local else ANYWHERE
