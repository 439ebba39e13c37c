"""Cookies: prove that a sender of datagrams receives what is sent to its address.

In:    a secret, addresses, the time.
Out:   16 bytes for an address, and whether 16 bytes are the right ones.
State: the secret only: a flood of forged requests costs no memory.
Not here: what is refused without a cookie (responder.py, directory.py).
"""

from __future__ import annotations

import hmac

from heliograph.machine import Address, Instant
from heliograph.model.chance import Seed, secret_of

COOKIE_BYTES = 16
PERIOD_NS = 60_000_000_000  # a cookie is valid for one to two periods


class Cookies:
    """Makes and checks the cookies of one machine."""

    __slots__ = ("_secret",)

    def __init__(self, seed: Seed, purpose: str) -> None:
        self._secret = secret_of(seed, f"cookie/{purpose}")

    def of(self, source: Address, now: Instant) -> bytes:
        """The cookie that this source must present."""
        return self._make(source, now // PERIOD_NS)

    def is_right(self, source: Address, cookie: bytes, now: Instant) -> bool:
        """True if we gave this source this cookie recently."""
        period = now // PERIOD_NS
        return any(hmac.compare_digest(cookie, self._make(source, past)) for past in (period, period - 1))

    def _make(self, source: Address, period: int) -> bytes:
        text = f"{source[0]}\0{source[1]}\0{period}".encode()
        return hmac.digest(self._secret, text, "sha256")[:COOKIE_BYTES]
