"""`heliograph discover topic`: finds topics to subscribe to.

In:    a query in one of the languages; bounds on times.
Out:   topics as a table, one JSON object per line, or with --watch every change.
State: none.
Not here: the search (discovery/topics/finder.py), the user's own topics (topic.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.remarks import Remarks
from heliograph.cli.shape import counted, examples, say
from heliograph.cli.tables import show
from heliograph.cli.topic import plain, seconds_of
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.discovery.topics.finder import FoundTopic

COLUMNS = ("topic", "owner", "path", "text", "expires")
LANGUAGES = ("string", "keywords", "regex", "sql", "predicates", "xpath", "xquery", "tags", "integer")


def register(app: typer.Typer) -> None:
    """Add the command to `heliograph discover`."""
    app.command(
        name="topic",
        epilog=examples(
            "heliograph discover topic temperature",
            "heliograph discover topic --sql \"kind = 'sensor' AND floor > 2\"",
            "heliograph discover topic --regex '^plant/hall-[0-9]+' --json",
            "heliograph discover topic --xpath 'disk > 100' --owner alice --valid-for 1h",
            "heliograph discover topic --watch temperature",
        ),
    )(c.with_connection(find_topics))


def find_topics(
    there: c.Connection,
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORDS]...", help="Keywords; all must occur.")] = None,
    string: Annotated[str, typer.Option(help="Words that follow each other.")] = "",
    regex: Annotated[str, typer.Option(help="A regular expression (RE2) over all that describes a topic.")] = "",
    sql: Annotated[str, typer.Option(help="An SQL selector over properties.")] = "",
    where: Annotated[str, typer.Option(help="Predicates over properties.")] = "",
    xpath: Annotated[str, typer.Option(help="XPath 1.0 over the XML document.")] = "",
    xquery: Annotated[str, typer.Option(help="XQuery over the XML document.")] = "",
    owner: Annotated[str, typer.Option(help="Topics of this entity.")] = "",
    institution: Annotated[str, typer.Option(help="Topics of this institution.")] = "",
    space: Annotated[str, typer.Option(help="Topics of this topic space, or below it.")] = "",
    created_within: Annotated[
        str, typer.Option(metavar="TIME", help="Created within the last 90s, 15m, 12h, 30d.")
    ] = "",
    valid_for: Annotated[str, typer.Option(metavar="TIME", help="Valid for at least so long.")] = "",
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    count: Annotated[int, typer.Option(help="At most this many.", min=1, max=10_000)] = 100,
    tdn: Annotated[list[str] | None, typer.Option(metavar="TDN-ID", help="Ask these directories only.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, and tell what appears, changes or goes.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for directories.", min=0.1)] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Find topics that you may discover."""
    given = {
        "keywords": " ".join(words or ()),
        "string": string,
        "regex": regex,
        "sql": sql,
        "predicates": where,
        "xpath": xpath,
        "xquery": xquery,
    }
    asked = [(language, text) for language, text in given.items() if text]
    if len(asked) > 1:
        raise UsageError(f"one query at a time: {' and '.join(language for language, _ in asked)} were given")
    language, text = asked[0] if asked else ("", "")
    options: dict[str, Any] = {
        "owner": owner,
        "institution": institution,
        "space": space,
        "newest_first": newest,
        "count": count,
        "directories": tdn or (),
        "timeout": timeout,
    }
    if valid_for:
        options["valid_for"] = seconds_of(valid_for)
    if created_within:
        from time import time

        options["created_from"] = time() - seconds_of(created_within)
    work = _watch(there, text, language, options, as_json) if watch else _find(there, text, language, options, as_json)
    (c.run_until_ended if watch else c.run)(work)


async def _find(there: c.Connection, text: str, language: Any, options: dict[str, Any], as_json: bool) -> None:
    summaries: list[Any] = []
    rows: list[dict[str, Any]] = []
    async with c.connected(there, name="heliograph discover topic") as client:
        async for found in client.discover_topics(text, language, summary=summaries, **options):
            if as_json:
                show(_row(found), True)
            else:
                rows.append(_row(found))
    if not as_json and rows:
        show(rows, False, COLUMNS)
    done = summaries[0]
    who = f"directories: {', '.join(done.directories)}" if done.directories else f"owners: {', '.join(done.owners)}"
    say(f"{counted(done.topics, 'topic')}; {who}" + "".join(f"; left out by {one}" for one in done.left_out))


async def _watch(there: c.Connection, text: str, language: Any, options: dict[str, Any], as_json: bool) -> None:
    async with c.connected(there, name="heliograph discover topic", on_note=Remarks().heard) as client:
        async for found in client.watch_topics(text, language, **options):
            if as_json:
                show(_row(found), True)
            else:
                row = plain(found.advertisement)
                print(f"{found.change or 'present':<9} {row['topic']} {row['owner']} {row['path']}", flush=True)


def _row(found: FoundTopic) -> dict[str, Any]:
    return {**plain(found.advertisement), "told_by": found.told_by, "change": found.change}
