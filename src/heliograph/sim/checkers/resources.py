"""Resources: every request is answered once, as an oracle says or naming what is missing; watchers end up right.

In:    "owned", "held", "asked", "answered", "watched", "disturbed", "settled"; reports of the resource services.
Out:   a violation for each answer that lacks, repeats or invents a resource, for each watcher that is wrong at the end,
       and for each count and table that differs from the scenario.
State: the values that each resource had, and when; the changes that each watcher was told.
Not here: owners and requesters (sim/resourcing/).

Each resource is judged by itself, because hosts are read at different moments and no answer is a snapshot. The time
that counts is from the request to its answer; it begins earlier only by the age that the request allows. A resource
whose values matched during all of it must be in the answer, if it was registered STEADY before. One that never matched
in it must not be there, nor with values that it did not have in it. New values count from when the owner has them,
earlier ones until its broker has taken the new ones. While the network is not settled, earlier values may still arrive,
and an owner may be on its way to another broker: such answers are judged only for resources that are there twice. Both
excuses are counted and bounded: at least two fifths of the answers must be judged in full, and a request is refused
only where a fault ended its broker, one in ten at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heliograph.discovery.resources.conditions import fixed_values, read_condition
from heliograph.sim.checkers.base import Checker
from heliograph.sim.loop import SECOND

STEADY_NS = 2 * SECOND  # after this, all brokers know of a resource
FEW = 20  # fewer answers than this say nothing about shares
JUDGED_SHARE, REFUSED_SHARE = 2 / 5, 1 / 10
NEVER = 1 << 62
Values = dict[str, Any] | None


@dataclass(slots=True)
class OwnedValues:
    """Values that a resource had; None: it was not there."""

    values: Values
    version: int
    begins: int
    ends: int = NEVER


class Resources(Checker):
    """Discovery is exact, or tells what is missing."""

    name = "resources"

    def prepare(self) -> None:
        """Nothing has happened yet."""
        self._plans = {plan.name: plan for plan in self.scenario.resource}
        self._requests = {plan.name: plan for plan in self.scenario.discovery}
        self._past: dict[str, list[OwnedValues]] = {name: [OwnedValues(None, 0, 0)] for name in self._plans}
        self._asked: dict[tuple[str, int], int] = {}
        self._knows: dict[str, dict[str, Values]] = {name: {} for name in self._requests}
        self._quiet_from: int | None = None if self.scenario.topology.links else 0
        self._answers = self._judged = self._refused = 0

    def on_disturbed(self, *_: object) -> None:
        """A fault struck brokers or links."""
        self._quiet_from = None

    def on_settled(self, *_: object) -> None:
        """The brokers' maps are right again."""
        self._quiet_from = self.journal.instant

    def on_owned(self, who: str, values: Values, version: int) -> None:
        """An owner has these values from now on; None: it withdraws."""
        self._past[who].append(OwnedValues(values, version, self.journal.instant))

    def on_held(self, who: str, version: int) -> None:
        """Its broker has them: earlier ones are no longer found."""
        for owned in self._past[who]:
            if owned.version < version:
                owned.ends = min(owned.ends, self.journal.instant)

    def on_asked(self, who: str, number: int) -> None:
        """A request was made."""
        self._asked[who, number] = self.journal.instant

    def on_answered(self, who: str, number: int, answer: Any) -> None:
        """A request was answered."""
        began = self._asked.pop((who, number), None)
        if began is None:
            self.blame(f"{who} got a second answer to request {number}")
            return
        if answer is None:
            self._refused += 1  # its broker was leaving
            return
        self._answers += 1
        plan, now = self._requests[who], self.journal.instant
        rows = {row["name"]: row["values"] for row in answer["resources"]}
        names = [row["name"] for row in answer["resources"]]
        if len(rows) != len(names):
            self.blame(f"{who} got a resource twice: {names}")
        if plan.expect is not None and sorted(names) != sorted(plan.expect):
            self.blame(f"{who} got {sorted(names)}, and should have got {sorted(plan.expect)}")
        quiet = self._quiet_from is not None and self._quiet_from + STEADY_NS <= began
        self._judged += quiet
        start = began - int((plan.max_age_s if plan.deliver == "similarity" else 0) * SECOND)
        condition = read_condition(plan.where)
        for name in self._plans:
            if self._plans[name].static != (plan.model == "static") or plan.model == "static":
                continue
            had = self._values(name, start, now)
            fitted = [values is not None and condition.has(values) for values in had]
            is_old = len(self._past[name]) > 1 and self._past[name][1].begins + STEADY_NS <= began
            if quiet and is_old and all(fitted) and name not in names and not plan.best and answer["complete"]:
                self.blame(f"{who} misses {name} in a complete answer")
            if quiet and name in rows and not any(fitted):
                self.blame(f"{who} got {name}, which never fitted {plan.where!r}")
            elif quiet and name in rows and rows[name] not in had:
                self.blame(f"{who} got {name} with {rows[name]}, which it did not have: {had}")

    def _values(self, name: str, start: int, end: int) -> list[Values]:
        """Its values in this time, with those that its ranges fix."""
        fixed = fixed_values(read_condition(self._plans[name].where))
        return [
            None if owned.values is None else {**fixed, **owned.values}
            for owned in self._past[name]
            if owned.begins <= end and owned.ends >= start
        ]

    def on_watched(self, who: str, kind: str, name: str, values: Values) -> None:
        """A watcher was told of a change."""
        knows = self._knows[who]
        if kind == "anew":
            knows.clear()
            if not self.scenario.fault:
                self.blame(f"{who} began anew, though it reads and no fault struck")
            return
        if kind == "appeared" and name in knows:
            self.blame(f"{who} was told twice that {name} appeared")
        if kind in ("stopped", "vanished") and name not in knows:
            self.blame(f"{who} was told that {name} {kind}, which it did not know")
        if kind in ("appeared", "changed"):
            knows[name] = values
        else:
            knows.pop(name, None)

    def end(self) -> None:
        """The end of the run, when everything is quiet."""
        for (who, number), began in self._asked.items():
            if self.journal.instant - began > 2 * self._requests[who].deadline_s * SECOND and not self.scenario.fault:
                self.blame(f"{who} got no answer to request {number}")
        if self._requests and not all(plan.watch for plan in self._requests.values()) and not self._answers:
            self.blame("requests were made, and nothing was answered")
        for who, plan in self._requests.items():
            if plan.watch:
                self._judge_watcher(who)
        self._judge_excuses()
        self._judge_counts()

    def _judge_excuses(self) -> None:
        asked = self._answers + self._refused
        if self._refused > (asked * REFUSED_SHARE if self.scenario.fault else 0):
            self.blame(f"{self._refused} of {asked} requests were refused")
        if self._answers >= FEW and self._judged < self._answers * JUDGED_SHARE:
            self.blame(f"only {self._judged} of {self._answers} answers came while the network was settled")

    def _judge_watcher(self, who: str) -> None:
        plan, fits = self._requests[who], {}
        condition = read_condition(plan.where)
        for name, past in self._past.items():
            fixed = fixed_values(read_condition(self._plans[name].where))
            last = past[-1].values
            if last is not None and self._plans[name].static == (plan.model == "static"):
                full = {**fixed, **last}
                if condition.has(full):
                    fits[name] = full
        if plan.expect is not None:
            if sorted(self._knows[who]) != sorted(plan.expect):
                self.blame(f"{who} knows {sorted(self._knows[who])} in the end, and should know {sorted(plan.expect)}")
        elif self._knows[who] != fits:
            self.blame(f"{who} knows {self._knows[who]} in the end, and {fits} fit")

    def _judge_counts(self) -> None:
        brokers = self.scenario.topology.brokers
        reports = {name: self.ask(name, "resources overview") for name in brokers}
        for name, wanted in self.scenario.checks.counts.items():
            got = sum(report[name] for report in reports.values() if report is not None)
            self.journal.write("measured", "the network", f"{name} {got}")
            if got != wanted:
                self.blame(f"{name} is {got} over all brokers, and should be {wanted}")
        for host, lines in self.scenario.checks.tables.items():
            tables = self.ask(host, "resources tables") or {}
            got_lines = [f"{kind} {line}" for kind, found in tables.items() for line in found]
            if sorted(got_lines) != sorted(lines):
                self.blame(f"the tables of {host} are {got_lines}, and should be {list(lines)}")
