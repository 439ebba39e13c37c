"""A service as small as one can be: a setting, a request that it answers, a topic that it hears, and a report.

With this file and one line in the list of node.py it is part of every broker, live and simulated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from heliograph.errors import Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Machine, Outbox, Peer, SocketName, Ticket
from heliograph.model.chance import Seed, secret_of
from heliograph.model.publication import Publication
from heliograph.model.settings import Problem, check, setting
from heliograph.services.broker_session import BrokerSession
from heliograph.services.declared import Service, Surroundings
from heliograph.wire.bodies import Body
from heliograph.wire.frames import Frame
from heliograph.wire.requests import Asker, RequestTypes

NAME = "greeter"


@dataclass(frozen=True, slots=True, kw_only=True)
class GreeterConfig:
    """How it greets."""

    greeting: str = setting("hello", "how clients are greeted", choices=("hello", "good day"))

    def problems(self, path: str = NAME) -> list[Problem]:
        """Everything wrong with it."""
        return check(self, path)


class Greet(Body, frozen=True):
    """A client wants to be greeted."""

    name: str


REQUESTS: RequestTypes[Greet] = RequestTypes(Greet)


@dataclass(frozen=True, slots=True)
class ReloadGreeter:
    """New settings."""

    config: GreeterConfig


class Greeter:
    """Its machine."""

    def __init__(self, config: GreeterConfig, seed: Seed) -> None:
        self._config = config
        self._secret = secret_of(seed, "greeter")
        self._outbox = Outbox()
        self._session: BrokerSession | None = None
        self._heard: list[str] = []

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is there."""
        self._session = BrokerSession(link, self._outbox, self._secret, requests=REQUESTS, serve=self._serve)
        self._session.hello(NAME)
        self._session.subscribe(b"greetings/#", self._hear)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """What the broker says."""
        assert self._session is not None
        self._session.receive(data, now)

    def _serve(self, frame: Frame, request: Greet, asker: Asker, now: Instant) -> None:
        assert self._session is not None
        self._session.answer(frame, json.dumps({"text": f"{self._config.greeting}, {request.name}"}).encode())

    def _hear(self, publication: Publication, now: Instant) -> None:
        self._heard.append(publication.topic)

    def tell(self, command: Any, now: Instant) -> None:
        """ReloadGreeter: greet everybody anew."""
        assert self._session is not None
        self._config = command.config
        self._session.publish(b"greetings/all", self._config.greeting.encode())

    def report(self, question: str) -> Any:
        """Its greeting, and the topics on which it was greeted."""
        if question != "overview":
            raise UsageError("the greeter reports its overview only")
        return {"greeting": self._config.greeting, "heard": list(self._heard)}

    def take(self) -> Effects:
        """What is wanted since the last take."""
        return self._outbox.empty(None)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The broker is gone."""

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """It has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """It says little."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """It asks for nothing."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """It asks for nothing."""

    def clock(self, wall_ns: int, now: Instant) -> None:
        """It does not look at the time."""

    def wake(self, now: Instant) -> None:
        """It waits for nothing."""


class GreeterService(Service[GreeterConfig]):
    """Its declaration."""

    name = NAME
    config = GreeterConfig

    def build(self, config: GreeterConfig, around: Surroundings) -> Machine:
        """Its machine."""
        return Greeter(config, around.seed)

    def requests(self) -> RequestTypes[Greet]:
        """What clients may ask it."""
        return REQUESTS

    def reload(self, config: GreeterConfig) -> object:
        """Its greeting can change."""
        return ReloadGreeter(config)

    def describe(self, config: GreeterConfig, opened: object) -> str:
        """For the first line of the log."""
        return f"greets with {config.greeting!r}"


GREETER_SERVICE = GreeterService()
