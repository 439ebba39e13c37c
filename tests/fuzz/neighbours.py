"""Valid sessions of brokers for the fuzzer: what a linked broker that keeps the rules sends, frame by frame.

In:    dice.
Out:   whole sessions as lists of frames, from the LINK on; single frames for inputs that chance rarely finds.
State: none.
Not here: clients (valid.py), what goes wrong with sessions (mutations.py).

A proven broker may publish under any origin and on any topic, so nothing here is for the canary: it would rightly hear
what a broker sends it.
"""

from __future__ import annotations

import random
import struct
from hashlib import sha256
from typing import Any

from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.fuzz.valid import CONDITIONS, SECRETS, body, content, event, origin_of

LINK, LINKED, PROOF, MAP, INTEREST, SYNC, COUNT, WAVE, TRACE, TRACED, MARK, MARKED, HOLD, RELEASE = range(32, 46)
NAME = "under-test"  # the broker that is shot at, live and as a machine
NAMES = [f"b{number}" for number in range(8)]  # few, so that links meet and take over from each other
CLUSTERS = ["main", "far", ""]
TOPICS = ["a", "a/b", "a/b/c", "b", "x" * 40, "ä/ö"]
FILTERS = ["a", "a/+", "a/#", "#", "+", "b/#", "ä/+"]


def broker_id(name: str) -> int:
    return int.from_bytes(sha256(b"heliograph broker " + name.encode()).digest()[:8], "little")


ME = broker_id(NAME)


def link(name: str, cluster: str = "main", incarnation: int = 1, **fields: Any) -> bytes:
    said = {"broker": broker_id(name), "name": name, "cluster": cluster, "incarnation": incarnation, "nonce": "0a"}
    return put_together(LINK, 0, body(versions=[1], **{**said, **fields}))


def member(name: str, slot: int, links: dict[int, int], number: int = 2, incarnation: int = 1) -> bytes:
    broker = broker_id(name)
    said = {"broker": broker, "name": name, "cluster": "main", "slot": slot, "epoch": 0, "incarnation": incarnation}
    return put_together(MAP, 0, body(record="member", **said, number=number, links=links))


def parcel(
    frames: list[bytes], number: int, members: int, parts: list[int], trace: list[int], groups: list[int]
) -> bytes:
    ids = [*parts, *trace, *groups]
    hops = struct.pack("<HHI", len(parts), len(trace), len(groups)) + struct.pack(f"<{len(ids)}Q", *ids)
    return put_together(grammar.PARCEL, number, b"".join(frames), b"", hops, members, flags=9)


def session(dice: random.Random) -> list[bytes]:
    """The frames of a broker that keeps the rules."""
    name, cluster = dice.choice(NAMES), dice.choice(CLUSTERS)
    frames = [link(name, cluster, dice.randint(1, 3))]
    for number in range(1, dice.randint(1, 9)):
        make = dice.choice(
            [_map, _map, _interest, _interest, _interest, _parcel, _parcel, _sync, _wave, _marked, _hold, _rest]
        )
        frames.append(make(dice, name, number))
    return frames


def _map(dice: random.Random, name: str, number: int) -> bytes:
    who = dice.choice([name, name, *NAMES, NAME])
    costs = {broker_id(other): dice.randint(1, 9_000) for other in dice.sample([*NAMES, NAME], 3)}
    said = {"broker": broker_id(who), "name": who, "cluster": dice.choice(CLUSTERS), "incarnation": dice.randint(1, 3)}
    if dice.random() < 0.5:
        return member(who, dice.randint(0, 63), costs, number, dice.randint(1, 3))
    speaker = broker_id(dice.choice([who, *NAMES]))
    inside = {broker_id(dice.choice(NAMES)): dice.randint(1, 9_000)}
    return put_together(
        MAP, 0, body(record="gateway", **said, speaker=speaker, number=number, outside=costs, inside=inside)
    )


