"""Descriptors: how many files and sockets this process may have open, and how many of them are left to peers.

In:    the system's limits for this process (``ulimit -n``).
Out:   a higher limit, where the system allows one; the number from which a peer's socket is not kept; how many links a
       machine should have at most.
State: none.
Not here: the broker's own limits on links (broker/config.py).

A process that runs out of descriptors cannot open a file, load a module or dial. So the last ones are kept from peers,
which need no credential to use them up: the system assigns the lowest free number, and a peer's socket with a high
number is closed.
"""

from __future__ import annotations

import resource
import sys
from socket import socket

RESERVED = 64  # for files, modules and dials
LINKS_PART = 7 / 8  # of the peers' descriptors; the rest is for links that have ended but are not closed yet


def raise_limit() -> None:
    """Raise this process's limit to the maximum; the initial limit is usually meant for small programs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):
        pass  # "unlimited" is not accepted here; the initial limit stays


def peers_max() -> int:
    """A peer's socket with this number or a higher one is closed."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(limit - RESERVED, limit // 2)


def links_max(peers: int) -> int:
    """How many links a machine should have, so that the machine, not the system, chooses which peers to turn away."""
    with socket() as probe:
        taken = probe.fileno()  # the lowest free number
    return peers if peers == sys.maxsize else max(1, int((peers - taken) * LINKS_PART))
