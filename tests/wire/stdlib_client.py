"""A client written from docs/reference/protocol.md alone: socket, ssl, struct, json, and hashlib for the origin.

In:    a broker's address; calls of a test.
Out:   frames, and what the broker answers.
State: one socket, the bytes not yet cut into frames, deliveries not yet asked for.
Not here: anything of heliograph. If this client works, the page is enough to write another.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import struct
from typing import Any, NamedTuple

HEAD = struct.Struct("<IBBHQQI")
EVENT, DELIVERY, SERVICE = 1, 3, 4
HELLO, WELCOME, GOODBYE, PING, PONG, SUBSCRIBE, UNSUBSCRIBE, CONFIRMED, REFUSED = range(16, 25)
EXPIRES = 4
ANSWER, REFUSAL, NEWS = 1, 2, 8
FRAME_BYTES_MAX = 1_377_280  # of a DELIVERY


class Frame(NamedTuple):
    kind: int
    flags: int
    origin: int
    sequence: int
    topic: str
    headers: bytes
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)


class Event(NamedTuple):
    numbers: tuple[int, ...]  # of this link's subscriptions that it matched
    lost: int  # publications that this link has lost so far
    frame: Frame


class RefusedError(Exception):
    """The broker said no to a request; ``reason`` is its word."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(body)
        self.reason: str = body["reason"]
        self.code: int = body["code"]


class EndedError(Exception):
    """The link is gone; ``reason`` is the word of the broker's GOODBYE, or "" if it said none."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


def origin_of(secret: bytes) -> int:
    return int(struct.unpack("<Q", hashlib.sha256(secret).digest()[:8])[0])


def pack(
    kind: int,
    *,
    flags: int = 0,
    origin: int = 0,
    sequence: int = 0,
    topic: bytes = b"",
    headers: bytes = b"",
    payload: bytes = b"",
) -> bytes:
    length = HEAD.size - 4 + len(topic) + len(headers) + len(payload)
    return HEAD.pack(length, kind, flags, len(topic), origin, sequence, len(headers)) + topic + headers + payload


def unpack(raw: bytes) -> Frame:
    _, kind, flags, topic_length, origin, sequence, header_length = HEAD.unpack_from(raw)
    topic_end = HEAD.size + topic_length
    headers_end = topic_end + header_length
    topic = raw[HEAD.size : topic_end].decode()
    return Frame(kind, flags, origin, sequence, topic, raw[topic_end:headers_end], raw[headers_end:])


def split(buffer: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames, and the bytes of one that has not come in full."""
    whole = []
    while len(buffer) >= 4:
        (length,) = struct.unpack_from("<I", buffer)
        if not 24 <= length <= FRAME_BYTES_MAX - 4:
            raise EndedError("the broker sent a bad length")
        if len(buffer) < 4 + length:
            break
        whole.append(buffer[: 4 + length])
        buffer = buffer[4 + length :]
    return whole, buffer


