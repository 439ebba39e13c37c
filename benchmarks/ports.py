"""Ports: numbers of loopback ports for servers that are started later, in benchmarks and tests.

In:    nothing.
Out:   ports that were free a moment ago, for TCP and UDP alike, and that the system gives to no other program.
State: the last port that was given.
Not here: servers that take port 0 and say which port they got; do that wherever it is possible.

The operating system has a range of ports for programs that do not name one, clients included. A port of that range that
is free now may be taken when its server starts a second later. So these ports are below the range, and processes whose
ids are close begin far apart.
"""

from __future__ import annotations

import os
import socket
from itertools import count
from pathlib import Path

LOW = 15_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
HIGH_USUAL = 32_768  # Linux; elsewhere it is higher
APART = 4_421  # ports between the first ones of two processes with consecutive ids
_numbers = count(os.getpid() * APART)


def free_port() -> int:
    """A port that nobody uses."""
    high = int(RANGE.read_text().split()[0]) if RANGE.exists() else HIGH_USUAL
    assert high > LOW, f"the ports below {high} are few: see {RANGE}"
    for _ in range(high - LOW):
        port = LOW + next(_numbers) % (high - LOW)
        if _is_free(port):
            return port
    raise AssertionError(f"all ports from {LOW} to {high} are in use")


def free_ports(count: int) -> list[int]:
    """Different ones."""
    return [free_port() for _ in range(count)]


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True
