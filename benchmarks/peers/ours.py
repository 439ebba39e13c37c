"""Heliograph, spoken to as a stranger would: by docs/reference/protocol.md, importing nothing of it.

In:    see system.py.
Out:   a Heliograph system; the other subscribers and access rules that a real broker has; a changer of subscriptions.
State: none; each link has its own session.
Not here: the client library, which is not what these benchmarks measure.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import struct
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.batches import Batches, Load
from benchmarks.certificates import TlsFiles
from benchmarks.links import Link
from benchmarks.peers.network import Place
from benchmarks.peers.system import written
from benchmarks.sinks import MismatchError, Sink

HEAD = struct.Struct("<IBBHQQI")
DELIVERY_HEAD = struct.Struct("<IBBHQQII")  # with the one subscription number that our subscribers have
EVENT, DELIVERY, HELLO, WELCOME, PING, PONG = 1, 3, 16, 17, 19, 20
SUBSCRIBE, UNSUBSCRIBE, CONFIRMED = 21, 22, 23
SUBSCRIPTION = 1
FIRST_SEQUENCE = 1
RULES = 100
KEEP_ALIVE_MS = 120_000


class Session(Link):
    """A link with the origin that its secret gives it."""

    def __init__(self, port: int, ca_file: str | None) -> None:
        super().__init__(port)
        if ca_file is not None:
            self.upgrade(ca_file)
        secret = os.urandom(16)
        self.origin = int.from_bytes(hashlib.sha256(secret).digest()[:8], "little")
        self.send_all(control(HELLO, 0, {"versions": [1], "secret": secret.hex(), "keep_alive_ms": KEEP_ALIVE_MS}))
        kind, _, body = self.receive_frame()
        if kind != WELCOME:
            raise ConnectionError(f"instead of a welcome: {body!r}")

    def receive_frame(self) -> tuple[int, int, bytes]:
        """Kind, sequence and body of the next frame; blocking."""
        length, kind, _, _, _, sequence, _ = HEAD.unpack(self.receive_exactly(HEAD.size))
        return kind, sequence, self.receive_exactly(length + 4 - HEAD.size)

    def ask(self, kinds_and_bodies: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Send requests in one go and wait until each is confirmed."""
        self.send_all(b"".join(control(kind, number, body) for number, (kind, body) in enumerate(kinds_and_bodies, 1)))
        for _ in kinds_and_bodies:
            self.confirmed()

    def confirmed(self) -> None:
        """Wait for the next confirmation; a keep-alive in between is answered."""
        kind = PING
        while kind == PING:
            kind, number, body = self.receive_frame()
            if kind == PING:
                self.send_all(control(PONG, number))
        if kind != CONFIRMED:
            raise ConnectionError(f"instead of a confirmation: kind {kind}, {body!r}")


class Heliograph:
    """This checkout's broker, run by its own command as a user would."""

    name = "ours"
    window = 16_384

    def __init__(self, settings: Sequence[str] = ()) -> None:
        self._settings = settings  # lines of its configuration

    def absent(self) -> str | None:
        """It is always here."""
        return None

    def version(self) -> str:
        """With what carries it."""
        return f"{importlib.metadata.version('heliograph')} (uvloop {importlib.metadata.version('uvloop')})"

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """A hundred access rules of which only the last fits what the benchmarks do."""
        lines = _listener(port)
        if tls is not None:
            lines += ["secure = true", "[tls]", f'certificate = "{tls.certificate}"', f'key = "{tls.key}"']
            lines += [f'authority = "{tls.ca}"']
        return _command(written(folder, "heliograph.toml", [*lines, *self._settings, *_access()]))

    def linked(self, folder: Path, place: Place) -> list[str]:
        """With a network key; one side dials. The access rules are the same at every broker."""
        lines = ["[broker]", f'name = "{place.name}"', *_listener(place.port)]
        lines += ["[network]", f'key_file = "{place.key_file}"']
        for port, _ in place.dials:
            lines += ["[[network.links]]", 'host = "127.0.0.1"', f"port = {port}"]
        return _command(written(folder, "heliograph.toml", lines + _access()))

    def connect(self, port: int, ca_file: str | None) -> Link:
        """HELLO, answered by WELCOME."""
        return Session(port, ca_file)

    def subscribe(self, link: Link, topic: str) -> None:
        """Answered by CONFIRMED."""
        assert isinstance(link, Session)
        link.ask([(SUBSCRIBE, {"number": SUBSCRIPTION, "filter": topic})])

    def batches(self, load: Load, link: Link) -> Batches:
        """EVENT frames with the origin of this link and numbers that count up."""
        assert isinstance(link, Session)
        return NumberedBatches(load, link.origin)

    def sink(self, topic: str, payload_bytes: int) -> Sink:
        """A sink that takes DELIVERY frames apart."""
        return DeliverySink(HEAD.size + len(topic) + payload_bytes)


