"""The other thing the fuzzer shoots at: a broker process, over real TCP and TLS.

In:    inputs (inputs.py), without steps that need a clock of ours.
Out:   FaultError if an input does harm; how often each reason was heard.
State: one process, a canary, and a few sockets of earlier inputs that stay.
Not here: a network of machines (network_target.py).
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import Counter, deque
from typing import Any

from tests.conformance import grammar
from tests.fuzz.driver import FaultError
from tests.fuzz.network_target import STAYING_MAX, reason_in
from tests.fuzz.steps import Input
from tests.wire.live_broker import LiveBroker
from tests.wire.stdlib_client import StdlibClient

SETTINGS = """
[[access.rules]]
effect = "allow"
topics = ["canary/#"]
who = ["sensor-7"]

[[access.rules]]
effect = "deny"
topics = ["canary/#", "private/#"]

[limits]
links_max = 400
keep_alive_ms_max = 100000
subscriptions_per_link_max = 20
queue_bytes_max = 2000000
hold_bytes = 1000000
"""


class LiveTarget:
    """A broker process, shot at over real sockets."""

    def __init__(self, broker: LiveBroker) -> None:
        self.broker = broker
        self.reasons: Counter[str] = Counter()
        self.shots: Counter[str] = Counter()
        self._staying: deque[socket.socket] = deque()
        self._tls = {"tls": broker.tls(), "broker": broker.tls("broker")}
        self._sung = 0
        self.singer, self.listener = (
            StdlibClient("127.0.0.1", broker.ports["mutual"], tls=broker.tls("sensor-7")) for _ in range(2)
        )
        for client in (self.singer, self.listener):
            client.hello(keep_alive_ms=100_000)
        self.listener.subscribe(1, "canary/+")

    def shoot(self, given: Input, transport: str) -> None:
        """The same as a machine's input, over TCP or TLS; then the canary."""
        self.shots["tls" if any(step.word == "broker" for step in given.steps) else transport] += 1
        peers: dict[int, socket.socket] = {}
        for step in given.steps:
            try:
                if step.verb == "dial":
                    peers[step.peer] = self._dial("broker" if step.word == "broker" else transport)
                elif step.verb == "bytes" and step.peer in peers:
                    peers[step.peer].sendall(step.data)
                elif step.verb == "leave" and step.peer in peers:
                    self._listen(peers[step.peer])
                    peers.pop(step.peer).close()
            except (ConnectionError, ssl.SSLError, TimeoutError):
                pass  # it hung up on us, as it should
        self.check_canary()
        for peer in peers.values():
            self._listen(peer)
            self._staying.append(peer)
        while len(self._staying) > STAYING_MAX:
            peer = self._staying.popleft()
            self._listen(peer)
            peer.close()

    def check_canary(self) -> None:
        """A healthy client publishes, another hears it."""
        self._sung += 1
        try:
            song = self.singer.publish(f"canary/{self._sung % 7}", b"song %d" % self._sung)
            heard = self.listener.event().frame
        except (OSError, Exception) as error:
            raise FaultError(
                f"the canary fell silent: {error!r}; the broker said:\n{self.broker.log[-3_000:]}"
            ) from error
        if heard.payload != b"song %d" % self._sung:
            raise FaultError(f"the canary published {song!r} and heard {heard!r}")

    def finish(self) -> None:
        """Everybody leaves; the broker is still there and its tables are nearly empty."""
        while self._staying:
            self._staying.popleft().close()
        self.broker.until(lambda: self._overview()["links"] == 3)
        left = self._overview()
        if left["subscriptions"] != 1 or left["backlog_bytes"]:
            raise FaultError(f"something stayed behind: {left}")
        if self.broker.notes("unreadable"):
            raise FaultError(f"the broker wrote what is no log line:\n{self.broker.log[-3_000:]}")

    def _overview(self) -> dict[str, Any]:
        admin = StdlibClient("127.0.0.1", self.broker.ports["plain"])
        admin.hello(token=self.broker.admin_token)
        overview = admin.ask("admin", {"do": "report", "question": "overview"})
        admin.goodbye()
        return overview

    def _dial(self, transport: str) -> socket.socket:
        port = self.broker.ports[{"tcp": "plain", "tls": "secure", "broker": "mutual"}[transport]]
        peer = socket.create_connection(("127.0.0.1", port))
        peer.settimeout(5.0)
        return peer if transport == "tcp" else self._tls[transport].wrap_socket(peer, server_hostname="127.0.0.1")

    def _listen(self, peer: socket.socket) -> None:
        """Count the reasons in what the broker has said so far."""
        heard = b""
        peer.settimeout(0.0)
        try:
            while select.select([peer], [], [], 0)[0]:
                data = peer.recv(65_536)
                if not data:
                    break
                heard += data
        except (OSError, ValueError):
            pass  # it would block, or is gone: no more to hear
        while len(heard) >= 28 and len(heard) >= grammar.check_head(heard):
            frame = grammar.take_apart(heard[: grammar.check_head(heard)])
            heard = heard[len(frame.raw) :]
            if reason_in(frame):
                self.reasons[reason_in(frame)] += 1
