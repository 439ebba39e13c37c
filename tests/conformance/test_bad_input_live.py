"""Bad input and faults over real sockets: what only a live broker can show.

In:    peers that connect and say nothing, stop half way, never read, or send rubbish, over TCP and TLS.
Out:   claims about the reason on the wire, in the log and in the counters, and about a healthy pair of clients.
State: one broker process for all tests of this file.
Not here: the many ways to break a rule (test_bad_input.py), certificates (tests/wire/test_stdlib_client.py).
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.wire.live_broker import LiveBroker, live_broker
from tests.wire.stdlib_client import StdlibClient, pack

pytestmark = [pytest.mark.live, pytest.mark.req("O6")]

LIMITS = """
[limits]
handshake_ms = 2500
keep_alive_ms_min = 200
queue_bytes_max = 2000000
hold_bytes = 1000000
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with live_broker(tmp_path_factory.mktemp("broker"), LIMITS) as running:
        yield running


@pytest.fixture(params=["tcp", "tls"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def healthy(broker: LiveBroker) -> Iterator[tuple[StdlibClient, StdlibClient]]:
    """A publisher and a subscriber that must not notice anything."""
    publisher, subscriber = dial(broker, "tcp"), dial(broker, "tls")
    publisher.hello()
    subscriber.hello()
    subscriber.subscribe(1, "healthy/#")
    yield publisher, subscriber
    publisher.publish("healthy/last", b"still here")
    while subscriber.event().frame.topic != "healthy/last":
        pass
    publisher.goodbye()
    subscriber.goodbye()


def dial(broker: LiveBroker, transport: str) -> StdlibClient:
    if transport == "tcp":
        return StdlibClient("127.0.0.1", broker.ports["plain"])
    return StdlibClient("127.0.0.1", broker.ports["secure"], tls=broker.tls())


def refused(broker: LiveBroker) -> dict[str, int]:
    """The broker's own count of reasons."""
    admin = dial(broker, "tcp")
    admin.hello(token=broker.admin_token)
    counts: dict[str, int] = admin.ask("admin", {"do": "report", "question": "overview"})["refused"]
    admin.goodbye()
    return counts


def seen_in_log(broker: LiveBroker, port: int, reason: str) -> None:
    """The log says that the link from this port of ours ended for this reason."""

    def is_seen() -> bool:
        attached = [line["link"] for line in broker.notes("link_attached") if line["address"].endswith(f":{port}")]
        return any(line["link"] in attached and line["reason"] == reason for line in broker.notes("link_detached"))

    broker.until(is_seen)


@pytest.mark.usefixtures("healthy")
def test_a_peer_that_connects_and_says_nothing(broker: LiveBroker, transport: str) -> None:
    before = refused(broker).get("handshake_too_slow", 0)
    silent = dial(broker, transport)
    port = silent.socket.getsockname()[1]
    assert silent.ended() == "handshake_too_slow"
    seen_in_log(broker, port, "handshake_too_slow")
    assert refused(broker)["handshake_too_slow"] == before + 1


@pytest.mark.usefixtures("healthy")
def test_a_peer_that_never_begins_its_tls_handshake(broker: LiveBroker) -> None:
    silent = socket.create_connection(("127.0.0.1", broker.ports["secure"]), timeout=60)
    assert silent.recv(1) == b""
    broker.until(lambda: any(line["reason"] == "handshake_too_slow" for line in broker.notes("peer_refused")))
    silent.close()


@pytest.mark.usefixtures("healthy")
def test_a_peer_that_speaks_plain_text_to_a_tls_listener(broker: LiveBroker) -> None:
    confused = socket.create_connection(("127.0.0.1", broker.ports["secure"]), timeout=60)
    confused.sendall(pack(16, payload=b"{}"))
    try:
        while confused.recv(1_000):
            pass
    except ConnectionError:
        pass
    broker.until(lambda: any(line["reason"] == "tls_failed" for line in broker.notes("peer_refused")))
    confused.close()


@pytest.mark.usefixtures("healthy")
def test_a_peer_that_speaks_tls_to_a_plain_listener(broker: LiveBroker) -> None:
    before = refused(broker).get("frame_over_limit", 0)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        StdlibClient("127.0.0.1", broker.ports["plain"], tls=broker.tls())
    assert refused(broker)["frame_over_limit"] == before + 1


@pytest.mark.usefixtures("healthy")
def test_a_peer_that_falls_silent(broker: LiveBroker, transport: str) -> None:
    before = refused(broker).get("silent", 0)
    client = dial(broker, transport)
    client.hello(keep_alive_ms=200)
    client.control = lambda *_, **__: None  # type: ignore[method-assign]  # it no longer answers PINGs
    port = client.socket.getsockname()[1]
    assert client.ended() == "silent"
    seen_in_log(broker, port, "silent")
    assert refused(broker)["silent"] == before + 1


@pytest.mark.parametrize("rest", [b"", pack(19, sequence=1)[:11]], ids=["between frames", "inside a frame"])
def test_a_half_closed_link(broker: LiveBroker, healthy: tuple[StdlibClient, StdlibClient], rest: bytes) -> None:
    client = dial(broker, "tcp")
    client.hello()
    client.publish("healthy/half", b"sent before the end")
    client.send(rest)
    client.socket.shutdown(socket.SHUT_WR)
    port = client.socket.getsockname()[1]
    assert client.ended() in ("", "closed")
    seen_in_log(broker, port, "closed")
    assert healthy[1].event().frame.payload == b"sent before the end"


@pytest.mark.usefixtures("healthy")
def test_a_link_that_is_reset(broker: LiveBroker) -> None:
    client = dial(broker, "tcp")
    client.hello()
    port = client.socket.getsockname()[1]
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    client.socket.close()
    broker.until(lambda: any(line["address"].endswith(f":{port}") for line in broker.notes("link_attached")))
    link = next(line["link"] for line in broker.notes("link_attached") if line["address"].endswith(f":{port}"))
    broker.until(lambda: any(line["link"] == link for line in broker.notes("link_detached")))


@pytest.mark.req("N15")
@pytest.mark.parametrize(("policy", "reason"), [("drop_oldest", ""), ("disconnect", "slow_consumer")])
def test_a_subscriber_that_never_reads(
    broker: LiveBroker, healthy: tuple[StdlibClient, StdlibClient], transport: str, policy: str, reason: str
) -> None:
    publisher, subscriber = healthy
    slow = dial(broker, transport)
    slow.hello()
    slow.subscribe(1, "healthy/flood", policy=policy)
    payload = b"x" * 60_000
    for number in range(400):  # 24 MB: more than the sockets, the driver and the queue take together
        publisher.publish("healthy/flood", payload)
        assert subscriber.event().frame.sequence == publisher.sequence - 1, f"publication {number} was lost"
    if reason:
        broker.until(lambda: any(line["reason"] == reason for line in broker.notes("link_detached")))
        slow.socket.close()
        return
    publisher.publish("healthy/flood", b"last")
    received = 0
    while True:
        event = slow.event()
        received += 1
        if event.frame.payload == b"last":
            break
    assert event.lost > 0
    assert received + event.lost == 401
    slow.goodbye()


@pytest.mark.usefixtures("healthy")
def test_rubbish(broker: LiveBroker, transport: str) -> None:
    for rubbish in (bytes(100), b"\xff" * 100, b"GET / HTTP/1.0\r\n\r\n" * 10):
        client = dial(broker, transport)
        client.send(rubbish)
        assert client.ended() in ("frame_too_short", "frame_over_limit")


def test_an_address_in_use_is_told_in_words_and_by_the_exit_code(broker: LiveBroker) -> None:
    command = [sys.executable, "-m", "heliograph.cli.main", "broker", "run", "--listen"]
    second = subprocess.run(
        [*command, f"127.0.0.1:{broker.ports['plain']}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode != 0
    assert "in use" in second.stderr
