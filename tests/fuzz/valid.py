"""Valid sessions for the fuzzer: what a client that keeps the rules sends, frame by frame.

In:    dice.
Out:   frames, and whole sessions as lists of frames.
State: none.
Not here: what goes wrong with them (mutations.py).
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
TOPICS = ["a", "a/b", "a/b/c", "b", "b/a", "private/a", "System/a", "canary/forged", "x" * 40, "ä/ö"]
FILTERS = ["a", "a/+", "a/#", "#", "+", "+/a", "b/#", "private/#", "System/#", "canary/#", "ä/+"]


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
        match dice.choice(
            ["event", "event", "event", "subscribe", "subscribe", "unsubscribe", "ping", "ask", "goodbye"]
        ):
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
                frames.append(
                    put_together(grammar.SERVICE, number, question, dice.choice([b"admin", b"mute", b"none"]))
                )
            case "goodbye":
                if dice.random() < 0.3:
                    frames.append(put_together(grammar.GOODBYE, 0, body(reason="goodbye", code=400)))
    return frames
