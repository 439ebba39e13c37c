"""Convergence: after the last fault, everyone is back with everything.

In:    "subscribing", "unsubscribing" and their like; at the end the reports of sessions and brokers.
Out:   a violation for each client that is not connected, and each subscription that is not in force at its broker.
State: what each client should have.
Not here: what was lost meanwhile (delivery.py).
Paper: N8, failure and return; T13, loss is survived by retry.
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.rules import people


class Convergence(Checker):
    """The network recovers."""

    name = "convergence"

    def prepare(self) -> None:
        """Nobody is there yet."""
        self._people = people(self.scenario)
        self._present: dict[str, dict[int, str]] = {}  # client -> its subscriptions: number -> filter

    def on_started(self, who: str, _incarnation: int) -> None:
        """A client's program begins."""
        if who in self._people:
            self._present[who] = {}

    def on_leaving(self, who: str) -> None:
        """A client's program says goodbye."""
        self._present.pop(who, None)

    def on_crashed(self, who: str, *_: object) -> None:
        """A client is gone, until it is started again."""
        self._present.pop(who, None)

    def on_subscribing(self, who: str, subscription: int, pattern: str, _policy: str, _echo: bool) -> None:
        """A program asked for publications."""
        self._present[who][subscription] = pattern

    def on_unsubscribing(self, who: str, subscription: int) -> None:
        """The program wants no more."""
        self._present[who].pop(subscription, None)

    def on_refused(self, who: str, what: str, subscription: int, _reason: str) -> None:
        """The broker said no, and that is that."""
        if what == "subscribe" and who in self._present:
            self._present[who].pop(subscription, None)

    def end(self) -> None:
        """Is everybody there, with everything?"""
        for broker in self.scenario.topology.brokers:
            links = self.ask(broker, "links")
            if links is None:
                self.blame(f"{broker} does not run")
                continue
            names = {link["link"]: link["name"] for link in links if link["ready"]}
            in_force: dict[str, list[str]] = {}
            for subscription in self.ask(broker, "subscriptions"):
                in_force.setdefault(names.get(subscription["link"], ""), []).append(subscription["filter"])
            for who, wanted in self._present.items():
                if self._people[who].broker == broker:
                    self._compare(who, broker, who in names.values(), sorted(wanted.values()), in_force.get(who, []))

    def _compare(self, who: str, broker: str, connected: bool, wanted: list[str], in_force: list[str]) -> None:
        if not connected:
            self.blame(f"{who} is not connected to {broker}")
        elif sorted(in_force) != wanted:
            self.blame(f"{who} should be subscribed to {wanted}, but {broker} has {sorted(in_force)}")
