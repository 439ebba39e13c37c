"""`heliograph replay`: stored publications, as lines; `heliograph subscription`: durable subscriptions.

In:    topic filters; positions, times; names.
Out:   one line per publication, with its store and position in JSON; durable subscriptions as a table or as JSON.
State: none.
Not here: connecting (connection.py), durable subscribing (subscribe.py), stores (store.py).
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.remarks import Remarks
from heliograph.cli.shape import examples, group, say
from heliograph.cli.tables import show
from heliograph.errors import HeliographError, UsageError

subscriptions = group("Look at durable subscriptions, forget or release one.")
COLUMNS = ("name", "entity", "filter", "lag", "position", "connected", "store", "where")
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name it was subscribed with.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        name="replay",
        help="Print what stores have kept, oldest first.",
        epilog=examples(
            "heliograph replay 'orders/#' --json",
            "heliograph replay 'sensors/#' --since 2026-03-01T08:00:00+01:00 --pace 10",
            "heliograph replay 'orders/#' --position orders=1200 --count 10",
            "heliograph replay 'hosts/#' --where 'disk > 120' --follow",
        ),
    )(c.with_connection(_replay))
    app.add_typer(subscriptions, name="subscription")


def _replay(
    there: c.Connection,
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="Topics; # is everything (the default).")] = "#",
    where: Annotated[str, typer.Option("--where", help="What else to ask: \"disk > 120 and system = 'linux'\".")] = "",
    language: Annotated[
        str, typer.Option("--language", help="Of --where: predicates (the default), sql, regex, xpath, tags, integer.")
    ] = "",
    store: Annotated[str, typer.Option(metavar="NAME", help="Read this store only.")] = "",
    position: Annotated[
        list[str] | None, typer.Option(metavar="STORE=N", help="Begin at this position; can be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin with what was stored then: a date and time, or seconds.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="End with what was stored then.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is stored later, until Ctrl-C.")] = False,
    pace: Annotated[
        float, typer.Option(min=0, help="0: as fast as possible; 1: as it was stored; 2: twice as fast.")
    ] = 0.0,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after this many publications.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, with store and position.")] = False,
) -> None:
    from heliograph.cli.payload import check_filter

    check_filter(filter)
    if language and not where:
        raise UsageError(f"--language {language} says how to read --where; give --where too")
    begin = dict(_position(text) for text in position or [])
    how: dict[str, Any] = {"where": where, "language": language, "store": store, "follow": follow, "pace": pace}
    how |= {"since": _moment("--since", since), "until": _moment("--until", until)}
    try:
        c.run_until_ended(_print(there, filter, begin, how, count, as_json))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _print(
    there: c.Connection, filter: str, begin: dict[str, int], how: dict[str, Any], count: int | None, as_json: bool
) -> None:
    from heliograph.cli.payload import as_json as json_line
    from heliograph.cli.payload import as_text

    line = json_line if as_json else as_text
    async with c.connected(there, name="heliograph replay", on_note=Remarks().heard) as client:
        if begin:
            ids = {name: info.id for info in await client.stores() for name in (info.id, info.name)}
            unknown = [name for name in begin if name not in ids]
            if unknown:
                raise HeliographError(f"there is no store {unknown[0]!r}; `heliograph store list` shows them")
            how["position"] = {ids[name]: position for name, position in begin.items()}
        async with client.replay(filter, **how) as replay:
            async for publication in replay:
                sys.stdout.write(f"{line(publication)}\n")
                if not replay.waiting:
                    sys.stdout.flush()
                if count is not None:
                    count -= 1
                    if count == 0:
                        return
            if replay.lost:
                say(f"heliograph: {replay.lost} positions could not be read: they are damaged or no longer kept")


@subscriptions.command(name="list", help="Show your durable subscriptions; an administrator sees all.")
@c.with_connection
def _list(there: c.Connection, secret_file: c.SecretFile = None, as_json: AsJson = False) -> None:
    secret = c.shared_secret(secret_file)

    async def work() -> None:
        async with c.connected(there, name="heliograph subscription", as_admin=True) as client:
            show([info._asdict() for info in await client.durable_subscriptions(secret=secret)], as_json, COLUMNS)

    c.run(work())


@subscriptions.command(name="drop", help="Forget a durable subscription at all stores.")
@c.with_connection
def _drop(
    there: c.Connection,
    name: Name,
    owner: Annotated[
        str, typer.Option("--of", metavar="ENTITY", help="For administrators: whose it is, such as anonymous.")
    ] = "",
    secret_file: c.SecretFile = None,
    as_json: AsJson = False,
) -> None:
    secret = c.shared_secret(secret_file)

    async def work() -> None:
        async with c.connected(there, name="heliograph subscription", as_admin=bool(owner)) as client:
            _tell(name, "dropped", await client.drop_subscription(name, entity=owner, secret=secret), as_json)

    c.run(work())


@subscriptions.command(
    name="release",
    help="For administrators: let the next client without credentials that uses a name have it, where it was left.",
)
@c.with_connection
def _release(there: c.Connection, name: Name, as_json: AsJson = False) -> None:
    async def work() -> None:
        async with c.connected(there, name="heliograph subscription", as_admin=True) as client:
            _tell(name, "released", await client.release_subscription(name), as_json)

    c.run(work())


def _tell(name: str, done: str, stores: int, as_json: bool) -> None:
    if not stores:
        raise HeliographError(f"there is no durable subscription {name!r}: `heliograph subscription list` shows all")
    if as_json:
        show({done: stores}, True)
    else:
        say(f"{done} at {stores} store{'s' if stores > 1 else ''}")


def _position(text: str) -> tuple[str, int]:
    store, equals, number = text.rpartition("=")
    if not equals or not store or not number.isdecimal():
        raise UsageError(f"--position {text!r}: write STORE=N, such as orders=1200")
    return store, int(number)


def _moment(option: str, text: str | None) -> float | None:
    """Seconds since 1970; a date and time without a zone is in this machine's zone."""
    from datetime import datetime

    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise UsageError(f"{option} {text!r}: write 2026-03-01T08:00:00+01:00, or seconds since 1970") from None
