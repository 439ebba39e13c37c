"""discover-broker: a relay really makes a server farther, and the figures are those of the rounds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter

import pytest

from benchmarks.discover_broker import FARTHER, NEAR, _result, show
from benchmarks.field import Field
from benchmarks.peers.server import relay
from benchmarks.ports import free_ports
from benchmarks.seeking import ABLE, DELAY_MS

GROUP = "239.255.71.99"
FAR_S = 2 * DELAY_MS / 1e3


@contextmanager
def answering(server: socket.socket) -> Iterator[None]:
    """Sends back what it hears, once."""

    def answer() -> None:
        if server.type == socket.SOCK_DGRAM:
            data, asker = server.recvfrom(100)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
                own.sendto(data, asker)
        else:
            link, _ = server.accept()
            with link:
                link.sendall(link.recv(100))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield
    thread.join(10)
    server.close()


@pytest.mark.live
def test_a_relayed_link_takes_the_delay_each_way() -> None:
    listen, to = free_ports(2)
    with ExitStack() as stack:
        stack.enter_context(answering(socket.create_server(("127.0.0.1", to))))
        relay(stack, "tcp", "127.0.0.1", listen, to, DELAY_MS)
        begin = perf_counter()
        with socket.create_connection(("127.0.0.1", listen), 10) as link:
            link.sendall(b"hello")
            assert link.recv(100) == b"hello"
        assert perf_counter() - begin >= FAR_S


@pytest.mark.live
def test_a_relayed_group_takes_the_delay_each_way() -> None:
    listen, to = free_ports(2)
    local = socket.inet_aton("127.0.0.1")
    with ExitStack() as stack:
        member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        member.bind((GROUP, to))
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + local)
        stack.enter_context(answering(member))
        relay(stack, "multicast", GROUP, listen, to, DELAY_MS)
        asker = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        asker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, local)
        asker.settimeout(60)
        begin = perf_counter()
        asker.sendto(b"hello", (GROUP, listen))
        assert asker.recv(100) == b"hello"
        assert perf_counter() - begin >= FAR_S


def test_times_are_medians_of_the_near_case_and_the_share_is_of_the_far_one() -> None:
    rounds = [
        {"round": 1, "case": NEAR, "system": "ours", "first_answer_ms": 1.0, "choice_ms": 4.0, "connected_ms": 9.0},
        {"round": 2, "case": NEAR, "system": "ours", "first_answer_ms": 3.0, "choice_ms": 30.0, "connected_ms": 9.0},
        {"round": 3, "case": NEAR, "system": "ours", "first_answer_ms": 2.0, "choice_ms": 5.0, "connected_ms": 9.0},
        {"round": 1, "case": FARTHER, "system": "ours", "far": 0.0},
        {"round": 2, "case": FARTHER, "system": "ours", "far": 1.0},
    ]
    result = _result(Field(["ours"], ABLE), rounds)
    assert (result["ours"]["first_answer_ms"], result["ours"]["choice_ms"]) == (2.0, 5.0)
    assert result["ours"]["far_share"] == 0.5
    assert [entry["met"] for entry in result["budget"]] == [True, True, False]
    assert result["peers"]["nats"] == {"absent": "left out of this run"}
    assert "far share" in show(result)
