"""Payloads as columns: a value is in its column exactly or its row does not fit, whatever the payload contains."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.errors import UsageError
from heliograph.pipeline.payloads import decoding
from heliograph.pipeline.payloads.decoding import decode, pieces
from heliograph.pipeline.payloads.formats import FORMATS, PayloadSchema, inferred, reader
from heliograph.pipeline.payloads.layouts import Layout, columns_text, read_columns
from tests.examples import examples
from tests.pipeline.payloads.samples import (
    AVRO,
    AVRO_VALUE,
    DESCRIPTORS,
    GOOD,
    LAYOUTS,
    NOON,
    STRUCTS,
    VALUES,
    avro,
    message,
)

pytestmark = pytest.mark.req("S9")
LIMITS = {"int": 31, "bigint": 63}


def read(schema: PayloadSchema, *payloads: bytes | None) -> list[tuple[Any, Any, Any]]:
    found = decode(schema, pa.array(payloads, pa.binary()))
    return list(zip(found.values.to_pylist(), found.others.to_pylist(), found.faults.to_pylist(), strict=True))


def json_of(columns: str, *values: Any) -> list[tuple[Any, Any, Any]]:
    return read(PayloadSchema("json", columns), *(json.dumps(value).encode() for value in values))


@given(STRUCTS)
def test_a_schema_is_the_text_that_it_is_written_as(layout: Layout) -> None:
    assert read_columns(columns_text(layout)) == layout
    assert pa.array([None], layout.arrow()).null_count == 1


@pytest.mark.parametrize(
    ("columns", "value", "column"),
    [
        ("a boolean", True, True),
        ("a int", 2**31 - 1, 2**31 - 1),
        ("a int", 21.0, 21),
        ("a bigint", -(2**63), -(2**63)),
        ("a double", 7, 7.0),
        ("a double", 0.1, 0.1),
        ("a float", 0.5, 0.5),
        ("a decimal(5,2)", 123.45, Decimal("123.45")),
        ("a decimal(5,2)", "-0.5", Decimal("-0.50")),
        ("a decimal(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
        ("a string", "é", "é"),
        ("a binary", "AAE=", b"\x00\x01"),
        ("a date", "2026-02-28", date(2026, 2, 28)),
        ("a timestamp", "2026-11-16T13:00:00+01:00", NOON),
        ("a timestamp", "2026-11-16T12:00:00", NOON),
        ("a json", {"b": [1, None]}, '{"b":[1,null]}'),
        ("a array<int>", [1, None], [1, None]),
        ("a map<string, int>", {"x": 1, "y": None}, [("x", 1), ("y", None)]),
        ("a struct<b: int>", {"b": None}, {"b": None}),
        ("a int", None, None),
    ],
)
def test_a_value_of_json_is_in_its_column_exactly(columns: str, value: Any, column: Any) -> None:
    assert json_of(columns, {"a": value}) == [({"a": column}, None, None)]


@pytest.mark.parametrize(
    ("columns", "value", "reason"),
    [
        ("a boolean", 1, "a: the number 1 where true or false is expected"),
        ("a int", 2**31, "a: the number has more than the 32 bits of int"),
        ("a int", 1.5, "a: the number 1.5 where int is expected"),
        ("a int", True, "a: true or false where int is expected"),
        ("a double", 2**53 + 1, "a: double does not hold this integer exactly"),
        ("a double", "1", "a: text '1' where double is expected"),
        ("a float", 1e39, "a: the number is too large for float"),
        ("a decimal(5,2)", 1234.5, "a: the number is too large for decimal(5,2)"),
        ("a decimal(5,2)", 1.005, "a: the number has more than 2 digits after the point"),
        ("a decimal(5,2)", "1e-999999999", "a: the number has more than 2 digits after the point"),
        ("a decimal(5,2)", "NaN", "a: the number is too large for decimal(5,2)"),
        ("a string", {"b": 1}, "a: an object where text is expected"),
        ("a binary", "é", "a: text 'é' where text in base64 is expected"),
        ("a date", "2026-02-29", "a: text '2026-02-29' where a date such as 2026-11-16 is expected"),
        ("a timestamp", 1_700_000_000, "a: the number 1700000000 where a time such as 2026-11-16T12:00:00Z"),
        ("a timestamp", "0001-01-01T00:00:00+23:00", "a: text '0001-01-01T00:00:00+23:00' where a time"),
        ("a array<int>", {"0": 1}, "a: an object where an array is expected"),
        ("a array<int>", [1, "x"], "a.1: text 'x' where int is expected"),
        ("a struct<b: array<struct<c: int not null>>>", {"b": [{"c": None}]}, "a.b.0.c: null"),
        ("a map<string, int>", {"x": "y"}, "a.x: text 'y' where int is expected"),
        ("a int not null", None, "a: null"),
    ],
)
def test_what_is_not_of_the_type_does_not_fit_and_says_where(columns: str, value: Any, reason: str) -> None:
    ((row, others, fault),) = json_of(columns, {"a": value})
    assert (row, others, fault[: len(reason)]) == (None, None, reason)


def test_missing_fields_are_null_unless_needed_and_unknown_ones_are_kept() -> None:
    columns = "a int, b struct<c: int>, d array<struct<e: int>>"
    value = {"b": {"c": 1, "x": [2]}, "d": [{"e": 1}, {"y": 1}], "z": None, "w": "v"}
    row = {"a": None, "b": {"c": 1}, "d": [{"e": 1}, {"e": None}]}
    assert json_of(columns, value, 5) == [
        (row, '{"b":{"x":[2]},"d":{"1":{"y":1}},"w":"v"}', None),
        ({"a": None, "b": None, "d": None}, '{"value":5}', None),
    ]
    assert json_of("a int not null", {})[0][2] == "a: missing"
    assert json_of("value double", 21.5)[0][0] == {"value": 21.5}, "a payload that is no object is a field of one"


def fits(layout: Layout, value: Any) -> bool:
    """What the page says, in the simplest words."""
    match layout.kind:
        case "struct":
            known = {each.name: each for each in layout.fields}
            return type(value) is dict and all(
                (value.get(name) is not None and fits(each.layout, value[name]))
                if value.get(name) is not None
                else not each.needed
                for name, each in known.items()
            )
        case "array" | "map":
            assert layout.item is not None
            inner = value if type(value) is list else list(value.values()) if type(value) is dict else None
            is_kind = type(value) is (list if layout.kind == "array" else dict)
            return is_kind and inner is not None and all(each is None or fits(layout.item, each) for each in inner)
        case "boolean":
            return type(value) is bool
        case "string":
            return type(value) is str
        case "int" | "bigint":
            whole = type(value) is int or (type(value) is float and abs(value) <= 2**53 and value == int(value))
            return whole and -(2 ** LIMITS[layout.kind]) <= value < 2 ** LIMITS[layout.kind]
        case "double":
            return type(value) is float or (type(value) is int and float(value) == value)
        case "float":
            is_small = type(value) in (int, float) and abs(value) <= 3.4028234663852886e38
            return is_small and float(value) == value
        case "json":
            return True
    return may(layout, value)


def may(layout: Layout, value: Any) -> bool:
    """Texts of a form: what can be read back."""
    reads: dict[str, Callable[[Any], Any]] = {
        "date": lambda text: len(text) == 10 and date.fromisoformat(text),
        "timestamp": lambda text: len(text) > 10 and datetime.fromisoformat(text).replace(tzinfo=UTC),
        "binary": lambda text: b64decode(text, validate=True) is not None,
        "decimal": lambda text: _is_decimal(layout, Decimal(text if type(text) is str else repr(text))),
    }
    wanted = (str, int, float) if layout.kind == "decimal" else (str,)
    try:
        return type(value) in wanted and bool(reads[layout.kind](value))
    except (ValueError, ArithmeticError):
        return False


def _is_decimal(layout: Layout, number: Decimal) -> bool:
    if not number.is_finite():
        return False
    scaled = number.scaleb(layout.scale) if number else number
    return scaled == scaled.to_integral_value() and abs(scaled) < 10**layout.precision


@examples(400)
@given(STRUCTS, VALUES)
def test_what_fits_is_what_the_page_says(layout: Layout, value: Any) -> None:
    value = value if type(value) is dict else {"value": value}
    names = [each.name for each in layout.fields]
    value = dict(zip(names, value.values(), strict=False)) | value
    ((row, _, fault),) = json_of(columns_text(layout), value)
    assert (fault is None) == fits(layout, value), fault
    assert (row is None) == (fault is not None)


@given(st.sampled_from(FORMATS), st.binary(max_size=200))
@example("json", b"[" * 100_000)
@example("json", b"[" * 500 + b"]" * 500)
@example("json", b'{"celsius": ' + b"1" * 4_000 + b"}")
@example("json", b'{"m": {"\\ud800": 1}}')
@example("json", b'{"m": {"x": ' + b"[" * 60 + b"]" * 60 + b"}}")
@example("cloudevents", b'{"specversion": "1.0", "data": []}')
def test_any_payload_costs_its_row_at_most(format: str, payload: bytes) -> None:
    schema, good = GOOD[format]
    alone = read(schema, good)
    assert alone[0][2] is None
    first, hostile, last = read(schema, good, payload, good)
    assert [first, last] == alone * 2
    assert (hostile[0] is None) == (hostile[2] is not None)


@examples(200)
@given(st.sampled_from(FORMATS), st.data())
def test_a_payload_that_was_changed_costs_its_row_at_most(format: str, data: st.DataObject) -> None:
    schema, good = GOOD[format]
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        changed = changed or bytearray(b"x")
    first, hostile, last = read(schema, good, bytes(changed), good)
    assert first == last == read(schema, good)[0]
    assert (hostile[0] is None) == (hostile[2] is not None)


@given(st.sampled_from(FORMATS), st.text(max_size=60) | VALUES.map(json.dumps), st.text(max_size=8))
@example("json", "a array<" * 100 + "int" + ">" * 100, "")
@example("json", "a int, A int", "")
@example("avro", "[" * 100_000, "")
@example("avro", '{"type": "array", "items": "null"}', "")
@example("avro", '{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}', "")
@example("protobuf", DESCRIPTORS, "plant.Other")
@example("protobuf", DESCRIPTORS, "")
def test_any_schema_is_read_or_refused(format: str, text: str, message: str) -> None:
    try:
        layout = reader(PayloadSchema(format, text, message)).layout
    except UsageError:
        return  # it is anything but a schema
    assert layout.fields


def test_a_schema_that_grows_without_end_is_refused() -> None:
    laughs = [{"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}]
    for number in range(1, 20):
        fields = [{"name": f"f{n}", "type": laughs[-1] if n == 0 else f"R{number - 1}"} for n in range(10)]
        laughs.append({"type": "record", "name": f"R{number}", "fields": fields})
    with pytest.raises(UsageError, match="more than 1000 fields"):
        reader(PayloadSchema("avro", json.dumps(laughs[-1])))


def test_what_an_array_of_avro_claims_costs_no_more_than_its_bytes() -> None:
    schema = PayloadSchema("avro", json.dumps({"type": "array", "items": "int"}))
    claimed = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"  # 2^62 items
    ((row, _, fault),) = read(schema, claimed + b"\x02" * 10)
    assert row is None
    assert fault.startswith("it cannot be decoded: EOFError")


def test_avro_becomes_columns() -> None:
    schema, payload = GOOD["avro"]
    row = AVRO_VALUE | {"at": NOON, "states": [[("a", "ON")]], "either": '"x"'}
    assert read(schema, payload) == [(row, None, None)]
    assert read(schema, payload + b"\x00")[0][2] == "1 bytes follow the datum"
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(AVRO), "CRC-64-AVRO"))[::-1]
    assert read(schema, b"\xc3\x01" + mark + payload) == [(row, None, None)], "with the head of a single object"
    far = {"type": "long", "logicalType": "timestamp-micros"}
    plain = avro("long", 2**62)
    assert read(PayloadSchema("avro", json.dumps(far)), plain)[0][2] == "a time that is not in the years 1 to 9999"


def test_protobuf_becomes_columns() -> None:
    schema, payload = GOOD["protobuf"]
    row = {
        "celsius": 21.5, "count": Decimal(2**64 - 1), "at": None, "state": "OFF", "tags": ["a"],
        "tree": {"name": "t", "below": ['{"name":"u"}']}, "note": "n", "limits": [("a", 1)],
    }  # fmt: skip
    unknown = b"\xf8\x01\x05" + b"\xf2\x01\x02hi"  # fields 31 and 30
    bare = {"celsius": 0.0, "count": Decimal(0), "at": None, "state": "OFF", "tags": [], "tree": None, "note": None,
            "limits": []}  # fmt: skip
    assert read(schema, payload, b"", unknown) == [
        (row, None, None),
        (bare, None, None),
        (bare, '{"31":[5],"30":["aGk="]}', None),
    ]
    stamped = message("plant.Reading", at=NOON, state=1)
    assert read(schema, stamped)[0][0] | {"at": NOON, "state": "ON"} == read(schema, stamped)[0][0]


def test_cloudevents_become_columns_with_their_data() -> None:
    schema, payload = GOOD["cloudevents"]
    extended = json.dumps(json.loads(payload) | {"time": "2026-11-16T12:00:00Z", "traceparent": "0a"}).encode()
    first, second, third = read(schema, payload, extended, b'{"specversion": "1.0", "id": "1", "source": "s"}')
    assert (first[0]["id"], first[0]["data"], first[0]["time"]) == ("1", {"celsius": 21.5}, None)
    assert (second[0]["time"], second[1]) == (NOON, '{"traceparent":"0a"}')
    assert third[2] == "type: missing"


@examples(200)
@given(LAYOUTS.filter(lambda layout: layout.kind in ("struct", "array", "string", "bigint", "boolean")), st.data())
def test_a_sample_of_one_shape_fits_what_is_inferred_from_it(layout: Layout, data: st.DataObject) -> None:
    sample = [json.dumps(data.draw(valued(layout))).encode() for _ in range(data.draw(st.integers(1, 5)))]
    found = inferred(PayloadSchema("json"), sample)
    if found is not None:
        assert [fault for _, _, fault in read(found, *sample)] == [None] * len(sample)
    else:
        assert {value for payload in sample for value in [json.loads(payload)] if value not in ({}, [])} <= {None}


def valued(layout: Layout) -> st.SearchStrategy[Any]:
    """Values of JSON that have this layout, roughly: what is no JSON type is text."""
    match layout.kind:
        case "struct":
            return st.fixed_dictionaries({}, optional={each.name: valued(each.layout) for each in layout.fields})
        case "array":
            assert layout.item is not None
            return st.lists(valued(layout.item), max_size=3)
        case "boolean":
            return st.booleans()
        case "int" | "bigint":
            return st.integers(-(2**63), 2**63 - 1)
        case "float" | "double":
            return st.floats(allow_nan=False, allow_infinity=False)
    return st.text(st.characters(codec="utf-8"), max_size=5)


def test_few_wrong_values_of_a_sample_do_not_decide() -> None:
    honest = [json.dumps({"celsius": n + 0.5, "n": n, "tags": ["a"]}).encode() for n in range(40)]
    junk = {f"junk{n}": 1 for n in range(1_000)} | {"celsius": "x", "N": 1, "n": "y", "deep": {"d": {"e": 1}}}
    found = inferred(PayloadSchema("json"), [json.dumps(junk).encode(), b"\xff", *honest])
    assert found is not None
    layout = read_columns(found.text)
    known = {each.name: str(each.layout) for each in layout.fields}
    assert (known["celsius"], known["n"], known["tags"]) == ("double", "bigint", "array<string>")
    assert "N" not in known
    assert len(layout.fields) == 256


def test_a_sample_without_a_type_for_a_field_leaves_it_as_json() -> None:
    assert inferred(PayloadSchema("json"), [b'{"a": 1, "b": 1}', b'{"a": "x", "b": 1.5}', b'{"c": null}']) == (
        PayloadSchema("json", "a json, b double")
    )
    assert inferred(PayloadSchema("json"), [b"", b"{}", b"null"]) is None
    assert inferred(PayloadSchema("cloudevents"), [GOOD["cloudevents"][1]]) == PayloadSchema(
        "cloudevents", "data struct<celsius: double>"
    )


def test_a_batch_is_decoded_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE_BYTES", 10)
    monkeypatch.setattr(decoding, "PIECE_ROWS", 5)
    values = [b"x" * n for n in (4, 4, 4, 30, 0, 0, 0, 0, 0, 0, 0, 1)] + [None]
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["v"])
    found = [piece.column("v").to_pylist() for piece in pieces(batch, "v")]
    assert [value for piece in found for value in piece] == values
    assert [len(piece) for piece in found] == [3, 1, 6, 3]
