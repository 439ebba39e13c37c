"""`heliograph broker`: run one, or ask a running one.

In:    an administrator's wish.
Out:   the broker's answer, as a table or as JSON.
State: none.
Not here: running a broker (broker_run.py), answering (services/admin.py), who the administrator is (connection.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from heliograph.cli.broker_run import run_broker
from heliograph.cli.connection import Connection, administrator, connected, with_connection
from heliograph.cli.connection import run as run_work
from heliograph.cli.shape import examples, fail, group, say

app = group("Run a broker, or ask a running one.")
app.command(
    name="run",
    epilog=examples(
        "heliograph broker run",
        "heliograph broker run --listen 127.0.0.1:0 --log-format json",
        "heliograph broker run --listen 0.0.0.0:4717 --secure --auth certificate --certificate b.crt --key b.key "
        "--authority authority.crt",
    ),
)(run_broker)

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]

# What is shown of a link to people; --json has everything.
_LINK_COLUMNS = (
    "link", "entity", "name", "address", "transport", "subscriptions", "publications", "deliveries", "dropped",
    "backlog_bytes",
)  # fmt: skip


@app.command()
@with_connection
def status(there: Connection, as_json: AsJson = False) -> None:
    """Show what a running broker is doing."""
    _show(_ask(there, {"do": "report", "question": "overview"}), as_json)


@app.command()
@with_connection
def links(there: Connection, as_json: AsJson = False) -> None:
    """List a broker's links, and how far behind each is."""
    _show(_ask_rows(there, "links"), as_json, _LINK_COLUMNS)


@app.command()
@with_connection
def subscriptions(there: Connection, as_json: AsJson = False) -> None:
    """List a broker's subscriptions."""
    _show(_ask_rows(there, "subscriptions"), as_json)


@app.command(epilog=examples("heliograph broker drain --grace-ms 30000"))
@with_connection
def drain(
    there: Connection,
    grace_ms: Annotated[int | None, typer.Option(min=0, help="How long clients have to leave.")] = None,
) -> None:
    """Have a broker let its clients go and end."""
    _ask(there, {"do": "drain"} if grace_ms is None else {"do": "drain", "grace_ms": grace_ms})
    say(f"{there.url}: draining")


@app.command()
@with_connection
def reload(there: Connection) -> None:
    """Have a broker read its settings anew."""
    answer = _ask(there, {"do": "reload"})
    if not answer["ok"]:
        fail(f"{there.url}: {answer['reason']}: the old settings stay in force; the broker's log lists the problems")
    say(f"{there.url}: settings reloaded, {answer['rules']} rules and {answer['tokens']} tokens")


def _ask(there: Connection, wish: dict[str, Any]) -> Any:
    answers: list[Any] = []

    async def work() -> None:
        async with connected(there, name="heliograph broker", **administrator(there)) as client:
            answers.append(await client.ask("admin", wish))

    run_work(work())
    return answers[0]


def _ask_rows(there: Connection, question: str) -> list[dict[str, Any]]:
    """A report that may not fit one answer, page by page. What changes meanwhile may be missed or doubled."""
    rows: list[dict[str, Any]] = []

    async def work() -> None:
        async with connected(there, name="heliograph broker", **administrator(there)) as client:
            while True:
                page = await client.ask("admin", {"do": "report", "question": question, "start": len(rows)})
                rows.extend(page["rows"])
                if not page["rows"] or len(rows) >= page["total"]:
                    return

    run_work(work())
    return rows


def _show(answer: Any, as_json: bool, columns: Sequence[str] = ()) -> None:
    if as_json:
        import json

        print(json.dumps(answer))
    elif isinstance(answer, dict):
        width = max((len(name) for name in answer), default=0)
        for name, value in answer.items():
            print(f"{name:<{width}}  {_cell(value)}")
    elif isinstance(answer, list):
        _table(answer, columns)
    else:
        print(_cell(answer))


def _table(rows: list[dict[str, Any]], columns: Sequence[str]) -> None:
    chosen = columns or (list(rows[0]) if rows else [])
    cells = [list(chosen), *([_cell(row.get(column)) for column in chosen] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(chosen))]
    for line in cells:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    """A value for people. What a peer chose (a name, a topic) may hold anything, so nothing unprintable passes."""
    from heliograph.cli.payload import readable

    if isinstance(value, dict):
        text = ", ".join(f"{name} {count}" for name, count in value.items())
    elif isinstance(value, list):
        text = ",".join(str(part) for part in value)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    else:
        text = "" if value is None else str(value)
    return readable(text.encode()) or "-"
