"""Convergence: after the last fault, every client is connected again with all its subscriptions.

In:    what each client should have (book.py); at the end the reports of brokers.
Out:   a violation for each client that is not connected, and each subscription that is not in force at its broker.
State: besides the book, which client moved to which broker.
Not here: what was lost meanwhile (delivery.py).
Paper: N8, failure and return; T13, loss is survived by retry.
"""

from __future__ import annotations

from heliograph.client.config import parse_target
from heliograph.notes import Note, SessionRoamed
from heliograph.sim.checkers.book import Book


class Convergence(Book):
    """The network recovers."""

    name = "convergence"

    def prepare(self) -> None:
        """No client has moved yet."""
        super().prepare()
        self._moved: dict[str, str] = {}  # client -> the broker to which it moved when asked

    def on_note(self, who: str, note: Note) -> None:
        """A client moves on purpose."""
        if isinstance(note, SessionRoamed):
            self._moved[who] = parse_target(note.new).host

    def on_started(self, who: str, incarnation: int) -> None:
        """A client's program begins, at its own broker."""
        super().on_started(who, incarnation)
        self._moved.pop(who, None)

    def end(self) -> None:
        """Check that every client is connected, with all its subscriptions."""
        for broker in self.scenario.topology.brokers:
            links = self.ask(broker, "links")
            if links is None:
                self.blame(f"{broker} does not run")
                continue
            names = {link["link"]: link["name"] for link in links if link["ready"]}
            in_force: dict[str, list[str]] = {}
            for subscription in self.ask(broker, "subscriptions"):
                in_force.setdefault(names.get(subscription["link"], ""), []).append(subscription["filter"])
            for who, wanted in self.present.items():
                if self._moved.get(who, self.people[who].broker) == broker:
                    filters = sorted(pattern for pattern, _ in wanted.values())
                    self._compare(who, broker, who in names.values(), filters, in_force.get(who, []))

    def _compare(self, who: str, broker: str, connected: bool, wanted: list[str], in_force: list[str]) -> None:
        if not connected:
            self.blame(f"{who} is not connected to {broker}")
        elif sorted(in_force) != wanted:
            self.blame(f"{who} should be subscribed to {wanted}, but {broker} has {sorted(in_force)}")
