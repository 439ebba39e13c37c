"""Requests to every service of a node, valid but for one thing; from anybody who may connect.

In:    dice, and what attackers know.
Out:   inputs of the kind "requests"; CATALOGUE: each service's requests, with all fields that they have.
State: none.
Not here: grants and revocations that are really signed (signed_messages.py), publications to stores (publications.py).
"""

from __future__ import annotations

import random
from typing import Any

from heliograph.discovery.brokers import messages as discovery
from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.fuzz.steps import Input, Knowledge, Step
from tests.fuzz.twists import JSON, MSGPACK, write
from tests.fuzz.valid import SECRETS, TOKEN, hello

NOBODY = "0123456789abcdef"  # a store that nobody has heard of
WATCHED = "ab" * 16  # the secret of a resource
REPORTS = ("overview", "usage", "links", "subscriptions", "map", "time", "routes", "limits", "nonsense")
WHERE = ("class = 'x'", "a > 5 and b < 2", "true", "price present", "class != 'x'")
DIALS = ("main", "main", "main", "client", "client", "token", "admin")


def admin(dice: random.Random, known: Knowledge) -> list[dict[str, Any]]:
    """Orders of administrators. From others they are refused; a drain is sent by others only, or the canary leaves."""
    return [
        {"do": "report", "question": dice.choice(REPORTS), "start": dice.choice([0, 1, 10**6]), "count": 3},
        {"do": "trace", "topic": "a/b", "headers": {"price": 3}, "payload": "x"},
        {"do": "reload"},
        {"do": "link", "host": "nowhere", "port": 1, "secure": False},
        {"do": "unlink", "host": "nowhere", "port": 1, "secure": False},
    ]


def stores(dice: random.Random, known: Knowledge) -> list[dict[str, Any]]:
    """Requests of publishers and readers."""
    to: dict[str, Any] = {"store": dice.choice([known.store] * 9 + [NOBODY])}
    name = {"name": dice.choice(["r1", "r2", "canary"])}
    proof = {"proof": dice.choice(["ab", "cd"]) * 32}
    channel = {"channel": dice.randint(0, 3)}
    opening = {"filter": dice.choice(["a/#", "#", "canary/#", "kept/+"]), "language": "topic", "where": ""}
    if dice.random() < 0.3:
        opening |= {"language": "predicates", "where": dice.choice(WHERE)}
    span = {
        "position": 0,
        "since_us": 0,
        "end": 100,
        "until_us": 2**50,
        "pace": 0.0,
        "window": 10,
        "times": True,
        "whole": False,
    }
    return [
        {"do": "find", "topic": "a/b", "filter": "a/#"},
        {"do": "attach", **to},
        {"do": "open", **to, **channel, **name, **proof, "owner": "ef" * 32, **opening, "start": "first", **span},
        {"do": "open", **to, **channel, **opening, "start": dice.choice(["first", "next"]), "window": 1_000},
        {"do": "credit", **to, **channel, "at": 1, "window": 10, "again": dice.random() < 0.5},
        {"do": "ack", **to, **name, **proof, "before": 1, "also": [[2, 3], [5, 6]]},
        {"do": "close", **to, **channel, "opened": 0},
        {"do": "drop", **to, **name, **proof, "entity": "mallory"},
        {"do": "release", **to, **name},
        {"do": "forget", **to},
        {"do": "logs", **to},
        {"do": "measure", **to, "start": dice.choice([0, 3, 10**6]), "end": 100, "bytes": 10, "most": 3},
        {"do": "names", **to, "owner": "ef" * 32, "after": "mallory/r1"},
        {"do": "batches", **to, "after": "mallory/p1/00000000000000000000"},
        {"do": "drop_batch", **to, "publisher": "p1", "batch": 1, "entity": "mallory"},
        {"do": "commit", **to, **proof, "publisher": "p1", "batch": 1, "parts": [["part-1", 1], ["part-2", 0]]}
        | dice.choice([{"query": "", "once": False}, {"query": "q1", "once": False}, {"query": "", "once": True}]),
    ]


