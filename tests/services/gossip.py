"""A service that attends: it greets every neighbour's gossip, and remembers what it heard."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from heliograph.errors import Reason
from heliograph.machine import Address, Effects, Instant, LinkId, Machine, Outbox, Peer, SocketName, Ticket
from heliograph.model.settings import Problem, check, setting
from heliograph.services.broker_session import BrokerSession
from heliograph.services.declared import Service, Surroundings
from heliograph.wire.bodies import Body
from heliograph.wire.frames import Frame
from heliograph.wire.requests import Asker, RequestTypes
from heliograph.wire.ways import WaysHere

NAME = "gossip"


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipConfig:
    """What it says."""

    words: int = setting(3, "how often it says something to a new neighbour", least=0)

    def problems(self, path: str = NAME) -> list[Problem]:
        """Everything wrong with it."""
        return check(self, path)


class TellGossip(Body, frozen=True):
    """What did you hear?"""


REQUESTS: RequestTypes[TellGossip] = RequestTypes(TellGossip)


class Gossip:
    """Its machine."""

    def __init__(self, config: GossipConfig, seed: int) -> None:
        self._config = config
        self._secret = sha256(f"{seed}/gossip".encode()).digest()
        self._outbox = Outbox()
        self.session: BrokerSession | None = None
        self.ways: list[WaysHere] = []
        self.heard: list[tuple[str, str]] = []  # who said what
        self.refused: list[Reason] = []
        self.ended: list[int] = []
        self.untold: list[tuple[int, int]] = []
        self.asked: list[int] = []
        self._greeted: set[int] = set()

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is there."""
        self.session = BrokerSession(
            link, self._outbox, self._secret, requests=REQUESTS, serve=self._serve, attendant=self
        )
        self.session.hello(NAME)
        self.session.attend(NAME)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """What the broker says."""
        assert self.session is not None
        self.session.receive(data, now)

    def hear_ways(self, ways: WaysHere, now: Instant) -> None:
        """Greet who is new."""
        assert self.session is not None
        self.ways.append(ways)
        for neighbour in ways.neighbours:
            if neighbour.link not in self._greeted:
                self._greeted.add(neighbour.link)
                for word in range(self._config.words):
                    self.session.send(neighbour.link, f"{word}".encode(), number=word)

    def hear_neighbour(self, link: LinkId, payload: bytes, now: Instant) -> None:
        """Remember it."""
        names = {each.link: each.name for each in self.ways[-1].neighbours}
        self.heard.append((names[link], payload.decode()))

    def hear_refusal(self, link: LinkId, number: int, reason: Reason, now: Instant) -> None:
        """Remember it."""
        self.refused.append(reason)

    def hear_end(self, asker: LinkId, now: Instant) -> None:
        """Remember it."""
        self.ended.append(asker)

    def hear_untold(self, asker: LinkId, watch: int, now: Instant) -> None:
        """Remember it."""
        self.untold.append((asker, watch))

    def _serve(self, frame: Frame, request: TellGossip, asker: Asker, now: Instant) -> None:
        assert self.session is not None
        self.asked.append(frame.origin)
        self.session.answer(frame, json.dumps(self.report("overview")).encode())

    def tell(self, command: Any, now: Instant) -> None:
        """Say something to a neighbour: its link and the payload."""
        assert self.session is not None
        self.session.send(*command)

    def report(self, question: str) -> Any:
        """What it heard."""
        last = self.ways[-1] if self.ways else None
        return {
            "heard": self.heard,
            "ended": len(self.ended),
            "neighbours": [each.name for each in last.neighbours] if last else [],
            "members": len(last.members) if last else 0,
        }

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


class GossipService(Service[GossipConfig]):
    """Its declaration."""

    name = NAME
    config = GossipConfig

    def build(self, config: GossipConfig, around: Surroundings) -> Machine:
        """Its machine."""
        return Gossip(config, around.seed)

    def requests(self) -> RequestTypes[TellGossip]:
        """What clients may ask it."""
        return REQUESTS


GOSSIP_SERVICE = GossipService()
