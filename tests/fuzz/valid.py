"""Valid sessions for the fuzzer: what a client that keeps the rules sends, frame by frame.

In:    dice.
Out:   frames, and whole sessions as lists of frames.
State: none.
Not here: brokers (neighbours.py), what goes wrong with sessions (mutations.py).
"""

from __future__ import annotations

import json
import random
from hashlib import sha256
from typing import Any

from tests.conformance import grammar
from tests.conformance.grammar import put_together

TOKEN = "the right token"  # of the entity "tester", at the listener "token"
SECRETS = [bytes([number]) * 16 for number in range(40)]  # few, so that sessions meet and take over from each other
# Of proven clients. Others have other ones: inputs are mixed, and what a stranger says must stay a stranger's.
PROVEN_SECRETS = [bytes([200 + number]) * 20 for number in range(2)]
TOPICS = ["a", "a/b", "a/b/c", "b", "b/a", "private/a", "System/a", "canary/forged", "Entity/canary", "x" * 40, "ä/ö"]
FILTERS = ["a", "a/+", "a/#", "#", "+", "+/a", "b/#", "private/#", "System/#", "canary/#", "ä/+"]
CONDITIONS = [  # language and text
    ("predicates", "price > 5"), ("predicates", "price <= 5 and kind = 'ä'"), ("predicates", "kind present"),
    ("sql", "price * 2 > 9 OR kind LIKE 'a%'"), ("sql", "kind IS NULL"), ("regex", "topic ~ '^a/'"),
    ("xpath", "//item[price > 140]"), ("tags", "class=stock"), ("integer", "10..20"),
]  # fmt: skip
REQUEST, DIRECTED = 16, 8
UNPROVEN = b"from somebody without a certificate"


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def origin_of(secret: bytes) -> int:
    return int.from_bytes(sha256(secret).digest()[:8], "little")


def hello(secret: bytes, **fields: Any) -> bytes:
    return put_together(grammar.HELLO, 0, body(versions=[1], secret=secret.hex(), **fields))


def event(
    secret: bytes,
    topic: str,
    sequence: int,
    payload: bytes = b"x",
    expires_us: int | None = None,
    headers: bytes = b"",
    flags: int = 0,
) -> bytes:
    if expires_us is not None:
        headers, flags = body(**{"$x": expires_us}), grammar.EXPIRES
    return put_together(grammar.EVENT, sequence, payload, topic.encode(), headers, origin_of(secret), flags)


def content(dice: random.Random) -> bytes:
    """Headers that conditions look at."""
    kind = dice.choice([{}, {"kind": dice.choice(["a", "ä", "stock"])}, {"kind": None}, {"kind": [1]}])
    return dice.choice([b"", body(price=dice.choice([0, 4.5, 6, 2**70]), **kind)])


def subscribe(number: int, pattern: str, **fields: Any) -> bytes:
    return put_together(grammar.SUBSCRIBE, number, body(number=number, filter=pattern, **fields))


WORDS = [
    *("event", "event", "event", "event", "request", "subscribe", "subscribe", "subscribe"),
    *("unsubscribe", "ping", "ask", "goodbye"),
]


def _wishes(dice: random.Random) -> dict[str, Any]:
    """What a subscription asks for besides its filter; what is left out stands for itself."""
    wishes: dict[str, Any] = {"policy": dice.choice(["drop_oldest", "disconnect", "hold"]), "echo": dice.random() < 0.5}
    if dice.random() < 0.4:
        wishes["language"], wishes["where"] = dice.choice(CONDITIONS)
    if dice.random() < 0.2:
        wishes["group"] = dice.choice(["g", "h"])
    if dice.random() < 0.3:
        wishes["wide"] = True
    return wishes


def session(dice: random.Random, listener: str = "main") -> list[bytes]:
    """The frames of a client that keeps the rules."""
    secret = dice.choice(PROVEN_SECRETS if listener == "token" else SECRETS)
    credentials = {"entity": "tester", "token": TOKEN} if listener == "token" else {}
    frames = [hello(secret, hold=dice.random() < 0.3, name="fuzz", **credentials)]
    sequence = dice.choice([0, 1, 1_000, 2**63])
    for number in range(dice.randint(0, 8)):
        match dice.choice(WORDS):
            case "event":
                expires_us = dice.choice([None, None, 1, 2**60])
                for _ in range(dice.randint(1, 5)):
                    topic = dice.choice(TOPICS)
                    payload = dice.choice([dice.randbytes(8), b"<item><price>150</price></item>"])
                    payload = UNPROVEN if listener != "token" and topic == "Entity/canary" else payload
                    frames.append(event(secret, topic, sequence, payload, expires_us, content(dice)))
                    sequence += dice.choice([1, 1, 1, 2])
            case "request":
                headers = body(
                    **{"$r": f"Inbox/{origin_of(secret):016x}", "$d": [f"Inbox/{number:016x}/{sequence:016x}"]}
                )
                frames.append(event(secret, "a/b", sequence, headers=headers, flags=dice.choice([REQUEST, DIRECTED])))
                sequence += 1
            case "subscribe":
                frames.append(subscribe(number, dice.choice(FILTERS), **_wishes(dice)))
            case "unsubscribe":
                frames.append(put_together(grammar.UNSUBSCRIBE, number, body(number=dice.randint(0, number))))
            case "ping":
                frames.append(put_together(grammar.PING, dice.getrandbits(64)))
            case "ask":
                question = body(do="report", question=dice.choice(["overview", "links", "nonsense"]))
                frames.append(
                    put_together(grammar.SERVICE, number, question, dice.choice([b"admin", b"mute", b"none"]))
                )
            case "goodbye":
                if dice.random() < 0.3:
                    frames.append(put_together(grammar.GOODBYE, 0, body(reason="goodbye", code=400)))
    return frames
