"""Views, figures, advice and `sql` say of a real network what its clients and this test wrote down about it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from heliograph.cli.main import command
from heliograph.pipeline import answers, catalogue, jobs, network, session
from heliograph.pipeline.tables import LakeTables
from heliograph.wire.broker_bodies import broker_id
from tests.pipeline.lived import DENIED, FAR, FAR_COUNT, TIE_COUNT, TIES, Life, live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.sweep, pytest.mark.req("S3", "S6")]
SYSTEM = ("System", "Services", "Entity")  # the roots of topics that users do not publish on
CLOCKS_S = 2.0  # by which the brokers' network time may differ from this machine's clock while they are still young


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Life, str]:
    """The life of the network, and the folder of its archive."""
    folder = tmp_path_factory.mktemp("lived")
    root = str(folder / "tables")

    async def work() -> Life:
        async with live(folder) as life:
            options = {"url": life.url, "subscribe": "#,System/#", "startingOffsets": "earliest"}
            options |= {"entity": "local-admin", "tokenFile": str(life.token)}
            await asyncio.to_thread(jobs.keep, spark, root, options, follow=False, seconds=1, say=lambda text: None)
        return life

    return asyncio.run(work()), root


@pytest.fixture(scope="module")
def found(spark: SparkSession, told: tuple[Life, str]) -> dict[str, Any]:
    """The figures and the advice."""
    return jobs.network_figures(spark, told[1])


def asked(spark: SparkSession, told: tuple[Life, str], query: str) -> list[Any]:
    catalogue.register(spark, LakeTables(told[1]))
    return spark.sql(query).collect()


def near(seconds: float, moments: tuple[float, float]) -> bool:
    return moments[0] - CLOCKS_S <= seconds <= moments[1] + CLOCKS_S


def test_connections_are_those_that_clients_have(told: tuple[Life, str], found: dict[str, Any]) -> None:
    connected = told[0].connected()
    shares = {row["broker"]: row for row in found["figures"]["concentration"]}
    own = shares["a"]["connections"] - connected["a"]
    assert own in (0, 1), "the archive is a client of a, too, and reports of its time may be in it"
    connected |= {"a": connected["a"] + own}
    assert {name: row["connections"] for name, row in shares.items()} == connected
    assert shares["c"]["share_of_connections"] == round(connected["c"] / sum(connected.values()), 4)
    (cluster,) = found["figures"]["clusters"]
    assert (cluster["brokers"], cluster["connections"]) == (3, sum(connected.values()))
    texts = [each.text for each in found["advice"] if each.kind == "broker"]
    share = f"{connected['c'] / sum(connected.values()):.0%}"
    assert f"{share} of all clients are at c: add a broker near them, or let some move" in texts


def test_sessions_end_as_their_clients_did_or_with_their_broker(spark: SparkSession, told: tuple[Life, str]) -> None:
    life, rows = told[0], {}
    moments = "unix_micros(valid_from) / 1e6 as since, unix_micros(valid_to) / 1e6 as until"
    for row in asked(spark, told, f"select broker, name, ended, {moments} from sessions"):
        assert row["name"] not in rows or row["name"] not in life.stays, "a session is one row"
        rows[row["name"]] = row
    for name, stay in life.stays.items():
        row = rows[name]
        assert row["broker"] == stay.broker
        assert near(row["since"], stay.began), name
        if stay.ended is None:
            assert (row["until"], row["ended"]) == (None, None), name
        else:
            assert near(row["until"], stay.ended), name
            assert row["ended"] == ("broker_ended" if stay.how == "killed" else "goodbye")
    assert rows["alive"]["until"] <= min(rows[f"again-{number}"]["since"] for number in range(4))


def test_links_and_states_end_with_their_brokers_incarnation(spark: SparkSession, told: tuple[Life, str]) -> None:
    life = told[0]
    lives = asked(
        spark,
        told,
        "select broker, unix_micros(valid_to) / 1e6 as until from incarnations order by broker, incarnation",
    )
    assert [(row["broker"], row["until"] is None) for row in lives] == [
        ("a", True), ("b", True), ("c", False), ("c", True), ("d", False),
    ]  # fmt: skip
    assert near(lives[2]["until"], life.killed["c"])
    assert near(lives[4]["until"], life.killed["d"])
    links = asked(spark, told, "select broker, other, unix_micros(valid_from) / 1e6 as since, "
                               "unix_micros(valid_to) / 1e6 as until from broker_links")  # fmt: skip
    heard = {
        (broker, row["broker"])
        for broker, about, row in life.heard
        if about == "joins" and row["note"] == "neighbour_linked" and row["time_us"] > life.back * 1_000_000
    }
    assert ("b", "c") in heard
    is_open = [(row["broker"], row["other"]) for row in links if row["until"] is None]
    assert heard <= set(is_open) <= {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}
    assert len(is_open) == len(set(is_open))
    for row in links:
        if row["until"] is not None:
            assert near(row["until"], life.killed["d" if "d" in (row["broker"], row["other"]) else "c"])
    states = asked(spark, told, "select broker, count_if(valid_to is null) as open from broker_states group by broker")
    assert {row["broker"]: row["open"] for row in states} == {"a": 1, "b": 1, "c": 1, "d": 0}


def test_counters_are_sums_of_increases_over_restarts(told: tuple[Life, str], found: dict[str, Any]) -> None:
    life = told[0]
    load = {row["broker"]: row for row in found["figures"]["load"]}
    assert load["c"]["denied"] == sum(DENIED)
    assert load["b"]["denied"] == 0
    system = len(life.heard) + 50  # what monitors publish; a few rows may come after the last one that was heard
    assert 2 * FAR_COUNT <= load["c"]["publications"] - _sampled(life, found) <= 2 * FAR_COUNT + system
    assert load["c"]["publications_per_s"] > 0


def _sampled(life: Life, found: dict[str, Any]) -> int:
    """Publications on the same topic that were only made to be sampled."""
    far = next(row for row in found["figures"]["topics"] if row["root"] == FAR.split("/")[0])
    assert far["events"] >= 2 * FAR_COUNT
    return int(far["events"]) - 2 * FAR_COUNT


def test_advice_names_brokers_and_weighs_what_users_publish(told: tuple[Life, str], found: dict[str, Any]) -> None:
    life = told[0]
    heard = [row for broker, about, row in life.heard if about == "hops" and row["topic"].split("/")[0] not in SYSTEM]
    ways = found["figures"]["ways"]
    assert {each for row in ways for each in (row["entered"], row["broker"])} <= {"a", "b", "c", "d"}
    assert sum(row["samples"] for row in ways) == len(heard), "no publication of a monitor counts"
    long = [row for row in heard if row["way"] == [f"{broker_id(name):016x}" for name in "cba"]]
    (way,) = (row for row in ways if (row["entered"], row["broker"]) == ("c", "a"))
    assert (way["samples"], way["brokers"]) == (len(long), 3)
    delay = sum(row["time_us"] - row["published_us"] for row in long) / len(long) / 1_000
    assert way["mean_ms"] == pytest.approx(delay, abs=0.01)
    (link,) = (each for each in found["advice"] if each.kind == "link")
    assert link.about == "a c"
    assert link.value == pytest.approx(way["share_of_delay"] / 3, abs=0.001), "one link of three is saved"
    often = network._short(way["parcels_per_s"])
    told_ms = re.fullmatch(
        f"link a and c: {re.escape(often)} parcels a second between them pass 3 brokers; a direct link would save "
        f"about ([0-9.]+) ms for each, {link.value:.0%} of all delay between brokers",
        link.text,
    )
    assert told_ms is not None, link.text
    assert float(told_ms[1]) == pytest.approx(way["mean_ms"] / 3, rel=0.05), "rounded once, not twice"


def test_ties_are_broken_by_position(spark: SparkSession, told: tuple[Life, str]) -> None:
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    for topic, name in told[0].ties:
        first.setdefault(topic, name)
        last[topic] = name
    rows = asked(
        spark,
        told,
        "select t.topic, t.last_headers, first(string(e.value)) as value "
        "from topics as t join events as e on e.topic = t.topic and e.origin = t.first_publisher "
        f"where t.topic like '{TIES}/%' group by 1, 2",
    )
    assert len(rows) == TIE_COUNT
    assert {row["topic"]: row["value"] for row in rows} == first
    assert {row["topic"]: json.loads(row["last_headers"])["by"] for row in rows} == last
    times = asked(spark, told, f"select topic from events where topic like '{TIES}/%' "
                               "group by topic having count(distinct stored) = 1")  # fmt: skip
    assert times, "there were ties"


def test_dates_hours_and_times_are_utc_in_every_session(
    spark: SparkSession, told: tuple[Life, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    life, root = told
    moments = [datetime.fromtimestamp(each, UTC) for each in (life.began - CLOCKS_S, life.ended + CLOCKS_S)]
    expected = {(each.date().isoformat(), each.hour) for each in moments}
    zone = "Asia/Kathmandu"
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", zone)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        asking = "select string(date) as date, hour, max(stored) as stored, array(max(stored)) as several from events"
        (row,) = answers.all_rows(jobs.ask(spark, root, f"{asking} where topic = 'end' group by 1, 2"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        monkeypatch.undo()
        time.tzset()
    assert (row["date"], row["hour"]) in expected
    assert moments[0] <= datetime.fromisoformat(row["stored"]).replace(tzinfo=UTC) <= moments[1]
    assert row["several"] == [row["stored"]]
    files = DeltaTable(str(Path(root) / "events")).file_uris()
    assert files
    assert all(any(f"date={date}/hour={hour}/" in file for date, hour in expected) for file in files)


def test_sql_says_when_it_cuts_and_whole_forms_never_do(
    told: tuple[Life, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    _, root = told
    where = f"where topic = '{FAR}' and string(value) rlike '^(first|second) '"
    query = f"select string(value) as value, stored from events {where} order by 1"
    names = sorted(f"{name} {number}" for name in ("first", "second") for number in range(FAR_COUNT))

    def run(*words: str) -> tuple[list[str], str]:
        command()(["pipeline", "sql", "--tables", root, *words], standalone_mode=False)
        said = capsys.readouterr()
        return said.out.splitlines(), said.err

    shown, remark = run(query)
    assert [line.split("  ")[0] for line in shown] == ["value", *names[:1_000]]
    assert "there are more than these 1,000 rows: --limit shows more, --json, --csv and --parquet give all" in remark
    shown, remark = run(query, "--limit", str(len(names)))
    assert len(shown) == 1 + len(names)
    assert "more than" not in remark
    shown, _ = run(query, "--json")
    assert [row["value"] for row in json.loads("\n".join(shown))] == names
    shown, _ = run(query, "--csv")
    assert [row["value"] for row in csv.DictReader(io.StringIO("\n".join(shown)))] == names
    run(query, "--parquet", str(tmp_path / "all"))
    import pyarrow.parquet as pq

    assert sorted(pq.read_table(tmp_path / "all")["value"].to_pylist()) == names
