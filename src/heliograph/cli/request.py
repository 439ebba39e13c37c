"""`heliograph request` and `heliograph reply`: send a request to the subscribers of a topic, and answer requests.

In:    a topic and a payload; or a command that turns requests into answers.
Out:   the answer on standard output; or answers to requesters.
State: none.
Not here: connecting (connection.py), the form of a line (payload.py), answers and inboxes (client/inquiries.py).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.remarks import Remarks
from heliograph.cli.shape import examples, say
from heliograph.errors import HeliographError, UsageError

if TYPE_CHECKING:
    from heliograph.live.client import Client
    from heliograph.model.publication import Publication

STDIN = "-"
NOT_STARTED = 127  # the shells' code for a command that cannot be started


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command(
        name="request",
        help="Ask the subscribers of a topic, and print the answer. If the replier's command failed, so does this.",
        epilog=examples(
            "heliograph request services/time ''",
            "heliograph request services/resize - --timeout 30 < photo.png > small.png",
            "heliograph request services/time '' --json",
        ),
    )(c.with_connection(_request))
    app.command(
        name="reply",
        help="Answer requests on a topic, until Ctrl-C.",
        epilog=examples(
            "heliograph reply services/time --command date",
            "heliograph reply services/count --command 'wc -c' --group counters",
            "heliograph reply services/ping --echo",
        ),
    )(c.with_connection(_reply))


def _request(
    there: c.Connection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic whose subscribers answer.")],
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="The request; - reads all of standard input.")],
    header: Annotated[list[str] | None, typer.Option("--header", help="A header, key=value; can be repeated.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds to wait for the answer.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as a JSON object.")] = False,
) -> None:
    from heliograph.cli.payload import check_topic
    from heliograph.cli.payload import header as parse_header

    check_topic(topic)
    headers = dict(parse_header(text) for text in header or [])
    c.run(_ask(there, topic, payload, headers, timeout, as_json=as_json))


async def _ask(
    there: c.Connection, topic: str, payload: str, headers: dict[str, Any], timeout: float, *, as_json: bool
) -> None:
    from heliograph.cli.payload import as_json as json_line
    from heliograph.cli.standard_input import read_whole, standard_input
    from heliograph.maps.cells import readable

    data = await read_whole(standard_input()) if payload == STDIN else payload.encode(errors="surrogateescape")
    async with c.connected(there, name="heliograph request") as client:
        answer = await client.request(topic, data, headers=headers or None, timeout=timeout)
    if as_json:
        print(json_line(answer))
    elif sys.stdout.isatty():
        print(readable(answer.payload.rstrip(b"\n")))
    else:
        sys.stdout.buffer.write(answer.payload)  # unchanged, for files and other programs
    code = answer.headers.get("exit")
    if isinstance(code, int) and code:
        raise HeliographError(f"the replier's command failed with exit code {code}")


def _reply(
    there: c.Connection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, or filter, of the requests.")],
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            help="Gets a request on standard input; what it prints is the answer. No shell. "
            "If it fails, the answer has its exit code in the header exit.",
        ),
    ] = None,
    echo: Annotated[bool, typer.Option("--echo", help="Answer with the request itself.")] = False,
    group: Annotated[
        str, typer.Option("--group", help="Share the requests with the other members of this group.")
    ] = "",
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after this many answers.")] = None,
) -> None:
    import shlex
    import shutil

    from heliograph.cli.payload import check_filter

    check_filter(topic)
    if (command is None) is not echo:
        raise UsageError("give either --command or --echo")
    try:
        arguments = shlex.split(command or "")
    except ValueError as error:
        raise UsageError(f"--command {command!r}: {error}") from None
    if not arguments and not echo:
        raise UsageError("--command names nothing to run")
    if arguments and shutil.which(arguments[0]) is None:
        raise UsageError(f"--command {command!r}: there is no program {arguments[0]!r} to run")
    c.run_until_ended(_answer_all(there, topic, arguments, group, count))


async def _answer_all(there: c.Connection, topic: str, arguments: list[str], group: str, count: int | None) -> None:
    async with c.connected(there, name="heliograph reply", on_note=Remarks().heard) as client:
        subscription = await client.subscribe(topic, group=group, wide=True)
        say(f"answering on {topic} at {there.place(client)}; Ctrl-C ends")
        async for request in subscription:
            if request.reply_to is None:
                continue
            await _answer(client, request, arguments)
            if count is not None:
                count -= 1
                if count == 0:
                    return


async def _answer(client: Client, request: Publication, arguments: list[str]) -> None:
    """Run the command and answer. One that fails is answered too, with its exit code in the header ``exit``."""
    payload, code = await _run(arguments, request.payload) if arguments else (request.payload, 0)
    if code:
        say(f"heliograph: the command {arguments[0]!r} failed with exit code {code}; the asker is told")
    try:
        await client.reply(request, payload, headers={"exit": code} if code else None)
    except UsageError as error:  # the reply topic is not an inbox, or the answer is too large: not fatal
        say(f"heliograph: a request was not answered: {error}")


async def _run(arguments: list[str], data: bytes) -> tuple[bytes, int]:
    import asyncio
    from asyncio.subprocess import PIPE
    from tempfile import TemporaryFile

    with TemporaryFile() as given:  # not a pipe, because a command may end without having read its input
        given.write(data)
        given.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(*arguments, stdin=given, stdout=PIPE)
        except OSError as error:  # it existed at the start
            say(f"heliograph: the command {arguments[0]!r} cannot be started: {error.strerror or error}")
            return b"", NOT_STARTED
        out, _ = await process.communicate()
    assert process.returncode is not None
    return out, process.returncode
