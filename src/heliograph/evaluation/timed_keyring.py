"""A keyring that measures how much time each kind of its work takes.

In:    a clock; what a keyring is asked to do.
Out:   seconds by kind of work.
State: the seconds so far.
Not here: the work itself (trust/keyring.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from heliograph.errors import ProtocolError
from heliograph.model.identity import Role
from heliograph.trust.chains import Authorities, Holder
from heliograph.trust.keyring import Keyring, Own, Signed

ENCRYPTING, DECRYPTING, SIGNING, VERIFYING = "encrypting", "decrypting", "signing", "verifying"
WORK = (ENCRYPTING, DECRYPTING, SIGNING, VERIFYING)


class TimedKeyring(Keyring):
    """It does what a keyring does; work inside other work is counted once."""

    __slots__ = ("_clock", "_is_busy", "seconds")

    def __init__(self, authorities: Authorities, own: Own, clock: Callable[[], float]) -> None:
        super().__init__(authorities, own)
        self._clock = clock
        self._is_busy = False
        self.seconds = dict.fromkeys(WORK, 0.0)

    def restart(self) -> None:
        """Count from zero."""
        self.seconds = dict.fromkeys(WORK, 0.0)

    @contextmanager
    def _timed(self, work: str) -> Iterator[None]:
        if self._is_busy:
            yield
            return
        self._is_busy = True
        began = self._clock()
        try:
            yield
        finally:
            self.seconds[work] += self._clock() - began
            self._is_busy = False

    def seal(self, recipient: Holder, domain: bytes, plaintext: bytes, aad: bytes = b"") -> bytes:
        """Encrypting."""
        with self._timed(ENCRYPTING):
            return super().seal(recipient, domain, plaintext, aad)

    def open(self, domain: bytes, sealed: bytes, aad: bytes = b"") -> bytes:
        """Decrypting."""
        with self._timed(DECRYPTING):
            return super().open(domain, sealed, aad)

    def sign(self, domain: bytes, payload: bytes) -> bytes:
        """Signing."""
        with self._timed(SIGNING):
            return super().sign(domain, payload)

    def learn(self, chain: bytes, wall_ns: int, role: Role | None = None) -> Holder:
        """Verifying a chain."""
        with self._timed(VERIFYING):
            return super().learn(chain, wall_ns, role)

    def verify(self, domain: bytes, data: bytes, wall_ns: int, role: Role | None = None) -> Signed:
        """Verifying a signature."""
        with self._timed(VERIFYING):
            return super().verify(domain, data, wall_ns, role)

    def verify_all(
        self, domain: bytes, many: Sequence[bytes], wall_ns: int, role: Role | None = None
    ) -> list[Signed | ProtocolError]:
        """Verifying many signatures."""
        with self._timed(VERIFYING):
            return super().verify_all(domain, many, wall_ns, role)
