"""`heliograph bdn`: run a broker directory, or ask a running one what it knows.

In:    settings, with this command's options on top; an administrator's questions.
Out:   a directory until a signal ends it; its brokers and counters as a table or as JSON.
State: none.
Not here: the directory (discovery/brokers/directory.py), running it (live/node.py), searching (discover.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.broker_run import host_and_port
from heliograph.cli.config import Chosen, settings_from
from heliograph.cli.connection import run as run_work
from heliograph.cli.node_options import (
    Authority,
    Given,
    KeptLinks,
    Key,
    LogFormat,
    LogLevel,
    identity_settings,
    log_settings,
    options_of,
)
from heliograph.cli.shape import examples, group
from heliograph.cli.tables import show
from heliograph.errors import HeliographError, UsageError

if TYPE_CHECKING:
    from heliograph.config.load import Settings

app = group("Run a broker directory (BDN), or ask a running one.")

PATIENCE_S = 5.0
COLUMNS = ("broker", "network", "datagrams", "round_trip_us", "island", "place", "geography", "institution")

Where = Annotated[
    str, typer.Option("--at", metavar="HOST:PORT", envvar="HELIOGRAPH_DIRECTORY", help="The directory to ask.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
DEFAULT = "127.0.0.1:4719"


@app.command(
    name="run",
    epilog=examples(
        "heliograph bdn run",
        "heliograph bdn run --listen 127.0.0.1:0 --filter geography=europe --log-format json",
        "heliograph bdn run --listen 0.0.0.0:4719 --private --advertise bdn.example.org:4719 --authority authority.crt",
    ),
)
def run_bdn(
    config: Chosen = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="UDP and TCP; port 0 takes a free one.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The directory's name.")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Pass on signed requests only, and announce itself to brokers.")
    ] = False,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The address under which brokers reach it.")
    ] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=TEXT",
            help="Keep only brokers whose geography or institution begins with TEXT; can be repeated.",
        ),
    ] = None,
    link: KeptLinks = None,
    certificate: Annotated[Path | None, typer.Option(help="The directory's certificate.")] = None,
    key: Key = None,
    authority: Authority = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Run a broker directory until Ctrl-C. SIGHUP reloads filters, links, limits and certificates."""
    host, port = host_and_port(listen) if listen is not None else (None, None)
    filters = _filters(filter or [])
    given: tuple[Given, ...] = (
        ("bdn.host", host, "--listen"),
        ("bdn.port", port, "--listen"),
        ("bdn.name", name, "--name"),
        ("bdn.private", "true" if private else None, "--private"),
        ("bdn.advertise", advertise, "--advertise"),
        ("bdn.geographies", filters["geography"], "--filter"),
        ("bdn.institutions", filters["institution"], "--filter"),
        ("bdn.links", ",".join(link) if link else None, "--link"),
        *identity_settings(certificate, key, authority),
        *log_settings(log_level, log_format),
    )
    code = _run(config, options_of(given))
    if code:
        raise typer.Exit(code)


def _run(chosen: Path | None, options: list[Any]) -> int:
    settings = settings_from(chosen, options)

    from heliograph.discovery.brokers.config import DirectoryConfig
    from heliograph.live.loop import run
    from heliograph.live.node import run_alone
    from heliograph.observe.log import NodeLog

    def load() -> Settings:
        """The current settings, found in the same way as at the start."""
        return settings_from(chosen, options)

    name = settings.of(DirectoryConfig).name
    log = NodeLog(name, level=settings.log.level, format=settings.log.format)
    return run(run_alone(DirectoryConfig, settings, log, name=name, load_settings=load))


def _filters(given: list[str]) -> dict[str, str | None]:
    found: dict[str, list[str]] = {"geography": [], "institution": []}
    for text in given:
        name, equals, value = text.partition("=")
        if name not in found or not equals or not value or "," in value:
            raise UsageError(f"--filter {text!r}: write geography=TEXT or institution=TEXT, one text each")
        found[name].append(value)
    return {name: ",".join(values) or None for name, values in found.items()}


@app.command(epilog=examples("heliograph bdn status", "heliograph bdn status --at 127.0.0.1:4810 --json"))
def status(at: Where = DEFAULT, as_json: AsJson = False) -> None:
    """Show what a directory on this machine knows and did."""
    show(ask_directory(at, "overview")[0], as_json)


@app.command(name="list", epilog=examples("heliograph bdn list"))
def list_brokers(at: Where = DEFAULT, as_json: AsJson = False) -> None:
    """List the brokers that a directory here knows."""
    rows: list[dict[str, Any]] = []
    for page in ask_directory(at, "brokers"):
        rows.extend(page["rows"])
    rows.sort(key=lambda row: (row["round_trip_us"] is None, row["round_trip_us"] or 0, row["broker"]))
    show(rows if as_json else [{**row, "place": row["address"]} for row in rows], as_json, COLUMNS)


def ask_directory(at: str, question: str) -> list[Any]:
    """The directory's answer; lists are fetched in pages."""
    from heliograph.discovery.brokers.config import address_of
    from heliograph.model.hosts import is_loopback

    address = address_of(at)
    if address is None:
        raise UsageError(f"--at {at!r}: write HOST:PORT, such as {DEFAULT}")
    if not is_loopback(address[0]):
        raise UsageError(f"--at {at!r}: a directory answers its own machine only; run this command there")
    pages: list[Any] = []

    async def work() -> None:
        pages.extend(await _conversation(address, question))

    run_work(work())
    return pages


async def _conversation(address: tuple[str, int], question: str) -> list[Any]:
    import asyncio

    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(*address)
            try:
                pages = [await _exchange(reader, writer, address[1], question, 0)]
                while (rows := pages[-1].get("rows")) and pages[-1]["start"] + len(rows) < pages[-1]["total"]:
                    start = pages[-1]["start"] + len(rows)
                    pages.append(await _exchange(reader, writer, address[1], question, start))
                return pages
            finally:
                writer.close()
    except TimeoutError:
        raise HeliographError(f"{address[0]}:{address[1]} does not answer; is it a directory?") from None
    except OSError as error:
        why = error.strerror or error
        raise HeliographError(
            f"no directory at {address[0]}:{address[1]} ({why}); `heliograph bdn run` starts one"
        ) from None


async def _exchange(reader: Any, writer: Any, port: int, question: str, start: int) -> Any:
    """One question and its answer."""
    import json

    from heliograph.live.runtime import local_token
    from heliograph.wire.frames import LENGTH, Frame, ServiceFlag, service
    from heliograph.wire.limits import FRAME_BYTES_MAX

    asked = {"question": question, "token": local_token(port) or "", "start": start}
    writer.write(service(b"admin", json.dumps(asked).encode(), 1))
    head = await reader.readexactly(LENGTH.size)
    length = LENGTH.unpack(head)[0]
    if length > FRAME_BYTES_MAX:
        raise HeliographError("that is not a directory")
    frame = Frame(head + await reader.readexactly(length))
    answer = json.loads(frame.payload)
    if frame.flags & ServiceFlag.REFUSAL:
        raise HeliographError(f"{answer.get('text') or answer.get('reason')}")
    return answer
