"""mosquitto: MQTT 3.1.1 at QoS 0.

In:    see system.py.
Out:   a Mosquitto system.
State: none.
Not here: QoS 1 and 2, retained messages.
"""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path

from benchmarks.batches import Batches, FixedBatches, Load
from benchmarks.certificates import TlsFiles
from benchmarks.links import Link
from benchmarks.peers.network import Place
from benchmarks.peers.system import find, not_installed, written
from benchmarks.sinks import Sink


class Mosquitto:
    """A plain mosquitto."""

    name = "mosquitto"
    window = 1_024  # it does not batch: a longer queue gains it nothing and takes seconds to fill and to drain

    def absent(self) -> str | None:
        """Why it cannot run here, or None."""
        return not_installed("mosquitto")

    def version(self) -> str:
        """The first line of its help; the exit code of -h is not 0."""
        said = subprocess.run([str(find("mosquitto")), "-h"], capture_output=True, text=True, check=False)
        return said.stdout.splitlines()[0].removeprefix("mosquitto version ") if said.stdout else "unknown"

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """Queues have no limit, so that nothing is lost; small packets leave at once, as in the other systems."""
        lines = _settings(port)
        if tls is not None:
            lines += [f"cafile {tls.ca}", f"certfile {tls.certificate}", f"keyfile {tls.key}"]
        return [str(find("mosquitto")), "-c", written(folder, "mosquitto.conf", lines)]

    def linked(self, folder: Path, place: Place) -> list[str]:
        """Bridges that carry everything, in both directions, at QoS 0."""
        lines = _settings(place.port)
        for port, _ in place.dials:
            lines += [f"connection {place.name}-{port}", f"address 127.0.0.1:{port}", "topic # both 0"]
            lines += ["cleansession true", "notifications false", "restart_timeout 1"]
        return [str(find("mosquitto")), "-c", written(folder, "mosquitto.conf", lines)]

    def connect(self, port: int, ca_file: str | None) -> Link:
        """CONNECT with a clean session and no keep-alive."""
        link = Link(port)
        if ca_file is not None:
            link.upgrade(ca_file)
        client_id = _text("bench" + os.urandom(6).hex())
        link.send_all(_packet(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + client_id))
        if (answer := link.receive_exactly(4)) != b"\x20\x02\x00\x00":
            raise ConnectionError(f"CONNACK {answer.hex()}")
        return link

    def subscribe(self, link: Link, topic: str) -> None:
        """Answered by SUBACK."""
        link.send_all(_packet(0x82, b"\x00\x01" + _text(topic) + b"\x00"))
        if (answer := link.receive_exactly(5)) != b"\x90\x03\x00\x01\x00":
            raise ConnectionError(f"SUBACK {answer.hex()}")

    def batches(self, load: Load, link: Link) -> Batches:
        """At QoS 0 a subscriber reads the very packet that was published."""
        return FixedBatches(load, publish, publish)

    def sink(self, topic: str, payload_bytes: int) -> Sink:
        """Nothing but messages comes here."""
        return Sink(len(publish(topic, bytes(payload_bytes))))


def _settings(port: int) -> list[str]:
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "persistence false", "max_queued_messages 0"]
    return [*lines, "set_tcp_nodelay true", f"user {getpass.getuser()}"]


def publish(topic: str, payload: bytes) -> bytes:
    """What a publisher writes."""
    return _packet(0x30, _text(topic) + payload)


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _packet(first: int, body: bytes) -> bytes:
    length, left = b"", len(body)
    while True:
        left, digit = divmod(left, 128)
        length += bytes([digit | (0x80 if left else 0)])
        if not left:
            return bytes([first]) + length + body
