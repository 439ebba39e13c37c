"""How a command reaches a broker: the options that all commands share, and the client made from them.

In:    options and their environment variables. There is no option for a secret: tokens and keys are in files.
Out:   a connected client; errors that say what to do.
State: none.
Not here: the client itself (live/client.py), the administrator's local token (live/runtime.py).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.errors import HeliographError, NotConnectedError, Reason, RefusedError, UsageError

if TYPE_CHECKING:
    from heliograph.client.config import Target
    from heliograph.client.discover import Discover
    from heliograph.live.client import Client

PATIENCE_S = 2.0  # wait for a broker that was started a moment ago, in the same script
LOCAL_ADMIN = "local-admin"  # the entity of the local token

_HINTS = {
    Reason.DIAL_FAILED: "`heliograph broker run` starts one",
    Reason.BROKER_NOT_FOUND: "`heliograph broker run` starts one here",
    Reason.CREDENTIAL_MISSING: "give --certificate and --key, or --entity and --token-file",
    Reason.CREDENTIAL_WRONG: "check --entity and --token-file",
    Reason.CERTIFICATE_UNTRUSTED: "check --authority: it must be the one that signed the other's certificate",
    Reason.CERTIFICATE_EXPIRED: "issue a new one: `heliograph ca issue`",
    Reason.TLS_FAILED: "does the broker speak TLS there? heliograph:// is for one that does not",
    Reason.RESPONDERS_MISSING: "start one, for example with `heliograph reply TOPIC --echo`",
    Reason.QUERY_LANGUAGE_MISSING: "install it where the topic directory runs: pip install 'heliograph[xquery]'",
    Reason.NETWORK_OTHER: "leave out --url and --network for whatever there is, or give the --url of a broker of yours",
    Reason.ASK_DENIED: "the role admin is needed: be the user that runs the broker, or use an admin's credential",
    Reason.TOPIC_KEY_UNSIGNED: "the grant was changed on its way, or is of an earlier version: ask for a new one",
}
_ENDS = (Reason.CLOSED, Reason.RESET)

SecretFile = Annotated[
    Path | None,
    typer.Option(help="Without credentials: the file with the secret of names that machines share, not your own."),
]


@dataclass(frozen=True, slots=True)
class Connection:
    """The address and the identity to connect with. Without an address, live/where.py decides."""

    url: str | None = None
    network: str | None = None
    entity: str = ""
    token_file: Path | None = None
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    discover: bool = False

    @property
    def names_somebody(self) -> bool:
        """True if the user gave an identity."""
        return bool(self.entity or self.token_file or self.certificate)

    def place(self, client: Client) -> str:
        """Where a client is connected, for people: the given address, or the one that was found."""
        network = f", network {client.network}" if client.network else ""
        return self.url or f"broker {client.broker} ({client.address}{network})"


def _connection(
    url: Annotated[
        str | None,
        typer.Option(
            envvar="HELIOGRAPH_URL",
            help="The broker: heliograph://host:port, heliographs:// for TLS. Without one, that on port 4717 of this "
            "machine, else one that a search finds.",
        ),
    ] = None,
    network: Annotated[
        str | None, typer.Option(envvar="HELIOGRAPH_NETWORK", help="Only brokers of the network of this name.")
    ] = None,
    entity: Annotated[str, typer.Option(envvar="HELIOGRAPH_ENTITY", help="The entity of the token.")] = "",
    token_file: Annotated[
        Path | None, typer.Option(envvar="HELIOGRAPH_TOKEN_FILE", help="A file that holds the token.")
    ] = None,
    authority: Annotated[
        Path | None, typer.Option(envvar="HELIOGRAPH_AUTHORITY", help="The authority of the broker's certificate.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(envvar="HELIOGRAPH_CERTIFICATE", help="The own certificate, for mutual TLS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(envvar="HELIOGRAPH_KEY", help="The own certificate's private key.")
    ] = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="Search at once, whatever is on port 4717: see `discover broker`.")
    ] = False,
) -> Connection:
    if token_file is not None and not entity:
        raise UsageError("--token-file goes with --entity: it says whose token it is")
    return Connection(
        None if discover else url or None, network, entity, token_file, authority, certificate, key, discover
    )


def with_connection(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of a connection in place of its parameter ``there``."""
    return with_options(command, "there", _connection)


def with_options(command: Callable[..., None], name: str, make: Callable[..., Any]) -> Callable[..., None]:
    """The command with the options that ``make`` takes in place of the parameter that it makes of them."""
    own = inspect.signature(command, eval_str=True)
    options = inspect.signature(make, eval_str=True).parameters

    @wraps(command)
    def built(**given: Any) -> None:
        made = make(**{option: given.pop(option) for option in options})
        command(**{name: made}, **given)

    kept = [parameter for each, parameter in own.parameters.items() if each != name]
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*kept, *options.values())]
    built.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return built


