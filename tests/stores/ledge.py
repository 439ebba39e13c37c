"""A store machine by itself, for tests: what it asks of its vault waits until the test answers.

In:    publications and requests as its broker would deliver them.
Out:   its STORED frames; the vault's answers when the test wants them.
State: an obviously right vault in memory.
Not here: claims (test_*.py).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from heliograph.errors import Reason
from heliograph.machine import Instant, Peer, Ticket
from heliograph.sim.disk import Contents
from heliograph.stores.config import StoreConfig
from heliograph.stores.store import Store
from heliograph.vault import Change, Query, VaultOpened
from heliograph.wire import bodies, stores
from heliograph.wire.frames import Frame, Kind, control, delivery, event
from heliograph.wire.hearing import Hearing
from heliograph.wire.splitter import Splitter

ORIGIN = 0x1122334455667788
INBOX = f"Inbox/00000000000000aa/{ORIGIN:016x}"
DESK = "Inbox/00000000000000aa/00000000000000bb"
LINK = 1
EVERYTHING = Hearing(7, "token", True, [("#", True), ("Entity/#", True)])


class Ledge:
    """A store without a world."""

    def __init__(self, vault: Contents | None = None, **settings: Any) -> None:
        self.now = 1_000_000_000
        self.vault = Contents() if vault is None else vault
        self.store = Store(StoreConfig(enabled=True, patterns=("#",), **settings), seed=1, incarnation=1)
        self.commits: list[tuple[Ticket, tuple[Change, ...]]] = []
        self.reads: list[tuple[Ticket, Query]] = []
        self.frames: list[Frame] = []
        self.said: list[Frame] = []
        self.numbers = 0
        self.held: list[bool] = []
        self._splitter = Splitter(dict.fromkeys(Kind, 1 << 21))
        self.store.clock(1_700_000_000_000_000_000, self.now)
        self.store.attach(LINK, Peer("pipe", "broker"), self.now)
        inbox = f"Inbox/{'c' * 16}/{'d' * 16}"
        welcome = bodies.Welcome(1, "b", 1, "00000000000000cc", "store", [], [], {}, 9, inbox)
        self.store.receive(LINK, control(Kind.WELCOME, 0, bodies.encode(welcome)), self.now)
        self.store.tell(VaultOpened("store", 0), self.now)
        self.settle()

    def take(self) -> None:
        """Carry out what it wants, but for the vault. It is woken at once while readings have more to do."""
        self.take_once()
        while self.store._channels.is_continued:
            self.store.wake(self.now)
            self.take_once()

    def take_once(self) -> Instant | None:
        """The same for one input; returns when it wants to be woken."""
        effects = self.store.take()
        self.commits += [(ticket, tuple(changes)) for ticket, changes in effects.commits]
        self.reads += effects.reads
        self.held += [held for _, held in effects.holds]
        for _, chunks in effects.writes:
            for raw in self._splitter.split(b"".join(chunks)):
                frame = Frame(raw)
                (self.frames if frame.kind == Kind.STORED else self.said).append(frame)
        return effects.wake_at

    def read(self) -> None:
        """Answer the reads."""
        self.take()
        while self.reads:
            ticket, query = self.reads.pop(0)
            self.store.done(ticket, self.vault.find(query), self.now)
            self.take()

    def commit(self) -> None:
        """Make the oldest commit durable."""
        ticket, changes = self.commits.pop(0)
        self.store.done(ticket, self.vault.commit(changes), self.now)
        self.take()

    def fail(self, reason: Reason) -> None:
        """Fail all commits."""
        while self.commits:
            ticket, _ = self.commits.pop(0)
            self.store.failed(ticket, reason, self.now)
        self.take()

    def settle(self) -> None:
        """Answer everything until nothing is asked."""
        self.read()
        while self.commits or self.reads:
            while self.commits:
                self.commit()
            self.read()

    def wait(self, ms: int) -> None:
        """Time passes."""
        self.now += ms * 1_000_000
        self.store.wake(self.now)
        self.take()

    @property
    def id(self) -> int:
        """The store's id."""
        return self.store.id

    def deliver(self, *frames: bytes) -> None:
        """Publications from the broker."""
        for start in range(0, len(frames), 1_000 if len(frames[0]) < 1_000 else 1):
            data = b"".join(frames[start : start + 1_000] if len(frames[0]) < 1_000 else frames[start : start + 1])
            self.store.receive(LINK, delivery(b"\x04\0\0\0", len(data), 0) + data, self.now)
        self.take()

    def reliable(
        self, sequence: int, previous: int, flags: int = 0, topic: bytes = b"t", origin: int = ORIGIN
    ) -> bytes:
        """A reliable publication."""
        headers = b'{"$q":["%016x",%d]}' % (self.id, previous)
        return event(topic, b"%d" % sequence, origin, sequence, headers, flags)

    def ask(
        self,
        request: bodies.Body,
        entity: str = "alice",
        inbox: str = INBOX,
        roles: tuple[str, ...] = (),
        source: str = "",
        hears: Hearing | None = EVERYTHING,
    ) -> int:
        """A request, as a broker's service passes it on; its number."""
        self.numbers += 1
        body = json.loads(stores.encode(request))
        encoded = msgspec.Raw(msgspec.json.encode(body))
        asked = stores.Asked(self.numbers, DESK, entity, list(roles), inbox, encoded, source, hears)
        data = event(stores.REQUEST % self.id, stores.encode(asked), 5, self.numbers)
        self.store.receive(LINK, delivery(b"\x03\0\0\0", len(data), 0) + data, self.now)
        self.take()
        return self.numbers

    def answer(self, number: int) -> tuple[bool, dict[str, Any]]:
        """Was it granted, and what was said."""
        [frame] = [each for each in self.frames if each.flags & 1 and each.sequence == number]
        return not frame.flags & 2, json.loads(frame.payload)

    def acknowledgements(self) -> list[tuple[int, bytes]]:
        """Every acknowledgement so far: the number and what else is said."""
        return [(frame.sequence, frame.payload) for frame in self.frames if frame.flags & stores.StoredFlag.ACK]
