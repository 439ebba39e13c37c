"""A simulated owner of a resource, or a requester: one session with one broker at a time.

In:    its plan; the broker's bytes; time.
Out:   frames; entries "owned", "held", "asked", "answered" and "watched" of the journal.
State: its session; the owner's latest values; the watcher's state.
Not here: a program's client (live/resources.py), judging what happened (checkers/resources.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from random import Random
from typing import Any

from heliograph.broker.config import DEFAULT_PORT
from heliograph.discovery.resources.news import WatchReader
from heliograph.discovery.resources.watching import WatchState
from heliograph.errors import Reason, UsageError
from heliograph.machine import Address, Dial, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.services.broker_session import BrokerSession
from heliograph.sim.resourcing.plans import DiscoveryPlan, ResourcePlan
from heliograph.wire.bodies import Welcome
from heliograph.wire.frames import Frame

SERVICE = b"resources"
NS_PER_S = 1_000_000_000
REDIAL_NS = NS_PER_S // 5
BEAT_NS = NS_PER_S // 2
SILENT_NS = 2 * NS_PER_S

Write = Callable[..., None]


class ResourceParty:
    """A machine (machine.py): dials its brokers in turn until one answers."""

    def __init__(self, name: str, brokers: tuple[str, ...], seed: bytes, write: Write) -> None:
        self.name = name
        self._brokers = brokers
        self._seed = seed
        self._write = write
        self._tries = 0
        self._links = 0
        self._heard_at: Instant = 0
        self._outbox = Outbox()
        self._timers = Timers()
        self.session: BrokerSession | None = None
        self._begun = False

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The first reading marks the start."""
        if not self._begun:
            self._begun = True
            self._redial(now)

    def _redial(self, now: Instant) -> None:
        if self.session is None:
            self._outbox.dial(Dial(self._brokers[self._tries % len(self._brokers)], DEFAULT_PORT))

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A broker has answered."""
        self._links += 1
        secret = sha256(self._seed + self._links.to_bytes(4, "little")).digest()
        self.session = BrokerSession(link, self._outbox, secret, welcome=self.welcomed, news=self.hear_news)
        self.session.hello(self.name, keep_alive_ms=1_000)
        self._heard_at = now
        self._beat(now)

    def _beat(self, now: Instant) -> None:
        if self.session is None:
            return
        if now - self._heard_at > SILENT_NS:
            self.session.give_up(Reason.SILENT)
            return
        self.session.beat()
        self._timers.set("beat", now + BEAT_NS, self._beat)

    def welcomed(self, welcome: Welcome, now: Instant) -> None:
        """The session has begun."""

    def hear_news(self, frame: Frame, now: Instant) -> None:
        """News of a watch."""

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Read bytes of the broker."""
        if self.session is not None and self.session.link == link:
            self._heard_at = now
            self.session.receive(data, now)
            if self.session is not None and self.session.fault is not None:
                self._outbox.hang_up(link, self.session.fault)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link is gone: dial the next broker."""
        self.session = None
        self._try_next(now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """No broker answered."""
        self._try_next(now)

    def _try_next(self, now: Instant) -> None:
        self._tries += 1
        self._timers.set("dial", now + REDIAL_NS, self._redial)

    def ask(self, body: dict[str, Any], answer: Callable[[Any, Instant], None]) -> None:
        """Ask the resource service; without a broker the request is lost."""
        if self.session is not None:
            self.session.ask(SERVICE, body, answer)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def take(self) -> Effects:
        """All effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """Nothing: the journal has everything."""
        return {"connected": self.session is not None}

    def tell(self, command: Any, now: Instant) -> None:
        """It accepts no commands."""
        raise UsageError(f"a party of resources does not know the command {command!r}")

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """It has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """It writes too little for this to matter."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """It asks only for links."""


class ResourceOwner(ResourceParty):
    """Keeps one resource registered, with its latest values."""

    def __init__(self, plan: ResourcePlan, random: Random, seed: bytes, write: Write) -> None:
        super().__init__(plan.name, plan.brokers, seed, write)
        self._plan = plan
        self._random = random
        self._secret = sha256(seed + b"resource").hexdigest()[:32]
        self._values: dict[str, Any] | None = None
        self._epoch = 0
        self._version = 0
        self._ended = False

    def welcomed(self, welcome: Welcome, now: Instant) -> None:
        """Register at this broker: the newest registration wins."""
        self._epoch += 1
        if self._values is None and self._plan.values:
            self._draw(now)
        if not self._ended:
            self._register(now)
        self._timers.set("renew", now + NS_PER_S, self._renew)
        if self._plan.every_s:
            self._timers.set("update", now + int(self._plan.every_s * NS_PER_S), self._update)

    def _draw(self, now: Instant) -> None:
        self._version += 1
        self._values = {name: self._drawn(values) for name, values in self._plan.values.items()}
        self._write("owned", self.name, dict(self._values), self._version)

    def _drawn(self, values: tuple[int | float | str, ...]) -> int | float | str:
        least, most = values[0], values[-1]
        if isinstance(least, int) and isinstance(most, int):
            return self._random.randint(least, most)
        return self._random.choice(values)

    def _register(self, now: Instant) -> None:
        plan = self._plan
        body = {
            **{"do": "register", "secret": self._secret, "where": plan.where, "epoch": self._epoch, "name": plan.name},
            **{"model": "static" if plan.static else "dynamic", "lease_s": plan.lease_s, "attached": self._epoch > 1},
            **({"values": self._values, "version": self._version} if self._values else {}),
        }

        def answered(answer: Any, now: Instant) -> None:
            self._write("attended", self.name, answer is not None)
            self._held(answer, version)

        version = self._version
        self.ask(body, answered)

    def _held(self, answer: Any, version: int) -> None:
        """If this was not refused, its broker has these values now, and no earlier ones."""
        if answer is not None:
            self._write("held", self.name, version)

    def _renew(self, now: Instant) -> None:
        def answered(answer: Any, now: Instant) -> None:
            if answer is None and not self._ended:
                self._register(now)

        if not self._ended:
            self.ask({"do": "renew", "secret": self._secret, "lease_s": self._plan.lease_s}, answered)
            self._timers.set("renew", now + NS_PER_S, self._renew)

    def _update(self, now: Instant) -> None:
        if self._ended or self.session is None:
            return
        self._draw(now)
        body = {"do": "update", "secret": self._secret, "values": self._values, "version": self._version}
        version = self._version
        self.ask({**body, "lease_s": self._plan.lease_s}, lambda answer, now: self._held(answer, version))
        self._timers.set("update", now + int(self._plan.every_s * NS_PER_S), self._update)

    def tell(self, command: Any, now: Instant) -> None:
        """Handle "rest" (no more updates) or "withdraw"."""
        if command == "rest":
            self._timers.cancel("update")
            self._plan = replace(self._plan, every_s=0.0)
        elif command == "withdraw":
            self._ended = True
            self._version += 1
            version = self._version
            self._write("owned", self.name, None, version)
            self.ask({"do": "withdraw", "secret": self._secret}, lambda answer, now: self._held(answer, version))
        else:
            super().tell(command, now)


class ResourceRequester(ResourceParty):
    """Asks once, repeatedly, or watches."""

    def __init__(self, plan: DiscoveryPlan, seed: bytes, write: Write) -> None:
        super().__init__(plan.name, plan.brokers, seed, write)
        self._plan = plan
        self._reader = WatchReader(WatchState())
        self._watch = 0
        self._number = 0

    def welcomed(self, welcome: Welcome, now: Instant) -> None:
        """Ask, or watch again."""
        if self._plan.watch:
            self._begin(now)
        else:
            self._ask(now)

    def _ask(self, now: Instant) -> None:
        plan = self._plan
        self._number += 1
        number = self._number
        body = {
            **{"do": "discover", "where": plan.where, "model": plan.model, "deliver": plan.deliver},
            **{"best": plan.best, "order": plan.order, "max_age_s": plan.max_age_s},
            "deadline_ms": int(plan.deadline_s * 1_000),
        }
        if self.session is not None:
            self._write("asked", self.name, number)
            self.ask(body, lambda answer, now: self._write("answered", self.name, number, answer))
        if plan.every_s:
            self._timers.set("ask", now + int(plan.every_s * NS_PER_S), self._ask)

    def _begin(self, now: Instant) -> None:
        if self._watch:
            self.ask({"do": "unwatch", "watch": self._watch}, lambda answer, now: None)
        self._watch += 1
        self._reader.begin()
        body = {"do": "watch", "watch": self._watch, "where": self._plan.where, "model": self._plan.model}
        self.ask(body, lambda answer, now: None)
        self._timers.set("keep", now + NS_PER_S, self._keep)

    def _keep(self, now: Instant) -> None:
        watch = self._watch

        def answered(answer: Any, now: Instant) -> None:
            if watch != self._watch:
                return
            if answer is None or not answer["known"]:
                self._begin(now)
            else:
                self._reader.check(answer["number"])

        self.ask({"do": "keep", "watch": watch, "again": self._reader.is_stale}, answered)
        self._timers.set("keep", now + NS_PER_S, self._keep)

    def hear_news(self, frame: Frame, now: Instant) -> None:
        """Write down the changes."""
        if frame.sequence != self._watch or frame.topic != SERVICE:
            return
        self._reader.hear(frame.payload)
        while (change := self._reader.take()) is not None:
            self._write("watched", self.name, change.kind, change.name, change.values)