def resources(dice: random.Random, known: Knowledge) -> list[dict[str, Any]]:
    """Requests of owners and requesters."""
    secret = {"secret": dice.choice([WATCHED, "cd" * 16])}
    values = {"values": {"load": 0.5, "name": "x", "on": True}, "version": dice.randint(1, 9)}
    where = {"where": dice.choice(WHERE), "language": "predicates"}
    model = {"model": dice.choice(["static", "dynamic"])}
    described = {**where, "epoch": dice.randint(1, 9), **model, "name": "n", "attached": False}
    limits = {"deliver": dice.choice(["", "similarity", "normal", "direct"]), "best": 5, "order": "load"}
    return [
        {"do": "register", **secret, **described, "lease_s": 60.0, **values},
        {"do": "update", **secret, **values, "lease_s": 60.0},
        {"do": "renew", **secret, "lease_s": 60.0},
        {"do": "withdraw", **secret},
        {"do": "list", "start": 0},
        {"do": "discover", **where, **model, **limits, "max_age_s": 0.0, "deadline_ms": 100},
        {"do": "part", "answer": 1, "start": 0},
        {"do": "watch", "watch": dice.randint(0, 3), **where, **model},
        {"do": "keep", "watch": dice.randint(0, 3), "again": True},
        {"do": "unwatch", "watch": dice.randint(0, 3)},
        {"do": "tables"},
    ]


def rights(dice: random.Random, known: Knowledge) -> list[dict[str, Any]]:
    """Requests of holders of grants, and of directories."""
    return [
        {"do": "present", "bundle": known.bundle, "proof": "AAAA"},
        {"do": "present", "bundle": known.bundle},
        {"do": "revoke", "statement": "AAAA", "bundle": known.bundle},
        {"do": "revocations", "since": "0" * 16, "after": 0},
        {"do": "lists"},
        {"do": "list", "digest": "00" * 32, "at": 0},
    ]


def nothing(dice: random.Random, known: Knowledge) -> list[dict[str, Any]]:
    """A service without requests, or one that does not exist."""
    return [{"do": "report", "question": "overview", "token": "t"}]


CATALOGUE = {
    "admin": admin,
    "stores": stores,
    "resources": resources,
    "rights": rights,
    "tdn": nothing,
    "bdn": nothing,
    "monitor": nothing,
    "store": nothing,
    "broker": nothing,
    "nobody": nothing,
}
WEIGHTS = {"stores": 6, "resources": 6, "rights": 4, "admin": 2}
CERTIFICATES = "discovery"  # the responder, whose requests are messages


def requests(dice: random.Random, known: Knowledge) -> Input:
    """A session that asks a few things."""
    who = dice.choice(DIALS)
    token = {"entity": "tester", "token": TOKEN} if who == "token" else {}
    frames = [hello(dice.choice(SECRETS), **token)]
    for number in range(1, dice.choice([2, 4, 7, 10])):
        frames.append(request(dice, known, number, who))
    node = dice.choice(["", "", "@beside"])
    return Input("requests", [Step(0, "dial", word=who + node), Step(0, "bytes", b"".join(frames))])


def request(dice: random.Random, known: Knowledge, number: int, who: str) -> bytes:
    """One request, valid but for one thing."""
    names = [*CATALOGUE, CERTIFICATES]
    service = dice.choices(names, [WEIGHTS.get(name, 1) for name in names])[0]
    if service == CERTIFICATES:
        payload = write({"hash": b"h" * 32}, MSGPACK, dice)
        kind = dice.choice([discovery.MessageKind.CERTIFICATE_REQUEST, *discovery.MessageKind])
        payload = discovery.pack(discovery.Message(kind, 0, discovery.NO_COOKIE, payload), pad=False)
    else:
        wanted = dice.choice(CATALOGUE[service](dice, known))
        if service == "admin" and who != "admin" and dice.random() < 0.2:
            wanted = {"do": "drain", "grace_ms": 0}
        payload = write(wanted, JSON, dice)
    return put_together(grammar.SERVICE, number, payload, service.encode())
