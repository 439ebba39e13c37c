"""Inputs for the fuzzer: valid sessions, and what becomes of them when bytes go wrong.

In:    dice.
Out:   Input: steps that one or two peers take (dial, bytes, silence, press, leave); as text, for the corpus.
State: none beyond one input's dice.
Not here: carrying an input out (targets.py), judging it (fuzz.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.conformance import grammar
from tests.conformance.grammar import put_together

TOKEN = "the right token"  # of the entity "tester", at the listener "token"
SECRETS = [bytes([number]) * 16 for number in range(40)]  # few, so that sessions meet and take over from each other
TOPICS = ["a", "a/b", "a/b/c", "b", "b/a", "private/a", "System/a", "canary/forged", "x" * 40, "ä/ö"]
FILTERS = ["a", "a/+", "a/#", "#", "+", "+/a", "b/#", "private/#", "System/#", "canary/#", "ä/+"]
ODD_NAMES = ["", "/", "a//b", "a/", "#/a", "a+", "+/#/+", "a\x00b", "\u2028", "/".join("a" * 40), "y" * 2_000, "{entity}"]
ODD_VALUES: list[Any] = [
    None, True, -1, 0, 2**32, 2**64, 1e300, "", "a", "\ud800", [], [[]], {}, {"a": 1}, ["a"], "x" * 3_000, 10**400,
]  # fmt: skip
WISHES: dict[str, list[Any]] = {  # of the right type, and still not to be had
    "versions": [[], [0], [2, 3], [1, 1, 1]],
    "needs": [["wings"], [""]],
    "filter": ODD_NAMES,
    "language": ["sql", "xpath", ""],
    "policy": ["hope", ""],
    "entity": ["tester", "root", ""],
    "token": ["guess", TOKEN],
    "number": [-1, 2**32, 2**63],
}


@dataclass(frozen=True)
class Step:
    """Something a peer does: dial LISTENER | bytes HEX | silence MS | press | leave."""

    peer: int
    verb: str
    data: bytes = b""
    word: str = ""

    def __str__(self) -> str:
        return f"{self.peer} {self.verb} {self.data.hex() or self.word}".rstrip()


@dataclass
class Input:
    """What peers do to a broker, and how it was made."""

    kind: str  # "mutated", "random", "valid" or "special"
    steps: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"# {self.kind}", *map(str, self.steps)]) + "\n"

    @staticmethod
    def read(text: str) -> Input:
        """An input as it was written to the corpus."""
        steps = []
        for line in text.splitlines():
            if line and not line.startswith("#"):
                peer, verb, *rest = line.split(" ", 2)
                word = rest[0] if rest else ""
                data = bytes.fromhex(word) if verb == "bytes" else b""
                steps.append(Step(int(peer), verb, data, "" if data else word))
        return Input(text.partition("\n")[0].removeprefix("# "), steps)


def make(dice: random.Random, live: bool = False) -> Input:
    """The next input; for a live broker without steps that only a simulated one can take."""
    kind = dice.choices(["mutated", "random", "valid", "special"], [65, 12, 8, 15])[0]
    if kind == "special":
        name = dice.choice([name for name in SPECIALS if not live or name not in NOT_LIVE])
        return Input("special", SPECIALS[name](dice))
    listener = dice.choices(["main", "token", "mutual"], [90, 7, 3])[0]
    if kind == "random":
        data = _noise(dice)
    else:
        frames = session(dice, listener)
        data = b"".join(frames) if kind == "valid" else mutate(frames, dice)
    return Input(kind, [Step(0, "dial", word=listener), *pieces(0, data, dice), *_ending(dice)])


def pieces(peer: int, data: bytes, dice: random.Random) -> list[Step]:
    """The same bytes, in one piece or cut anywhere."""
    if not data:
        return []
    cuts = sorted(dice.randrange(len(data)) for _ in range(dice.choice([0, 0, 0, 1, 2, 5])))
    bounds = [0, *cuts, len(data)]
    return [Step(peer, "bytes", data[start:end]) for start, end in zip(bounds, bounds[1:], strict=False) if start < end]


def _ending(dice: random.Random) -> list[Step]:
    return [Step(0, "leave")] if dice.random() < 0.3 else []


# -- valid sessions ---------------------------------------------------------------------------------------------


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def origin_of(secret: bytes) -> int:
    return int.from_bytes(sha256(secret).digest()[:8], "little")


def hello(secret: bytes, **fields: Any) -> bytes:
    return put_together(grammar.HELLO, 0, body(versions=[1], secret=secret.hex(), **fields))


def event(secret: bytes, topic: str, sequence: int, payload: bytes = b"x", expires_us: int | None = None) -> bytes:
    headers, flags = (b"", 0) if expires_us is None else (body(**{"$x": expires_us}), grammar.EXPIRES)
    return put_together(grammar.EVENT, sequence, payload, topic.encode(), headers, origin_of(secret), flags)


def subscribe(number: int, pattern: str, **fields: Any) -> bytes:
    return put_together(grammar.SUBSCRIBE, number, body(number=number, filter=pattern, **fields))


def session(dice: random.Random, listener: str = "main") -> list[bytes]:
    """The frames of a client that keeps the rules."""
    secret = dice.choice(SECRETS)
    credentials = {"entity": "tester", "token": TOKEN} if listener == "token" else {}
    frames = [hello(secret, hold=dice.random() < 0.3, name="fuzz", **credentials)]
    sequence = dice.choice([0, 1, 1_000, 2**63])
    for number in range(dice.randint(0, 8)):
        match dice.choice(["event", "event", "event", "subscribe", "subscribe", "unsubscribe", "ping", "ask", "goodbye"]):
            case "event":
                expires_us = dice.choice([None, None, 1, 2**60])
                for _ in range(dice.randint(1, 5)):
                    frames.append(event(secret, dice.choice(TOPICS), sequence, dice.randbytes(8), expires_us))
                    sequence += dice.choice([1, 1, 1, 2])
            case "subscribe":
                policy = dice.choice(["drop_oldest", "disconnect", "hold"])
                frames.append(subscribe(number, dice.choice(FILTERS), policy=policy, echo=dice.random() < 0.5))
            case "unsubscribe":
                frames.append(put_together(grammar.UNSUBSCRIBE, number, body(number=dice.randint(0, number))))
            case "ping":
                frames.append(put_together(grammar.PING, dice.getrandbits(64)))
            case "ask":
                question = body(do="report", question=dice.choice(["overview", "links", "nonsense"]))
                frames.append(put_together(grammar.SERVICE, number, question, dice.choice([b"admin", b"mute", b"none"])))
            case "goodbye":
                if dice.random() < 0.3:
                    frames.append(put_together(grammar.GOODBYE, 0, body(reason="goodbye", code=400)))
    return frames


# -- mutations --------------------------------------------------------------------------------------------------


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
    frames[at] = max(0, odd).to_bytes(4, "little") + raw[4:]
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
    except (ValueError, grammar.struct.error):
        return frames
    if not isinstance(fields, dict) or not fields:
        return frames
    key = dice.choice(sorted(fields))
    match dice.choice(["set", "wish", "wish", "wish", "drop", "add", "name", "text"]):
        case "set":
            fields[key] = dice.choice(ODD_VALUES)
        case "wish":
            key = dice.choice([key for key in WISHES if key in fields] or sorted(WISHES))
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
    frames[at] = put_together(
        frame.kind, frame.sequence, text, frame.topic, frame.headers, frame.origin, frame.flags
    )
    return frames


def edit_topic(frames: list[bytes], dice: random.Random) -> list[bytes]:
    events = [at for at, raw in enumerate(frames) if len(raw) >= 28 and raw[4] == grammar.EVENT]
    if not events:
        return insert(frames, dice)
    at = dice.choice(events)
    frame = grammar.take_apart(frames[at])
    topic = dice.choice(ODD_NAMES).encode() if dice.random() < 0.8 else dice.randbytes(dice.randint(0, 30))
    headers = dice.choice([frame.headers, b"", b"{", b'{"$x":"soon"}', b'{"$x":null}', dice.randbytes(9)])
    flags = dice.choice([frame.flags, grammar.EXPIRES])
    frames[at] = put_together(frame.kind, frame.sequence, frame.payload, topic, headers, frame.origin, flags)
    return frames


def insert(frames: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randint(0, len(frames))
    return [*frames[:at], dice.randbytes(dice.choice([1, 3, 28, 200])), *frames[at:]]


Mutation = Callable[[list[bytes], random.Random], list[bytes]]
MUTATIONS: list[Mutation] = [
    flip_bits, flip_bits, truncate, reorder, repeat, drop, edit_length, edit_head, edit_head, splice, edit_json, edit_json,
    edit_topic, insert,
]  # fmt: skip


def _noise(dice: random.Random) -> bytes:
    """Bytes that never were a session; half of the time cut into frames, and behind a good HELLO."""
    noise = [dice.randbytes(dice.randint(1, 300))]
    if dice.random() < 0.5:
        kinds = [dice.choice([*grammar.KINDS, 0, 5, 25, 255]) for _ in range(dice.randint(1, 6))]
        noise = [put_together(kind, dice.getrandbits(64), dice.randbytes(dice.randint(0, 60))) for kind in kinds]
    return b"".join([hello(dice.choice(SECRETS)), *noise] if dice.random() < 0.6 else noise)


# -- things that chance rarely finds ----------------------------------------------------------------------------


def _say_nothing(dice: random.Random) -> list[Step]:
    return [Step(0, "dial", word="main"), Step(0, "silence", word="2500")]


def _fall_silent(dice: random.Random) -> list[Step]:
    greeting = hello(dice.choice(SECRETS), keep_alive_ms=1_000)
    return [Step(0, "dial", word="main"), Step(0, "bytes", greeting), Step(0, "silence", word="3500")]


def _hello_of_megabytes(dice: random.Random) -> list[Step]:
    greeting = hello(dice.choice(SECRETS), name="n" * 20_000)
    return [Step(0, "dial", word="main"), *pieces(0, greeting, dice)]


def _frames_behind_a_slow_hello(dice: random.Random) -> list[Step]:
    greeting = hello(SECRETS[0], entity="tester", token="wrong" if dice.random() < 0.5 else TOKEN)
    return [Step(0, "dial", word="token"), *pieces(0, greeting + event(SECRETS[0], "a", 1) * 900, dice)]


def _take_over(dice: random.Random) -> list[Step]:
    greeting = hello(SECRETS[1])
    first = [Step(0, "dial", word="main"), Step(0, "bytes", greeting + event(SECRETS[1], "a", 7))]
    second = [Step(1, "dial", word="main"), *pieces(1, greeting + event(SECRETS[1], "a", 7), dice)]
    return [*first, *second, Step(0, "bytes", event(SECRETS[1], "a", 8))]


def _never_read(dice: random.Random) -> list[Step]:
    asks = put_together(grammar.PING, 1) * 200
    wants = subscribe(1, "a/#", policy=dice.choice(["disconnect", "drop_oldest", "hold"]))
    flood = b"".join(event(SECRETS[2], "a/b", n) for n in range(300))
    greeting = hello(SECRETS[2], hold=dice.random() < 0.5)
    steps = [Step(0, "dial", word="main"), Step(0, "bytes", greeting + wants), Step(0, "press")]
    return [*steps, *pieces(0, dice.choice([asks, flood, asks + flood]), dice)]


def _subscribe_to_everything(dice: random.Random) -> list[Step]:
    wants = b"".join(subscribe(number, dice.choice(FILTERS)) for number in range(30))
    return [Step(0, "dial", word="main"), *pieces(0, hello(dice.choice(SECRETS)) + wants, dice)]


def _ask_too_much(dice: random.Random) -> list[Step]:
    asks = b"".join(put_together(grammar.SERVICE, n, b"{}", b"mute") for n in range(80))
    return [Step(0, "dial", word="main"), *pieces(0, hello(dice.choice(SECRETS)) + asks, dice)]


def _ask_as_an_administrator(dice: random.Random) -> list[Step]:
    questions = [b"{}", b'{"do":"dance"}', b'{"do":"report","question":7}', b'{"do":"report","question":"links","start":-1}']
    questions += [b"", b"null", b"\xff", b"[" * 5_000, b'{"do":"report","question":"subscriptions","count":3}']
    asks = b"".join(put_together(grammar.SERVICE, n, text, b"admin") for n, text in enumerate(questions))
    return [Step(0, "dial", word="admin"), *pieces(0, hello(dice.choice(SECRETS)) + asks, dice)]


SPECIALS: dict[str, Callable[[random.Random], list[Step]]] = {
    "say nothing": _say_nothing,
    "fall silent": _fall_silent,
    "a hello of megabytes": _hello_of_megabytes,
    "frames behind a slow hello": _frames_behind_a_slow_hello,
    "take over": _take_over,
    "never read": _never_read,
    "subscribe to everything": _subscribe_to_everything,
    "ask too much": _ask_too_much,
    "ask as an administrator": _ask_as_an_administrator,
}
NOT_LIVE = ("say nothing", "fall silent", "ask as an administrator")  # they need a clock or an identity of ours