def _listener(port: int) -> list[str]:
    return ["[[listener]]", 'name = "main"', 'host = "127.0.0.1"', f"port = {port}"]


def _access() -> list[str]:
    lines = ["[access]", 'default = "deny"']
    for number in range(RULES - 1):
        effect = "deny" if number % 3 else "allow"
        lines += ["[[access.rules]]", f'effect = "{effect}"', f'topics = ["private/{number}/#", "area/+/{number}"]']
        lines += [f'who = ["sensor-{number}", "gateway-{number}-*"]' if number % 2 else 'who = ["*"]']
    return [*lines, "[[access.rules]]", 'effect = "allow"', 'topics = ["plant/#"]']


def _command(path: str) -> list[str]:
    return [sys.executable, "-m", "heliograph.cli.main", "broker", "run", "--config", path]


class NumberedBatches:
    """Every frame has its own sequence number, written into a template for a whole batch at once."""

    def __init__(self, load: Load, origin: int) -> None:
        self.frames = load.frames
        self.round = load.round
        self._groups = load.groups
        template = _template(load)
        self.frame_bytes = len(template) // (load.variants * load.frames)
        rest = f"V{self.frame_bytes - 24}"
        layout = np.dtype([("head", "V8"), ("origin", "<u8"), ("sequence", "<u8"), ("rest", rest)])
        frames: npt.NDArray[np.void] = np.frombuffer(bytearray(template), dtype=layout)
        frames["origin"] = origin
        self._turns = frames.reshape(load.variants, load.frames)
        self._turn = 0
        self._numbers = np.arange(FIRST_SEQUENCE, FIRST_SEQUENCE + load.frames, dtype="<u8")

    def next(self) -> tuple[bytes, Sequence[bytes]]:
        """The next template in turn, with the next numbers."""
        batch = self._turns[self._turn]
        self._turn = (self._turn + 1) % len(self._turns)
        batch["sequence"] = self._numbers
        self._numbers += np.uint64(self.frames)
        whole = batch.tobytes()
        if self._groups == 1:
            return whole, (whole,)
        return whole, [batch[group :: self._groups].tobytes() for group in range(self._groups)]


class DeliverySink(Sink):
    """Strips the prefixes of deliveries; inside are the frames exactly as they were published."""

    def __init__(self, frame_bytes: int) -> None:
        super().__init__(frame_bytes)
        self._left = 0  # bytes of the current delivery that have not been read

    def feed(self, data: memoryview) -> int:
        """Take apart and compare."""
        at = 0
        while at < len(data):
            if self._left:
                part = data[at : at + self._left]
                self.check(part)
                self._left -= len(part)
                at += len(part)
            elif len(data) - at < HEAD.size:
                break
            elif data[at + 4] == DELIVERY:
                if len(data) - at < DELIVERY_HEAD.size:
                    break
                self._begin(data, at)
                at += DELIVERY_HEAD.size
            else:
                self._answer(data, at)
                at += HEAD.size
        return at

    def _begin(self, data: memoryview, at: int) -> None:
        length, _, flags, topic, lost, sequence, headers, number = DELIVERY_HEAD.unpack_from(data, at)
        if (flags, topic, sequence, headers, number) != (0, 0, 0, 4, SUBSCRIPTION):
            raise MismatchError(
                f"after frame {self.frames}: not for subscription {SUBSCRIPTION}: {bytes(data[at : at + 32])!r}"
            )
        if lost:
            raise MismatchError(f"after frame {self.frames}: the broker says that it dropped {lost} publications")
        self._left = length + 4 - DELIVERY_HEAD.size
        if self._left <= 0 or self._left % self.frame_bytes:
            raise MismatchError(f"after frame {self.frames}: {self._left} bytes in a delivery are not whole frames")

    def _answer(self, data: memoryview, at: int) -> None:
        length, kind, _, _, _, number, _ = HEAD.unpack_from(data, at)
        if kind != PING or length + 4 != HEAD.size:
            raise MismatchError(f"after frame {self.frames}: a frame of kind {kind}: {bytes(data[at : at + 200])!r}")
        self.replies += control(PONG, number)


def control(kind: int, number: int = 0, body: dict[str, Any] | None = None) -> bytes:
    """A control frame."""
    content = b"" if body is None else json.dumps(body).encode()
    return HEAD.pack(HEAD.size - 4 + len(content), kind, 0, 0, 0, number, 0) + content


@lru_cache(maxsize=8)
def _template(load: Load) -> bytes:
    """All batches of a load, with origin and sequence left 0."""
    return b"".join(event(topic, body) for turn in range(load.variants) for topic, body in load.items(turn))


def event(topic: str, payload: bytes, origin: int = 0, number: int = 0) -> bytes:
    """What a publisher writes."""
    name = topic.encode()
    return HEAD.pack(HEAD.size - 4 + len(name) + len(payload), EVENT, 0, len(name), origin, number, 0) + name + payload
