"""The network key: a secret that all brokers of a network share, so that they know each other without certificates.

In:    the content of a key file.
Out:   the key, or a text that says what is wrong with it.
State: none.
Not here: proving possession of it (broker/routing/peering.py), the file's permissions (config/load.py).
"""

from __future__ import annotations

KEY_BYTES_MIN = 16
KEY_BYTES_MAX = 4_096  # a larger file is not a key file


def key_of(content: bytes) -> bytes:
    """The key in a file: its content without surrounding white space, which editors add."""
    return content.strip()


def key_fault(key: bytes) -> str | None:
    """Why this is not a valid network key, or None."""
    if len(key) < KEY_BYTES_MIN:
        return f"a network key has at least {KEY_BYTES_MIN} bytes, this one has {len(key)}"
    if len(key) > KEY_BYTES_MAX:
        return f"a network key has at most {KEY_BYTES_MAX} bytes, this file has more"
    return None
