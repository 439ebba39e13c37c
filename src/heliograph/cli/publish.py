"""`heliograph publish`: one publication, one per line of standard input, or all of it as one.

In:    a topic and a payload, or `-` for standard input.
Out:   publications; when the command ends, the broker has routed all of them.
State: none.
Not here: connecting (connection.py), JSON lines (payload.py), standard input (standard_input.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.remarks import Remarks
from heliograph.cli.shape import examples
from heliograph.cli.topic_rights import GrantFiles, show_rights
from heliograph.errors import HeliographError, NotConnectedError, UsageError

if TYPE_CHECKING:
    from heliograph.live.client import Client

STDIN = "-"

Batch = tuple[str, list[bytes], dict[str, Any]]
"""Topic, payloads and headers: what is published at once."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        name="publish",
        help="Publish on a topic.",
        epilog=examples(
            "heliograph publish sensors/7 21.5",
            "tail -f log | heliograph publish logs/web -",
            "heliograph publish orders/7 '3 lamps' --reliable",
            "heliograph publish photos/1 - --whole --header type=image/png < photo.png",
            "heliograph subscribe 'a/#' --json | heliograph publish a - --json --url heliograph://other:4717",
        ),
    )(c.with_connection(_publish))


def _publish(
    there: c.Connection,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Where to publish; with --json, for lines that name no topic.")
    ],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="PAYLOAD", help="What to publish, after -- if it begins with -; - reads lines of standard input."
        ),
    ],
    whole: Annotated[bool, typer.Option("--whole", help="With -: all of standard input is one publication.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With -: lines as `subscribe --json` prints them. Ends with a JSON summary.")
    ] = False,
    header: Annotated[list[str] | None, typer.Option("--header", help="A header, key=value; can be repeated.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Publish the payload this many times.")] = 1,
    hold: Annotated[bool, typer.Option("--hold", help="Be ready to wait for slow consumers.")] = False,
    reliable: Annotated[
        bool, typer.Option("--reliable", help="End only when a store has everything on disk; needs a store.")
    ] = False,
    publisher: Annotated[
        str, typer.Option(metavar="NAME", help="Keep the numbers of this publisher in a file, so that it goes on.")
    ] = "",
    grant: GrantFiles = None,
) -> None:
    from heliograph.cli.payload import check_topic
    from heliograph.cli.payload import header as parse_header

    check_topic(topic)
    headers = dict(parse_header(text) for text in header or [])
    if whole and (payload != STDIN or as_json):
        raise UsageError("--whole goes with - and without --json")
    if count > 1 and payload == STDIN:
        raise UsageError("--count goes with a payload, not with -")
    if payload != STDIN:
        batches = _repeated(topic, payload.encode(errors="surrogateescape"), headers, count)
    elif whole:
        batches = _whole(topic, headers)
    elif as_json:
        batches = _json_lines(topic, headers)
    else:
        batches = _lines(topic, headers)
    options: dict[str, Any] = {"hold": hold, "publisher": publisher}
    if payload == STDIN:
        options["on_note"] = Remarks().heard
    c.run(_work(there, batches, topic, grant, options, reliable=reliable, as_json=as_json))


async def _work(
    there: c.Connection,
    batches: AsyncIterator[Batch],
    topic: str,
    grants: list[Path] | None,
    options: dict[str, Any],
    *,
    reliable: bool,
    as_json: bool,
) -> None:
    async with c.connected(there, name="heliograph publish", **options) as client:
        await show_rights(client, [topic], grants)
        count = 0
        try:
            async for batch in batches:
                count += await _send(client, batch, reliable)
        finally:  # lines read before a bad one are published
            try:
                await client.flush()
            except NotConnectedError as error:
                told = client.report()
                left = told["published"] - told["confirmed"]
                raise HeliographError(
                    f"{error}; {left} of {told['published']} publications were not confirmed"
                ) from None
    if as_json:
        import json

        print(json.dumps({"published": count, "stored": count} if reliable else {"published": count}))


async def _send(client: Client, batch: Batch, reliable: bool) -> int:
    topic, payloads, headers = batch
    await client.publish_batch(topic, payloads, headers=headers or None, reliable=reliable, wait=False)
    return len(payloads)


async def _repeated(topic: str, payload: bytes, headers: dict[str, Any], count: int) -> AsyncIterator[Batch]:
    while count > 0:
        batch = min(count, 256)
        yield topic, [payload] * batch, headers
        count -= batch


async def _whole(topic: str, headers: dict[str, Any]) -> AsyncIterator[Batch]:
    from heliograph.cli.standard_input import read_whole, standard_input

    yield topic, [await read_whole(standard_input())], headers


async def _lines(topic: str, headers: dict[str, Any]) -> AsyncIterator[Batch]:
    from heliograph.cli.standard_input import read_lines, standard_input

    async for lines in read_lines(standard_input()):
        yield topic, lines, headers


async def _json_lines(topic: str, headers: dict[str, Any]) -> AsyncIterator[Batch]:
    from heliograph.cli.payload import from_json
    from heliograph.cli.standard_input import read_lines, standard_input

    number = 0
    async for lines in read_lines(standard_input()):
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                chosen, payload, own = from_json(line, topic, headers)
            except UsageError as error:
                raise UsageError(f"standard input, line {number}: {error}") from None
            yield chosen, [payload], own
