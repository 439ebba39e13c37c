"""redis-server: publish/subscribe over RESP, without persistence.

In:    see system.py.
Out:   a Redis system.
State: none.
Not here: streams; replies to PUBLISH, which are switched off as a client that does not wait would do.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.batches import Batches, FixedBatches, Load
from benchmarks.certificates import TlsFiles
from benchmarks.links import Link
from benchmarks.peers.system import find, not_installed, written
from benchmarks.sinks import Sink


class Redis:
    """Redis pub/sub."""

    name = "redis"
    window = 16_384

    def absent(self) -> str | None:
        """Why it cannot run here, or None."""
        return not_installed("redis-server")

    def version(self) -> str:
        """As it says itself."""
        said = subprocess.run([str(find("redis-server")), "-v"], capture_output=True, text=True, check=True)
        return next((word[2:] for word in said.stdout.split() if word.startswith("v=")), said.stdout.strip())

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """No disk; a subscriber's buffer has no limit, so that nothing is lost."""
        lines = ["bind 127.0.0.1", 'save ""', "appendonly no", "client-output-buffer-limit pubsub 0 0 0"]
        lines += [f"dir {folder}", "daemonize no"]
        if tls is None:
            lines.append(f"port {port}")
        else:
            lines += ["port 0", f"tls-port {port}", "tls-auth-clients no", f"tls-ca-cert-file {tls.ca}"]
            lines += [f"tls-cert-file {tls.certificate}", f"tls-key-file {tls.key}"]
        return [str(find("redis-server")), written(folder, "redis.conf", lines)]

    def connect(self, port: int, ca_file: str | None) -> Link:
        """There is no handshake; a PING shows that the server answers."""
        link = Link(port)
        if ca_file is not None:
            link.upgrade(ca_file)
        link.send_all(_command("PING"))
        if (answer := link.receive_until(b"\r\n")) != b"+PONG\r\n":
            raise ConnectionError(answer.decode())
        return link

    def subscribe(self, link: Link, topic: str) -> None:
        """Answered by an array that ends with the number of subscriptions."""
        link.send_all(_command("SUBSCRIBE", topic))
        link.receive_until(b":1\r\n")

    def batches(self, load: Load, link: Link) -> Batches:
        """PUBLISH commands; subscribers read "message" arrays."""
        link.send_all(_command("CLIENT", "REPLY", "OFF"))
        return FixedBatches(load, publish, deliver)

    def sink(self, topic: str, payload_bytes: int) -> Sink:
        """Nothing but messages comes here."""
        return Sink(len(deliver(topic, bytes(payload_bytes))))


def _command(*words: str | bytes) -> bytes:
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def publish(topic: str, payload: bytes) -> bytes:
    """What a publisher writes."""
    return _command("PUBLISH", topic, payload)


def deliver(topic: str, payload: bytes) -> bytes:
    """What a subscriber reads."""
    return _command("message", topic, payload)
