"""A resource service on its pipe, with the bytes that its broker would write and read.

In:    requests of clients, messages of a neighbour, direct answers.
Out:   answers and refusals as clients get them; what the service sent to its neighbour and published.
State: the service, and the time.
Not here: brokers (the simulator), several services (net.py).
"""

from __future__ import annotations

import json
from typing import Any

from heliograph.discovery.resources import messages
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.resources.service import ResourceService
from heliograph.machine import Peer
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, ServiceFlag, control, delivery, event, service
from heliograph.wire.splitter import FROM_BROKER, Splitter
from heliograph.wire.ways import LinkedBroker, WaysHere, Word, encode

NAME = b"resources"
PIPE, NEIGHBOUR = 1, 50
MS = 1_000_000


class RefusedByServiceError(Exception):
    """The service refused a request."""


class OnPipe:
    """One service and everything around it."""

    def __init__(self, **config: Any) -> None:
        self.service = ResourceService(ResourcesConfig(**config), seed=1, incarnation=1)
        self.now = 0
        self.sent: list[messages.Message] = []  # to the neighbour
        self.published: list[tuple[str, bytes]] = []
        self.told: list[tuple[int, int, bytes]] = []  # news: the client, the number of its watch, the payload
        self.answers: dict[int, Any] = {}
        self.wakes = 0
        self.subscription = 0
        self._number = 0
        self._splitter = Splitter(dict.fromkeys([*FROM_BROKER, Kind.EVENT, Kind.HELLO, Kind.SUBSCRIBE], 1 << 22))
        self.service.attach(PIPE, Peer("pipe", "broker"), self.now)
        welcome = bodies.Welcome(1, "a", 1, "0" * 16, "resources", [], [], {}, 1_000, inbox="Inbox/me")
        self.receive(control(Kind.WELCOME, 0, bodies.encode(welcome)))
        ways = WaysHere(1, "a", "main", 1, 1, [LinkedBroker(NEIGHBOUR, 2, "b", "main", 1, 1)], [(2, 2, NEIGHBOUR, 1)])
        self.receive(service(b"broker", encode(Word(ways=ways)), 0))
        self.tell(messages.AdvertisementsOffered())

    def receive(self, *frames: bytes) -> None:
        for frame in frames:
            self.service.receive(PIPE, frame, self.now)
        self.settle()

    def settle(self) -> None:
        """Carry out what is due, without letting time pass."""
        while True:
            effects = self.service.take()
            for _, data in effects.writes:
                for raw in self._splitter.split(b"".join(data)):
                    self._hear(Frame(raw))
            if effects.wake_at is None or effects.wake_at > self.now:
                return
            self.wakes += 1
            self.service.wake(self.now)

    def pass_time(self, ms: int) -> None:
        self.now += ms * MS
        self.service.wake(self.now)
        self.settle()

    def _hear(self, frame: Frame) -> None:
        if frame.kind == Kind.SUBSCRIBE:
            self.subscription = json.loads(frame.payload)["number"]
        elif frame.kind == Kind.EVENT:
            self.published.append((frame.topic.decode(), frame.payload))
        elif frame.kind == Kind.SERVICE and frame.flags & ServiceFlag.NEIGHBOUR:
            self.sent.append(messages.decode(frame.payload))
        elif frame.kind == Kind.SERVICE and frame.flags == ServiceFlag.NEWS:
            assert frame.topic == NAME
            self.told.append((frame.origin, frame.sequence, frame.payload))
        elif frame.kind == Kind.SERVICE and frame.flags & ServiceFlag.ANSWER:
            said = json.loads(frame.payload)
            self.answers[frame.sequence] = (
                RefusedByServiceError(said["reason"]) if frame.flags & ServiceFlag.REFUSAL else said
            )

    # -- clients ------------------------------------------------------------------------------------------------------

    def request(
        self, body: dict[str, Any] | bytes, client: int = 9, entity: str = "owner", source: str = "10.0.0.1"
    ) -> bytes:
        """A request as the broker passes it on; its number is ``self.number``."""
        self._number += 1
        asker = {"entity": entity, "roles": [], "proof": "", "inbox": f"Inbox/{client}", "session": "0"}
        asker["source"] = source
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return service(NAME, text, self._number, client, json.dumps(asker).encode())

    def ask(
        self, body: dict[str, Any] | bytes, client: int = 9, entity: str = "owner", source: str = "10.0.0.1"
    ) -> Any:
        """The answer; RefusedByServiceError if it is a refusal."""
        self.receive(self.request(body, client, entity, source))
        answer = self.answers.pop(self._number, None)
        if isinstance(answer, RefusedByServiceError):
            raise answer
        return answer

    @staticmethod
    def register(number: int, **fields: Any) -> dict[str, Any]:
        """The body of a registration."""
        return {"do": "register", "secret": f"{number:032x}", "epoch": 1, "name": f"r{number}", **fields}

    def leave(self, client: int) -> None:
        """A client disconnects."""
        self.receive(service(b"broker", encode(Word(ended=client)), 0))

    def tell(self, message: messages.Message | bytes) -> None:
        """A message of the neighbour."""
        payload = message if isinstance(message, bytes) else messages.encode(message)
        self.receive(service(NAME, payload, 0, NEIGHBOUR, flags=ServiceFlag.NEIGHBOUR))

    def deliver(self, topic: str, payload: bytes) -> None:
        """A publication arrives in the inbox of the service."""
        frame = event(topic.encode(), payload, 77, 1)
        numbers = self.subscription.to_bytes(4, "little")
        self.receive(delivery(numbers, len(frame), 0) + frame)

    @property
    def counted(self) -> dict[str, int]:
        """What was refused, by reason."""
        refused: dict[str, int] = self.service.report("overview")["refused"]
        return refused
