"""Avro: payloads that are one datum each, in the binary encoding, with or without the head of a single object.

In:    a schema as JSON; payloads.
Out:   its layout, and a function that decodes a payload.
State: none.
Not here: what fits (fitting.py), containers of many records: a publication is one.

fastavro decodes. Logical types are left out of the schema that it gets, and are converted here: it would make a number
of a decimal of any length, which takes time. A schema with arrays whose items have no bytes is refused, since a few
bytes could then claim any number of them; so is one that contains itself, which no columns can hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import fingerprint, to_parsing_canonical_form

from heliograph.errors import UsageError
from heliograph.pipeline.payloads.fitting import Unfit
from heliograph.pipeline.payloads.inference import BARE
from heliograph.pipeline.payloads.layouts import (
    DIGITS_MAX,
    FIELDS_MAX,
    TEXT_BYTES_MAX,
    Layout,
    PayloadField,
    checked,
    struct,
)

SINGLE = b"\xc3\x01"  # begins a single object; the fingerprint of its schema follows
FINGERPRINT = "CRC-64-AVRO"
DECIMAL_BYTES_MAX = 32
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_ONE = EPOCH.date()

Convert = Callable[[Any], Any] | None
_PLAIN = {"boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
          "string": "string", "bytes": "binary", "fixed": "binary", "enum": "string", "null": "json"}  # fmt: skip
_LEAST = {"null": 0, "float": 4, "double": 8}  # bytes of a value; of others at least one


def avro_reader(text: str) -> tuple[Layout, Callable[[bytes], Any]]:
    """What decodes payloads of a schema. UsageError if it is none that tables can have."""
    if len(text) > TEXT_BYTES_MAX:
        raise UsageError(f"the schema: more than {TEXT_BYTES_MAX:,} letters")
    try:
        given = json.loads(text)
        named: dict[str, Any] = {}
        parsed = parse_schema(given, named)
        plain = parse_schema(_without_logical(given), {})
        mark = SINGLE + bytes.fromhex(fingerprint(to_parsing_canonical_form(given), FINGERPRINT))[::-1]
        found = _AvroTypes(named)
        layout, convert = found.of(parsed)
    except UsageError:
        raise
    except RecursionError:
        raise UsageError("the schema: it is nested too deeply") from None
    except Exception as error:
        raise UsageError(f"the schema is not one of Avro: {str(error)[:200] or type(error).__name__}") from None
    is_bare = layout.kind != "struct"

    def decode(payload: bytes) -> Any:
        data = payload[len(mark) :] if payload.startswith(mark) else payload
        file = BytesIO(data)
        value = schemaless_reader(file, plain, None)
        if file.tell() != len(data):
            raise Unfit(f"{len(data) - file.tell()} bytes follow the datum")
        value = value if convert is None else convert(value)
        return {BARE: value} if is_bare else value

    return checked(struct([PayloadField(BARE, layout)]) if is_bare else layout), decode


def _without_logical(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {name: _without_logical(inner) for name, inner in given.items() if name != "logicalType"}
    return [_without_logical(inner) for inner in given] if isinstance(given, list) else given


class _AvroTypes:
    """Types of a schema, as layouts, each with what converts its values."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._within: list[str] = []  # records that are being looked at
        self._count = 0

    def of(self, given: Any) -> tuple[Layout, Convert]:
        self._count += 1
        if self._count > 2 * FIELDS_MAX:
            raise UsageError(f"the schema: it has more than {FIELDS_MAX} fields")
        if isinstance(given, list):
            return self._union(given)
        if isinstance(given, str):
            return (Layout(_PLAIN[given]), None) if given in _PLAIN else self.of(self._named[given])
        kind = given["type"]
        if kind in ("record", "error"):
            return self._record(given)
        if kind == "array":
            if self.least(given["items"]) == 0:
                raise UsageError("the schema: an array of items without bytes could be of any length")
            layout, convert = self.of(given["items"])
            return Layout("array", item=layout), None if convert is None else partial(_each_item, convert)
        if kind == "map":
            layout, convert = self.of(given["values"])
            return Layout("map", item=layout), None if convert is None else partial(_each_value, convert)
        if isinstance(kind, list | dict) or kind not in _PLAIN:
            return self.of(kind)
        return _logical(given, kind) or (Layout(_PLAIN[kind]), None)

    def _union(self, given: list[Any]) -> tuple[Layout, Convert]:
        others = [each for each in given if each != "null"]
        if len(others) == 1:
            return self.of(others[0])
        for each in others:
            self.of(each)  # checked, though its values become JSON
        return Layout("json"), None

    def _record(self, given: Mapping[str, Any]) -> tuple[Layout, Convert]:
        name = given["name"]
        if name in self._within:
            raise UsageError(f"the schema: {name} contains itself, which columns cannot hold")
        self._within.append(name)
        fields, converts = [], {}
        for each in given["fields"]:
            layout, convert = self.of(each["type"])
            fields.append(PayloadField(each["name"], layout))
            if convert is not None:
                converts[each["name"]] = convert
        self._within.pop()
        if not fields:
            return Layout("json"), None

        def convert_all(value: Any) -> Any:
            for name, convert in converts.items():
                value[name] = _maybe(convert, value[name])
            return value

        return struct(fields), convert_all if converts else None

    def least(self, given: Any) -> int:
        """How many bytes a value has at least; 0 or more."""
        self._count += 1
        if self._count > 2 * FIELDS_MAX:
            raise UsageError(f"the schema: it has more than {FIELDS_MAX} fields")
        if isinstance(given, str):
            return _LEAST.get(given, 1) if given in _PLAIN else self.least(self._named[given])
        if isinstance(given, list):
            return 1
        kind = given["type"]
        if kind in ("record", "error"):
            return sum(self.least(each["type"]) for each in given["fields"])
        if kind == "fixed":
            return int(given["size"])
        return 1 if kind in ("array", "map", "enum") else self.least(kind)


def _each_item(convert: Callable[[Any], Any], values: list[Any]) -> Any:
    return [_maybe(convert, value) for value in values]


def _each_value(convert: Callable[[Any], Any], values: dict[str, Any]) -> Any:
    return {name: _maybe(convert, value) for name, value in values.items()}


def _maybe(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _logical(given: Mapping[str, Any], kind: str) -> tuple[Layout, Convert] | None:
    """The logical types that columns have; others are what they are without it."""
    match given.get("logicalType"), kind:
        case "timestamp-millis", "long":
            return Layout("timestamp"), lambda value: _time(value * 1_000)
        case "timestamp-micros", "long":
            return Layout("timestamp"), _time
        case "date", "int":
            return Layout("date"), _day
        case "decimal", ("bytes" | "fixed"):
            precision, scale = given.get("precision"), given.get("scale", 0)
            if type(precision) is int and type(scale) is int and 0 <= scale <= precision <= DIGITS_MAX and precision:
                return Layout("decimal", precision=precision, scale=scale), lambda value: _decimal(value, scale)
    return None


def _time(micros: int) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise Unfit("a time that is not in the years 1 to 9999") from None


def _day(days: int) -> date:
    try:
        return DAY_ONE + timedelta(days=days)
    except OverflowError:
        raise Unfit("a day that is not in the years 1 to 9999") from None


def _decimal(value: bytes, scale: int) -> Decimal:
    if len(value) > DECIMAL_BYTES_MAX:
        raise Unfit(f"a decimal of {len(value)} bytes")
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
