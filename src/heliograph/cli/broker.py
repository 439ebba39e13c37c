"""`heliograph broker`: run one, or ask a running one.

In:    an administrator's request.
Out:   the broker's answer, as a table or as JSON.
State: none.
Not here: running a broker (broker_run.py), its links to others (broker_link.py), answering (services/admin.py), the
          administrator's credentials (connection.py).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heliograph.cli import broker_link
from heliograph.cli.broker_run import run_broker
from heliograph.cli.connection import Connection, ask, ask_at, connected, with_connection
from heliograph.cli.connection import run as run_work
from heliograph.cli.shape import counted, examples, fail, group, say
from heliograph.cli.tables import show

app = group("Run a broker, or ask a running one.")
app.command(
    name="run",
    epilog=examples(
        "heliograph broker run",
        "heliograph broker run --listen 127.0.0.1:0 --log-format json",
        "heliograph broker run --listen 0.0.0.0:4717 --secure --auth certificate --certificate b.crt --key b.key "
        "--authority authority.crt",
        "heliograph broker run --listen 127.0.0.1:0 --name b --network-key-file network.key --link 127.0.0.1:4717",
        "heliograph broker run --listen 127.0.0.1:0 --name c --network-key-file network.key --join",
    ),
)(run_broker)

app.add_typer(broker_link.app, name="link")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]

# The columns for people; --json has everything.
_LINK_COLUMNS = (
    "link", "entity", "name", "address", "transport", "subscriptions", "publications", "deliveries", "dropped",
    "backlog_bytes",
)  # fmt: skip


@app.command()
@with_connection
def status(there: Connection, as_json: AsJson = False) -> None:
    """Show what a running broker is doing."""
    show(ask(there, {"do": "report", "question": "overview"}), as_json)


@app.command()
@with_connection
def links(there: Connection, as_json: AsJson = False) -> None:
    """List a broker's links, and how far behind each is."""
    show(_ask_rows(there, "links"), as_json, _LINK_COLUMNS)
    if not as_json:
        neighbours = ask(there, {"do": "report", "question": "map"})["neighbours"]
        if neighbours:
            print("\nneighbours (other brokers)")
            show(neighbours, as_json, broker_link.COLUMNS)


@app.command()
@with_connection
def subscriptions(there: Connection, as_json: AsJson = False) -> None:
    """List a broker's subscriptions."""
    show(_ask_rows(there, "subscriptions"), as_json)


@app.command(epilog=examples("heliograph broker drain --grace-ms 30000"))
@with_connection
def drain(
    there: Connection,
    grace_ms: Annotated[int | None, typer.Option(min=0, help="How long clients have to leave.")] = None,
) -> None:
    """Drain a broker: its clients leave, then it ends."""
    place, _ = ask_at(there, {"do": "drain"} if grace_ms is None else {"do": "drain", "grace_ms": grace_ms})
    say(f"{place}: draining")


@app.command()
@with_connection
def reload(there: Connection) -> None:
    """Have a broker read its settings again."""
    place, answer = ask_at(there, {"do": "reload"})
    if not answer["ok"]:
        fail(f"{place}: {answer['reason']}: the old settings stay in force; the broker's log lists the problems")
    say(
        f"{place}: settings reloaded, {counted(answer['rules'], 'rule')}, {counted(answer['tokens'], 'token')} "
        f"and {counted(answer['links'], 'link')} to brokers"
    )
    say(f"{place}: changed and in force: {', '.join(answer.get('taken', ())) or 'nothing'}")
    if answer["restart"]:
        say(f"{place}: {', '.join(answer['restart'])} changed too, and will be in force after a restart")


def _ask_rows(there: Connection, question: str) -> list[dict[str, Any]]:
    """A report that may not fit in one answer, page by page. Rows that change meanwhile may be missed or doubled."""
    rows: list[dict[str, Any]] = []

    async def work() -> None:
        async with connected(there, name="heliograph broker", as_admin=True) as client:
            while True:
                page = await client.ask("admin", {"do": "report", "question": question, "start": len(rows)})
                rows.extend(page["rows"])
                if not page["rows"] or len(rows) >= page["total"]:
                    return

    run_work(work())
    return rows
