"""Drawing a seed for a node or a search from the system's randomness.

In:    nothing.
Out:   SystemSeed.
State: none.
Not here: what is derived from it (model/chance.py).
"""

from __future__ import annotations

import secrets

from heliograph.model.chance import SEED_BYTES, SystemSeed


def system_seed() -> SystemSeed:
    """A new seed, whose three parts are independent of each other."""
    return SystemSeed(
        secrets=secrets.token_bytes(SEED_BYTES),
        nonces=secrets.token_bytes(SEED_BYTES),
        delays=secrets.randbits(64),
    )
