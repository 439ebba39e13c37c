"""A node with every service of node.SERVICES, and clients that ask them, driven by hand.

In:    requests as bytes; virtual time.
Out:   what was answered; an AssertionError if a pipe ends.
State: the machines, a vault and a repository in memory.
Not here: which requests (test_any_request.py).
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from heliograph import node
from heliograph.broker.commands import LoadSettings, Reload
from heliograph.broker.config import BrokerConfig, ListenerConfig
from heliograph.errors import Reason
from heliograph.machine import Effects, Peer, SocketOpened
from heliograph.model.identity import Identity, Role
from heliograph.notes import Note
from heliograph.repository import AskTopics, KeepTopics, RepositoryOpened
from heliograph.services.declared import NoSettings
from heliograph.sim.disk import Contents
from heliograph.sim.repositories import MemoryRepository
from heliograph.vault import VaultOpened
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, ServiceFlag, control, service
from heliograph.wire.splitter import FROM_BROKER, Splitter
from tests.discovery.topics.stage import WALL_NS, keyring_of

MS = 1_000_000
PIPE = 100  # the broker's number of its first pipe; a service calls its end PIPE more
SETTINGS: dict[str, dict[str, Any]] = {"store": {"patterns": ("#",)}}


class Office:
    """One node, and a client with the rights of an administrator."""

    def __init__(self, *, roles: tuple[Role, ...] = (Role.CLIENT, Role.ADMIN)) -> None:
        listener = ListenerConfig(name="main", host="127.0.0.1", port=0)
        self.config = BrokerConfig(name="b1", listeners=(listener,))
        self.node = node.build(
            self.config, seed=1, incarnation=1, services=_settings(), keyring=keyring_of("b1", Role.DIRECTORY)
        )
        self.now = 1_000 * MS
        self.machines = self.node.machines
        self.notes: list[Note] = []
        self.answers: dict[int, Frame] = {}
        self.hung_up: list[tuple[int, Reason]] = []
        self._number = 0
        self._pipes = {pipe.service: PIPE + at for at, pipe in enumerate(self.node.pipes)}
        self._services = {number: name for name, number in self._pipes.items()}
        self._wakes: dict[str, int | None] = dict.fromkeys(self.machines)
        self._vault = Contents()
        self._topics = MemoryRepository()
        self._splitters: dict[int, Splitter] = {}
        self._start()
        self.link = self.dial(roles)

    def _start(self) -> None:
        broker = self.machines[node.BROKER]
        for name, number in self._pipes.items():
            broker.attach(number, Peer("pipe", name), self.now)
            self.machines[name].attach(PIPE + number, Peer("pipe", node.BROKER), self.now)
        for machine in self.machines.values():
            machine.clock(WALL_NS, self.now)
        for owner, sockets in self.node.sockets.items():
            for socket in sockets:
                self.machines[owner].tell(SocketOpened(socket.name, ("127.0.0.1", 4_717)), self.now)
        for owner in self.node.vaults:
            self.machines[owner].tell(VaultOpened("store", 0), self.now)
        for owner in self.node.repositories:
            self.machines[owner].tell(RepositoryOpened(0, 0), self.now)
        self.pump()
        self.wait(2_000)

    @property
    def store(self) -> str:
        """The id of the node's store."""
        return str(self.machines["store"].report("overview")["store"])

    def dial(self, roles: tuple[Role, ...] = (Role.CLIENT,)) -> int:
        """A client; returns its link."""
        link = 1 + len(self._splitters)
        self._splitters[link] = Splitter(FROM_BROKER)
        peer = Peer("tls", f"192.0.2.{link}:1", "main", Identity(f"entity-{link}", roles, "certificate"))
        self.machines[node.BROKER].attach(link, peer, self.now)
        self.send(link, control(Kind.HELLO, 0, bodies.encode(bodies.Hello([1], f"{link:064x}"))))
        return link

    def send(self, link: int, data: bytes) -> None:
        """Bytes of a client."""
        self.machines[node.BROKER].receive(link, data, self.now)
        self.pump()

    def ask(self, name: str, body: bytes, link: int = 0) -> int:
        """Send a request; returns its number."""
        self._number += 1
        self.send(link or self.link, service(name.encode(), body, self._number))
        return self._number

    def outcome(self, number: int, wait_ms: int = 20_000) -> str:
        """The word of the refusal, "" if it was answered. AssertionError if neither came in time."""
        until = self.now + wait_ms * MS
        while number not in self.answers and self.now < until:
            self.wait(500)
        if number not in self.answers:
            self.wait(700_000)
        assert number in self.answers, "the request stays open"
        frame = self.answers.pop(number)
        if not frame.flags & ServiceFlag.REFUSAL:
            return ""
        return str(json.loads(frame.payload)["reason"])

    def wait(self, ms: int) -> None:
        """Time passes; every machine is woken once for what is due."""
        self.now += ms * MS
        for name, at in list(self._wakes.items()):
            if at is not None and at <= self.now:
                self.machines[name].wake(self.now)
        self.pump()

    def pump(self) -> None:
        """Carry out effects until there are none."""
        for _ in range(10_000):
            done = [self._carry_out(name, machine.take()) for name, machine in self.machines.items()]
            if not any(done):
                return
        raise AssertionError("the machines want something without end")

    def _carry_out(self, name: str, effects: Effects) -> bool:
        machine = self.machines[name]
        self._wakes[name] = effects.wake_at
        for link, chunks in effects.writes:
            self._write(name, link, chunks)
        self.notes += effects.notes
        for link, reason in effects.hangups:
            assert name == node.BROKER, f"{name} hangs up its pipe: {reason.word}"
            assert link < PIPE, f"the broker hangs up the pipe of {self._services[link]}: {reason.word}"
            self.hung_up.append((link, reason))
            machine.detach(link, reason, self.now)
        for ticket, changes in effects.commits:
            machine.done(ticket, self._vault.commit(changes), self.now)
        for ticket, query in effects.reads:
            machine.done(ticket, self._vault.find(query), self.now)
        for ticket, _ in effects.dials:
            machine.failed(ticket, Reason.DIAL_FAILED, self.now)
        for ticket, job in effects.jobs:
            if isinstance(job, KeepTopics | AskTopics):
                machine.done(ticket, self._topics.carry_out(job), self.now)
            else:
                machine.done(ticket, Reload(self.config) if isinstance(job, LoadSettings) else job.run(), self.now)
        return bool(effects.writes or effects.rare)

    def _write(self, name: str, link: int, chunks: list[bytes]) -> None:
        if name != node.BROKER:
            for chunk in chunks:
                self.machines[node.BROKER].receive(self._pipes[name], chunk, self.now)
        elif link in self._services:
            for chunk in chunks:
                self.machines[self._services[link]].receive(PIPE + link, chunk, self.now)
        else:
            for raw in self._splitters[link].split(b"".join(chunks)):
                frame = Frame(raw)
                if frame.kind == Kind.SERVICE:
                    assert frame.sequence not in self.answers, "a second answer"
                    self.answers[frame.sequence] = frame


def _settings() -> list[Any]:
    """Settings for every service of the list, each of which is switched on."""
    found = []
    for each in node.SERVICES:
        if each.config is NoSettings:
            continue
        names = {field.name for field in dataclasses.fields(each.config)}
        given = SETTINGS.get(each.name, {}) | ({"enabled": True} if "enabled" in names else {})
        found.append(each.config(**given))
    return found
