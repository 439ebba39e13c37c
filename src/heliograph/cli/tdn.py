"""`heliograph tdn`: run a topic directory, list those that answer, query one on this machine, verify a stopped one.

In:    settings, with this command's options on top; an administrator's questions.
Out:   a directory until a signal ends it; directories and counters as a table or as JSON; problems of a repository.
State: none.
Not here: the directory (discovery/topics/directory.py), running it (live/node.py), searching (discover_topic.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.bdn import ask_directory
from heliograph.cli.broker_run import host_and_port
from heliograph.cli.config import Chosen, settings_from
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
    refuse_password,
)
from heliograph.cli.shape import FAILED, examples, group, say
from heliograph.cli.tables import show
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.config.load import Settings

app = group("Run a topic directory (TDN), or ask for them.")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
DEFAULT = "127.0.0.1:4720"


@app.command(
    name="run",
    epilog=examples(
        "heliograph tdn run --link 127.0.0.1:4717 --certificate tdn-1.crt --key tdn-1.key --authority authority.crt",
        "heliograph tdn run --place /var/lib/heliograph/topics --link broker.example.org:4717",
    ),
)
def run_tdn(
    config: Chosen = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="For administrators' questions; port 0 takes a free one.")
    ] = None,
    place: Annotated[str | None, typer.Option(help="A folder for SQLite, or postgresql://….")] = None,
    link: KeptLinks = None,
    certificate: Annotated[Path | None, typer.Option(help="The directory's certificate, with role directory.")] = None,
    key: Key = None,
    authority: Authority = None,
    revoked: Annotated[Path | None, typer.Option(help="Certificates that the authority took back.")] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Run a topic directory until Ctrl-C. SIGHUP reloads policies, limits and certificates."""
    host, port = host_and_port(listen) if listen is not None else (None, None)
    given: tuple[Given, ...] = (
        ("tdn.host", host, "--listen"),
        ("tdn.port", port, "--listen"),
        ("tdn.place", place, "--place"),
        ("tdn.links", ",".join(link) if link else None, "--link"),
        *identity_settings(certificate, key, authority),
        ("tls.revoked", revoked, "--revoked"),
        *log_settings(log_level, log_format),
    )
    code = _run(config, options_of(given))
    if code:
        raise typer.Exit(code)


def _run(chosen: Path | None, options: list[Any]) -> int:
    settings = settings_from(chosen, options)
    if not settings.tls.is_complete:
        raise UsageError("a topic directory signs: give --certificate (with role directory), --key and --authority")

    from heliograph.discovery.topics.config import TopicDirectoryConfig
    from heliograph.live.loop import run
    from heliograph.live.node import run_alone
    from heliograph.observe.log import NodeLog

    def load() -> Settings:
        """The current settings, found in the same way as at the start."""
        return settings_from(chosen, options)

    log = NodeLog("tdn", level=settings.log.level, format=settings.log.format)
    return run(run_alone(TopicDirectoryConfig, settings, log, name="tdn", load_settings=load))


@app.command(name="list", epilog=examples("heliograph tdn list"))
@c.with_connection
def list_directories(there: c.Connection, as_json: AsJson = False) -> None:
    """List the topic directories that answer."""

    async def work() -> None:
        async with c.connected(there, name="heliograph tdn") as client:
            rows = [{"directory": name} for name in await client.topic_directories()]
        show(rows, as_json, ("directory",))

    c.run(work())


@app.command(epilog=examples("heliograph tdn status", "heliograph tdn status --at 127.0.0.1:4820 --json"))
def status(
    at: Annotated[str, typer.Option("--at", metavar="HOST:PORT", help="The directory to ask.")] = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show what a topic directory on this machine keeps and did."""
    show(ask_directory(at, "overview")[0], as_json)


@app.command(epilog=examples("heliograph tdn verify --place heliograph-topics --authority authority.crt"))
def verify(
    authority: Annotated[Path, typer.Option(help="The authority that signed certificates.")],
    place: Annotated[str, typer.Option(help="A folder for SQLite, or postgresql://….")] = "heliograph-topics",
) -> None:
    """Check every topic of a directory that is stopped: the file, checksums and both signatures."""
    from heliograph.live.topic_check import check_repository

    refuse_password(place, "--place")
    checked, problems = check_repository(place, authority.read_bytes())
    for problem in problems:
        print(problem)
    say(f"{checked} topics checked, {len(problems)} problems")
    if problems:
        raise typer.Exit(FAILED)
