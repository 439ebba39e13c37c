"""`heliograph discover resource`: the resources that match, once or as they change.

In:    a condition, a model, an order.
Out:   a table, or JSON; with --watch one line for each change.
State: none.
Not here: the client's side of resources (live/resources.py), registering them (cli/resource.py).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.remarks import Remarks
from heliograph.cli.shape import FAILED, examples, say
from heliograph.cli.tables import show
from heliograph.discovery.resources.watching import ANEW
from heliograph.errors import UsageError

NEARNESS = {"me": "near", "together": "together"}  # --near, and the order that it means


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        name="resource",
        help="Find resources.",
        epilog=examples(
            "heliograph discover resource --where \"memory > 4 and system = 'linux'\"",
            "heliograph discover resource --where 'load < 1' --best 10 --order 'memory desc'",
            "heliograph discover resource --where 'memory > 4' --watch",
        ),
    )(c.with_connection(_resource))


def _resource(
    there: c.Connection,
    where: Annotated[str, typer.Option(help="What a resource must offer.")] = "true",
    model: Annotated[str, typer.Option(help="static or dynamic.")] = "dynamic",
    best: Annotated[int, typer.Option(help="Only this many, the best ones; 0: all.", min=0)] = 0,
    order: Annotated[str, typer.Option(help="An attribute, perhaps with desc: 'load', 'memory desc'.")] = "",
    near: Annotated[
        str, typer.Option(help="me: near this client's broker; together: near one another.", metavar="me|together")
    ] = "",
    max_age: Annotated[
        float,
        typer.Option(help="Share answers to earlier requests that are at most this many seconds old; 0: none.", min=0),
    ] = 0.0,
    deliver: Annotated[str | None, typer.Option(help="similarity, normal or direct.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds to wait for hosting brokers.", min=0.01)] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, and print every change.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Who answered, after how long.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, or one per change.")] = False,
) -> None:
    order = _order(order, near)
    if watch and (best or order or explain or max_age or (deliver, deadline) != (None, None)):
        raise UsageError("--watch reports every change of all that match: use it with --where, --model and --json only")
    failed: list[bool] = []
    words: dict[str, Any] = {"model": model}  # as typed: the client and the broker say what is wrong with them
    how = words | {"deliver": deliver, "deadline": deadline}

    async def find() -> None:
        async with c.connected(there, name="heliograph discover resource") as client:
            answer = await client.discover_resources(where, best=best, order=order, max_age=max_age, **how)
            rows = [asdict(each) for each in answer]
            said = {"complete": answer.complete, "missing": list(answer.missing), **answer.details}
            if as_json:
                show({"resources": rows, **said}, True)
            else:
                show(rows, False, ("id", "name", "host", "values", "age_ms"))
                if not answer.complete:
                    say(f"heliograph: not complete: no answer from {', '.join(answer.missing) or 'some brokers'}")
                if explain:
                    show(said, False)
            failed.extend([True] if not answer.complete else [])

    async def follow() -> None:
        async with (
            c.connected(there, name="heliograph discover resource", on_note=Remarks().heard) as client,
            client.watch_resources(where, **words) as changes,
        ):
            async for change in changes:
                _print(asdict(change), as_json)

    if watch:
        c.run_until_ended(follow())
        return
    c.run(find())
    if failed:
        raise typer.Exit(FAILED)


def _order(order: str, near: str) -> str:
    """One order of the two options."""
    if not near:
        return order
    if order:
        raise UsageError("--order and --near both say which ones are the best; give one of them")
    if near not in NEARNESS:
        raise UsageError(f"--near is me or together, not {near[:64]!r}")
    return NEARNESS[near]


def _print(change: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show(change, True)
    else:
        values = change["values"]
        if change["kind"] == ANEW:
            print("anew      changes were lost; everything that matches follows", flush=True)
            return
        text = "" if values is None else "  " + " ".join(f"{name}={value}" for name, value in values.items())
        print(f"{change['kind']:<9} {change['name'] or change['id']} at {change['host']}{text}", flush=True)
