"""Domains: what a signature or a seal is for, so that one made for a purpose is invalid for another.

In:    a purpose, a domain and the content.
Out:   the bytes that are actually signed, or bound to a seal.
State: none.
Not here: the domains themselves: each package defines its own, and docs/reference/trust.md lists them.
"""

from __future__ import annotations

from heliograph.errors import UsageError

DOMAIN_BYTES_MAX = 64  # a name such as b"heliograph/broker-request/1"; it is never sent, so it costs only time


def framed(purpose: bytes, domain: bytes, content: bytes) -> bytes:
    """A unique string of bytes for each (purpose, domain, content)."""
    if not 1 <= len(domain) <= DOMAIN_BYTES_MAX:
        raise UsageError(f"a domain has 1 to {DOMAIN_BYTES_MAX} bytes, this one has {len(domain)}")
    return b"%b\0%c%b%b" % (purpose, len(domain), domain, content)
