"""Twists: a valid body, JSON or MessagePack, with one thing wrong in it, however deep it lies.

In:    a body as plain values; which of the two forms; dice.
Out:   its bytes: a value of another type or out of bounds, a number or text that cannot be decoded, a key missing,
       twice or unknown, something nested too deep; or the whole of it cut, empty or of another type.
State: none.
Not here: the valid bodies (service_requests.py, signed_messages.py, …), frames (mutations.py).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from struct import pack
from typing import Any

import msgspec

TWISTED = 0.85  # of all bodies; the others stay as they are


def _mapped(items: list[tuple[bytes, bytes]]) -> bytes:
    return b"{" + b",".join(key + b":" + value for key, value in items) + b"}"


def _packed(items: list[tuple[bytes, bytes]]) -> bytes:
    return pack(">BH", 0xDE, len(items)) + b"".join(key + value for key, value in items)


@dataclass(frozen=True)
class Form:
    """How values are written, and what is odd in this form."""

    plain: Callable[[Any], bytes]
    map: Callable[[list[tuple[bytes, bytes]]], bytes]
    list: Callable[[list[bytes]], bytes]
    types: tuple[bytes, ...]  # one of each type
    odd: tuple[bytes, ...]

    def wrong(self, dice: random.Random) -> bytes:
        """A value of another type, or one that is odd in itself."""
        return dice.choice(self.types if dice.random() < 0.5 else self.odd)


NUMBERS = (0, -1, 1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32, 2**53, 2**62 - 1, 2**62, 2**63 - 1, -(2**63), -(2**31))
TEXTS = (
    "",
    " ",
    "a",
    "\x00",
    "\u2028",
    "é" * 70,
    "x" * 129,
    "y" * 3_000,
    "../..",
    "%s{0}",
    "true",
    "#",
    "+/#",
    "-" * 16,
)

JSON = Form(
    plain=lambda value: json.dumps(value).encode(),
    map=_mapped,
    list=lambda items: b"[" + b",".join(items) + b"]",
    types=(b"null", b"true", b"5", b"-1", b"1.5", b'"a"', b"[]", b"{}", b"[5]", b'{"a":5}'),
    odd=(
        *(b"0", b"-0.0", b"1e300", b"1e999", b"1e999", b"1e999", b"-1e999", b"NaN", b"-Infinity"),
        *(b"1" * 4_300, b"-" + b"9" * 4_301, b"%d" % 2**64, b"%d" % 10**400, b"0.%b1" % (b"0" * 400), b"1e-999"),
        *(b'""', b'"a"', b'"%b"' % (b"z" * 9_000), b'"\\ud800"', b'"\xff"', b'"\xed\xa0\x80"', b'"\\u0000"', b'"\n"'),
        *(b"[]", b"{}", b"[[]]", b'["a"]', b"[null]", b"[1e999]", b'["\\udfff"]', b'[["a",1]]', b'[1,"a"]'),
        *(b'{"a":1}', b'{"a":1e999}', b'{"\\ud800":1}', b'{"":""}', b'{"a":1,"a":2}', b'{"a":{"a":{"a":[]}}}'),
        *(b"[" * 40 + b"]" * 40, b"[" * 3_000 + b"]" * 3_000, b'{"a":' * 1_500 + b"1" + b"}" * 1_500),
        *(b"tru", b"'a'", b"01", b"+1", b"", b"/**/1", b"\xef\xbb\xbf1"),
    ),
)
MSGPACK = Form(
    plain=msgspec.msgpack.encode,
    map=_packed,
    list=lambda items: pack(">BH", 0xDC, len(items)) + b"".join(items),
    types=(b"\xc0", b"\xc3", b"\x05", b"\xff", b"\xa1a", b"\xc4\x01a", b"\x90", b"\x80", b"\x91\x05", b"\x81\xa1a\x05"),
    odd=(
        *(b"\x00", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + bytes(7), b"\xc1"),
        *(b"\xcb" + pack(">d", number) for number in (0.0, -1.5, 1e300, math.inf, -math.inf, math.nan)),
        *(b"\xa0", b"\xa1a", b"\xa1\xff", b"\xa3\xed\xa0\x80", b"\xa1\x00", b"\xda\x27\x10" + b"z" * 10_000),
        *(b"\xc4\x00", b"\xc4\x01a", b"\xc4\x10" + b"i" * 16, b"\xc4\x11" + b"i" * 17, b"\xc5\x20\x00" + b"b" * 8_192),
        *(b"\x90", b"\x80", b"\x91\x90", b"\x91\xc0", b"\x91\xa1a", b"\x81\xa1a\x01", b"\x81\xc0\xc0", b"\x81\x90\x01"),
        *(b"\x91" * 60 + b"\xc0", b"\x91" * 5_000 + b"\xc0", b"\x82\xa1a\x01\xa1a\x02", b"\xdd\xff\xff\xff\xff"),
        *(b"\xd4\x01\x00", b"\xd6\xff\x00\x00\x00\x00", b"\xc7\x0c\xff" + b"\xff" * 12, b"\xda\xff\xff", b""),
    ),
)


def write(body: Any, form: Form, dice: random.Random) -> bytes:
    """The bytes of a body, mostly with one thing wrong."""
    if dice.random() > TWISTED:
        return form.plain(body)
    if dice.random() < 0.06:
        return _spoilt(form.plain(body), form, dice)
    return twist(body, form, dice)


def twist(value: Any, form: Form, dice: random.Random) -> bytes:
    """One thing wrong in a value."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        return _twist_map(value, form, dice)
    if isinstance(value, list) and value and dice.random() < 0.6:
        return _twist_list(value, form, dice)
    if value is not None and not isinstance(value, dict | list) and dice.random() < 0.4:
        return form.plain(_near(value, dice))
    return form.wrong(dice)


