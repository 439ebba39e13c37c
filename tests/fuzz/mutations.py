"""Mutations: one thing that goes wrong with a valid session.

In:    the frames of a session, and dice.
Out:   other frames, no longer valid for the most part.
State: none.
Not here: valid sessions (valid.py), whole inputs (inputs.py).
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.fuzz.valid import TOKEN, session

ODD_NAMES = [
    "",
    "/",
    "a//b",
    "a/",
    "#/a",
    "a+",
    "+/#/+",
    "a\x00b",
    "\u2028",
    "/".join("a" * 40),
    "y" * 2_000,
    "{entity}",
]
ODD_VALUES: list[Any] = [
    None, True, -1, 0, 2**32, 2**64, 1e300, "", "a", "\ud800", [], [[]], {}, {"a": 1}, ["a"], "x" * 3_000, 10**400,
]  # fmt: skip
ODD_HEADERS = [  # reserved keys of the wrong type, and none at all
    b"", b"{", b"[]", b"7", b'{"$x":"soon"}', b'{"$x":null}', b'{"$x":1e999}', b'{"$d":7}', b'{"$d":[]}',
    b'{"$d":[null]}', b'{"$d":["a",""]}', b'{"$d":"a","$r":7}', b'{"$r":"a","$x":99999999999999999}', b'{"$r":{}}',
]  # fmt: skip
WISHES: dict[str, list[Any]] = {  # of the right type, and still not to be had
    "versions": [[], [0], [2, 3], [1, 1, 1]],
    "needs": [["wings"], [""]],
    "filter": ODD_NAMES,
    "language": ["sql", "xpath", "prolog", ""],
    "where": ["a > 1", "a >", "", "//a"],
    "policy": ["hope", ""],
    "entity": ["tester", "root", ""],
    "token": ["guess", TOKEN],
    "number": [-1, 2**32, 2**63],
}
FROM_BROKERS = range(32, 42)
BROKER_WISHES: dict[str, list[Any]] = {  # the same for what brokers tell each other
    "versions": [[], [0], [2, 3]],
    "broker": [0, -1, 2**64, 2**64 - 1],
    "incarnation": [-1, 0, 2**63, 2**70],
    "number": [-1, 0, 2**63, 2**70],
    "slot": [-1, 64, 63],
    "epoch": [-1, 2**16, 2**40],
    "links": [{}, {"1": -5}, {"1": 2**70}, {"x": 1}, {str(n): n for n in range(300)}],
    "lives": [{"1": 2**63}],
    "add": [["a+"], [["a", "sql", "price >"]], [["a", "prolog", "x"]], [["a", "xpath", "//" * 3_000]], [["", "", ""]]],
    "add_groups": [[["a", ""]], [["a", "g" * 200]], [[["a", "sql", "("], "g"]]],
    "has": [[["member", 0, 0, 0]] * 600, [["other", 1, 1, 1]]],
    "wants": [[["wide", 2**64 - 1]], [["narrow", -1]]],
    "told": [[1], [-1, -1, -1], [2**64, 0, 0]],
}


def mutate(frames: list[bytes], dice: random.Random) -> bytes:
    """A valid session with one to three things wrong with it."""
    for _ in range(dice.choice([1, 1, 2, 3])):
        frames = dice.choice(MUTATIONS)(list(frames), dice) or [b""]
    return b"".join(frames)


def flip_bits(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(frames))
    raw = bytearray(frames[at])
    for _ in range(dice.choice([1, 1, 2, 8]) if raw else 0):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    frames[at] = bytes(raw)
    return frames


def truncate(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(frames))
    cut = frames[at][: dice.randint(0, len(frames[at]))]
    return [*frames[:at], cut, *(frames[at + 1 :] if dice.random() < 0.5 else [])]


def reorder(frames: list[bytes], dice: random.Random) -> list[bytes]:
    if dice.random() < 0.5:
        return dice.sample(frames, len(frames))
    kept = frames[1:]
    return [*frames[:1], *dice.sample(kept, len(kept))]


def repeat(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(frames))
    return [*frames[:at], *[frames[at]] * dice.choice([2, 3, 50]), *frames[at + 1 :]]


def drop(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(frames))
    return frames[:at] + frames[at + 1 :]


def edit_length(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(frames))
    raw = frames[at]
    length = int.from_bytes(raw[:4], "little")
    odd = dice.choice([0, 23, 24, length - 1, length + 1, length + 28, 65_565, 1_114_108, 1_114_109, 2**31, 2**32 - 1])
    frames[at] = min(max(0, odd), 2**32 - 1).to_bytes(4, "little") + raw[4:]
    return frames


def edit_head(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(frames))
    start, size = dice.choice([(4, 1), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8), (24, 4)])
    value = dice.choice([0, 1, 2, 4, 8, 2 ** (8 * size) - 1, dice.getrandbits(8 * size), dice.randint(0, 40)])
    value &= 2 ** (8 * size) - 1
    frames[at] = frames[at][:start] + value.to_bytes(size, "little") + frames[at][start + size :]
    return frames


def splice(frames: list[bytes], dice: random.Random) -> list[bytes]:
    other = session(dice)
    if dice.random() < 0.5:
        return frames[: dice.randint(0, len(frames))] + other[dice.randint(0, len(other)) :]
    one, two = b"".join(frames), b"".join(other)
    return [one[: dice.randint(0, len(one))], two[dice.randint(0, len(two)) :]]


def edit_json(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(frames))
    raw = frames[at]
    try:
        frame = grammar.take_apart(raw)
        fields = json.loads(frame.payload)
    except (ValueError, RecursionError, struct.error):
        return frames
    if not isinstance(fields, dict) or not fields:
        return frames
    key = dice.choice(sorted(fields))
    match dice.choice(["set", "wish", "wish", "wish", "drop", "add", "name", "text"]):
        case "set":
            fields[key] = dice.choice(ODD_VALUES)
        case "wish" if frame.kind in FROM_BROKERS:
            key = dice.choice([name for name in fields if name in BROKER_WISHES] or sorted(BROKER_WISHES))
            fields[key] = dice.choice(BROKER_WISHES[key])
        case "wish":
            greeting = frame.kind == grammar.HELLO
            key = dice.choice(
                ["versions", "needs", "entity", "token"] if greeting else ["filter", "language", "where", "number"]
            )
            fields[key] = dice.choice(WISHES[key])
        case "drop":
            del fields[key]
        case "add":
            fields[dice.choice(sorted(WISHES))] = dice.choice([*ODD_VALUES, *dice.choice(list(WISHES.values()))])
        case "name":
            fields = {name[::-1]: value for name, value in fields.items()}
    text = json.dumps(fields).encode()
    if dice.random() < 0.15:
        text = text[: dice.randint(0, len(text))] if dice.random() < 0.5 else b"[" * dice.choice([10, 9_000]) + text
    frames[at] = put_together(frame.kind, frame.sequence, text, frame.topic, frame.headers, frame.origin, frame.flags)
    return frames


def edit_topic(frames: list[bytes], dice: random.Random) -> list[bytes]:
    events = [at for at, raw in enumerate(frames) if len(raw) >= 28 and raw[4] == grammar.EVENT]
    if not events:
        return insert(frames, dice)
    at = dice.choice(events)
    frame = grammar.take_apart(frames[at])
    topic = dice.choice(ODD_NAMES).encode() if dice.random() < 0.8 else dice.randbytes(dice.randint(0, 30))
    headers = dice.choice([frame.headers, *ODD_HEADERS, dice.randbytes(9)])
    flags = dice.choice([frame.flags, grammar.EXPIRES, 8, 16, grammar.EXPIRES | 8 | 16])
    frames[at] = put_together(frame.kind, frame.sequence, frame.payload, topic, headers, frame.origin, flags)
    return frames


def insert(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randint(0, len(frames))
    return [*frames[:at], dice.randbytes(dice.choice([1, 3, 28, 200])), *frames[at:]]


Mutation = Callable[[list[bytes], random.Random], list[bytes]]
MUTATIONS: list[Mutation] = [
    flip_bits, flip_bits, truncate, reorder, repeat, drop, edit_length, edit_head, edit_head, splice,
    edit_json, edit_json, edit_topic, insert,
]  # fmt: skip