def _interest(dice: random.Random, name: str, number: int) -> bytes:
    """A snapshot, or the change that follows it, of filters with and without conditions, some shared by groups."""

    def told() -> Any:
        pattern = dice.choice(FILTERS)
        return pattern if dice.random() < 0.5 else [pattern, *dice.choice(CONDITIONS)]

    full = number == 1 or dice.random() < 0.4
    fields = {} if full else {"remove": [told()], "remove_groups": [[told(), "g"]]}
    adds = {"add": [told() for _ in range(dice.randint(0, 4))], "add_groups": [[told(), dice.choice("gh")]]}
    owner = broker_id(dice.choice([name, name, *NAMES]))
    said = {"owner": owner, "wide": dice.random() < 0.5, "incarnation": 1, "number": number, "full": full}
    return put_together(INTEREST, 0, body(**said, more=full and dice.random() < 0.2, **adds, **fields))


def _parcel(dice: random.Random, name: str, number: int) -> bytes:
    """Frames for our clients, for members of our cluster, for another cluster or for a group."""
    secret = dice.choice(SECRETS)
    first = dice.getrandbits(16)
    frames = [
        event(secret, dice.choice(TOPICS), first + count, dice.randbytes(8), headers=content(dice))
        for count in range(dice.randint(0, 5))
    ]
    if dice.random() < 0.2:
        frames.append(put_together(TRACE, number, b"", b"a/b", origin=broker_id(name)))
    if dice.random() < 0.3:
        asker = broker_id(dice.choice([name, NAME, *NAMES]))
        frames.append(put_together(MARK, number, body(broker=asker, speaker=broker_id(dice.choice(NAMES)))))
    if dice.random() < 0.2:
        inbox = f"Inbox/{ME:016x}/{origin_of(dice.choice(SECRETS)):016x}"
        frames.append(put_together(grammar.EVENT, first + 9, b"", b"a", body(**{"$d": [inbox]}), origin_of(secret), 8))
    members = dice.choice([0, 1 << ME % 64, dice.getrandbits(64), 2**64 - 1])
    parts = [broker_id(dice.choice([NAME, *NAMES])) for _ in range(dice.choice([0, 0, 1, 2]))]
    groups = [dice.getrandbits(64)] if dice.random() < 0.2 else []
    return parcel(frames, number, members, parts, [broker_id(name)], groups)


def _sync(dice: random.Random, name: str, number: int) -> bytes:
    what = ["member", "gateway", "narrow", "wide"]
    has = [[dice.choice(what), broker_id(dice.choice([NAME, *NAMES])), dice.randint(0, 3), dice.randint(0, 5)]]
    wants = [[dice.choice(what), broker_id(dice.choice([NAME, *NAMES]))] for _ in range(3)]
    return put_together(SYNC, 0, body(**dice.choice([{"has": has}, {"wants": wants}, {"has": has, "wants": wants}])))


def _wave(dice: random.Random, name: str, number: int) -> bytes:
    said = {"broker": broker_id(dice.choice([name, *NAMES, NAME])), "number": number, "wide": dice.random() < 0.5}
    return put_together(WAVE, 0, body(**said, answer=dice.random() < 0.5, told=[ME, 1, dice.randint(0, 3)]))


def _marked(dice: random.Random, name: str, number: int) -> bytes:
    asker, speaker = (broker_id(dice.choice([NAME, name, *NAMES])) for _ in range(2))
    way = [broker_id(dice.choice([NAME, *NAMES])) for _ in range(dice.randint(0, 16))]
    said = {"broker": asker, "speaker": speaker, "by": broker_id(name), "ttl": dice.choice([0, 1, 64, 255])}
    return put_together(MARKED, dice.choice([1, number]), body(**said, way=way))


def _hold(dice: random.Random, name: str, number: int) -> bytes:
    said = {"broker": broker_id(dice.choice([NAME, NAME, *NAMES])), "by": broker_id(dice.choice([name, *NAMES]))}
    way = [broker_id(dice.choice([NAME, *NAMES])) for _ in range(dice.randint(0, 16))]
    origin = origin_of(dice.choice(SECRETS))
    asked = body(**said, origin=origin, ttl=dice.choice([0, 1, 64, 255]), way=way)
    return put_together(dice.choice([HOLD, HOLD, RELEASE]), 0, asked)


def _rest(dice: random.Random, name: str, number: int) -> bytes:
    kind = dice.choice([COUNT, grammar.PING, grammar.PONG, grammar.GOODBYE])
    payload = body(reason="goodbye", code=400) if kind == grammar.GOODBYE else b""
    return put_together(kind, dice.choice([0, 1, number, 2**63]), payload)
