"""Ports for servers that are started later."""

from __future__ import annotations

import socket
import subprocess
import sys

from benchmarks.ports import RANGE, free_port, free_ports


def test_ports_differ_and_are_none_that_the_system_gives_to_others() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    if RANGE.exists():
        assert max(ports) < int(RANGE.read_text().split()[0])


def test_a_port_that_is_used_for_tcp_or_udp_is_left_out() -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as taken:
            following = free_port() + 1
            taken.bind(("127.0.0.1", following))
            assert free_port() != following


def test_another_process_begins_elsewhere() -> None:
    program = "from benchmarks.ports import free_ports; print(*free_ports(20))"
    others = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert not {int(port) for port in others} & set(free_ports(20))
