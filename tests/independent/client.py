"""A client for live tests of whole networks, written from docs/reference/protocol.md: many of them in one thread.

In:    a broker's port, a session's secret, frames to publish.
Out:   frames; every delivery in the order in which it came.
State: one link, the bytes that are not a whole frame yet, deliveries, questions that wait for their answer.
Not here: what should have come (oracle.py); packing frames (tests/wire/stdlib_client.py, which blocks, for one link).
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.independent.workload import Draft
from tests.wire.stdlib_client import (
    CONFIRMED,
    DELIVERY,
    EVENT,
    GOODBYE,
    HEAD,
    HELLO,
    PING,
    PONG,
    REFUSED,
    SUBSCRIBE,
    WELCOME,
    origin_of,
    pack,
)

ANSWERS = (WELCOME, PONG, CONFIRMED)
QUIET_MS = 120_000  # no keep-alive during a test
PATIENCE_S = 60.0


class Delivery(NamedTuple):
    numbers: tuple[int, ...]  # of this link's subscriptions that it matched
    origin: int
    sequence: int
    raw: bytes  # the EVENT frame as it came


@dataclass(frozen=True)
class Publication:
    """A publication with its id; ``raw`` is the frame that carries it."""

    origin: int
    sequence: int
    draft: Draft
    raw: bytes


class Client(asyncio.Protocol):
    """One session over one link."""

    def __init__(self, name: str, secret: bytes) -> None:
        self.name = name
        self.secret = secret
        self.origin = origin_of(secret)
        self.deliveries: list[Delivery] = []
        self.lost = 0  # publications that the broker says it dropped, because this client was slow
        self.ended = ""  # why the link is gone
        self.sequence = 0
        self._numbers = 0
        self._asked: dict[tuple[int, int], asyncio.Future[bytes]] = {}
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    async def join(self, host: str, port: int, **more: Any) -> None:
        """Connect; ``more`` are fields of HELLO."""
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        hello = {"versions": [1], "secret": self.secret.hex(), "name": self.name, "keep_alive_ms": QUIET_MS, **more}
        await self._ask(pack(HELLO, payload=json.dumps(hello).encode()), WELCOME, 0)

    async def subscribe(self, number: int, body: dict[str, Any]) -> None:
        """Return once the subscription is in force; with ``wide`` at every broker in reach."""
        self._numbers += 1
        raw = pack(SUBSCRIBE, sequence=self._numbers, payload=json.dumps({"number": number, **body}).encode())
        await self._ask(raw, CONFIRMED, self._numbers)

    async def flush(self) -> None:
        """Return once this client's broker has routed everything published before."""
        self._numbers += 1
        await self._ask(pack(PING, sequence=self._numbers), PONG, self._numbers)

    def make(self, draft: Draft) -> Publication:
        """Give a publication the next id; it is sent by ``send``."""
        self.sequence += 1
        headers = json.dumps(draft.headers).encode()
        topic = draft.topic.encode()
        raw = pack(
            EVENT, origin=self.origin, sequence=self.sequence, topic=topic, headers=headers, payload=draft.payload
        )
        return Publication(self.origin, self.sequence, draft, raw)

    def send(self, raw: bytes) -> None:
        assert not self.ended, f"{self.name}: {self.ended}"
        assert self._transport is not None
        self._transport.write(raw)

    def leave(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data
        begin = 0
        for end in frame_ends(buffer):
            self._take(buffer, begin, end)
            begin = end
        self._buffer = buffer[begin:]

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"link lost: {exc}")

    async def _ask(self, raw: bytes, kind: int, number: int) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[kind, number] = answer
        try:
            self.send(raw)
            async with asyncio.timeout(PATIENCE_S):
                await answer
        finally:
            self._asked.pop((kind, number), None)
        return answer.result()

    def _take(self, buffer: bytes, begin: int, end: int) -> None:
        _, kind, _, topic_length, origin, sequence, header_length = HEAD.unpack_from(buffer, begin)
        headers = begin + HEAD.size + topic_length
        payload = headers + header_length
        if kind == DELIVERY:
            self.lost = origin
            numbers = struct.unpack_from(f"<{header_length // 4}I", buffer, headers)
            self._deliver(numbers, buffer[payload:end])
        elif kind == REFUSED:
            self._end(f"refused: {buffer[payload:end].decode()}")
        elif kind == GOODBYE and not json.loads(buffer[payload:end]).get("grace_ms"):
            self._end(f"goodbye: {buffer[payload:end].decode()}")
        elif kind == PING:
            self.send(pack(PONG, sequence=sequence))
        elif kind in ANSWERS and not (found := self._asked[kind, sequence]).done():
            found.set_result(buffer[payload:end])

    def _end(self, why: str) -> None:
        """Nothing more is expected of this link; whoever waits for an answer hears why."""
        self.ended = self.ended or why
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"{self.name}: {self.ended}"))

    def _deliver(self, numbers: tuple[int, ...], frames: bytes) -> None:
        begin = 0
        for end in frame_ends(frames):
            _, _, _, _, origin, sequence, _ = HEAD.unpack_from(frames, begin)
            self.deliveries.append(Delivery(numbers, origin, sequence, frames[begin:end]))
            begin = end
        assert begin == len(frames), "a DELIVERY with half a frame"


def frame_ends(buffer: bytes) -> Iterator[int]:
    """Where each whole frame ends."""
    end = 0
    while len(buffer) - end >= 4:
        end += 4 + int.from_bytes(buffer[end : end + 4], "little")
        if end > len(buffer):
            return
        yield end
