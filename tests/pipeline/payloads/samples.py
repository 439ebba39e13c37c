"""Schemas and payloads of each format, and random ones, for tests of payloads as columns."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import strategies as st

from heliograph.pipeline.payloads.formats import PayloadSchema
from heliograph.pipeline.payloads.layouts import Layout, PayloadField, struct

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)

AVRO: dict[str, Any] = {
    "type": "record", "name": "Reading", "namespace": "plant",
    "fields": [
        {"name": "celsius", "type": "double"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {"name": "states", "type": {"type": "array", "items": {"type": "map", "values": "plant.State"}}},
        {"name": "either", "type": ["int", "string"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "days", "type": {"type": "array", "items": {"type": "int", "logicalType": "date"}}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
    ],
}  # fmt: skip
AVRO_VALUE: dict[str, Any] = {
    "celsius": 21.5, "at": NOON, "price": Decimal("12.50"), "state": "OFF", "states": [{"a": "ON"}], "either": "x",
    "day": NOON.date(), "days": [NOON.date()], "raw": b"\x01\x02",
}  # fmt: skip


def avro(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """plant.Reading in proto3: each kind of field, one with presence, one that contains itself."""
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="plant", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="OFF", number=0)
    state.value.add(name="ON", number=1)
    tree = file.message_type.add(name="Tree")
    kinds = descriptor_pb2.FieldDescriptorProto
    tree.field.add(name="name", number=1, type=kinds.TYPE_STRING, label=1)
    tree.field.add(name="below", number=2, type=kinds.TYPE_MESSAGE, type_name=".plant.Tree", label=3)
    reading = file.message_type.add(name="Reading")
    reading.field.add(name="celsius", number=1, type=kinds.TYPE_DOUBLE, label=1)
    reading.field.add(name="count", number=2, type=kinds.TYPE_UINT64, label=1)
    reading.field.add(name="at", number=3, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    reading.field.add(name="state", number=4, type=kinds.TYPE_ENUM, type_name=".plant.State", label=1)
    reading.field.add(name="tags", number=5, type=kinds.TYPE_STRING, label=3)
    reading.field.add(name="tree", number=6, type=kinds.TYPE_MESSAGE, type_name=".plant.Tree", label=1)
    reading.field.add(name="note", number=7, type=kinds.TYPE_STRING, label=1, proto3_optional=True, oneof_index=0)
    reading.oneof_decl.add(name="_note")
    entry = reading.nested_type.add(name="LimitsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=1)
    entries = ".plant.Reading.LimitsEntry"
    reading.field.add(name="limits", number=8, type=kinds.TYPE_MESSAGE, type_name=entries, label=3)
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file])


def message(name: str, **fields: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors().file:
        pool.Add(file)
    made: bytes = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))(**fields).SerializeToString()
    return made


DESCRIPTORS = b64encode(descriptors().SerializeToString()).decode()
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"celsius": 21.5}}

# A schema and a payload that fits, of each format.
GOOD: dict[str, tuple[PayloadSchema, bytes]] = {
    "json": (PayloadSchema("json", "celsius double, place struct<floor: int>, tags array<string>, m map<string, json>"),
             b'{"celsius": 21.5, "place": {"floor": 3}, "tags": ["a"], "m": {"x": [1]}}'),
    "avro": (PayloadSchema("avro", json.dumps(AVRO)), avro(AVRO, AVRO_VALUE)),
    "protobuf": (PayloadSchema("protobuf", DESCRIPTORS, "plant.Reading"),
                 message("plant.Reading", celsius=21.5, count=2**64 - 1, tags=["a"], note="n", limits={"a": 1},
                         tree={"name": "t", "below": [{"name": "u"}]})),
    "cloudevents": (PayloadSchema("cloudevents", "celsius double"), json.dumps(EVENT).encode()),
}  # fmt: skip

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
SIMPLE = st.sampled_from(
    ["boolean", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp", "json"]
).map(Layout)
DECIMALS = st.integers(1, 38).flatmap(
    lambda digits: st.integers(0, digits).map(lambda scale: Layout("decimal", precision=digits, scale=scale))
)


def structs(inner: st.SearchStrategy[Layout]) -> st.SearchStrategy[Layout]:
    fields = st.builds(PayloadField, NAMES, inner, st.booleans())
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda each: each.column.lower()).map(struct)


LAYOUTS = st.recursive(
    SIMPLE | DECIMALS,
    lambda inner: (
        structs(inner)
        | inner.map(lambda item: Layout("array", item=item))
        | inner.map(lambda item: Layout("map", item=item))
    ),
    max_leaves=8,
)
STRUCTS = structs(LAYOUTS)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(["2026-11-16", "2026-11-16T12:00:00Z", "9999-12-31T23:59:59-23:59", "12.50", "AAE="]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.just("celsius"), inner, max_size=4),
    max_leaves=10,
)
