"""``await heliograph.connect(…)``: from addresses, files and environment variables to a client that is connected.

In:    arguments of a program; the environment; token files and certificates.
Out:   a Client.
State: none.
Not here: the client (live/client.py), its settings as data (client/config.py).
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from heliograph.client.config import ClientConfig, Target, parse_target
from heliograph.client.discover import Discover, Trust
from heliograph.client.refusals import RefusedPublication
from heliograph.client.session import Session
from heliograph.errors import NotConnectedError, UsageError
from heliograph.live.client import Client, milliseconds
from heliograph.live.tls import TlsContexts, TlsFiles, client_context
from heliograph.model.identity import entity_is_valid
from heliograph.notes import Note

if TYPE_CHECKING:  # a search loads more, and many programs need none
    from heliograph.live.seeker import Seeker

DEFAULT_ADDRESS = "heliograph://127.0.0.1:4717"
URL_VARIABLE = "HELIOGRAPH_URL"
ENTITY_VARIABLE = "HELIOGRAPH_ENTITY"
TOKEN_FILE_VARIABLE = "HELIOGRAPH_TOKEN_FILE"  # noqa: S105 a variable's name, not a token
FILE_VARIABLES = {
    "authority": "HELIOGRAPH_AUTHORITY",
    "certificate": "HELIOGRAPH_CERTIFICATE",
    "key": "HELIOGRAPH_KEY",
}

SECRET_BYTES = 32


class Connecting:
    """What ``heliograph.connect(…)`` returns: await it, or use it with ``async with``."""

    def __init__(self, connect: Callable[[], Awaitable[Client]]) -> None:
        self._connect = connect
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.__aexit__(kind, error, trace)


def connect(
    address: str | Sequence[str] | None = None,
    *,
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
    request_timeout: float = 10.0,
    keep_alive: float = 20.0,
    give_up: float | None = None,
    outgoing_bytes_max: int = 8 << 20,
    on_refused: Callable[[RefusedPublication], None] | None = None,
    on_note: Callable[[Note], None] | None = None,
) -> Connecting:
    """Connect to a broker: ``client = await connect(…)``, or ``async with connect(…) as client``.

    ``address`` is one address, or several to choose from; the default is $HELIOGRAPH_URL. Without either, the nearest
    broker is searched for, as ``discover=Discover(…)`` or else the environment says. A search without any configured
    address that finds no broker ends at heliograph://127.0.0.1:4717; ``discover=False`` goes there at once.

    ``entity`` with ``token`` or ``token_file``, or ``certificate`` with ``key``, prove the client's identity;
    ``authority`` is the certificate authority to trust (heliographs:// only). Each of these has an environment variable
    too: $HELIOGRAPH_ENTITY, $HELIOGRAPH_TOKEN_FILE and so on. A broker that a search found gets a token only if
    ``authority`` or ``server_name`` vouches for it. ``hold`` lets this publisher wait for slow consumers that want it.

    Times are in seconds. Each address is tried at least once, and again until ``timeout`` is over. Later, a lost link
    is restored automatically, for ever or until ``give_up`` is over. ``on_refused`` is called with publications that
    the broker refused, ``on_note`` with what the session observes (lost and restored links, losses).
    """
    looks = _looks(address, discover)
    config = ClientConfig(
        targets=_targets(address, server_name, use_variable=discover is None),
        name=name,
        entity=os.environ.get(ENTITY_VARIABLE, "") if entity is None else entity,
        token=_token(token, token_file),
        hold=hold,
        keep_alive_ms=milliseconds(keep_alive),
        request_ms_max=milliseconds(request_timeout),
        give_up_ms=None if give_up is None else milliseconds(give_up),
        outgoing_bytes_max=outgoing_bytes_max,
    )
    session = None if looks else _session(config)
    given = {"authority": authority, "certificate": certificate, "key": key}
    files = {what: _path(path, FILE_VARIABLES[what]) for what, path in given.items()}

    async def open_client() -> Client:
        assert session is not None
        if session.ended or session.welcome is not None:
            raise UsageError("this connection was used before: call connect() again")
        tls = _tls(files) if any(target.secure for target in config.targets) else None
        client = Client(session, tls, on_refused, on_note)
        await client._connect(timeout)
        return client

    if not looks:
        return Connecting(open_client)
    config.check()
    vouched = files["authority"] is not None or server_name is not None
    trust = Trust(has_token=bool(config.token), vouched=vouched, server_name=server_name)
    seeker = _seeker(discover, trust, name, files)

    async def find_and_open() -> Client:
        from heliograph.live.following import Following
        from heliograph.live.seeker import failed_there

        start = monotonic()
        found = await seeker.seek(timeout)
        tls = _tls(files) if vouched or any(target.secure for target in found.targets) else None
        follow = partial(Following, seeker=seeker, found=found)
        client = Client(_session(replace(config, targets=found.targets)), tls, on_refused, on_note, follow)
        left = None if timeout is None else max(0.0, timeout - (monotonic() - start))
        try:
            await client._connect(left)
        except NotConnectedError as error:
            raise failed_there(found, error) from None
        return client

    return Connecting(find_and_open)


def _looks(address: str | Sequence[str] | None, discover: Discover | bool | None) -> bool:
    """True if the program did not say where to connect."""
    if address is not None and discover:
        raise UsageError("give either an address or discover")
    wanted = discover is not None and discover is not False
    return wanted or (address is None and discover is None and not os.environ.get(URL_VARIABLE))


def _session(config: ClientConfig) -> Session:
    return Session(config, secret=secrets.token_bytes(SECRET_BYTES), seed=secrets.randbits(64))


def _seeker(discover: Discover | bool | None, trust: Trust, name: str, files: dict[str, Path | None]) -> Seeker:
    from heliograph.live.discover import options_from
    from heliograph.live.seeker import Seeker

    options = discover if isinstance(discover, Discover) else options_from()
    return Seeker(options, trust, name if entity_is_valid(name) else "", files)


def _targets(address: str | Sequence[str] | None, server_name: str | None, *, use_variable: bool) -> tuple[Target, ...]:
    if address is None:
        address = (os.environ.get(URL_VARIABLE) if use_variable else None) or DEFAULT_ADDRESS
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
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"token file {path}: others can read this token; run: chmod 600 {path}")
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"token file {path} cannot be read: {error}") from None
    if not text:
        raise UsageError(f"token file {path} is empty")
    return text


def _path(path: str | Path | None, variable: str) -> Path | None:
    chosen = os.environ.get(variable) if path is None else path
    return Path(chosen) if chosen else None


def _tls(files: dict[str, Path | None]) -> TlsContexts:
    return TlsContexts(client=client_context(TlsFiles(**files)))
