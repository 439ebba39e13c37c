"""Fitting: whether a decoded value has the type that a column wants, and the value that goes into the column.

In:    values as JSON's reader makes them; a layout.
Out:   the value for Arrow, and the fields that the layout does not know; Unfit, with where and why.
State: none.
Not here: decoding bytes (formats.py), columns (decoding.py).

A value goes into its column exactly, or its row does not fit: nothing becomes null because it was of another type. Only
fractions are rounded, to the nearest that a float or double holds, as every reader of JSON does.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from math import isfinite
from typing import Any

import msgspec

from heliograph.errors import HeliographError
from heliograph.pipeline.payloads.layouts import Layout

SHOWN_MAX = 40  # letters of a value, or of a name, in a reason
NUMBER_LETTERS_MAX = 64  # of a decimal that is written as text
FLOAT_MAX = 3.4028234663852886e38
EXACT_BITS = 53
EXACT_MAX = 1 << EXACT_BITS  # up to here, a double is an exact integer
LIMITS = {"int": 1 << 31, "bigint": 1 << 63}
_EXACT = Context(prec=100)  # more digits than a decimal can have
_DAY = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)

Lost = dict[str, Any]
"""What the layout does not know, in objects within objects as it was."""
Fitter = Callable[[Any, Lost], Any]

_encode = msgspec.json.Encoder(decimal_format="number").encode


class Unfit(HeliographError):  # noqa: N818 it is an answer, not a fault of ours
    """A payload does not fit its schema. It costs its row."""

    def __init__(self, told: str, where: str = "") -> None:
        super().__init__(f"{where}: {told}" if where else told)
        self.told = told
        self.where = where

    def under(self, name: str) -> Unfit:
        """The same, seen from outside the field of this name."""
        return Unfit(self.told, f"{name[:SHOWN_MAX]}.{self.where}" if self.where else name[:SHOWN_MAX])


def fitter(layout: Layout) -> Fitter:
    """What makes values of a layout for Arrow."""
    if layout.kind == "struct":
        return _struct(layout)
    if layout.kind == "decimal":
        return lambda value, _: as_decimal(value, layout.precision, layout.scale)
    if layout.item is not None:
        return _array(layout.item) if layout.kind == "array" else _map(layout.item)
    return _SIMPLE[layout.kind]


def json_text(value: Any) -> str:
    """Any value as JSON."""
    return _encode(value).decode()


def _struct(layout: Layout) -> Fitter:
    fields = {each.name: (each.column, fitter(each.layout)) for each in layout.fields}
    needed = [each.name for each in layout.fields if each.needed]

    def fit(value: Any, lost: Lost) -> Any:
        if type(value) is not dict:
            raise _other(value, "an object")
        made = {}
        for name, inner in value.items():
            if inner is None:
                continue
            known = fields.get(name)
            if known is None:
                lost[name] = inner
            else:
                made[known[0]] = _within(name, known[1], inner, lost)
        for name in needed:
            if value.get(name) is None:
                raise Unfit("missing" if name not in value else "null", name[:SHOWN_MAX])
        return made

    return fit


def _array(item: Layout) -> Fitter:
    inner = fitter(item)

    def fit(value: Any, lost: Lost) -> Any:
        if type(value) is not list:
            raise _other(value, "an array")
        return [None if each is None else _within(str(number), inner, each, lost) for number, each in enumerate(value)]

    return fit


def _map(item: Layout) -> Fitter:
    inner = fitter(item)

    def fit(value: Any, lost: Lost) -> Any:
        if type(value) is not dict:
            raise _other(value, "an object")
        return [(name, None if each is None else _within(name, inner, each, lost)) for name, each in value.items()]

    return fit


def _within(name: str, fit: Fitter, value: Any, lost: Lost) -> Any:
    """A value in a field, an array or a map. What is unknown in it is under the same name in ``lost``."""
    below: Lost = {}
    try:
        made = fit(value, below)
    except Unfit as unfit:
        raise unfit.under(name) from None
    if below:
        lost[name] = below
    return made


def _other(value: Any, wanted: str) -> Unfit:
    """What is there instead; texts and numbers are shown, shortened."""
    if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
        is_huge = type(value) is int and value.bit_length() > EXACT_BITS
        shown = repr(value[: SHOWN_MAX + 1]) if isinstance(value, str) else "of many digits" if is_huge else f"{value}"
        shown = f"{shown[:SHOWN_MAX]}…" if len(shown) > SHOWN_MAX else shown
        return Unfit(f"{'text' if isinstance(value, str) else 'the number'} {shown} where {wanted} is expected")
    named = {bool: "true or false", list: "an array", dict: "an object", bytes: "bytes"}
    return Unfit(f"{named.get(type(value), 'something else')} where {wanted} is expected")


def _boolean(value: Any, _: Lost) -> Any:
    if type(value) is not bool:
        raise _other(value, "true or false")
    return value


def _integer(kind: str) -> Fitter:
    limit = LIMITS[kind]

    def fit(value: Any, _: Lost) -> Any:
        if type(value) is not int:
            # 21.0 is an integer in JSON, which has one kind of numbers
            if type(value) not in (float, Decimal) or not -EXACT_MAX <= value <= EXACT_MAX or value != int(value):
                raise _other(value, f"{kind}")
            value = int(value)
        if not -limit <= value < limit:
            raise Unfit(f"the number has more than the {limit.bit_length()} bits of {kind}")
        return value

    return fit


def _float(kind: str) -> Fitter:
    most = FLOAT_MAX if kind == "float" else 1.7976931348623157e308

    def fit(value: Any, _: Lost) -> Any:
        if type(value) not in (float, int, Decimal):
            raise _other(value, kind)
        if type(value) is float and not isfinite(value):
            return value  # JSON has none, Avro and Protobuf do
        if not -most <= value <= most:
            raise Unfit(f"the number is too large for {kind}")
        made = float(value)
        if type(value) is int and made != value:
            raise Unfit(f"{kind} does not hold this integer exactly")
        return made

    return fit


def as_decimal(value: Any, precision: int, scale: int) -> Decimal:
    """A number, or a text with one, as an exact decimal."""
    wanted = f"decimal({precision},{scale})"
    if type(value) is str and len(value) <= NUMBER_LETTERS_MAX and value.isascii():
        try:
            value = Decimal(value)
        except InvalidOperation:
            raise _other(value, wanted) from None
    if type(value) is int:
        if value.bit_length() > 256:  # to make a decimal of it takes time
            raise Unfit(f"the number is too large for {wanted}")
        value = Decimal(value)
    if type(value) is float:
        value = Decimal(repr(value))
    if type(value) is not Decimal:
        raise _other(value, wanted)
    if not value.is_finite() or (value and value.adjusted() >= precision - scale):
        raise Unfit(f"the number is too large for {wanted}")
    digits = value.as_tuple()
    extra = -int(digits.exponent) - scale
    if value and extra > 0 and any(digits.digits[-extra:]):
        raise Unfit(f"the number has more than {scale} digits after the point")
    return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)


def _string(value: Any, _: Lost) -> Any:
    if type(value) is not str:
        raise _other(value, "text")
    return value


def _binary(value: Any, _: Lost) -> Any:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise _other(value, "text in base64")
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _other(value, "text in base64") from None


def _date(value: Any, _: Lost) -> Any:
    if type(value) is date:
        return value
    if type(value) is str and _DAY.match(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass  # such as February 30
    raise _other(value, "a date such as 2026-11-16")


def _timestamp(value: Any, _: Lost) -> Any:
    if type(value) is datetime:
        return value
    if type(value) is str and len(value) > len("2026-11-16"):
        try:
            read = datetime.fromisoformat(value)
            return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise _other(value, "a time such as 2026-11-16T12:00:00Z")


def _json(value: Any, _: Lost) -> Any:
    return json_text(value)


_SIMPLE: dict[str, Fitter] = {
    "boolean": _boolean,
    "int": _integer("int"),
    "bigint": _integer("bigint"),
    "float": _float("float"),
    "double": _float("double"),
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "json": _json,
}
