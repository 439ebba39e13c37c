"""`heliograph pipeline`: jobs that store network traffic in tables and analyse it, with Spark.

In:    folders of tables, where to run Spark, queries.
Out:   results on standard output, as tables or JSON; progress on standard error.
State: none.
Not here: the jobs (pipeline/jobs.py), Spark itself (pipeline/session.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.pipeline_decoded import NO_TABLES, DecodedOptions, with_tables
from heliograph.cli.shape import FAILED, INTERRUPTED, examples, fail, group, say
from heliograph.cli.spark_place import HERE, SparkPlace, with_spark
from heliograph.cli.tables import show
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.pipeline.progress import Progress

ROWS_SHOWN_MAX = 1_000
AsJson = Annotated[bool, typer.Option("--json", help="JSON, and nothing else.")]
Folder = Annotated[
    str, typer.Option("--tables", envvar="HELIOGRAPH_TABLES", metavar="FOLDER", help="Where the tables are.")
]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only what was stored from this day or UTC time on: 2026-11-16.")
]
Until = Annotated[
    str, typer.Option("--until", metavar="TIME", help="Only what was stored up to this day, or before this time.")
]

app = group("Archive and analyse what flowed, on Spark.")


@contextmanager
def spark_for(at: SparkPlace) -> Iterator[Any]:
    """A session for one command. Errors are one line; Ctrl-C ends it cleanly."""
    with working_spark(at) as (spark, _):
        yield spark


@contextmanager
def working_spark(at: SparkPlace) -> Iterator[tuple[Any, Progress]]:
    """The same, with what tells how the work goes on."""
    from heliograph.pipeline.plain import plain_errors
    from heliograph.pipeline.progress import progress
    from heliograph.pipeline.session import quiet_counters, quiet_logs, session, stop, ui_address

    settings = at.settings()
    try:
        with plain_errors():
            say("starting Spark …")
            quiet_logs()
            with progress(say) as told:
                spark = session(at.master, at.remote, settings=settings, gives_way=not at.master)
                quiet_counters()
                if (address := ui_address(spark)) is not None:
                    say(f"Spark's UI: {address}")
                told.watch(spark)
                yield spark, told
    except KeyboardInterrupt:
        fail("stopped; what is archived is kept", INTERRUPTED)
    finally:
        stop()


@app.command(
    name="doctor",
    help="Say whether this machine can run Spark.",
    epilog=examples("heliograph pipeline doctor"),
)
def _doctor(as_json: AsJson = False) -> None:
    from heliograph.pipeline.doctor import examine

    found = examine()
    if as_json:
        show([{"about": each.about, "good": each.is_good, "told": each.told} for each in found], True)
    else:
        for each in found:
            print(f"{'good' if each.is_good else 'BAD '}  {each.told}")
    if not all(each.is_good for each in found):
        raise SystemExit(FAILED)


def _archive(
    there: c.Connection,
    tables: Folder,
    filter: Annotated[
        str, typer.Option("--filter", help="Which topics. By default all; for administrators System/#, too.")
    ] = "",
    store: Annotated[
        str, typer.Option("--store", help="Only these stores, by name or id, with commas between. Each must be there.")
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="The first run: only what was stored from this UTC time on.")
    ] = "",
    backfill: Annotated[
        bool, typer.Option("--backfill", help="Bring the history that filters lack which were given later.")
    ] = False,
    rows_per_batch: Annotated[
        int | None, typer.Option("--rows-per-batch", metavar="ROWS", help="The most positions of a batch.", min=1)
    ] = None,
    bytes_per_batch: Annotated[
        str, typer.Option("--bytes-per-batch", metavar="BYTES", help="The most bytes of a batch, such as 64M.")
    ] = "1G",
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="FOLDER", help="Where it notes what is done. Default: _checkpoint.")
    ] = "",
    reader: Annotated[
        str, typer.Option("--reader", metavar="NAME", help="Of its durable subscription. Default: one of its own.")
    ] = "",
    no_reader: Annotated[bool, typer.Option("--no-reader", help="Let retention remove what is not archived.")] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on without what is no longer kept, or its store is away.")
    ] = False,
    skip_withheld: Annotated[
        bool, typer.Option("--skip-withheld", help="Go on without what this identity may not read.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    every: Annotated[int, typer.Option("--every", metavar="SECONDS", help="With --follow: how often.", min=1)] = 10,
    decoding: DecodedOptions = NO_TABLES,
    at: SparkPlace = HERE,
    as_json: AsJson = False,
) -> None:
    from heliograph.pipeline import archiving, jobs
    from heliograph.pipeline import backfill as backfilling
    from heliograph.pipeline.tables import LakeTables

    # The first run reads everything present; later ones continue from the checkpoint.
    options = source_options(there) | {"startingOffsets": "earliest"}
    options |= {"store": store} if store else {}
    options |= {"maxBytesPerTrigger": str(archiving.bytes_of(bytes_per_batch))}
    options |= {"maxOffsetsPerTrigger": str(rows_per_batch)} if rows_per_batch else {}
    options |= {"failOnDataLoss": str(not skip_lost).lower(), "failOnWithheld": str(not skip_withheld).lower()}
    token = None if at.is_elsewhere else c.local_admin_file(there)  # workers elsewhere do not have the file
    if token is not None:
        options |= {"entity": c.LOCAL_ADMIN, "tokenFile": str(token)}
    may_read_all = token is not None or there.names_somebody
    options["subscribe"] = filter or ("#,System/#" if may_read_all else "#")
    if not filter and not may_read_all:
        say("System/# is left out: what brokers say of themselves is for administrators")
    with archiving.naming_options():
        run = archiving.begin(
            *(tables, options, say),
            checkpoint=checkpoint,
            since=since,
            reader=reader,
            holds=not no_reader,
            backfills=backfill,
        )
        with spark_for(at) as spark:
            decoded = decoding.tables(tables, options, say)
            if backfill:
                backfilling.run(spark, LakeTables(tables), run, archiving.bytes_of(bytes_per_batch), say, decoded)
            found = jobs.keep(
                *(spark, tables, run.options),
                follow=follow,
                seconds=every,
                say=say,
                decoded=decoded,
                checkpoint=run.checkpoint.place,
            )
    show(found if as_json else found["tables"], as_json)


def source_options(there: c.Connection) -> dict[str, str]:
    """A connection as options of the source: names of files, never their content."""
    given = {
        "url": there.url,
        "network": there.network,
        "entity": there.entity,
        "tokenFile": there.token_file,
        "authority": there.authority,
        "certificate": there.certificate,
        "key": there.key,
    }
    return {name: str(value) for name, value in given.items() if value}


app.command(
    name="archive",
    help="Put what stores keep into Delta tables.",
    epilog=examples(
        "heliograph pipeline archive --tables archive",
        "heliograph pipeline archive --tables archive --filter 'sensors/#,hosts/#' --since 2026-11-16 --follow",
        "heliograph pipeline archive --tables archive --table 'readings=sensors/#:json'",
    ),
)(c.with_connection(with_spark(with_tables(_archive))))


def _status(
    there: c.Connection,
    tables: Folder,
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="FOLDER", help="As of the archive. Default: _checkpoint.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    from heliograph.pipeline import archiving, standing
    from heliograph.pipeline.plain import plain_errors
    from heliograph.pipeline.tables import LakeTables

    with plain_errors():
        found = {
            "tables": standing.of_tables(LakeTables(tables)),
            "stores": standing.of_stores(archiving.checkpoint_of(tables, checkpoint), source_options(there)),
        }
    if as_json:
        show(found, True)
        return
    for name, rows in found.items():
        _show_part(name, rows)


app.command(
    name="status",
    help="Show how far an archive is, and how far behind its stores.",
    epilog=examples("heliograph pipeline status --tables archive"),
)(c.with_connection(_status))


@app.command(
    name="compact",
    help="Put small files together, and remove old ones.",
    epilog=examples("heliograph pipeline compact --tables archive --vacuum 168"),
)
def _compact(
    tables: Folder,
    vacuum: Annotated[
        int | None, typer.Option("--vacuum", metavar="HOURS", help="Remove files unused for so long.", min=0)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --vacuum: also less than an hour.")] = False,
    as_json: AsJson = False,
) -> None:
    from heliograph.pipeline import jobs
    from heliograph.pipeline.plain import plain_errors

    with plain_errors():
        show(jobs.compact(tables, vacuum, force=force), as_json)


@app.command(
    name="expire",
    help="Remove what was stored long ago.",
    epilog=examples("heliograph pipeline expire --tables archive --before 90d"),
)
def _expire(
    tables: Folder,
    before: Annotated[
        str, typer.Option("--before", metavar="DAY", help="Such as 2026-11-16, or 90d: more than 90 whole days ago.")
    ],
    as_json: AsJson = False,
) -> None:
    from datetime import UTC, datetime, timedelta

    from heliograph.pipeline import jobs
    from heliograph.pipeline.plain import plain_errors
    from heliograph.pipeline.tables import moment

    if before[-1:] == "d" and before[:-1].isdigit():
        day = (datetime.now(UTC) - timedelta(days=int(before[:-1]))).date()
    else:
        when = moment(before)
        if when.time() != datetime.min.time():
            raise UsageError(f"--before {before}: tables are divided into days, so give a day")
        day = when.date()
    with plain_errors():
        show(jobs.expire(tables, day), as_json)


@app.command(
    name="catalogue",
    help="List the tables and views of an archive, with their columns.",
    epilog=examples("heliograph pipeline catalogue --tables archive"),
)
@with_spark
def _catalogue(tables: Folder, at: SparkPlace = HERE, as_json: AsJson = False) -> None:
    from heliograph.pipeline import jobs

    with spark_for(at) as spark:
        show(jobs.list_views(spark, tables), as_json)


@app.command(
    name="sql",
    help="Ask the tables and views a question in SQL.",
    epilog=examples("heliograph pipeline sql --tables archive 'select topic, events from topics order by events desc'"),
)
@with_spark
def _sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One statement.")],
    tables: Folder,
    limit: Annotated[
        int | None, typer.Option("--limit", help=f"The most rows that are shown. Default: {ROWS_SHOWN_MAX}.", min=1)
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="All rows as CSV, and nothing else.")] = False,
    parquet: Annotated[str, typer.Option("--parquet", metavar="FOLDER", help="Write all rows there.")] = "",
    since: Since = "",
    until: Until = "",
    as_of: Annotated[
        str, typer.Option("--as-of", metavar="VERSION|TIME", help="The tables as they were, such as 7 or 2026-11-16.")
    ] = "",
    at: SparkPlace = HERE,
    as_json: Annotated[bool, typer.Option("--json", help="All rows as JSON, and nothing else.")] = False,
) -> None:
    from heliograph.pipeline import answers, jobs
    from heliograph.pipeline.places import absolute, for_spark
    from heliograph.pipeline.tables import moment

    was = int(as_of) if as_of.isdigit() else moment(as_of) if as_of else None
    if as_csv + as_json + bool(parquet) + (limit is not None) > 1:
        raise UsageError("give one of --limit, --json, --csv and --parquet: the last three are always all rows")
    with spark_for(at) as spark:
        found = jobs.ask(spark, tables, query, since, until, was)
        if parquet:
            found.write.parquet(for_spark(absolute(parquet)))
            say(f"wrote {parquet}")
        elif as_json or as_csv:
            for line in (answers.json_lines if as_json else answers.csv_lines)(found):
                print(line)
        else:
            most = limit or ROWS_SHOWN_MAX
            rows, is_cut = answers.some_rows(found, most)
            show(rows, False, found.columns)
            if is_cut:
                say(
                    f"there are more than these {most:,} rows: --limit shows more, --json, --csv and --parquet give all"
                )


def _match(
    there: c.Connection,
    tables: Folder,
    filter: Annotated[str, typer.Option("--filter", help="Topics of one subscription.")] = "",
    where: Annotated[str, typer.Option("--where", help="Its condition.")] = "",
    language: Annotated[str, typer.Option("--language", help="Of the condition.")] = "predicates",
    file: Annotated[
        Path | None, typer.Option("--subscriptions", help="JSON lines: id, filter, language, where.")
    ] = None,
    since: Since = "",
    until: Until = "",
    save: Annotated[str, typer.Option("--save", metavar="FOLDER", help="Write the pairs there, as Parquet.")] = "",
    replay: Annotated[
        str, typer.Option("--replay", metavar="PREFIX", help="Publish what was found below this topic.")
    ] = "",
    at: SparkPlace = HERE,
    as_json: AsJson = False,
) -> None:
    from heliograph.pipeline import jobs
    from heliograph.pipeline.tables import LakeTables

    wanted = _subscriptions(filter, where, language, file)
    if replay and len(wanted) != 1:
        raise UsageError("--replay is for one subscription: give --filter")
    with spark_for(at) as spark:
        found = jobs.match(spark, tables, wanted, since, until, save)
        if replay:
            rows = jobs.matched_events(spark, tables, wanted[0], since, until).toLocalIterator()
            found["replayed"] = _replay(there, replay, rows, LakeTables(tables).payload)
    show(found if as_json else found["subscriptions"], as_json)


def _subscriptions(filter: str, where: str, language: str, file: Path | None) -> list[tuple[str, str, str, str]]:
    if (file is None) == (not filter):
        raise UsageError("give --filter, or --subscriptions with a file")
    if file is None:
        return [("1", filter, language, where)]
    import json

    try:
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
        return [
            (str(row.get("id", n)), row["filter"], row.get("language") or "predicates", row.get("where") or "")
            for n, row in enumerate(rows, 1)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        like = '{"id": "1", "filter": "a/#", "where": "x > 1"}'
        raise UsageError(f"{file}: each line should be like {like} ({error})") from None


def _replay(there: c.Connection, prefix: str, rows: Iterator[Any], payload: Callable[[str], bytes]) -> int:
    """Publish events again below a topic, in order. Headers that brokers added are left out."""
    from heliograph.pipeline.rows import own_headers

    count = 0

    async def work() -> None:
        nonlocal count
        async with c.connected(there, name="heliograph pipeline match") as client:
            for row in rows:
                headers = own_headers(row["headers"])
                value = payload(row["value_file"]) if row["value_file"] else bytes(row["value"] or b"")
                await client.publish(f"{prefix}/{row['topic']}", value, headers=headers)
                count += 1
            await client.flush()

    c.run(work())
    return count


app.command(
    name="match",
    help="Show what subscriptions would have got from the past.",
    epilog=examples("heliograph pipeline match --tables archive --filter 'hosts/#' --where 'disk > 120'"),
)(c.with_connection(with_spark(_match)))


@app.command(
    name="similarity",
    help="Find out how alike many requests are.",
    epilog=examples("heliograph pipeline similarity requests.jsonl"),
)
@with_spark
def _similarity(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Requests: filter, language, where, perhaps time.")],
    at: SparkPlace = HERE,
    as_json: AsJson = False,
) -> None:
    from heliograph.pipeline import jobs

    with spark_for(at) as spark:
        found = jobs.similarity(spark, file)
    if as_json:
        show(found, True)
        return
    savings = found.pop("saved_by_caching", None)
    show(found, False)
    if savings is not None:
        _show_part("saved_by_caching", savings)


def _network(
    there: c.Connection,
    tables: Folder,
    publish: Annotated[bool, typer.Option("--publish", help="Publish the advice on System/Advice.")] = False,
    at: SparkPlace = HERE,
    as_json: AsJson = False,
) -> None:
    from dataclasses import asdict

    from heliograph.pipeline import jobs

    with spark_for(at) as spark:
        found = jobs.network_figures(spark, tables)
    advice = [asdict(each) for each in found["advice"]]
    if publish:
        _publish_advice(there, found["advice"])
    if as_json:
        show({"figures": found["figures"], "advice": advice}, True)
        return
    for name, rows in {**found["figures"], "advice": advice}.items():
        _show_part(name, rows)


def _show_part(name: str, rows: list[dict[str, Any]]) -> None:
    """A table with its name above it."""
    print(f"\n{name}")
    show(rows or "none", False)


def _publish_advice(there: c.Connection, advice: list[Any]) -> None:
    import json
    from time import time_ns

    from heliograph.errors import Reason, RefusedError
    from heliograph.pipeline.network import TOPIC

    async def work() -> None:
        async with c.connected(there, name="heliograph pipeline network", as_admin=True) as client:
            for each in advice:
                topic, text = f"{TOPIC}/{each.kind}", json.dumps(each.row(time_ns() // 1_000))
                try:
                    await client.publish(topic, text, reliable=True)
                except RefusedError as error:
                    if error.reason is not Reason.STORE_MISSING:
                        raise
                    await client.publish(topic, text)  # no store keeps it: it reaches only current subscribers
            await client.flush()

    c.run(work())


app.command(
    name="network",
    help="Show delay, load and concentration, with advice.",
    epilog=examples("heliograph pipeline network --tables archive --publish"),
)(c.with_connection(with_spark(_network)))


@app.command(
    name="evaluate",
    help="Make tables and figures of measurements.",
    epilog=examples("heliograph evaluate brokers --quick --save results", "heliograph pipeline evaluate results"),
)
@with_spark
def _evaluate(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where `evaluate … --save` wrote.")],
    at: SparkPlace = HERE,
    as_json: AsJson = False,
) -> None:
    from heliograph.pipeline import jobs

    with spark_for(at) as spark:
        found = jobs.evaluate(spark, folder)
    show(found if as_json else found["table"], as_json)
    for path in found["figures"]:
        say(f"wrote {path}")
