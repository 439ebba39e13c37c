"""`heliograph subscribe`: publications as lines on standard output, as they arrive.

In:    topic filters.
Out:   one line per publication: `topic payload`, or JSON; each is written at once.
State: none.
Not here: connecting (connection.py), the form of a line (payload.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.remarks import Remarks
from heliograph.cli.shape import examples, say
from heliograph.cli.topic_rights import GrantFiles, show_rights
from heliograph.errors import HeliographError, UsageError
from heliograph.model.subscription import Policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from heliograph.live.subscription import Subscription
    from heliograph.model.publication import Publication


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        name="subscribe",
        help="Print publications as they come, until Ctrl-C.",
        epilog=examples(
            "heliograph subscribe 'sensors/#'",
            "heliograph subscribe 'sensors/+/temperature' alarms --json",
            "heliograph subscribe jobs --group workers --count 1",
            "heliograph subscribe 'orders/#' --durable billing --json",
            "heliograph subscribe 'hosts/#' --where \"disk > 120 and system = 'linux'\"",
        ),
    )(c.with_connection(_subscribe))


def _subscribe(
    there: c.Connection,
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="FILTER...", help="Topics; + is one level, # the rest (the default).")
    ] = None,
    where: Annotated[str, typer.Option("--where", help="What else to ask: \"disk > 120 and system = 'linux'\".")] = "",
    language: Annotated[
        str, typer.Option("--language", help="Of --where: predicates (the default), sql, regex, xpath, tags, integer.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after this many publications.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="End after this many seconds; exit code 1 before --count.")
    ] = None,
    group: Annotated[str, typer.Option("--group", help="Share the filters with the other members of this group.")] = "",
    wide: Annotated[bool, typer.Option("--wide", help="Wait until every broker in reach knows of it.")] = False,
    policy: Annotated[
        Policy | None, typer.Option(help="What happens when this side is too slow; drop_oldest if not given.")
    ] = None,
    echo: Annotated[bool, typer.Option("--echo/--no-echo", help="Whether to get what this session publishes.")] = True,
    durable: Annotated[
        str, typer.Option(metavar="NAME", help="Let stores remember what was printed, and go on there; needs a store.")
    ] = "",
    start: Annotated[
        str, typer.Option("--from", help="With --durable, the first time: first (all that is kept) or next.")
    ] = "",
    secret_file: c.SecretFile = None,
    grant: GrantFiles = None,
) -> None:
    from heliograph.cli.payload import check_filter

    for pattern in filters or []:
        check_filter(pattern)
    if language and not where:
        raise UsageError(f"--language {language} says how to read --where; give --where too")
    if durable and (len(filters or []) > 1 or group):
        raise UsageError("a durable subscription has one filter and no group: give each filter a name of its own")
    if secret_file and not durable:
        raise UsageError("--secret-file goes with --durable: it holds the secret of durable names")
    if start and not durable:
        raise UsageError("--from goes with --durable; `heliograph replay` prints what was stored")
    try:
        how: dict[str, Any] = {"policy": policy, "echo": echo, "group": group, "wide": wide}
        how |= {"where": where, "language": language, "listens": not group}  # it prints, and answers no request
        if durable:
            how |= {"durable": durable, "start": start, "secret": c.shared_secret(secret_file)}
        c.run_until_ended(_work(there, filters or ["#"], how, grant, as_json=as_json, count=count, timeout=timeout))
    except BrokenPipeError:
        # The reader of our output has closed it (`| head`). Python would fail again at exit, so redirect its output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _work(
    there: c.Connection,
    filters: list[str],
    how: dict[str, Any],
    grants: list[Path] | None,
    *,
    as_json: bool,
    count: int | None,
    timeout: float | None,
) -> None:
    import asyncio

    from heliograph.cli.payload import as_json as json_line
    from heliograph.cli.payload import as_text

    line = json_line if as_json else as_text
    async with c.connected(there, name="heliograph subscribe", on_note=Remarks().heard) as client:
        await show_rights(client, filters, grants)
        subscriptions = [await client.subscribe(each, **how) for each in dict.fromkeys(filters)]
        say(f"subscribed to {', '.join(dict.fromkeys(filters))} at {there.place(client)}; Ctrl-C ends")
        source = subscriptions[0] if subscriptions[0].durable else _merged(subscriptions)
        try:
            async with asyncio.timeout(timeout):
                async for publication in source:
                    sys.stdout.write(f"{line(publication)}\n")
                    sys.stdout.flush()
                    if count is not None:
                        count -= 1
                        if count == 0:
                            return
        except TimeoutError:
            if count is not None:
                raise HeliographError(f"{timeout:g} s are over, and {count} of --count did not come") from None


async def _merged(subscriptions: list[Subscription]) -> AsyncIterator[Publication]:
    """The publications of all subscriptions, each once, in each publisher's order."""
    import asyncio

    pile: list[Publication] = []
    news = asyncio.Event()

    async def gather(subscription: Subscription) -> None:
        try:
            async for batch in subscription.batches():
                pile.extend(batch)
                news.set()
        finally:
            news.set()

    tasks = [asyncio.create_task(gather(subscription)) for subscription in subscriptions]
    try:
        while True:
            await news.wait()
            news.clear()
            publications, pile[:] = list(pile), []
            if len(subscriptions) > 1:  # several may deliver one publication, and they are read one after the other
                publications = sorted({each.id: each for each in publications}.values(), key=lambda each: each.id)
            for publication in publications:
                yield publication
            for task in tasks:
                if task.done() and not pile:
                    task.result()  # raises the error that ended it
                    return
    finally:
        for task in tasks:
            task.cancel()