def _twist_map(value: dict[str, Any], form: Form, dice: random.Random) -> bytes:
    items = [(form.plain(key), form.plain(one)) for key, one in value.items()]
    at = dice.randrange(len(items))
    key, one = items[at]
    odd = form.wrong(dice)
    match dice.choice([*["change"] * 6, "drop", "add", "add", "double", "rename", "reverse"]):
        case "change":
            items[at] = (key, twist(value[list(value)[at]], form, dice))
        case "drop":
            del items[at]
        case "add":
            items.insert(dice.randint(0, len(items)), (form.plain(dice.choice(["x", "", "do", "id", "\ud7ff"])), odd))
        case "double":
            items.insert(dice.randint(0, len(items)), (key, dice.choice([odd, one])))
        case "rename":
            items[at] = (form.plain(dice.choice(TEXTS)), one)
        case "reverse":
            items.reverse()
    return form.map(items)


def _twist_list(value: list[Any], form: Form, dice: random.Random) -> bytes:
    items = [form.plain(one) for one in value]
    at = dice.randrange(len(items))
    match dice.choice(["change", "change", "drop", "repeat"]):
        case "change":
            items[at] = twist(value[at], form, dice)
        case "drop":
            del items[at]
        case "repeat":
            items[at:at] = [items[at]] * dice.choice([1, 8, 300])
    return form.list(items)


def _near(value: Any, dice: random.Random) -> Any:
    """Another value of the same type, at or beyond a bound."""
    match value:
        case bool():
            return not value
        case int() | float():
            return dice.choice([*NUMBERS, value + 1, value - 1, -value, 0.5])
        case str():
            cut = dice.randint(0, len(value))
            return dice.choice([*TEXTS, value[:cut], value + "x", value.upper(), value[:cut] + "\x00" + value[cut:]])
        case bytes():
            at = dice.randint(0, len(value))
            flipped = (
                value[:at] + bytes([value[at] ^ 1 << dice.randrange(8)]) + value[at + 1 :] if at < len(value) else b""
            )
            return dice.choice([b"", value[:at], value + b"x", flipped, flipped, dice.randbytes(16), bytes(len(value))])
        case _:
            raise TypeError(f"nothing is near {value!r}")


def _spoilt(data: bytes, form: Form, dice: random.Random) -> bytes:
    """Bytes that are no longer one body."""
    at = dice.randint(0, len(data))
    whole = [b"", data[:at], data + b" x", data * 2, data[:at] + dice.randbytes(3) + data[at:], dice.randbytes(30)]
    return dice.choice([*whole, form.wrong(dice)])
