"""The environment: where to connect, from variables and defaults of this machine.

In:    environment variables; the settings file that one of them names.
Out:   addresses where a broker and a directory are expected; the chosen network; how to search.
State: none.
Not here: their precedence (live/where.py), credentials (live/connect.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from heliograph.broker.config import DEFAULT_PORT
from heliograph.client.discover import DIRECTORY_OFFSET, LOCAL, Discover
from heliograph.errors import UsageError

URL_VARIABLE = "HELIOGRAPH_URL"
NETWORK_VARIABLE = "HELIOGRAPH_NETWORK"
BDNS_VARIABLE = "HELIOGRAPH_BDNS"
CONFIG_VARIABLE = "HELIOGRAPH_CONFIG"
OPTIONS_PREFIX = "HELIOGRAPH_SEARCH__"
PORT_VARIABLE = "HELIOGRAPH_DEFAULT_PORT"  # for tests: another program may listen on the usual port


def default_port() -> int:
    """The port at which a broker is expected on this machine."""
    return int(os.environ.get(PORT_VARIABLE) or DEFAULT_PORT)


def local_broker() -> str:
    """Where a broker is expected if no address is given."""
    return f"{LOCAL}:{default_port()}"


def local_directory() -> str:
    """Where a directory is expected if no address is given."""
    return f"{LOCAL}:{default_port() + DIRECTORY_OFFSET}"


def network_from(given: str | None) -> str | None:
    """The network chosen by the program or by $HELIOGRAPH_NETWORK; None if neither did."""
    if given is not None and not isinstance(given, str):
        raise UsageError(f"network = {given!r}: give its name, as text")
    return given if given is not None else os.environ.get(NETWORK_VARIABLE) or None


def options_from(environment: Mapping[str, str] | None = None, file: Path | None = None) -> Discover:
    """The options in $HELIOGRAPH_BDNS, $HELIOGRAPH_SEARCH__… and the section [search] of the settings file."""
    environment = os.environ if environment is None else environment
    given = {name: text for name, text in environment.items() if name.startswith(OPTIONS_PREFIX)}
    if bdns := environment.get(BDNS_VARIABLE):
        given[f"{OPTIONS_PREFIX}BDNS"] = bdns
    if file is None and (named := environment.get(CONFIG_VARIABLE)):
        file = Path(named)
    if not given and file is None:
        return Discover()
    from heliograph.config.load import load_search  # late: most programs set none of this

    return load_search(file, given)
