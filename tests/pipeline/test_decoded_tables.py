"""Decoded tables: payloads become columns, what does not fit is kept apart with the reason, each row once."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import UsageError
from heliograph.model.topics import matches
from heliograph.pipeline import archive
from heliograph.pipeline.decoded_tables import DecodedTable, DecodedTables, read_table, topic_pattern
from heliograph.pipeline.payloads.formats import PayloadSchema
from heliograph.pipeline.tables import LakeTables
from tests.pipeline.test_archive import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "celsius double not null, at timestamp, place struct<floor: int, room: string>, tags array<string>, "
    "price decimal(12,3), limits map<string, double>, raw json, topic string, `on` date"
)
FULL: dict[str, Any] = {
    "celsius": 21, "at": "2026-11-16T13:00:00+01:00", "place": {"floor": 3, "room": "k", "wing": "w"},
    "tags": ["a", None], "price": 12.125, "limits": {"low": 1}, "raw": {"q": [1, 2.5]}, "topic": "of the payload",
    "on": "2026-11-16", "extra": {"y": 1},
}  # fmt: skip
LEVELS = st.sampled_from(["a", "b", "", "System", "Topics", "x.y", "ü", "a\n", "\\E", "$"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
FILTERS = st.tuples(st.lists(LEVELS | st.just("+"), max_size=3), st.sampled_from([[], ["#"]])).map(
    lambda parts: "/".join(parts[0] + parts[1])
)


def table(name: str = "readings", columns: str = COLUMNS, filter: str = "sensors/#") -> DecodedTable:
    return DecodedTable(name, filter, PayloadSchema("json", columns))


@pytest.mark.spark
@pytest.mark.req("S2", "S9")
def test_fields_are_columns_and_what_does_not_fit_is_kept_apart_with_the_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = LakeTables(str(tmp_path))
    wanted = DecodedTables(tables, [table(), table("all", "value double", "#")])
    batch = rows(
        spark,
        ("sensors/1", FULL),
        ("sensors/2", {"celsius": None}),
        ("sensors/3", b"\xff"),
        ("sensors/4", {"celsius": "warm"}),
        ("other", b"3.5"),
        ("System/Brokers/b1/load", {"time_us": 1, "connections": 3}),
    )

    counts = archive.add(batch, tables, "q", 0, wanted)

    assert counts == {"events": 5, "brokers": 1, "readings": 1, "all": 4, "quarantine": 3 + 1}
    (row,) = tables.read(spark, "readings").collect()
    assert row.asDict(recursive=True) == {
        "store": "s1", "partition": 0, "offset": 0, "stored": datetime(2026, 11, 16, 12), "topic": "sensors/1",
        "timestamp": datetime(2026, 11, 16, 12), "celsius": 21.0, "at": datetime(2026, 11, 16, 12),
        "place": {"floor": 3, "room": "k"}, "tags": ["a", None], "price": Decimal("12.125"), "limits": {"low": 1.0},
        "raw": '{"q":[1,2.5]}', "payload_topic": "of the payload", "on": datetime(2026, 11, 16).date(),
        "other_fields": '{"place":{"wing":"w"},"extra":{"y":1}}', "date": datetime(2026, 11, 16).date(),
    }  # fmt: skip
    assert tables.read(spark, "all").where("value = 3.5").count() == 1
    bad = tables.read(spark, "quarantine").orderBy("reason").collect()
    assert [(each["topic"], each["reason"], bytes(each["value"])) for each in bad] == [
        ("sensors/3", "all: not JSON: JSON is malformed: invalid character (byte 0)", b"\xff"),
        ("sensors/2", "readings: celsius: null", b'{"celsius": null}'),
        ("sensors/4", "readings: celsius: text 'warm' where double is expected", b'{"celsius": "warm"}'),
        ("sensors/3", "readings: not JSON: JSON is malformed: invalid character (byte 0)", b"\xff"),
    ]
    assert archive.add(batch, tables, "q", 0, DecodedTables(tables, [table()])) == {}, "a batch is in once"


@pytest.mark.spark
@pytest.mark.req("S2", "S9")
@pytest.mark.parametrize("crash", [pytest.param(0, marks=pytest.mark.soak), pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_crash_at_any_commit_leaves_each_row_once_and_one_schema_for_a_batch(
    spark: SparkSession, crash: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends before the n-th commit, and comes again with a wider schema, which one row less fits."""
    batch = rows(spark, ("sensors/1", {"n": 1}), ("sensors/2", {"n": "x"}), ("sensors/3", {"n": 2, "m": "3"}))
    old, new = table(columns="n bigint not null"), table(columns="n bigint not null, m bigint")
    tables = LakeTables(str(tmp_path))
    commit, left = LakeTables.commit, [crash]

    def failing(self: LakeTables, name: str, *more: Any, **words: Any) -> int:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return commit(self, name, *more, **words)

    with monkeypatch.context() as patch:
        patch.setattr(LakeTables, "commit", failing)
        with pytest.raises(KeyboardInterrupt):
            archive.add(batch, tables, "q", 0, DecodedTables(tables, [old]))
    archive.add(batch, tables, "q", 0, DecodedTables(tables, [new]))
    counts = {name: tables.rows(name) for name in tables.names()}
    has_begun = crash == 2
    assert counts == {"events": 3, "readings": 2 if has_begun else 1, "quarantine": 1 if has_begun else 2}
    archive.add(rows(spark, ("sensors/4", {"n": 3, "m": 4})), tables, "q", 1, DecodedTables(tables, [new]))
    assert tables.read(spark, "readings").where("m = 4").count() == 1, "the next batch has the new column"


