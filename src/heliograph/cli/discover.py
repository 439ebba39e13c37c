"""`heliograph discover`: find the nearest broker, and explain the choice.

In:    options over the section [search] of the settings; certificates, if answers must be signed.
Out:   the broker's address; with --explain all candidates and what was tried; with --watch every change.
State: none.
Not here: the search (live/discover.py), the options as data (client/discover.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import discover_resource, discover_topic
from heliograph.cli.config import Chosen
from heliograph.cli.connection import run, search_options
from heliograph.cli.shape import FAILED, examples, group, say
from heliograph.cli.tables import show
from heliograph.maps.cells import cell, table

if TYPE_CHECKING:
    from heliograph.client.discover import Discover
    from heliograph.discovery.brokers.result import Finding, SearchResult
    from heliograph.trust.keyring import Keyring

app = group("Find brokers, topics and resources.")
discover_topic.register(app)
discover_resource.register(app)

COLUMNS = ("broker", "network", "round_trip_ms", "estimate_ms", "cpu", "memory", "clients", "links", "score", "verdict")


@app.callback()
def _group() -> None:
    """Find brokers, topics and resources."""


@app.command(
    name="broker",
    epilog=examples(
        "heliograph discover broker",
        "heliograph discover broker --explain --bdn bdn.example.org:4719",
        "heliograph discover broker --network plant",
        "heliograph discover broker --bdn example.org --json",
        "heliograph discover broker --watch --interval 5",
    ),
)
def find_broker(
    explain: Annotated[bool, typer.Option("--explain", help="All candidates, why, and what was tried.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON object, or one per change.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again; print when the choice changes.")
    ] = False,
    network: Annotated[
        str | None, typer.Option(envvar="HELIOGRAPH_NETWORK", help="Only brokers of the network of this name.")
    ] = None,
    interval: Annotated[float, typer.Option(help="With --watch: seconds between searches.", min=0.1)] = 10.0,
    bdn: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A directory to ask, or a domain that names its own; can be repeated. $HELIOGRAPH_BDNS",
        ),
    ] = None,
    broker: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A broker to fall back on; can be repeated.")
    ] = None,
    multicast: Annotated[
        bool | None, typer.Option("--multicast/--no-multicast", help="Ask the multicast group too.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait for answers if none comes.", min=0.01)] = None,
    config: Chosen = None,
    authority: Annotated[
        Path | None, typer.Option(envvar="HELIOGRAPH_AUTHORITY", help="Believe only answers that it vouches for.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(envvar="HELIOGRAPH_CERTIFICATE", help="The own certificate, to sign requests.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(envvar="HELIOGRAPH_KEY", help="The own certificate's private key.")
    ] = None,
) -> None:
    """Find the nearest broker that is not too busy."""
    options = _options(config, network, bdn, broker, multicast, timeout)
    keyring = _keyring(authority, certificate, key)
    if watch:
        run(_watch(options, keyring, interval, explain, as_json))
        return
    found: list[SearchResult] = []
    run(_search(options, keyring, found))
    _print(found[0], explain, as_json)
    if not found[0].found:
        raise typer.Exit(FAILED)


def _options(
    config: Path | None,
    network: str | None,
    bdns: list[str] | None,
    brokers: list[str] | None,
    multicast: bool | None,
    timeout: float | None,
) -> Discover:
    from dataclasses import replace

    given: dict[str, Any] = {}
    if network is not None:
        given["network"] = network
    if bdns:
        given["bdns"] = tuple(bdns)
    if brokers:
        given["brokers"] = tuple(brokers)
    if multicast is not None:
        given["multicast"] = multicast
    if timeout is not None:
        given["timeout_ms"] = max(1, round(timeout * 1_000))
    options = replace(search_options(config), **given)
    options.check()
    return options


def _keyring(authority: Path | None, certificate: Path | None, key: Path | None) -> Keyring | None:
    if authority is None:
        return None
    from heliograph.config.keyring_files import load_keyring
    from heliograph.trust.config import TlsConfig

    paths = {"authority": authority, "certificate": certificate, "key": key}
    return load_keyring(TlsConfig(**{name: str(path) for name, path in paths.items() if path is not None}))


async def _search(options: Discover, keyring: Keyring | None, found: list[SearchResult]) -> None:
    from heliograph.live.discover import discover

    found.append(await discover(options, keyring=keyring))


async def _watch(options: Discover, keyring: Keyring | None, interval: float, explain: bool, as_json: bool) -> None:
    import asyncio

    last: tuple[str, tuple[str, ...]] | None = None
    while True:
        found: list[SearchResult] = []
        await _search(options, keyring, found)
        chosen = (found[0].broker, found[0].urls)
        if chosen != last:
            last = chosen
            _print(found[0], explain, as_json)
            sys.stdout.flush()
        await asyncio.sleep(interval)


def _print(result: SearchResult, explain: bool, as_json: bool) -> None:
    if as_json:
        show(result.as_dict(), True)
        return
    out = print if result.found else say
    out(f"{result.urls[0]}  {cell(result.text)}" if result.found else f"heliograph: {result.text}")
    for line in _explained(result) if explain or not result.found else ():
        out(line)


def _explained(result: SearchResult) -> Iterator[str]:
    if result.findings:
        yield ""
        yield from table([_row(finding) for finding in result.findings], COLUMNS)
        yield ""
    yield "asked:"
    for asked in result.tried or ("no party",):
        yield f"  {cell(asked)}"
    if times := result.times_ms:
        yield "times since the start: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in times.items())


def _row(finding: Finding) -> dict[str, Any]:
    usage, total = finding.usage, finding.usage["memory_total"]
    trip = finding.round_trip_ms
    return {
        "broker": finding.broker,
        "network": finding.network,
        "round_trip_ms": "" if trip is None else f"{trip:.2f}",
        "estimate_ms": f"{finding.delay_ms:.1f}±{finding.delay_error_ms:.1f}",
        "cpu": f"{usage['cpu_permille'] / 10:.0f} %" if total else "",  # it has just started, without a report yet
        "memory": f"{100 * usage['memory_used'] // total} %" if total else "",
        "clients": usage["connections"],
        "links": usage["links"],
        "score": f"{finding.score:.2f}",
        "verdict": finding.verdict + (" (relayed)" if finding.relayed else ""),
    }
