"""The option decode: payloads of a real store as columns, in batches and streams, with whatever schema there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import heliograph
from heliograph.errors import UsageError
from heliograph.pipeline.decode_option import check_stream, wanted_payload
from heliograph.pipeline.payloads.formats import PayloadSchema
from tests.live.processes import Process
from tests.pipeline.payloads.samples import GOOD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAYLOADS = [json.dumps({"n": n, "room": {"floor": n % 2}}).encode() for n in range(20)] + [b"\xff", b'{"n": "x"}']


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("store")
    place = ("--store", "--store-place", str(folder / "kept"))
    with Process(folder, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        address = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(address) as client:
            for number, payload in enumerate(PAYLOADS):
                client.publish(f"n/{number}", payload, reliable=True, wait=False)
            for format, (_, payload) in GOOD.items():
                client.publish(f"good/{format}", payload, reliable=True, wait=False)
            client.flush()
        yield address


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.live
@pytest.mark.req("S1", "S9")
def test_payloads_are_columns_in_batches_and_streams(spark: SparkSession, url: str, tmp_path: Path) -> None:
    def reading(filter: str, reader: Any, **options: str) -> DataFrame:
        made: DataFrame = reader.format("heliograph").options(url=url, subscribe=filter, **options).load()
        return made

    rows = reading("n/#", spark.read, decode="json")
    assert rows.schema["payload"].dataType.simpleString() == "struct<n:bigint,room:struct<floor:bigint>>"
    found = rows.selectExpr("count(payload.n) as n", "sum(payload.n) as sum", "count(payload_fault) as bad").first()
    assert found is not None
    assert tuple(found) == (20, 190, 2)

    for format, (schema, _) in GOOD.items():
        decode = f"protobuf/{schema.message}" if schema.message else format
        one = reading(f"good/{format}", spark.read, decode=decode, payloadSchema=schema.text, columns="value").first()
        assert one is not None
        assert one["payload_fault"] is None
        celsius = one["payload"]["data"]["celsius"] if format == "cloudevents" else one["payload"]["celsius"]
        assert celsius == 21.5

    given = {"decode": "json", "payloadSchema": "n bigint not null", "startingOffsets": "earliest"}
    writing = reading("n/#", spark.readStream, **given).writeStream.format("parquet")
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).option("path", str(tmp_path / "out"))
    writing.trigger(availableNow=True).start().awaitTermination()
    streamed = spark.read.parquet(str(tmp_path / "out"))
    assert streamed.where("payload.n is not null").count() == 20
    assert streamed.where("payload_other_fields like '{\"room\":%'").count() == 20
    with pytest.raises(Exception, match="avro needs a schema"):
        reading("n/#", spark.read, decode="avro").count()


def test_options_that_mean_nothing_are_refused() -> None:
    assert wanted_payload({}) is None
    assert wanted_payload({"DECODE": "protobuf/a.B", "payloadSchema": "x"}) == PayloadSchema("protobuf", "x", "a.B")
    for given, told in (
        ({"decode": "xml"}, "there is no format 'xml'"),
        ({"payloadSchema": "a int"}, "payloadSchema needs the option decode"),
        ({"decode": "contract", "payloadSchema": "a int"}, "takes the schema that the topic's owner described"),
    ):
        with pytest.raises(UsageError, match=told):
            wanted_payload(given)
    with pytest.raises(UsageError, match="a stream needs payloadSchema"):
        check_stream(PayloadSchema("json"))
    check_stream(PayloadSchema("contract"))
