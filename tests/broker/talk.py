"""A broker and peers that talk to it in bytes: the harness of the tests in this folder.

In:    what each peer says.
Out:   what each peer hears, taken apart.
State: one broker machine, the clock, and what was heard and held.
Not here: any judgement (the tests).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from struct import unpack
from typing import Any

from heliograph.broker.broker import Broker
from heliograph.broker.config import BrokerConfig
from heliograph.errors import Reason
from heliograph.machine import Effects, Peer
from heliograph.notes import Note
from heliograph.wire.frames import Frame, Kind, control, event


def frames(data: bytes) -> list[Frame]:
    """The whole frames in these bytes."""
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "little")
        found.append(Frame(data[:end]))
        data = data[end:]
    return found


@dataclass
class Heard:
    """What came to one peer."""

    answers: list[Frame] = field(default_factory=list)
    events: list[tuple[tuple[int, ...], Frame]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    dropped: int = 0

    @property
    def payloads(self) -> list[bytes]:
        return [frame.payload for _, frame in self.events]

    @property
    def refusals(self) -> list[str]:
        return [json.loads(frame.payload)["reason"] for frame in self.answers if frame.kind == Kind.REFUSED]

    @property
    def goodbye(self) -> str | None:
        said = [json.loads(frame.payload) for frame in self.answers if frame.kind == Kind.GOODBYE]
        return said[-1]["reason"] if said else None


class Talk:
    """A broker with peers. Every ``say`` is followed by a take unless told otherwise."""

    def __init__(self, config: BrokerConfig | None = None, incarnation: int = 1) -> None:
        self.broker = Broker(config or BrokerConfig(), seed=1, incarnation=incarnation)
        self.now = 0
        self.heard: dict[int, Heard] = {}
        self.held: dict[int, bool] = {}
        self.hangups: dict[int, Reason] = {}
        self.notes: list[Note] = []
        self.jobs: list[tuple[int, Any]] = []
        self.wake_at: int | None = None
        self.stopped = False
        self._sequence: dict[int, int] = {}
        self.shortcuts = True
        self.short = 0  # how often one was taken

    def attach(self, link: int, peer: Peer | None = None) -> None:
        self.heard[link] = Heard()
        self.broker.attach(link, peer or Peer("tcp", f"127.0.0.1:{link}", "main"), self.now)
        self.take()

    def join(self, link: int, **hello: Any) -> None:
        """Attach and be welcomed."""
        self.attach(link)
        self.say(link, self.hello(link, **hello))

    def hello(self, link: int, **fields: Any) -> bytes:
        body = {"versions": [1], "secret": self.secret(link).hex(), **fields}
        return control(Kind.HELLO, 0, json.dumps(body).encode())

    @staticmethod
    def secret(link: int) -> bytes:
        return link.to_bytes(16, "big")

    @classmethod
    def origin(cls, link: int) -> int:
        return int.from_bytes(sha256(cls.secret(link)).digest()[:8], "little")

    def say(self, link: int, data: bytes, take: bool = True) -> None:
        """As a driver does: by the shortcut, or the long way."""
        written = self.broker.shortcut(link, data, self.now) if self.shortcuts else None
        if written is not None:
            self.short += 1
            self._hear_all([(written[0], [written[1]])])
            return
        self.broker.receive(link, data, self.now)
        if take:
            self.take()

    def subscribe(self, link: int, pattern: str, number: int = 1, **fields: Any) -> None:
        body = {"number": number, "filter": pattern, **fields}
        self.say(link, control(Kind.SUBSCRIBE, 1000 + number, json.dumps(body).encode()))

    def unsubscribe(self, link: int, number: int = 1) -> None:
        self.say(link, control(Kind.UNSUBSCRIBE, 2000 + number, json.dumps({"number": number}).encode()))

    def an_event(self, link: int, topic: str, payload: bytes = b"x", **fields: Any) -> bytes:
        sequence = self._sequence[link] = self._sequence.get(link, 0) + 1
        return event(topic.encode(), payload, self.origin(link), fields.pop("sequence", sequence), **fields)

    def publish(self, link: int, topic: str, *payloads: bytes, **fields: Any) -> None:
        self.say(link, b"".join(self.an_event(link, topic, payload, **fields) for payload in payloads or (b"x",)))

    def press(self, link: int, pressed: bool) -> None:
        self.broker.press(link, pressed, self.now)
        self.take()

    def leave(self, link: int, reason: Reason = Reason.CLOSED) -> None:
        self.broker.detach(link, reason, self.now)
        self.take()

    def pass_time(self, ms: float) -> None:
        """Let time pass, waking the broker whenever it asked to be woken."""
        until = self.now + int(ms * 1_000_000)
        while self.wake_at is not None and self.wake_at <= until:
            self.now = max(self.now, self.wake_at)
            self.broker.wake(self.now)
            self.take()
        self.now = until

    def take(self) -> None:
        self._absorb(self.broker.take())

    def _absorb(self, effects: Effects) -> None:
        self._hear_all(effects.writes)
        for link, held in effects.holds:
            self.held[link] = held
        for link, reason in effects.hangups:
            self.hangups[link] = reason
        self.notes += effects.notes
        self.jobs += effects.jobs
        self.wake_at = effects.wake_at
        self.stopped = self.stopped or effects.stop

    def _hear_all(self, writes: Sequence[tuple[int, list[bytes]]]) -> None:
        for link, chunks in writes:
            for frame in frames(b"".join(chunks)):
                self._hear(self.heard[link], frame)

    @staticmethod
    def _hear(heard: Heard, frame: Frame) -> None:
        if frame.kind != Kind.DELIVERY:
            heard.answers.append(frame)
            heard.order.append(Kind(frame.kind).name)
            return
        numbers = unpack(f"<{len(frame.headers) // 4}I", frame.headers)
        heard.dropped = frame.origin
        for inner in frames(frame.payload):
            heard.events.append((numbers, inner))
            heard.order.append("EVENT")
