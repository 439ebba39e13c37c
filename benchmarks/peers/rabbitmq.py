"""RabbitMQ: a quorum queue with confirms, through pika. For benchmarks/store.py.

In:    a folder; how many may be under way, and for how long.
Out:   a running node of our own, apart from any that the system has; confirmed publications a second.
State: none.
Not here: the other brokers (the files beside this one).
"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.generator import RunError
from benchmarks.peers.server import plain_environment
from benchmarks.ports import free_port

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in /usr/sbin changes the user
READY_S = 90.0
FIRST_S = 20.0  # until something is confirmed
QUEUE = "bench"


def absent() -> str | None:
    """Why it cannot be measured here; None if it can."""
    if not SERVER.exists():
        return "rabbitmq-server is not installed"
    return None if importlib.util.find_spec("pika") else "pika is not installed"


@contextmanager
def running(folder: str) -> Iterator[int]:
    """A node with its files in a folder; its port."""
    port, epmd = free_port(), free_port()
    config = Path(folder) / "rabbitmq.conf"
    config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    plugins = Path(folder) / "plugins"
    plugins.write_text("[].\n")
    environment = plain_environment() | {
        "HOME": folder,
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_MNESIA_BASE": folder,
        "RABBITMQ_LOG_BASE": folder,
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    with (Path(folder) / "log").open("ab") as log:
        process = subprocess.Popen([str(SERVER)], cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        _wait(process, port, Path(folder) / "log")
        yield port
    finally:
        process.terminate()
        process.wait()
        subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while b"Server startup complete" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RunError(f"RabbitMQ did not start: {log.read_text()[-400:]}")
        time.sleep(0.2)
    socket.create_connection(("127.0.0.1", port)).close()


class Confirmed:
    """Keeps a window full, and counts confirms."""

    def __init__(self, port: int, window: int, seconds: float, payload: bytes) -> None:
        import pika

        self._pika = pika
        self._window = window
        self._seconds = seconds
        self._payload = payload
        self._sent = self._done = 0
        self._began = 0.0
        self.rate = 0.0
        parameters = pika.ConnectionParameters("127.0.0.1", port)
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._open)

    def run(self) -> float:
        """Confirmed publications a second."""
        self._connection.ioloop.start()
        if not self._done:
            raise RunError("RabbitMQ confirmed nothing")
        return self.rate

    def _open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._declare)

    def _declare(self, channel: Any) -> None:
        self._channel = channel
        arguments = {"x-queue-type": "quorum"}
        channel.queue_declare(QUEUE, durable=True, arguments=arguments, callback=lambda _: self._begin())

    def _begin(self) -> None:
        self._channel.confirm_delivery(self._confirmed)
        self._began = time.perf_counter()
        self._connection.ioloop.call_later(self._seconds, self._end)
        self._fill()

    def _fill(self) -> None:
        durable = self._pika.BasicProperties(delivery_mode=2)
        while self._sent - self._done < self._window:
            self._channel.basic_publish("", QUEUE, self._payload, durable)
            self._sent += 1

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        self._done = method.delivery_tag if method.multiple else self._done + 1  # all up to it, or one
        self._fill()

    def _end(self) -> None:
        lasted = time.perf_counter() - self._began
        if not self._done and lasted < FIRST_S:  # a large window may take longer than the time to measure
            self._connection.ioloop.call_later(0.2, self._end)
            return
        self.rate = self._done / lasted
        self._connection.ioloop.stop()


def flow(port: int, window: int, seconds: float, payload: bytes) -> float:
    """Confirmed publications a second."""
    return Confirmed(port, window, seconds, payload).run()
