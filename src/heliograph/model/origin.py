"""Origins: the number under which one publisher session publishes.

In:    a session secret, shown only in the handshake.
Out:   the session's origin: the first 8 bytes of the secret's SHA-256, little endian.
State: none.
Not here: checking frames against it (wire/scan.py), remembering sequences (broker/routing/seen.py).

Publishing under an origin needs its secret, and a session that roams proves itself with it.
"""

from __future__ import annotations

from hashlib import sha256

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 64


def origin_of(secret: bytes) -> int:
    """The origin that belongs to this session secret."""
    return int.from_bytes(sha256(secret).digest()[:8], "little")
