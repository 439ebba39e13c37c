"""A minimal publisher of reliable publications.

In:    how many to publish, on which topics, and how many may be unacknowledged.
Out:   publications with `$q`, repeats; acknowledgements, in the notebook.
State: what is not acknowledged.
Not here: its link (store_user.py).
"""

from __future__ import annotations

from typing import Any

from heliograph.machine import Address, Instant
from heliograph.sim.storing.notebook import Notebook
from heliograph.sim.storing.store_user import NS_PER_MS, StoreUser
from heliograph.wire import stores as wire
from heliograph.wire.frames import Flag, Frame, event
from heliograph.wire.stores import StoredFlag

REPEATS_MAX = 200  # at once
REPEAT_PAUSE_NS = 100 * NS_PER_MS  # before the same is repeated again


class ReliablePublisher(StoreUser):
    """Publishes until everything is acknowledged."""

    def __init__(
        self,
        name: str,
        brokers: list[Address],
        seed: int,
        notebook: Notebook,
        *,
        topics: list[str],
        count: int,
        window: int = 50,
        every_ms: int = 20,
        at_once: int = 5,
        padding: int = 0,
    ) -> None:
        super().__init__(name, brokers, seed)
        self._notebook = notebook
        self._topics = topics
        self._left = count
        self._window = window
        self._every_ns = every_ms * NS_PER_MS
        self._at_once = at_once
        self._padding = bytes(padding)
        self._sequence = 0
        self._store = 0
        self._is_attached = False
        self._previous = 0
        self._acknowledged = 0
        self._waiting: dict[int, tuple[str, int, bytes]] = {}  # sequence -> topic, previous, payload
        self._progress_at: Instant = 0
        self._repeated: tuple[int, Instant] = (-1, 0)  # the number after which it last repeated, and when

    @property
    def is_done(self) -> bool:
        """True if nothing is left to publish or to be acknowledged."""
        return not self._left and not self._waiting

    def welcomed(self, now: Instant) -> None:
        """Look for the store."""
        self._is_attached = False
        self._find(now)

    def _find(self, now: Instant) -> None:
        if self._store:
            self._attach(now)
        else:
            self.ask(wire.FindStores(topic=self._topics[0]), self._found, now)

    def _found(self, answer: dict[str, Any] | None, now: Instant) -> None:
        if answer and answer["stores"]:
            self._store = int(answer["stores"][0]["store"], 16)
            self._attach(now)

    def _attach(self, now: Instant) -> None:
        self.ask(wire.AttachPublisher(f"{self._store:016x}"), self._attached, now)

    def _attached(self, answer: dict[str, Any] | None, now: Instant) -> None:
        if answer is None or self.link is None:
            return
        have = answer["have"]
        self._is_attached = True
        self._progress_at = now
        if have < self._acknowledged:
            self._notebook.reset(self.origin, self._store)
            self._begin_anew()
        else:
            self._covered(have, now)
        self._repeat(1 << 62)
        self._publish(now)

    def _begin_anew(self) -> None:
        """The store was replaced: begin a new chain."""
        self._acknowledged = self._previous = 0
        for sequence, (topic, _, payload) in list(self._waiting.items()):
            self._waiting[sequence] = (topic, self._previous, payload)
            self._previous = sequence

    def _publish(self, now: Instant) -> None:
        if self._is_attached and self.link is not None:
            for _ in range(self._at_once):
                if not self._left or len(self._waiting) >= self._window:
                    break
                self._left -= 1
                self._sequence += 1
                topic = self._topics[self._sequence % len(self._topics)]
                payload = b"%s %d%b" % (self.name.encode(), self._sequence, self._padding)
                self._waiting[self._sequence] = (topic, self._previous, payload)
                self._previous = self._sequence
                self._say(self._sequence, 0)
        if self._left:
            self.timers.set("publish", now + self._every_ns, self._publish)

    def _say(self, sequence: int, flags: int) -> None:
        topic, previous, payload = self._waiting[sequence]
        headers = b'{"$q":["%016x",%d]}' % (self._store, previous)
        self.write(event(topic.encode(), payload, self.origin, sequence, headers, flags))

    def _repeat(self, until: int) -> None:
        for sequence in [sequence for sequence in self._waiting if sequence <= until][:REPEATS_MAX]:
            self._say(sequence, Flag.REPEAT)

    def heard(self, frame: Frame, now: Instant) -> None:
        """Handle an acknowledgement."""
        if not frame.flags & StoredFlag.ACK or frame.origin != self._store or not self._is_attached:
            return
        said = wire.decode(wire.Acknowledged, frame.payload or b"{}")
        for number, code in said.refused:
            if self._waiting.pop(number, None) is not None:
                self._notebook.refuse(self.origin, number, code)
        self._covered(frame.sequence, now)
        if said.missing and said.state == "open" and self._may_repeat(now):
            self._repeat(said.missing)

    def _may_repeat(self, now: Instant) -> bool:
        """False if the same was repeated a moment ago: a slow store would be asked for the same answer again."""
        behind, at = self._repeated
        if behind == self._acknowledged and now < at + REPEAT_PAUSE_NS:
            return False
        self._repeated = (self._acknowledged, now)
        return True

    def _covered(self, sequence: int, now: Instant) -> None:
        numbers = [(number, topic) for number, (topic, _, _) in self._waiting.items() if number <= sequence]
        for number, _ in numbers:
            del self._waiting[number]
        if numbers:
            self._notebook.acknowledge(self.name, self.origin, self._store, numbers)
            self._progress_at = now
        self._acknowledged = max(self._acknowledged, sequence)

    def report(self, question: str) -> dict[str, int]:
        """What remains to be done."""
        return {"left": self._left, "waiting": len(self._waiting)}

    def tick(self, now: Instant) -> None:
        """If nothing was acknowledged for long, attach again and repeat."""
        if not self._is_attached:
            self._find(now)
        elif self._waiting and now - self._progress_at > 2_000 * NS_PER_MS:
            self._progress_at = now
            self._attach(now)
