"""A run: play a scenario with a seed, to its end, and report the result.

In:    a Scenario and a seed.
Out:   RunResult: ok or not, violations, counters, digest; always the same for the same scenario and seed.
State: none.
Not here: the command line (cli/simulate.py), building the world (scenario_world.py).
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field

from heliograph.notes import Note, WorkFailed
from heliograph.sim.checkers import Violation
from heliograph.sim.journal import Journal
from heliograph.sim.loop import SECOND
from heliograph.sim.scenario import Scenario
from heliograph.sim.scenario_world import ScenarioWorld
from heliograph.sim.world import MachineError

LOOK_NS = SECOND // 4  # how often checkers read reports


@dataclass(slots=True)
class RunResult:
    """The result of a run."""

    scenario: str
    seed: int
    violations: list[Violation]
    published: int
    delivered: int
    faults: dict[str, int]
    inputs: int
    virtual_s: float
    digest: str
    measured: list[str]  # measurements of checkers, for people
    journal: Journal = field(repr=False)
    tally: dict[str, int] = field(default_factory=dict)  # counts of checkers, for sums over many runs
    crash: str = ""  # the traceback of a machine that failed, or of a unit of its work

    @property
    def ok(self) -> bool:
        """True if no rule was broken."""
        return not self.violations


def play(scenario: Scenario, seed: int, *, keep_journal: bool = False) -> RunResult:
    """Play a scenario to its end, or until a machine fails."""
    stage = ScenarioWorld(scenario, seed, keep_journal=keep_journal)
    errors = _ErrorNotes(stage.world.journal)
    measured: list[str] = []
    stage.world.journal.watch("measured", lambda _, text: measured.append(text))
    crash = ""
    violations: list[Violation] = []
    try:
        _run(stage)
        for checker in stage.checkers:
            checker.end()
    except MachineError as fault:
        crash = "".join(traceback.format_exception(fault.__cause__))
        violations.append(Violation("contract", fault.step, fault.instant, str(fault)))
    violations += errors.violations
    for checker in stage.checkers:
        violations += checker.violations
    if not crash:
        world = stage.world
        violations += [Violation("contract", world.step, world.loop.now, text) for text in world.faults()]
        violations += _idle(stage)
    return _result(stage, seed, violations, measured, crash or errors.traceback)


def _run(stage: ScenarioWorld) -> None:
    head = stage.scenario.scenario
    until = int((head.duration_s + head.settle_s) * SECOND)
    for instant in range(LOOK_NS, until + LOOK_NS, LOOK_NS):
        stage.world.run(min(instant, until))
        for checker in stage.checkers:
            checker.look()


def _idle(stage: ScenarioWorld) -> list[Violation]:
    """A run in which nothing happened proves nothing: what the scenario plans must have taken place."""
    counts, world = stage.world.journal.counts, stage.world
    found = []
    workload = stage.scenario.workload
    if any(each.publish for each in workload) and not counts["published"]:
        found.append("the scenario publishes, but nothing was published")
    if any(each.publish for each in workload) and any(each.subscribe for each in workload) and not counts["received"]:
        found.append("the scenario publishes and subscribes, but nothing was delivered")
    if any(each.publish for each in stage.scenario.storing) and not counts["acknowledged"]:
        found.append("the scenario publishes reliably, but nothing was acknowledged")
    if any(each.read for each in stage.scenario.storing) and not counts["taken"]:
        found.append("the scenario has durable subscribers, but they got nothing")
    if stage.scenario.topic and not counts["created"]:
        found.append("the scenario has topics, but none was created")
    if stage.scenario.search and not counts["found"]:
        found.append("the scenario has searches, but none ended")
    for number, (fault, count) in enumerate(zip(stage.faults.plan, stage.faults.counts, strict=True)):
        struck = count and (fault.kind != "drop_frame" or world.network.frames_lost)
        if not struck:
            found.append(f"fault[{number}] ({fault.kind} on {fault.target}) never struck")
    return [Violation("scenario", world.step, world.loop.now, text) for text in found]


def _result(stage: ScenarioWorld, seed: int, violations: list[Violation], measured: list[str], crash: str) -> RunResult:
    world = stage.world
    faults: dict[str, int] = {}
    for fault, count in zip(stage.faults.plan, stage.faults.counts, strict=True):
        faults[fault.kind] = faults.get(fault.kind, 0) + count
    return RunResult(
        scenario=stage.scenario.scenario.name,
        seed=seed,
        violations=violations,
        published=world.journal.counts["published"] + world.journal.counts["acknowledged"],
        delivered=world.journal.counts["received"] + world.journal.counts["taken"],
        faults=faults,
        inputs=world.step,
        virtual_s=world.loop.now / SECOND,
        digest=world.digest.hex(),
        measured=measured,
        journal=world.journal,
        tally={name: count for checker in stage.checkers for name, count in checker.tally().items()},
        crash=crash,
    )


class _ErrorNotes:
    """An error note fails a run, whatever the checkers say."""

    def __init__(self, journal: Journal) -> None:
        self.violations: list[Violation] = []
        self.traceback = ""  # of the first unit of work that failed (guard.py)
        self._journal = journal
        journal.watch("note", self._see)

    def _see(self, who: str, note: Note) -> None:
        if note.level == "error":
            text = f"{who}: {note.repeatable}"
            self.violations.append(Violation("notes", self._journal.step, self._journal.instant, text))
        if isinstance(note, WorkFailed):
            self.traceback = self.traceback or note.traceback
