"""The sink, against a real broker with a real store: no row is lost or doubled by jobs that "succeed"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import heliograph
from heliograph.errors import RefusedError, UsageError
from heliograph.live.stored import BatchCommitted
from heliograph.pipeline import sink
from heliograph.pipeline.plain import PipelineError, plain_errors
from heliograph.pipeline.sink_rows import CHUNK_BYTES, chunks
from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.req("S1")
TEXTS = "topic string, value string"


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Options of a broker with a store."""
    folder = tmp_path_factory.mktemp("store")
    place = ("--store", "--store-place", str(folder / "kept"))
    with Process(folder, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        yield {"url": f"heliograph://127.0.0.1:{broker.port}", "store": "store"}


def stored(where: dict[str, str], filter: str) -> list[tuple[str, bytes, dict[str, Any]]]:
    with heliograph.connect_blocking(where["url"]) as client, client.replay(filter) as replay:
        return [(one.topic, one.payload, dict(one.headers)) for one in replay]


# -- what is no publication ---------------------------------------------------------------------------------------


def given(schema: str, streaming: bool = False, **options: str) -> sink.SinkOptions:
    from pyspark.sql.types import _parse_datatype_string

    kind: Any = _parse_datatype_string(schema)
    return sink.sink_options({"store": "s", **options}, kind, streaming=streaming)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("topic string, value bigint", "value must be string or binary, not bigint"),
        ("topic string, value struct<a: int>", "value must be string or binary"),
        ("topic int, value string", "topic must be string, not int"),
        ("topic string", "needs a column value"),
        ("value string", "a column topic or the option topic"),
        (f"{TEXTS}, headers binary", "headers must be a string"),
        (f"{TEXTS}, headers map<int, string>", "headers must be a string"),
        (f"{TEXTS}, headers map<string, timestamp>", "map<string,timestamp>: cast"),
        (f"{TEXTS}, headers struct<a: array<decimal(9,2)>>", "use to_json"),
    ],
)
def test_columns_of_other_types_are_refused_before_a_row_is_written(
    spark: SparkSession, schema: str, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        given(schema)
    assert given("value binary, headers map<string, array<double>>", topic="t").topic == "t"
    assert given(f"{TEXTS}, headers struct<a: boolean, b: tinyint>").once


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch": "4"}, "batch needs the option publisher"),
        ({"publisher": "p", "batch": "soon"}, "batch must be a number"),
        ({"publisher": "p", "batch": "4", "streaming": "yes"}, "Spark numbers the batches of a stream"),
    ],
)
def test_numbers_need_a_name_under_which_they_count(spark: SparkSession, options: dict[str, str], told: str) -> None:
    own = {name: value for name, value in options.items() if name != "streaming"}
    with pytest.raises(UsageError, match=told):
        given(TEXTS, streaming="streaming" in options, **own)


def read(*columns: tuple[str, pa.Array], topic: str = "") -> list[list[Any]]:
    names, arrays = zip(*columns, strict=True)
    return list(chunks([pa.RecordBatch.from_arrays(list(arrays), list(names))], topic))


def test_headers_are_a_text_a_map_or_a_struct_and_nulls_are_left_out() -> None:
    values = ("value", pa.array([b"a", b"b", b"c"]))
    texts = pa.array(['{"$t":5,"n":1}', None, "no JSON"])
    maps = pa.array([[("n", 1), ("m", None)], None, []], pa.map_(pa.string(), pa.int64()))
    structs = pa.array([{"n": 1, "m": None}, None, {"n": None, "m": None}])
    for headers in (texts, maps, structs):
        (chunk,) = read(values, ("headers", headers), topic="t")
        assert chunk == [("t", b"a", {"n": 1}), ("t", b"b", None), ("t", b"c", None)]


