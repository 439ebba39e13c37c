"""nats-server: text frames, subjects with dots, a PING from the server that must not count as data.

In:    see system.py.
Out:   a Nats system.
State: none.
Not here: NATS clusters and JetStream; this is core publish/subscribe, and leaf nodes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks.batches import Batches, FixedBatches, Load
from benchmarks.certificates import TlsFiles
from benchmarks.links import Link
from benchmarks.peers.network import Place
from benchmarks.peers.system import find, not_installed, written
from benchmarks.sinks import Sink

PING = b"PING\r\n"
PONG = b"PONG\r\n"


class Nats:
    """Core NATS over its text protocol."""

    name = "nats"
    window = 16_384

    def absent(self) -> str | None:
        """Why it cannot run here, or None."""
        return not_installed("nats-server")

    def version(self) -> str:
        """As it says itself."""
        said = subprocess.run([str(find("nats-server")), "-v"], capture_output=True, text=True, check=True)
        return said.stdout.strip().removeprefix("nats-server: v")

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """One configuration file; keep-alives are put off beyond the end of any run."""
        lines = [f'listen: "127.0.0.1:{port}"', 'ping_interval: "1h"']
        if tls is not None:
            lines.append(f'tls {{ cert_file: "{tls.certificate}", key_file: "{tls.key}" }}')
        return [str(find("nats-server")), "-c", written(folder, "nats.conf", lines)]

    def linked(self, folder: Path, place: Place) -> list[str]:
        """Leaf nodes: the one that dials is the leaf, the other its hub."""
        remotes = ", ".join(f'{{ url: "nats-leaf://127.0.0.1:{links_port}" }}' for _, links_port in place.dials)
        lines = [f'server_name: "{place.name}"', f'listen: "127.0.0.1:{place.port}"', 'ping_interval: "1h"']
        lines += [f'leafnodes {{ listen: "127.0.0.1:{place.links_port}", remotes: [{remotes}] }}']
        return [str(find("nats-server")), "-c", written(folder, "nats.conf", lines)]

    def connect(self, port: int, ca_file: str | None) -> Link:
        """INFO comes in clear text, then TLS, then CONNECT."""
        link = Link(port)
        link.receive_until(b"\r\n")
        if ca_file is not None:
            link.upgrade(ca_file)
        options = {"verbose": False, "pedantic": False, "lang": "benchmark", "version": "1", "protocol": 1}
        link.send_all(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self._settle(link)
        return link

    def subscribe(self, link: Link, topic: str) -> None:
        """SUB is not answered; the PONG behind it says that it has been read."""
        link.send_all(f"SUB {_subject(topic)} 1\r\n".encode())
        self._settle(link)

    def batches(self, load: Load, link: Link) -> Batches:
        """PUB frames; subscribers read MSG frames with their own subscription number."""
        return FixedBatches(load, publish, deliver)

    def sink(self, topic: str, payload_bytes: int) -> Sink:
        """A sink that answers PINGs."""
        return NatsSink(len(deliver(topic, bytes(payload_bytes))))

    def _settle(self, link: Link) -> None:
        link.send_all(PING)
        line = b""
        while line != PONG:
            line = link.receive_until(b"\r\n")
            if line.startswith(b"-ERR"):
                raise ConnectionError(line.decode())
            if line == PING:
                link.send_all(PONG)


class NatsSink(Sink):
    """The server's first PING comes two seconds after connecting, in between frames."""

    def feed(self, data: memoryview) -> int:
        """Compare; where that fails at the start of a frame, a PING may stand there."""
        settled = 0
        while settled < len(data):
            settled += self.advance(data[settled:])
            rest = data[settled:]
            if not rest:
                break
            if not self.between_frames or not PING.startswith(rest[: len(PING)]):
                raise self.difference(rest)
            if len(rest) < len(PING):
                break  # the rest of the PING has not been read yet
            self.replies += PONG
            settled += len(PING)
        return settled


def _subject(topic: str) -> str:
    return topic.replace("/", ".").replace("#", ">").replace("+", "*")


def publish(topic: str, payload: bytes) -> bytes:
    """What a publisher writes."""
    return f"PUB {_subject(topic)} {len(payload)}\r\n".encode() + payload + b"\r\n"


def deliver(topic: str, payload: bytes) -> bytes:
    """What a subscriber reads."""
    return f"MSG {_subject(topic)} 1 {len(payload)}\r\n".encode() + payload + b"\r\n"
