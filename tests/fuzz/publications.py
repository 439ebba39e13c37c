"""Publications for a store: reliable, in batches, repeated, directed; valid but for one thing.

In:    dice, and what attackers know.
Out:   inputs of the kind "stored".
State: none.
Not here: requests of readers (service_requests.py), ordinary publications (valid.py).
"""

from __future__ import annotations

import random
from typing import Any

from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.fuzz.service_requests import stores
from tests.fuzz.steps import Input, Knowledge, Step
from tests.fuzz.twists import JSON, twist, write
from tests.fuzz.valid import SECRETS, body, hello, origin_of

STORED = 5  # a kind of frame that only stores send
DIRECTED, REPEAT = 8, 32
TOPICS = ("a/b", "a/b", "a/b", "kept/x", "kept/y", "b", "canary/1", "private/a")
NUMBERS = (0, 1, 2, 3, 1_000, 2**62 - 1, 2**62, 2**63, 2**64 - 1)


def stored(dice: random.Random, known: Knowledge) -> Input:
    """A publisher that attaches, publishes a chain or a batch, commits, and reads what it stored."""
    secret = dice.choice(SECRETS)
    frames = [hello(secret), _request(1, {"do": "attach", "store": known.store})]
    first = dice.choice([1, 1, 1, *NUMBERS])
    fault = dice.randint(0, 4)  # the publication in which something is wrong
    batch = dice.choice([None, None, None, [f"p{dice.randint(1, 3)}", dice.randint(0, 9), "part-1"]])
    previous = 0
    for number in range(dice.randint(1, 5)):
        sequence = (first + number) % 2**64
        frames.append(_publication(dice, known, secret, sequence, previous, batch, number == fault))
        previous = sequence
    requests = [one for one in stores(dice, known) if one["do"] in ("open", "commit", "credit", "ack", "close")]
    for number, request in enumerate(dice.sample(requests, dice.randint(0, 2)), 2):
        frames.append(_request(number, request if dice.random() < 0.5 else write(request, JSON, dice)))
    if dice.random() < 0.1:
        frames.append(_forged(dice, known, secret))
    if dice.random() < 0.2:
        frames += [dice.choice(frames[1:])] * dice.choice([1, 5])
    who = dice.choice(["main", "main", "client"]) + dice.choice(["", "", "@beside"])
    steps = [Step(0, "dial", word=who), Step(0, "bytes", b"".join(frames))]
    return Input("stored", [*steps, Step(0, "leave")] if dice.random() < 0.3 else steps)


def _request(number: int, request: dict[str, Any] | bytes) -> bytes:
    payload = request if isinstance(request, bytes) else body(**request)
    return put_together(grammar.SERVICE, number, payload, b"stores")


def _publication(
    dice: random.Random,
    known: Knowledge,
    secret: bytes,
    sequence: int,
    previous: int,
    batch: list[Any] | None,
    is_wrong: bool,
) -> bytes:
    headers: dict[str, Any] = {"$q": [known.store, previous % 2**62, *(batch or [])]}
    flags = dice.choice([0, 0, 0, REPEAT])
    if batch is not None:
        headers["$d"] = [dice.choice([known.store_inbox, known.store_inbox, known.inbox])]
        flags |= DIRECTED
    raw = body(**headers)
    origin, topic = origin_of(secret), dice.choice(TOPICS).encode()
    if is_wrong:
        match dice.choice(["headers", "headers", "headers", "flags", "previous", "origin", "topic", "store"]):
            case "headers":
                raw = twist(headers, JSON, dice)
            case "flags":
                flags ^= 1 << dice.randrange(8)
            case "previous":
                raw = body(**headers | {"$q": [known.store, dice.choice(NUMBERS[:6]), *(batch or [])]})
            case "origin":
                origin = dice.getrandbits(64)
            case "topic":
                topic = dice.choice([b"", b"a/", b"a//b", b"\xff", b"a/+", b"x" * 2_000])
            case "store":
                raw = body(**headers | {"$q": ["0123456789abcdef", previous % 2**62]})
    return put_together(grammar.EVENT, sequence, dice.randbytes(dice.choice([0, 9, 900])), topic, raw, origin, flags)


def _forged(dice: random.Random, known: Knowledge, secret: bytes) -> bytes:
    """What only a store, or a service of a broker, may send."""
    number, inbox = dice.randint(0, 9), known.inbox.encode()
    asked = {"number": number, "to": known.inbox, "entity": "canary", "roles": ["client"], "inbox": known.inbox}
    drop = body(**asked, body={"do": "drop", "store": known.store, "name": "canary"})
    shown = {"store": known.store, "name": "store", "patterns": ["#"], "inbox": known.inbox, "ttl_ms": 0}
    origin = origin_of(secret)
    return dice.choice(
        [
            put_together(STORED, number, b"", inbox, origin=int(known.store, 16), flags=dice.choice([0, 1, 4, 8])),
            put_together(
                grammar.EVENT, number, drop, b"Services/Stores/Request/" + known.store.encode(), origin=origin
            ),
            put_together(grammar.EVENT, number, body(**shown), b"Services/Stores/Advertisement", origin=origin),
            put_together(grammar.EVENT, number, b"{}", b"Services/Stores/Wanted", origin=origin),
        ]
    )