def test_a_value_that_is_null_is_refused_and_a_topic_that_is_null_is_the_option() -> None:
    topics = ("topic", pa.array(["a", None]))
    (chunk,) = read(("value", pa.array(["x", ""])), topics, topic="t")
    assert chunk == [("a", b"x", None), ("t", b"", None)]
    with pytest.raises(UsageError, match=r"a row on 't' has no value.*coalesce"):
        read(("value", pa.array(["x", None])), topics, topic="t")


def test_rows_are_staged_many_at_once_whatever_their_headers() -> None:
    texts = ("headers", pa.array([f'{{"n":{n}}}' for n in range(10_000)]))
    (chunk,) = read(("value", pa.array([b"x"] * 10_000)), texts, topic="t")
    assert [own["n"] for _, _, own in chunk] == list(range(10_000))
    large = pa.array([bytes(CHUNK_BYTES // 2)] * 5)
    assert [len(chunk) for chunk in read(("value", large), topic="t")] == [2, 2, 1]


# -- once ---------------------------------------------------------------------------------------------------------


def write(rows: DataFrame, where: dict[str, str], **options: str) -> None:
    with plain_errors():
        rows.write.format("heliograph").options(**where, **options).mode("append").save()


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """This thread is the first task of an application, so its ids are those of any other first task."""
    from pyspark import TaskContext

    context = TaskContext()
    context._partitionId, context._taskAttemptId, context._localProperties = 0, 0, {}
    monkeypatch.setattr(TaskContext, "_taskContext", context)


def writer(where: dict[str, str], **options: str) -> sink.BatchSink:
    """As Spark makes it in the driver, for one batch write."""
    from pyspark.sql.types import StringType, StructType

    schema = StructType().add("topic", StringType()).add("value", StringType())
    return sink.BatchSink(sink.sink_options({**where, **options}, schema, streaming=False))


def rows_on(topic: str, count: int = 1) -> Iterator[pa.RecordBatch]:
    return iter(pa.table({"topic": [topic] * count, "value": [f"{n}" for n in range(count)]}).to_batches())


@pytest.mark.live
def test_two_batch_writes_that_overlap_are_both_there(task: None, where: dict[str, str]) -> None:
    early, late = writer(where), writer(where)
    for each, topic in ((late, "two/late"), (early, "two/early")):
        each.commit([each.write(rows_on(topic, 5))])
    assert [topic for topic, _, _ in stored(where, "two/#")] == ["two/late"] * 5 + ["two/early"] * 5


@pytest.mark.live
def test_of_two_that_overlap_under_one_name_the_one_that_lost_its_rows_is_told(
    task: None, where: dict[str, str]
) -> None:
    early, late = writer(where, publisher="job"), writer(where, publisher="job")
    late.commit([late.write(rows_on("named/late"))])
    with pytest.raises(UsageError, match=r"nothing of batch \d+ was written.* a publisher of their own"):
        early.commit([early.write(rows_on("named/early"))])
    assert [topic for topic, _, _ in stored(where, "named/#")] == ["named/late"]


def run(spark: SparkSession, where: dict[str, str], folder: Path, check: str, publisher: str = "counting") -> None:
    stream = spark.readStream.schema(TEXTS).parquet(str(folder / "rows"))
    options = {**where, "publisher": publisher, "checkpointLocation": str(folder / check)}
    with plain_errors():
        writing = stream.writeStream.format("heliograph").options(**options)
        writing.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.spark
@pytest.mark.live
def test_a_new_checkpoint_with_an_old_publisher_is_told_what_to_do(
    spark: SparkSession, where: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rows").mkdir()
    parquet.write_table(pa.Table.from_batches(rows_on("new", 9)), tmp_path / "rows" / "1.parquet")
    run(spark, where, tmp_path, "check")
    with pytest.raises(PipelineError, match=r"batch_foreign.*needs a publisher of its own"):
        run(spark, where, tmp_path, "other")
    assert len(stored(where, "new")) == 9


@pytest.mark.spark
@pytest.mark.live
def test_a_stream_that_was_killed_while_it_wrote_its_first_offsets_begins_again(
    spark: SparkSession, where: dict[str, str], tmp_path: Path
) -> None:
    for name in ("rows", "check", "check/offsets"):
        (tmp_path / name).mkdir()
    (tmp_path / "check" / "offsets" / ".0.torn.tmp").write_text("v1")
    parquet.write_table(pa.Table.from_batches(rows_on("torn", 9)), tmp_path / "rows" / "1.parquet")
    run(spark, where, tmp_path, "check", "torn")
    assert len(stored(where, "torn")) == 9


@pytest.mark.live
def test_a_batch_that_crashed_while_it_was_staged_is_repeated_by_an_application_with_the_same_ids(
    task: None, where: dict[str, str]
) -> None:
    options = {"publisher": "crashing", "batch": "1"}
    writer(where, **options).write(rows_on("crash", 9))
    for _ in range(2):
        again = writer(where, **options)
        again.commit([again.write(rows_on("crash", 9))])
    assert [payload for _, payload, _ in stored(where, "crash")] == [b"%d" % n for n in range(9)]


@pytest.mark.live
def test_a_batch_without_rows_makes_no_publisher_known(task: None, where: dict[str, str]) -> None:
    empty, later = writer(where, publisher="e", batch="7"), writer(where, publisher="e", batch="1")
    empty.commit([empty.write(iter([]))])
    later.commit([later.write(rows_on("e"))])
    assert len(stored(where, "e")) == 1


@pytest.mark.spark
@pytest.mark.live
def test_rows_of_the_source_go_back_with_their_headers(spark: SparkSession, where: dict[str, str]) -> None:
    with heliograph.connect_blocking(where["url"]) as client:
        for n in range(5):
            client.publish(f"from/{n}", b"%d" % n, headers={"n": n, "all": True}, reliable=True, wait=False)
        client.flush()
    rows = spark.read.format("heliograph").options(url=where["url"], subscribe="from/#").load()
    write(rows.selectExpr("concat('to/', topic) as topic", "value", "headers"), where)
    write(rows.selectExpr("concat('map/', topic) as topic", "value", "map('n', offset) as headers"), where)
    found = stored(where, "to/#")
    assert [(topic, own) for topic, _, own in found] == [(f"to/from/{n}", {"n": n, "all": True}) for n in range(5)]
    assert len({own["n"] for _, _, own in stored(where, "map/#")}) == 5


@pytest.mark.live
@pytest.mark.req("O6")
def test_only_the_driver_proves_the_name_of_a_publisher(task: None, where: dict[str, str], tmp_path: Path) -> None:
    secret = tmp_path / "spark.secret"
    secret.touch(0o600)
    secret.write_text("a secret of several drivers")
    own = {"publisher": "proven", "secretFile": str(secret)}
    first, other, second = writer(where, **own, batch="1"), writer(where, publisher="proven"), writer(where, **own)
    first.commit([first.write(rows_on("proven"))])
    with pytest.raises(RefusedError, match=r"name_foreign.*secretFile"):
        other.commit([other.write(rows_on("proven"))])
    secret.unlink()  # tasks need none
    staged = second.write(rows_on("proven"))
    with pytest.raises(UsageError, match="there is no such file"):
        second.commit([staged])
    assert len(stored(where, "proven")) == 1


def test_a_repeat_is_the_same_number_and_no_lower_one() -> None:
    options = sink.SinkOptions(None, "s", "p", "", 4)  # type: ignore[arg-type]
    sink.check_repeat(options, 4, BatchCommitted(4, 0, True))
    sink.check_repeat(options, 4, BatchCommitted(4, 0, False))
    with pytest.raises(
        UsageError, match=r"nothing of batch 4 was written: the publisher p has already committed batch 5"
    ):
        sink.check_repeat(options, 4, BatchCommitted(5, 0, True))
