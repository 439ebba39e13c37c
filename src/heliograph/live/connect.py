"""``await heliograph.connect(…)``: from addresses, files and environment variables to a connected client.

In:    arguments of a program; the environment; token files and certificates.
Out:   a Client.
State: none.
Not here: where to connect (live/where.py), the client (live/client.py), its settings as data (client/config.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from heliograph.client.config import (
    KEEP_ALIVE_MS,
    OUTGOING_BYTES_MAX,
    PLAIN,
    REQUEST_MS_MAX,
    ClientConfig,
    Target,
    parse_target,
)
from heliograph.client.discover import Discover
from heliograph.client.refusals import RefusedPublication
from heliograph.errors import UsageError
from heliograph.live.client import Client
from heliograph.live.environment import URL_VARIABLE, local_broker, network_from, options_from
from heliograph.live.private_file import read_private
from heliograph.live.stored import milliseconds
from heliograph.live.subscription import not_awaited
from heliograph.live.where import Connector, Shows
from heliograph.notes import Note

ENTITY_VARIABLE = "HELIOGRAPH_ENTITY"
TOKEN_FILE_VARIABLE = "HELIOGRAPH_TOKEN_FILE"  # noqa: S105 a variable's name, not a token
FILE_VARIABLES = {
    "authority": "HELIOGRAPH_AUTHORITY",
    "certificate": "HELIOGRAPH_CERTIFICATE",
    "key": "HELIOGRAPH_KEY",
}


class Connecting:
    """What ``heliograph.connect(…)`` returns: await it, or use it with ``async with``."""

    def __init__(self, connector: Connector, timeout: float | None) -> None:
        self._connector = connector
        self._timeout = timeout
        self._client: Client | None = None
        self._used = False

    def __await__(self) -> Generator[Any, None, Client]:
        if self._used:
            raise UsageError("this connection was used before: call connect() again")
        self._used = True
        return self._connector.open(self._timeout).__await__()

    async def __aenter__(self) -> Client:
        self._client = await self
        return self._client

    if not TYPE_CHECKING:  # for type checkers it has no such attributes, which is what they should say

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(not_awaited("heliograph.connect(…)", "client", name))

    def _showing(self, shows: Shows) -> Connecting:
        """The same, with a function that returns the credential to show at an address."""
        return Connecting(replace(self._connector, shows=shows), self._timeout)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.__aexit__(kind, error, trace)


def connect(
    address: str | Sequence[str] | None = None,
    *,
    network: str | None = None,
    discover: Discover | bool | None = None,
    name: str = "",
    entity: str | None = None,
    token: str | None = None,
    token_file: str | Path | None = None,
    authority: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    server_name: str | None = None,
    hold: bool = False,
    timeout: float | None = 5.0,
    request_timeout: float = REQUEST_MS_MAX / 1_000,
    keep_alive: float = KEEP_ALIVE_MS / 1_000,
    give_up: float | None = None,
    outgoing_bytes_max: int = OUTGOING_BYTES_MAX,
    reliable_window: int = 10_000,
    publisher: str = "",
    publisher_dir: str | Path | None = None,
    on_refused: Callable[[RefusedPublication], None] | None = None,
    on_note: Callable[[Note], None] | None = None,
    _options: Discover | None = None,
) -> Connecting:
    """Connect to a broker: ``client = await connect(…)``, or ``async with connect(…) as client``.

    The broker is the ``address``, one or several to choose from, or $HELIOGRAPH_URL; otherwise the broker on this
    machine's default port, heliograph://127.0.0.1:4717; otherwise the nearest broker that a search finds. Directories
    or brokers in the environment ($HELIOGRAPH_BDNS, $HELIOGRAPH_SEARCH__…) are asked at once, as are those of
    ``discover=Discover(…)``; ``discover=True`` searches at once, ``discover=False`` never.

    ``network``, or $HELIOGRAPH_NETWORK, selects a network: a given address in another network is an error, a broker of
    another network on the default port is skipped, and a search finds only brokers of this network. Without it, finding
    brokers of several networks is an error that lists them. ``network=""`` means a network without a name.

    ``entity`` with ``token`` or ``token_file``, or ``certificate`` with ``key``, prove the client's identity;
    ``authority`` is the certificate authority to trust (heliographs:// only). Each of these has an environment variable
    too: $HELIOGRAPH_ENTITY, $HELIOGRAPH_TOKEN_FILE and so on. A broker that a search found gets a token only if
    ``authority`` or ``server_name`` vouches for it. ``hold`` lets slow consumers with policy "hold" slow this publisher
    down.

    ``publisher`` names a publisher whose secret and numbers are kept in a file, so that stores recognise it after a
    crash; the file is in ``publisher_dir``, else in $HELIOGRAPH_STATE_DIR or ~/.local/state/heliograph.
    ``reliable_window`` is how many reliable publications may wait for a store's acknowledgement.

    Times are in seconds. Each address is tried at least once, and again until ``timeout`` is over. Later, a lost link
    is restored automatically, for ever or until ``give_up`` is over. ``on_refused`` is called with publications that
    the broker refused, ``on_note`` with observations of the session (lost and restored links, losses).
    """
    if address is not None and discover:
        raise UsageError("give either an address or discover")
    here = f"{PLAIN}://{local_broker()}"
    if address is None:
        address = (os.environ.get(URL_VARIABLE) or None) if discover is None else here if discover is False else None
    options = None
    if address is None:
        options = discover if isinstance(discover, Discover) else _options or options_from()
    chosen = network_from(network)
    if options is not None:
        options = options if chosen is None else replace(options, network=chosen)
        options.check()
    config = ClientConfig(
        targets=_targets(here if address is None else address, server_name),
        network=chosen if options is None else options.network,
        name=name,
        entity=os.environ.get(ENTITY_VARIABLE, "") if entity is None else entity,
        token=_token(token, token_file),
        hold=hold,
        keep_alive_ms=milliseconds(keep_alive),
        request_ms_max=milliseconds(request_timeout),
        give_up_ms=None if give_up is None else milliseconds(give_up),
        outgoing_bytes_max=outgoing_bytes_max,
        reliable_window=reliable_window,
    )
    config.check()
    given = {"authority": authority, "certificate": certificate, "key": key}
    connector = Connector(
        config=config,
        files={what: _path(path, FILE_VARIABLES[what]) for what, path in given.items()},
        server_name=server_name,
        here=options is not None and discover is None and not options.names_somebody,
        search=options,
        on_refused=on_refused,
        on_note=on_note,
        publisher=publisher,
        publishers=None if publisher_dir is None else Path(publisher_dir),
    )
    return Connecting(connector, timeout)


def _targets(address: str | Sequence[str], server_name: str | None) -> tuple[Target, ...]:
    if isinstance(address, int):
        raise UsageError(f"{address!r} is not an address: write {PLAIN}://127.0.0.1:{address}, as text")
    addresses = [address] if isinstance(address, str) else list(address)
    return tuple(parse_target(one, server_name) for one in addresses)


def _token(token: str | None, token_file: str | Path | None) -> str:
    if token is not None and token_file is not None:
        raise UsageError("give either token or token_file")
    if token is not None:
        return token
    path = _path(token_file, TOKEN_FILE_VARIABLE)
    if path is None:
        return ""
    try:
        text = read_private(path, "token file").decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"token file {path} cannot be read: {error}") from None
    if not text:
        raise UsageError(f"token file {path} is empty")
    return text


def _path(path: str | Path | None, variable: str) -> Path | None:
    chosen = os.environ.get(variable) if path is None else path
    return Path(chosen) if chosen else None
