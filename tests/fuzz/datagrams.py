"""Datagrams, and the same messages on the links of directories: valid but for one thing.

In:    dice, and what attackers know.
Out:   inputs of the kind "datagrams".
State: none.
Not here: what a responder answers to a client's request (service_requests.py).
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from heliograph.discovery.brokers import messages as discovery
from heliograph.discovery.brokers.messages import BODIES, Message, MessageKind
from heliograph.discovery.brokers.signing import domain_of
from heliograph.timekeeping.sntp import PACKET
from tests.conformance.grammar import put_together
from tests.fuzz.neighbours import NAME
from tests.fuzz.signed_messages import keyring
from tests.fuzz.steps import Input, Knowledge, Step
from tests.fuzz.twists import JSON, MSGPACK, twist, write

TARGETS = (f"{NAME}:4", f"{NAME}:4", f"{NAME}:5", f"{NAME}:5", "beside:4", "beside:5")
TIME_SERVER = "192.0.2.123:123"
HOSTS = ("203.0.113.7", "beside", NAME, "", "::1", "h" * 128, "300.1.1.1", "a b", "\x00")


def datagrams(dice: random.Random, known: Knowledge) -> Input:
    """A few datagrams, or a link to a directory with the same messages."""
    if dice.random() < 0.15:
        return Input("datagrams", _link(dice, known))
    return Input("datagrams", [_datagram(dice, known) for _ in range(dice.choice([1, 2, 3]))])


def _datagram(dice: random.Random, known: Knowledge) -> Step:
    source = f"203.0.113.{dice.randint(1, 250)}:{dice.choice([0, 1, 9_999, 65_535])}"
    if dice.random() < 0.06:
        return Step(0, "datagram", _time(dice), f"{dice.choice([TIME_SERVER, source])} {NAME}:40000")
    if dice.random() < 0.1:
        source = dice.choice([f"{NAME}:5", "beside:4", f"{NAME}:4"])  # forged: nobody checks where it came from
    return Step(0, "datagram", message(dice, known), f"{source} {dice.choice(TARGETS)}")


def message(dice: random.Random, known: Knowledge, padded: bool = True) -> bytes:
    """A message of any kind."""
    kind = dice.choice(list(MessageKind))
    fault = dice.choice(["body", "body", "body", "body", "head", "cut", "signature", "kind", "none"])
    fields = _fields(kind, dice, known)
    payload = twist(fields, MSGPACK, dice) if fault == "body" else msgspec.msgpack.encode(fields)
    flags, chain = 0, b""
    if fault == "signature" or dice.random() < 0.15:
        who = dice.choice(["mallory", "tdn-of-mallory"])
        payload, flags = keyring(who).sign(domain_of(kind), payload), 1
        own = keyring(who).own
        assert own is not None
        chain = dice.choice([own.chain, b"", own.chain[:-5]])
        flags = dice.choice([1, 1, 2, 3]) if fault == "signature" else 1
    shown = dice.choice(list(MessageKind)) if fault == "kind" else kind
    cookie = dice.choice([discovery.NO_COOKIE, dice.randbytes(16)])
    if len(payload) > 60_000:
        payload = payload[:60_000]
    data = discovery.pack(Message(shown, flags, cookie, payload, chain), pad=padded)
    if fault == "cut":
        data = data[: dice.randint(0, len(data))]
    if fault == "head":
        at = dice.randrange(discovery.HEAD.size)
        data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
    return data


def _fields(kind: MessageKind, dice: random.Random, known: Knowledge) -> dict[str, Any]:
    """All fields of a kind of message, of the right type; most of them make sense."""
    some: dict[str, Any] = {
        **{"id": dice.randbytes(16), "attempt": dice.choice([1, 2, 64]), "requester": "r", "role": "client"},
        **{"host": dice.choice(HOSTS), "port": dice.choice([0, 1, 4_000]), "transports": ["tcp"], "budget": 50},
        **{"relay": dice.random() < 0.3, "sealed": dice.random() < 0.2, "measures": True, "issued_ms": known.wall_ms},
        **{"distances": {"beside:4": 500}, "network": "", "shown": dice.randbytes(16), "directory": "bdn"},
        **{"brokers": 2, "asked": 1, "reason": 0, "text": "t", "landmarks": ["beside:4"], "listed": b"mark"},
        **{"broker": dice.choice(["new", NAME, "beside"]), "incarnation": dice.randint(0, 5), "number": 3},
        **{"lifetime_s": 60, "ports": {"tcp": 1, "udp": 4}, "address": "main/0", "island": "i", "withdrawn": False},
        **{"geography": "g", "institution": "i", "timestamp_ns": 1, "error_ns": -1, "settling": False, "before": ["i"]},
        **{
            "usage": {"connections": 1, "links": 1, "cpu_permille": 1},
            "sent_ns": dice.getrandbits(60),
            "private": True,
        },
        **{"by": "bdn", "last": dice.random() < 0.5, "hash": dice.randbytes(32), "chain": b"c" * 99},
        **{"request": b"", "response": b""},
    }
    if kind in (MessageKind.SPREAD, MessageKind.RELAY):
        inner = MessageKind.REQUEST if kind is MessageKind.SPREAD else MessageKind.RESPONSE
        whole = write(_fields(inner, dice, known), MSGPACK, dice)[:10_000]
        packed = discovery.pack(Message(inner, 0, discovery.NO_COOKIE, whole), pad=False)
        some |= {"request": packed, "response": packed}
        some["relay"] = dice.choice(["topic", f"{NAME}:5", "", "x:y"])
    return {name: some[name] for name in BODIES[kind].__struct_fields__ if name in some}


def _time(dice: random.Random) -> bytes:
    """An answer of a time server that nobody asked."""
    fields = [dice.choice([0x24, 0x1C, 0x23, 0xE4, 0]), dice.randint(0, 255), 4, -20, 0, 0, b"RATE"]
    packet = PACKET.pack(*fields, *(dice.getrandbits(64) for _ in range(4)))
    return packet[: dice.choice([48, 48, 47, 0, 1])] + b"x" * dice.choice([0, 0, 20])


def _link(dice: random.Random, known: Knowledge) -> list[Step]:
    """Messages, and an administrator's questions, on a link to a directory."""
    frames = []
    for number in range(dice.randint(1, 3)):
        name = dice.choice([b"bdn", b"bdn", b"admin", b""])
        if name == b"admin":
            payload = write({"question": "overview", "token": "t", "start": 0}, JSON, dice)
        else:
            payload = message(dice, known, padded=False)
        frames.append(put_together(dice.choice([4, 4, 4, 1, 16, 99]), number, payload, name))
    where = dice.choice(["bdn", "bdn@beside", "tdn"])
    return [Step(0, "dial", word=where), Step(0, "bytes", b"".join(frames)), Step(0, "leave")]
