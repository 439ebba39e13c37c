"""The parts of a session that talk to stores, as the rest of the session sees them.

In:    STORED frames; lines that come into use; the program's requests to the service `stores`.
Out:   each frame handed to its part; whether everything is durable.
State: requests that wait for a broker.
Not here: reliable publications (reliable.py), readers (readings.py).
"""

from __future__ import annotations

from typing import Any

from heliograph.client.commands import AskStores
from heliograph.client.requests import OpenRequests
from heliograph.client.stored.calls import StoreCalls
from heliograph.client.stored.readings import Readers
from heliograph.client.stored.reliable import ReliablePublishing
from heliograph.errors import HeliographError
from heliograph.machine import Instant
from heliograph.wire.frames import Frame
from heliograph.wire.stores import StoredFlag


class StoreParts:
    """Everything about stores."""

    def __init__(
        self, calls: StoreCalls, reliable: ReliablePublishing, readers: Readers, requests: OpenRequests
    ) -> None:
        self._calls = calls
        self._reliable = reliable
        self._readers = readers
        self._requests = requests
        self._waiting: dict[int, AskStores] = {}

    @property
    def mark(self) -> int:
        """The number of the last reliable publication."""
        return self._reliable.mark

    def is_durable(self, mark: int) -> bool:
        """True if stores have everything up to this number."""
        return self._reliable.is_durable(mark)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for a store."""
        return self._reliable.is_durable(self._reliable.mark) and not len(self._readers)

    def resume(self, now: Instant) -> None:
        """A broker has welcomed us."""
        self._reliable.resume(now)
        self._readers.resume(now)
        waiting, self._waiting = self._waiting, {}
        for command in waiting.values():
            self._ask(command)

    def pump(self, now: Instant) -> None:
        """A broker has confirmed something: there may be room."""
        self._reliable.pump(now)

    def denied(self, topic: str, error: HeliographError, now: Instant) -> None:
        """A broker does not accept publications on this topic."""
        self._reliable.denied(topic, error, now)

    def receive(self, raw: bytes, now: Instant) -> bool:
        """A STORED frame. True if it acknowledges publications."""
        frame = Frame(raw)
        if frame.flags & StoredFlag.ACK:
            self._reliable.heard(frame, now)
            return True
        self._readers.receive(frame, now)
        return False

    def ask(self, command: AskStores, now: Instant) -> None:
        """Send a request of the program to the service `stores`."""
        self._requests.open(command.request, now, lambda now: self._forget(command))
        self._ask(command)

    def _ask(self, command: AskStores) -> None:
        def answered(answer: Any, now: Instant) -> None:
            self._requests.settle(command.request, answer)

        def failed(error: HeliographError, now: Instant) -> None:
            self._requests.settle(command.request, error=error)

        if not self._calls.ask(command.body, command.kind, answered, failed):
            self._waiting[command.request] = command

    def _forget(self, command: AskStores) -> None:
        self._waiting.pop(command.request, None)

    def report(self) -> dict[str, Any]:
        """For the session's report."""
        return {"reliable": self._reliable.report(), "readers": self._readers.report()}
