"""Chance: what machines draw from, with separate sources for secrets, for nonces and for delays.

In:    a seed: three independent draws from the system's randomness (live/chance.py), or a number (simulations, tests).
Out:   secrets for a purpose, the source of nonces for a purpose, and a random generator for delays.
State: none.
Not here: drawing a seed (live/chance.py), nonces themselves (each protocol hashes its source with a counter).

The output of a generator shows its state to an observer who sees enough of it, and nonces travel in clear text. So no
generator and no nonce comes from the value that secrets come from. In a simulation there is nobody to hide from: a
single number determines everything, and the run can be repeated.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random

from msgspec import Struct

SEED_BYTES = 32


class SystemSeed(Struct, frozen=True):
    """The seed of a live process."""

    secrets: bytes  # SEED_BYTES; nothing that is sent or timed comes from it, except by SHA-256
    nonces: bytes  # SEED_BYTES
    delays: int

    def __repr__(self) -> str:
        return "SystemSeed(…)"  # it must not reach a log


Seed = SystemSeed | int


def secret_of(seed: Seed, purpose: str) -> bytes:
    """32 secret bytes: always the same for a seed and a purpose, and independent of those for other purposes."""
    return _derived(seed.secrets if isinstance(seed, SystemSeed) else seed, purpose)


def nonces_of(seed: Seed, purpose: str) -> bytes:
    """32 bytes to hash with a counter. What comes from them may be sent in clear text."""
    return _derived(seed.nonces if isinstance(seed, SystemSeed) else seed, purpose)


def delays_of(seed: Seed) -> Random:
    """A generator for jitter and the like. Nothing that it returns may be secret or need to be unpredictable."""
    return Random(seed.delays if isinstance(seed, SystemSeed) else seed)


def _derived(source: bytes | int, purpose: str) -> bytes:
    head = source if isinstance(source, bytes) else b"%d" % source
    return sha256(b"%b/%b" % (head, purpose.encode())).digest()