@pytest.mark.spark
def test_a_schema_is_inferred_once_and_later_payloads_keep_to_it(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    said: list[str] = []
    wanted = DecodedTables(tables, [read_table("readings=sensors/+:json")], said.append)
    assert archive.add(rows(spark, ("sensors/1", b"nothing")), tables, "q", 0, wanted) == {"events": 1, "quarantine": 1}
    many = [(f"sensors/{n}", {"celsius": n + 0.5, "room": "k"}) for n in range(20)]
    hostile = [("sensors/x", {"celsius": "x", "Room": 1}), ("sensors/a/b", b"of another filter")]
    archive.add(rows(spark, *many, *hostile), tables, "q", 1, wanted)

    again = DecodedTables(tables, [read_table("readings=sensors/+:json")], said.append)
    counts = archive.add(rows(spark, ("sensors/1", {"celsius": 1, "new": 2}), ("s", b"1")), tables, "q", 2, again)

    assert said == ["readings: celsius double, room string"]
    assert counts == {"events": 2, "readings": 1}
    assert [
        (row["celsius"], row["other_fields"]) for row in tables.read(spark, "readings").where("room is null").collect()
    ] == [(1.0, '{"new":2}')]
    reasons = {row["reason"] for row in tables.read(spark, "quarantine").collect()}
    assert reasons == {
        "readings: nothing of the sample could be read, so there is no schema yet",
        "readings: celsius: text 'x' where double is expected",
    }
    with pytest.raises(UsageError, match=r"readings\.celsius is double, and the schema says string"):
        DecodedTables(tables, [table(columns="celsius string")])
    with pytest.raises(UsageError, match="is of json: name another table for cloudevents"):
        DecodedTables(tables, [read_table("readings=sensors/+:cloudevents")])


@pytest.mark.spark
@pytest.mark.req("S9")
def test_a_table_that_is_named_later_gets_older_events_once(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    old = rows(spark, ("sensors/1", b"1"), ("sensors/2", b"x"), ("other", b"2"))
    archive.add(old, tables, "q", 0)
    new = rows(spark, ("a", b""), ("a", b""), ("a", b""), ("sensors/3", b"3"), ("sensors/4", b"y"))

    for run in range(3):
        if run == 1:  # it is not named for a while
            archive.add(rows(spark, *[("a", b"")] * 5, ("sensors/5", b"5")), tables, "q", 2)
        wanted = DecodedTables(tables, [table(columns="value bigint not null")])
        archive.add(new, tables, "q", 1, wanted)
        wanted.complete(spark)

    found = tables.read(spark, "readings").orderBy("offset").collect()
    assert [(row["topic"], row["value"]) for row in found] == [
        ("sensors/1", 1), ("sensors/3", 3), ("sensors/5", 5),
    ]  # fmt: skip
    bad = tables.read(spark, "quarantine").orderBy("offset").collect()
    assert [row["topic"] for row in bad] == ["sensors/2", "sensors/4"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("readings", "write NAME=FILTER:FORMAT"),
        ("readings=sensors/#", "write NAME=FILTER:FORMAT"),
        ("events=sensors/#:json", "a table or view of its own"),
        ("topics=sensors/#:json", "a table or view of its own"),
        ("Readings=sensors/#:json", "small letters"),
        ("r=a/#/b:json", "stands alone and last"),
        ("r=a:xml", "there is no format 'xml'"),
        ("r=a:avro", "avro needs a schema"),
    ],
)
def test_a_table_that_cannot_be_is_refused(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        DecodedTables(LakeTables(str(tmp_path)), [read_table(text)])


@given(FILTERS, TOPICS)
def test_the_pattern_of_a_filter_agrees_with_the_filter(pattern: str, topic: str) -> None:
    python = re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), topic_pattern(pattern))
    found = re.match(python.replace(r"\z", r"\Z"), topic)
    assert (found is not None) == matches(pattern.encode(), topic.encode())
