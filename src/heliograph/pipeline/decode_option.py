"""The option ``decode`` of the source: the payload of each row as a struct of its fields.

In:    the options ``decode`` and ``payloadSchema``; the rows of the source.
Out:   three more columns: ``payload``, ``payload_other_fields``, ``payload_fault``.
State: none.
Not here: decoding (payloads/), tables of payloads (decoded_tables.py), other options (options.py).

Spark asks for the schema first, and starts reading later, in another process. A schema that was inferred or described
by a topic's owner is therefore kept in the metadata of the column, so that both mean the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from heliograph.errors import UsageError
from heliograph.pipeline.contracts import CONTRACT, contract_of
from heliograph.pipeline.offsets import LogRange, list_logs
from heliograph.pipeline.option_names import SAMPLED
from heliograph.pipeline.options import read_options
from heliograph.pipeline.payloads.decoding import FAULT, OTHERS, PAYLOAD, known_reader
from heliograph.pipeline.payloads.formats import PayloadSchema, check_format, inferred
from heliograph.pipeline.payloads.inference import SAMPLE_BYTES, SAMPLE_ROWS
from heliograph.pipeline.reading import read_range

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from heliograph.pipeline.options import SourceOptions

KEPT = "heliograph.payload"  # the metadata of the column


def wanted_payload(given: Mapping[str, str]) -> PayloadSchema | None:
    """What the options say: a schema, or one without a text, which is still to be found; None without ``decode``."""
    words = {name.lower(): value for name, value in given.items()}
    kind, text = words.get("decode", ""), words.get("payloadschema", "")
    if not kind:
        if text:
            raise UsageError("payloadSchema needs the option decode: json, avro, protobuf, cloudevents or contract")
        return None
    format, _, message = kind.partition("/")
    if format != CONTRACT:
        check_format(format)
    elif text:
        raise UsageError("decode=contract takes the schema that the topic's owner described, and no payloadSchema")
    return PayloadSchema(format, text, message)


def found_payload(given: Mapping[str, str]) -> PayloadSchema | None:
    """The schema of the payloads; what the options do not say is asked for, or sampled. None without ``decode``."""
    wanted = wanted_payload(given)
    if wanted is None or wanted.is_known:
        return wanted
    options = read_options({name: value for name, value in given.items() if name.lower() in SAMPLED}, False)
    if wanted.format == CONTRACT:
        with options.connect() as client:
            contracts = dict.fromkeys(contract_of(client, each, wanted.message) for each in options.filters)
        if len(contracts) > 1:
            raise UsageError("decode=contract: these topics have different contracts, so read them one by one")
        return next(iter(contracts))
    inferred(wanted, [])  # or it must be given
    found = inferred(wanted, _sample(options))
    if found is None:
        raise UsageError(f"no payload of a sample could be read as {wanted.format}: give payloadSchema")
    return found


def with_payload(whole: StructType, schema: PayloadSchema | None) -> StructType:
    """Columns of the source, with those of payloads."""
    if schema is None:
        return whole
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    if "value" not in whole.names:
        raise UsageError("decode needs the column value: add it to the option columns")
    names = [(PAYLOAD, known_reader(schema).layout.arrow()), (OTHERS, pa.string()), (FAULT, pa.string())]
    payload, *texts = from_arrow_schema(pa.schema(names)).fields
    kept = StructField(PAYLOAD, payload.dataType, metadata={KEPT: json.dumps(asdict(schema))})
    return StructType([*whole.fields, kept, *texts])


def kept_payload(columns: StructType, given: Mapping[str, str]) -> PayloadSchema | None:
    """What Spark was told when it asked for the columns."""
    wanted = wanted_payload(given)
    if wanted is None or wanted.is_known:
        return wanted
    for field in columns.fields:
        if field.name == PAYLOAD and KEPT in (field.metadata or {}):
            return PayloadSchema(**json.loads(field.metadata[KEPT]))
    return found_payload(given)


def check_stream(wanted: PayloadSchema | None) -> None:
    """UsageError if a stream's columns would depend on what happens to be there when it starts."""
    if wanted is not None and not wanted.is_known and wanted.format != CONTRACT:
        raise UsageError("a stream needs payloadSchema, or decode=contract: what is inferred may differ at each start")


def _sample(options: SourceOptions) -> list[bytes]:
    """Of the oldest payloads."""
    options = replace(options, columns=("value",), attributes="")
    with options.connect() as client:
        logs = list_logs(client, options)
    found: list[bytes] = []
    for log in (each for each in logs if each.first < each.next):
        for rows in read_range(options, LogRange(log.store, log.address, log.first, log.next, filters=log.filters)):
            found += [each for each in rows.column("value").to_pylist() if len(each) <= SAMPLE_BYTES]
            if len(found) >= SAMPLE_ROWS:
                return found[:SAMPLE_ROWS]
    return found