class StdlibClient:
    """One link to one broker, blocking."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        secret: bytes | None = None,
        seconds: float = 60.0,
    ) -> None:
        plain = socket.create_connection((host, port), timeout=seconds)
        self.socket = tls.wrap_socket(plain, server_hostname=server_name or host) if tls else plain
        self.secret = secret or os.urandom(32)
        self.origin = origin_of(self.secret)
        self.sequence = 1
        self.requests = 0
        self.welcome: dict[str, Any] = {}
        self.refused: list[dict[str, Any]] = []  # publications that the broker did not take
        self._events: list[Event] = []
        self._news: list[Frame] = []
        self._frames: list[Frame] = []
        self._buffer = b""

    def send(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def control(self, kind: int, body: dict[str, Any] | None = None, number: int = 0) -> None:
        self.send(pack(kind, sequence=number, payload=b"" if body is None else json.dumps(body).encode()))

    def hello(self, **more: Any) -> dict[str, Any]:
        self.control(HELLO, {"versions": [1], "secret": self.secret.hex(), **more})
        self.welcome = self.next(WELCOME).json
        if self.welcome.get("seen"):
            self.sequence = int(self.welcome["seen"], 16) + 1
        return self.welcome

    def subscribe(self, number: int, pattern: str, **more: Any) -> None:
        self._request(SUBSCRIBE, {"number": number, "filter": pattern, **more})

    def unsubscribe(self, number: int) -> None:
        self._request(UNSUBSCRIBE, {"number": number})

    def publish(self, topic: str, payload: bytes, headers: dict[str, Any] | None = None, flags: int = 0) -> bytes:
        """Publish; returns the frame, so that a test can compare it with what is delivered."""
        packed = json.dumps(headers).encode() if headers else b""
        raw = pack(
            EVENT,
            flags=flags,
            origin=self.origin,
            sequence=self.sequence,
            topic=topic.encode(),
            headers=packed,
            payload=payload,
        )
        self.sequence += 1
        self.send(raw)
        return raw

    def flush(self) -> None:
        """Return once the broker has routed everything published before."""
        self.requests += 1
        self.control(PING, number=self.requests)
        while self.next(PONG).sequence != self.requests:
            pass

    def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        self.requests += 1
        self.send(pack(SERVICE, topic=service.encode(), sequence=self.requests, payload=json.dumps(body).encode()))
        while (answer := self.next(SERVICE)).flags == NEWS:
            self._news.append(answer)
        assert answer.sequence == self.requests
        assert answer.topic == service
        assert answer.flags & ANSWER
        if answer.flags & REFUSAL:
            raise RefusedError(answer.json)
        found: dict[str, Any] = answer.json
        return found

    def news(self, service: str, watch: int) -> dict[str, Any]:
        """The next news of a watch."""
        news = self._news.pop(0) if self._news else self.next(SERVICE)
        assert (news.topic, news.flags, news.origin, news.sequence) == (service, NEWS, 0, watch)
        found: dict[str, Any] = news.json
        return found

    def event(self) -> Event:
        """The next publication that this link's subscriptions matched."""
        while not self._events:
            self._read()
        return self._events.pop(0)

    def waiting(self) -> list[Event]:
        """Publications that have come and were not asked for yet."""
        events, self._events = self._events, []
        return events

    def goodbye(self) -> None:
        """Leave in order: say so, then wait until the broker has closed its side."""
        self.control(GOODBYE, {"reason": "goodbye", "code": 400})
        try:
            while True:
                self._read()
        except EndedError:
            self.socket.close()

    def ended(self) -> str:
        """Read until the broker ends the link; the word of its reason."""
        try:
            while True:
                self._read()
        except EndedError as end:
            self.socket.close()
            return end.reason

    def next(self, *kinds: int) -> Frame:
        """The next frame of one of these kinds; others are taken note of on the way."""
        while True:
            for place, frame in enumerate(self._frames):
                if frame.kind in kinds:
                    return self._frames.pop(place)
            self._read()

    def _request(self, kind: int, body: dict[str, Any]) -> None:
        self.requests += 1
        self.control(kind, body, self.requests)
        answer = self.next(CONFIRMED, REFUSED)
        assert answer.sequence == self.requests
        if answer.kind == REFUSED:
            raise RefusedError(answer.json)

    def _read(self) -> None:
        try:
            data = self.socket.recv(65_536)
        except ConnectionError:
            data = b""
        if not data:
            raise EndedError("")
        whole, self._buffer = split(self._buffer + data)
        for raw in whole:
            self._take(unpack(raw))

    def _take(self, frame: Frame) -> None:
        if frame.kind == DELIVERY:
            numbers = struct.unpack(f"<{len(frame.headers) // 4}I", frame.headers)
            events, rest = split(frame.payload)
            assert not rest
            self._events += [Event(numbers, frame.origin, unpack(raw)) for raw in events]
        elif frame.kind == PING:
            self.control(PONG, number=frame.sequence)
        elif frame.kind == REFUSED and frame.sequence == 0:
            self.refused.append(frame.json)
        elif frame.kind == GOODBYE and not frame.json.get("grace_ms"):
            raise EndedError(frame.json["reason"], frame.json["code"])
        else:
            self._frames.append(frame)
