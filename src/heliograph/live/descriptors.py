"""Descriptors: how many files and sockets this process may have open, and how many of them are left to peers.

In:    the system's limits for this process (``ulimit -n``).
Out:   a higher limit, where the system allows one; the number from which on a peer's socket is not kept; how many links
       a machine should have at most.
State: none.
Not here: the broker's own limits on links (broker/config.py).

A process that runs out of descriptors cannot open a file, load a module or dial. So the last ones are not for peers,
which need no credential to take them: the system numbers descriptors from below, and a socket with a high number is
closed.
"""

from __future__ import annotations

import resource
import sys
from socket import socket

RESERVED = 64  # for files, modules and dials
LINKS_PART = 7 / 8  # of the peers' descriptors: the rest is for links that have ended and are not closed yet


def raise_limit() -> None:
    """Let this process have as many as it may; the limit it starts with is mostly made for programs with few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):
        pass  # where "no limit" is not really one; the usual limit will do


def peers_max() -> int:
    """A peer's socket has a lower number than this, or is closed."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(limit - RESERVED, limit // 2)


def links_max(peers: int) -> int:
    """How many links a machine should have, so that the machine, and not the system, chooses which peers to turn
    away."""
    with socket() as probe:
        taken = probe.fileno()  # the lowest number that is free
    return peers if peers == sys.maxsize else max(1, int((peers - taken) * LINKS_PART))
