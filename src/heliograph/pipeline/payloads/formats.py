"""Formats: from the bytes of a payload to a value that fits a schema, one payload at a time.

In:    PayloadSchema: a format, and a schema in the form of that format; payloads.
Out:   PayloadReader: its layout, and read(), which returns a row and its other fields, or raises.
State: none.
Not here: columns (decoding.py), what fits (fitting.py), Avro and Protobuf themselves (avro.py, protobuf.py).

Whatever a payload contains, reading it takes time and memory in proportion to its length, which is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from heliograph.errors import UsageError
from heliograph.pipeline.payloads.fitting import Lost, Unfit, fitter
from heliograph.pipeline.payloads.inference import as_object, infer
from heliograph.pipeline.payloads.layouts import Layout, PayloadField, columns_text, read_columns, struct

JSON, AVRO, PROTOBUF, CLOUDEVENTS = "json", "avro", "protobuf", "cloudevents"
FORMATS = (JSON, AVRO, PROTOBUF, CLOUDEVENTS)
PAYLOAD_BYTES_MAX = 8 << 20  # larger ones are files in the archive, and are not read
DEPTH_MAX = 64  # of JSON

_OPENING = (b"[", b"{")
_json = msgspec.json.Decoder()
_exact_json = msgspec.json.Decoder(float_hook=Decimal)  # slower; fractions keep their digits
_ENVELOPE = (
    *("id string not null", "source string not null", "specversion string not null", "type string not null"),
    *("subject string", "time timestamp", "datacontenttype string", "dataschema string", "data_base64 binary"),
)


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """What payloads should be. Plain texts: it is sent to tasks, and kept beside tables."""

    format: str
    text: str = ""  # columns for JSON and the data of CloudEvents, JSON for Avro, base64 for Protobuf; empty: unknown
    message: str = ""  # of Protobuf; may be empty if the schema has only one

    @property
    def is_known(self) -> bool:
        """False if it is still to be found in a sample."""
        return bool(self.text)


@dataclass(frozen=True, slots=True)
class PayloadReader:
    """Reads payloads of one schema."""

    layout: Layout
    read: Callable[[bytes], tuple[dict[str, Any], Lost]]


def check_format(format: str) -> None:
    """UsageError if there is no such format."""
    if format not in FORMATS:
        raise UsageError(f"there is no format {format[:40]!r} of payloads; there are {', '.join(FORMATS)}")


def reader(schema: PayloadSchema) -> PayloadReader:
    """What reads payloads of this schema. UsageError if the schema is not one."""
    check_format(schema.format)
    if schema.format in (AVRO, PROTOBUF):
        layout, decode = _by_library(schema)
    else:
        layout = read_columns(schema.text)
        layout = _event(layout) if schema.format == CLOUDEVENTS else layout
        decode = _json_reader(layout)
    fit = fitter(layout)

    def read(payload: bytes) -> tuple[dict[str, Any], Lost]:
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise Unfit(f"the payload has more than {PAYLOAD_BYTES_MAX >> 20} MiB")
        lost: Lost = {}
        return fit(decode(payload), lost), lost

    return PayloadReader(layout, read)


def inferred(schema: PayloadSchema, sample: list[bytes]) -> PayloadSchema | None:
    """The same with the schema that most payloads of a sample have; None if none of them says anything."""
    if schema.format not in (JSON, CLOUDEVENTS):
        raise UsageError(f"{schema.format} needs a schema: its payloads do not say which one they have")
    values = []
    for payload in sample:
        try:
            value = read_json(payload)
        except Exception:  # noqa: S112 what cannot be read says nothing
            continue
        if schema.format == JSON:
            values.append(value)
        elif type(value) is dict:
            values.append(value.get("data"))
    if schema.format == CLOUDEVENTS:
        found = infer([{"data": value} for value in values])
        return PayloadSchema(schema.format, columns_text(found or read_columns("data json"))) if values else None
    found = infer(values)
    return PayloadSchema(schema.format, columns_text(found)) if found is not None else None


def read_json(payload: bytes, decoder: msgspec.json.Decoder[Any] = _json) -> Any:
    """A payload as JSON, not nested too deeply."""
    value = decoder.decode(payload)
    if sum(map(payload.count, _OPENING)) > DEPTH_MAX:  # else it cannot be that deep
        level = [value]
        for _ in range(DEPTH_MAX):
            level = [inner for each in level for inner in _inside(each) if type(inner) in (dict, list)]
        if level:
            raise Unfit(f"JSON that is nested more than {DEPTH_MAX} deep")
    return value


def _inside(value: Any) -> Any:
    return value.values() if type(value) is dict else value if type(value) is list else ()


def _by_library(schema: PayloadSchema) -> tuple[Layout, Callable[[bytes], Any]]:
    """Avro and Protobuf, if their libraries are there."""
    try:
        if schema.format == PROTOBUF:
            from heliograph.pipeline.payloads.protobuf import protobuf_reader

            return protobuf_reader(schema.text, schema.message)
        from heliograph.pipeline.payloads.avro import avro_reader

        return avro_reader(schema.text)
    except ImportError as error:
        raise UsageError(f"{schema.format}: {error}; `pip install 'heliograph[spark]'` brings it") from None


def _json_reader(layout: Layout) -> Callable[[bytes], Any]:
    decoder = _exact_json if _has_decimals(layout) else _json

    def decode(payload: bytes) -> Any:
        return as_object(read_json(payload, decoder))

    return decode


def _has_decimals(layout: Layout) -> bool:
    inner = [each.layout for each in layout.fields] + ([layout.item] if layout.item is not None else [])
    return layout.kind == "decimal" or any(map(_has_decimals, inner))


def _event(data: Layout) -> Layout:
    """The columns of a CloudEvent (structured mode), with ``data`` of the given columns."""
    given = [each for each in data.fields if each.name == "data"] if len(data.fields) == 1 else []
    envelope = read_columns(", ".join(_ENVELOPE)).fields
    return struct([*envelope, *(given or [PayloadField("data", data)])])