def shared_secret(file: Path | None) -> bytes | None:
    """The secret in the file of --secret-file; None: the user's own, if one is needed."""
    from heliograph.live.name_secret import secret_in

    return None if file is None else secret_in(file)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a command's work on the event loop."""
    try:
        from heliograph.live.loop import run as run_loop
    except BaseException:  # Ctrl-C
        main.close()
        raise
    run_loop(main)


def run_until_ended(main: Coroutine[Any, Any, None]) -> None:
    """Run work that Ctrl-C or SIGTERM is meant to end."""
    import asyncio
    import signal

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await main

    try:
        run(work())
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass  # one for each of the two


@asynccontextmanager
async def connected(connection: Connection, *, name: str, as_admin: bool = False, **more: Any) -> AsyncIterator[Client]:
    """A client that is connected, and closed at the end. ``as_admin``: with all credentials that this user has."""
    import heliograph

    options: dict[str, Any] = {
        option: str(path)
        for option in ("token_file", "authority", "certificate", "key")
        if (path := getattr(connection, option)) is not None
    }
    if connection.entity:
        options["entity"] = connection.entity
    try:
        connecting = heliograph.connect(
            connection.url,
            network=connection.network,
            discover=True if connection.discover else None,
            _options=search_options() if connection.url is None else None,
            name=name,
            timeout=PATIENCE_S,
            **options,
            **more,
        )
        if as_admin and not connection.names_somebody:
            connecting = connecting._showing(_local_admin)
        async with connecting as client:
            yield client
    except (NotConnectedError, RefusedError) as error:
        raise told_what_to_do(error, connection) from None


def search_options(config: Path | None = None) -> Discover:
    """How a command searches for a broker: the settings that it would use here, and the environment."""
    import os

    from heliograph.config.load import find_file
    from heliograph.live.discover import options_from

    return options_from(file=find_file(config, os.environ, Path.cwd()))


def ask(there: Connection, request: dict[str, Any]) -> Any:
    """The answer of a broker's admin service."""
    return ask_at(there, request)[1]


def ask_at(there: Connection, request: dict[str, Any]) -> tuple[str, Any]:
    """The same, with the broker's address."""
    answers: list[tuple[str, Any]] = []

    async def work() -> None:
        async with connected(there, name="heliograph broker", as_admin=True) as client:
            answers.append((there.place(client), await client.ask("admin", request)))

    run(work())
    return answers[0]


def _local_admin(target: Target) -> tuple[str, str] | None:
    """The local token of a broker that this user runs on this machine, which an administrator also presents."""
    from heliograph.live.runtime import local_token
    from heliograph.model.hosts import is_loopback

    token = local_token(target.port) if is_loopback(target.host) else None
    return (LOCAL_ADMIN, token) if token else None


def local_admin_file(there: Connection) -> Path | None:
    """The file with that token, for who connects elsewhere; None if credentials or a network are given, or there is no
    such broker."""
    from heliograph.client.config import parse_target
    from heliograph.live.environment import default_port
    from heliograph.live.runtime import local_token_file
    from heliograph.model.hosts import is_loopback

    if there.names_somebody or there.network or there.discover:
        return None
    target = parse_target(there.url) if there.url else None
    if target is not None and not is_loopback(target.host):
        return None
    return local_token_file(default_port() if target is None else target.port)


def _is_here(url: str) -> bool:
    from heliograph.client.config import parse_target
    from heliograph.model.hosts import is_loopback

    return is_loopback(parse_target(url).host)


def told_what_to_do(error: NotConnectedError | RefusedError, connection: Connection) -> HeliographError:
    """The error with a hint, if there is a usual cause."""
    url, hint = connection.url or "", _HINTS.get(error.reason)
    if error.reason in _ENDS and not url.startswith("heliographs:"):
        hint = "does the broker speak TLS there? Then write heliographs://"
    elif error.reason in _ENDS and connection.certificate is None:
        # A broker that requires our certificate reports it only after our side of the handshake is done, if at all.
        hint = "if the broker asks for certificates, give --certificate and --key"
    elif error.reason is Reason.DIAL_FAILED and url and not _is_here(url):
        hint = "check the name and the port, and that a broker runs there"
    text, *below = str(error).removeprefix(f"{Reason.BROKER_NOT_FOUND.word}: ").splitlines()
    text = text if url in text else f"{url}: {text}"
    return HeliographError("\n".join([f"{text}; {hint}" if hint else text, *below]))
