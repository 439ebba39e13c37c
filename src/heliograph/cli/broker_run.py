"""`heliograph broker run`: a broker in this process, until a signal ends it.

In:    settings, with this command's options on top.
Out:   an exit code: 0 after a stop or drain, 1 if it could not start or failed.
State: none.
Not here: running it (live/node.py), settings (config/), asking a running one (broker.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli.broker_link import target_of
from heliograph.cli.config import Chosen, settings_from
from heliograph.cli.node_options import (
    Authority,
    Given,
    Key,
    LogFormat,
    LogLevel,
    NetworkKey,
    Tokens,
    identity_settings,
    log_settings,
    options_of,
)
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.config.load import Settings
    from heliograph.config.sources import Option


def run_broker(
    config: Chosen = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen here; port 0 takes a free one.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The broker's name.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="Speak TLS; needs --certificate and --key.")] = False,
    auth: Annotated[
        str | None, typer.Option(help="What peers must show: none, token, certificate or any of the two.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="The broker's certificate.")] = None,
    key: Key = None,
    authority: Authority = None,
    tokens: Tokens = None,
    allow_open: Annotated[
        bool, typer.Option("--allow-open", help="Accept that anyone on the network may use this broker.")
    ] = False,
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Keep a link to this broker; can be repeated, adds to the settings'."),
    ] = None,
    network: Annotated[str | None, typer.Option(help="The name of the network to which the broker belongs.")] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster to which the broker belongs.")] = None,
    slot: Annotated[str | None, typer.Option(metavar="0-63", help="Its place in the cluster.")] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Find another broker and link to it; needs a network key or certificates.")
    ] = False,
    directory: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Make the broker known to this directory (BDN); can be repeated."),
    ] = None,
    no_discovery: Annotated[bool, typer.Option("--no-discovery", help="Do not answer broker searches.")] = False,
    network_key_file: NetworkKey = None,
    store: Annotated[bool, typer.Option("--store", help="Have a store that keeps publications.")] = False,
    store_pattern: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER", help="The topics that it serves; can be repeated. Default: all."),
    ] = None,
    store_place: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where it keeps them: a folder, or postgresql://…")
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Run a broker until Ctrl-C. SIGHUP reloads rules, tokens, links and certificates; SIGUSR2 drains."""
    host, port = host_and_port(listen) if listen is not None else (None, None)
    given: tuple[Given, ...] = (
        ("listener.host", host, "--listen"),
        ("listener.port", port, "--listen"),
        ("listener.secure", "true" if secure else None, "--secure"),
        ("listener.auth", auth, "--auth"),
        ("listener.allow_open", "true" if allow_open else None, "--allow-open"),
        ("broker.name", name, "--name"),
        *identity_settings(certificate, key, authority),
        ("tokens.file", tokens, "--tokens"),
        ("network.name", network, "--network"),
        ("network.cluster", cluster, "--cluster"),
        ("network.slot", slot, "--slot"),
        ("network.key_file", network_key_file, "--network-key-file"),
        ("network.join", "true" if join else None, "--join"),
        ("discovery.directories", ",".join(directory) if directory else None, "--directory"),
        ("discovery.enabled", "false" if no_discovery else None, "--no-discovery"),
        ("store.enabled", "true" if store else None, "--store"),
        ("store.patterns", ",".join(store_pattern) if store_pattern else None, "--store-pattern"),
        ("store.place", store_place, "--store-place"),
        *link_options(link or []),
        *log_settings(log_level, log_format),
    )
    run_with(config, given)


def run_with(config: Path | None, given: tuple[Given, ...]) -> None:
    """Run a broker with these options on top of the settings, if they have a value."""
    code = _run(config, options_of(given))
    if code:
        raise typer.Exit(code)


def _run(chosen: Path | None, options: list[Option]) -> int:
    settings = settings_from(chosen, options)

    from heliograph.live.loop import run
    from heliograph.live.node import run_broker
    from heliograph.observe.log import NodeLog

    def load() -> Settings:
        """The current settings, found in the same way as at the start."""
        return settings_from(chosen, options)

    log = NodeLog(settings.broker.name, level=settings.log.level, format=settings.log.format)
    return run(run_broker(settings, log, load_settings=load))


def link_options(addresses: list[str]) -> Iterator[Given]:
    """The options of each link, the host first."""
    for address in addresses:
        target = target_of(address, "--link")
        yield "network.links.host", target.host, "--link"
        yield "network.links.port", target.port, "--link"
        yield "network.links.secure", "true" if target.secure else "false", "--link"


def host_and_port(listen: str) -> tuple[str, str]:
    """The two parts of --listen."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise UsageError(f"--listen {listen!r}: write HOST:PORT, such as 127.0.0.1:4717 or [::1]:4717")
    if not (port.isascii() and port.isdecimal() and int(port[:6]) <= 65_535):
        raise UsageError(f"--listen {listen!r}: a port is a number from 0 to 65535; 0 takes a free one")
    return host.removeprefix("[").removesuffix("]"), port
