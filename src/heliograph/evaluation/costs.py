"""The cost of trust: validating a certificate; signing, sealing, opening and verifying a request.

In:    a clock, how many runs.
Out:   statistics in milliseconds, beside the paper's.
State: none.
Not here: certificates and signatures themselves (trust/).
Paper: [brokers] §9.1, Figures 13 and 14.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from heliograph.discovery.brokers.messages import DiscoveryRequest
from heliograph.discovery.brokers.signing import Signing
from heliograph.evaluation import paper
from heliograph.evaluation.statistics import Summary, kept, summary
from heliograph.model.identity import Role
from heliograph.trust.certificates import Pair, issue, make_authority
from heliograph.trust.chains import Authorities
from heliograph.trust.keyring import Keyring, Own

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
WALL_NS = (int(BEGIN.timestamp()) + 86_400) * 10**9
Clock = Callable[[], float]
"""Seconds of a monotonic clock."""


def evaluate(clock: Clock, runs: int) -> list[dict[str, Any]]:
    """Both costs. Nothing is cached between runs: each verifies again."""
    draw = Random("costs").randbytes
    authority = make_authority("evaluation", BEGIN, draw=draw)
    trusted = Authorities.from_pem(authority.certificate)
    client = _own(issue(authority, "client", (Role.CLIENT,), (), BEGIN, 90, draw=draw))
    broker = _own(issue(authority, "broker", (Role.BROKER,), (), BEGIN, 90, draw=draw))
    recipient = Keyring(trusted).learn(broker.chain, WALL_NS)

    def validate(_: int) -> None:
        Keyring(trusted).learn(client.chain, WALL_NS)

    def sign_seal_open(number: int) -> None:
        request = DiscoveryRequest(number.to_bytes(16, "big"), 1, issued_ms=WALL_NS // 10**6)
        message = Signing(Keyring(trusted, client), required=True).message(request, recipient=recipient)
        receiver.read(message, DiscoveryRequest, WALL_NS)

    receiver = Signing(Keyring(trusted, broker), required=True)
    receiver.learn(client.chain, WALL_NS)
    return [
        _row("validate a certificate", _timed(validate, clock, runs), paper.VALIDATION),
        _row("sign, seal, open and verify a request", _timed(sign_seal_open, clock, runs), paper.SIGN_SEAL_OPEN),
    ]


def keys(clock: Clock, runs: int) -> list[dict[str, Any]]:
    """Signing and verifying with our kind of key, and with RSA-2048 as in the papers. The product has no RSA."""
    draw = Random("keys").randbytes
    authority = make_authority("evaluation", BEGIN, draw=draw)
    keyring = Keyring(
        Authorities.from_pem(authority.certificate),
        _own(issue(authority, "signer", (Role.CLIENT,), (), BEGIN, 90, draw=draw)),
    )
    assert keyring.own is not None
    keyring.learn(keyring.own.chain, WALL_NS)
    old, message = rsa.generate_private_key(65_537, 2_048), b"x" * 500
    ours = [keyring.sign(b"evaluation", b"%d" % number + message) for number in range(runs)]  # repeats are cached
    theirs = old.sign(message, padding.PKCS1v15(), hashes.SHA256())
    public = old.public_key()
    timed: dict[str, tuple[Callable[[int], object], Callable[[int], object]]] = {
        "P-256 (ours)": (
            lambda _: keyring.sign(b"evaluation", message),
            lambda number: keyring.verify(b"evaluation", ours[number], WALL_NS),
        ),
        "RSA-2048 (as then)": (
            lambda _: old.sign(message, padding.PKCS1v15(), hashes.SHA256()),
            lambda _: public.verify(theirs, message, padding.PKCS1v15(), hashes.SHA256()),
        ),
    }
    return [
        {"key": name, "sign_ms": _mean(_timed(sign, clock, runs)), "verify_ms": _mean(_timed(verify, clock, runs))}
        for name, (sign, verify) in timed.items()
    ]


def _mean(took: list[float]) -> float:
    return round(sum(took) / len(took), 3)


def _own(pair: Pair) -> Own:
    return Own.from_pem(pair.certificate, pair.key)


def _timed(action: Callable[[int], object], clock: Clock, runs: int) -> list[float]:
    took = []
    for number in range(runs):
        began = clock()
        action(number)
        took.append((clock() - began) * 1_000)
    return took


def _row(what: str, took: list[float], published: Summary) -> dict[str, Any]:
    ours = summary([took[place] for place in kept(took)])
    return {"what": what, "ours": ours.as_dict(), "paper": published.as_dict()}
