"""trust: what it costs to prove, sign, verify, seal and open a discovery request.

In:    nothing; certificates as `heliograph ca` makes them.
Out:   µs per operation, the fastest of many short repeats in each round; the paper's figures beside two of them.
State: none.
Not here: the operations (src/heliograph/trust/), TLS handshakes (live/tls.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from itertools import cycle
from statistics import median
from timeit import repeat
from typing import Any

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import rounded, spread, table
from heliograph.model.identity import Role
from heliograph.trust.certificates import Pair, issue, make_authority
from heliograph.trust.chains import Authorities
from heliograph.trust.keyring import Keyring, Own

SAYS = "µs to check a certificate, sign, verify, seal and open"
DOMAIN = b"benchmark/request/1"
PAYLOAD = bytes(400)  # about a discovery request
CALLS, REPEATS = 5, 40  # a repeat takes a millisecond or two: some of them are undisturbed on a busy machine, too
PAPER_US = {"chain": 6_610, "whole": 25_950}  # [brokers] figures 13 and 14, on a Pentium M of 2 GHz with Java 1.4


def run(quick: bool) -> dict[str, Any]:
    """Rounds of all operations, in turns."""
    cases = _cases()
    rounds: list[dict[str, Any]] = []
    for number in range(1, (5 if quick else 15) + 1):
        say(f"round {number}")
        for case, call in cases.items():
            us = min(repeat(call, number=CALLS, repeat=REPEATS)) / CALLS * 1e6
            rounds.append({"round": number, "case": case, "system": "ours", "us": us})
    found = {case: [entry["us"] for entry in rounds if entry["case"] == case] for case in cases}
    return {
        "name": "trust",
        "unit": "µs per operation, one core; medians",
        "ours": {case: rounded(median(values)) for case, values in found.items()},
        "peers": {"paper": PAPER_US},
        "ratios": {},  # the paper's machine is not this one
        "rounds": rounds,
        "spread": {case: spread(values) for case, values in found.items()},
        "budget": [],
        "quick": quick,
        "machine": machine.facts(),
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = [
        [case, value, result["spread"][case], result["peers"]["paper"].get(case)]
        for case, value in result["ours"].items()
    ]
    return table(["operation", "µs", "[min, max]", "the paper's"], rows)


def _cases() -> dict[str, Callable[[], object]]:
    now = datetime.datetime.now(datetime.UTC)
    wall_ns = int(now.timestamp()) * 1_000_000_000
    authority = make_authority("benchmark", now)
    broker_pair = issue(authority, "broker", [Role.BROKER], [], now)
    client_pair = issue(authority, "client", [Role.CLIENT], [], now)
    broker, client = _keyring(authority, broker_pair), _keyring(authority, client_pair)
    assert broker.own is not None
    assert client.own is not None
    chain, authorities = client.own.chain, Authorities.from_pem(authority.certificate)
    forgetful = _keyring(authority, broker_pair, signatures_max=1)
    for ring in (broker, forgetful):
        ring.learn(chain, wall_ns)
    recipient = client.learn(broker.own.chain, wall_ns)
    payloads = [PAYLOAD + bytes([number]) for number in range(2)]
    statements = [client.sign(DOMAIN, payload) for payload in payloads]
    sealed = client.seal(recipient, DOMAIN, statements[0])
    # Two in turn, and room for one: neither is ever remembered.
    next_payload, next_statement = cycle(payloads), cycle(statements)

    def whole() -> None:
        """As in the paper: the request is signed and sealed on one side, opened and verified on the other."""
        request = client.seal(recipient, DOMAIN, client.sign(DOMAIN, next(next_payload)))
        forgetful.verify(DOMAIN, forgetful.open(DOMAIN, request), wall_ns)

    return {
        "chain": lambda: authorities.verify(chain, wall_ns),
        "sign": lambda: client.sign(DOMAIN, PAYLOAD),
        "verify": lambda: forgetful.verify(DOMAIN, next(next_statement), wall_ns),
        "verify_remembered": lambda: broker.verify(DOMAIN, statements[0], wall_ns),
        "seal": lambda: client.seal(recipient, DOMAIN, statements[0]),
        "open": lambda: broker.open(DOMAIN, sealed),
        "whole": whole,
    }


def _keyring(authority: Pair, pair: Pair, **limits: Any) -> Keyring:
    return Keyring(Authorities.from_pem(authority.certificate), Own.from_pem(pair.certificate, pair.key), **limits)
