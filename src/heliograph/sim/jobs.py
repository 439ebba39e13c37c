"""Simulated workers: the time of a job is drawn from the seed.

In:    jobs of machines.
Out:   ``done`` or ``failed`` at the machine that asked.
State: none.
Not here: what a job does (each is a value with ``run``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.broker.commands import LoadSettings
from heliograph.errors import Reason
from heliograph.machine import Job, Ticket
from heliograph.repository import AskTopics, KeepTopics, RepositoryJob, SiftDocuments
from heliograph.sim.inputs import HostInputs
from heliograph.sim.loop import MILLISECOND, Loop
from heliograph.sim.repositories import MemoryRepository, outcome_of
from heliograph.sim.seat import Seat

Started = tuple[HostInputs, Seat, Ticket, Job]


class SimulatedWorkers:
    """Run slow pure work."""

    def __init__(self, loop: Loop, draw: Callable[[], float], job_ms: float) -> None:
        self._loop = loop
        self._draw = draw
        self._job_ms = job_ms
        self._repositories: dict[tuple[str, str], MemoryRepository] = {}  # by host and machine; they outlive crashes
        self._busy_until: dict[tuple[str, str], int] = {}

    def start(self, host: HostInputs, seat: Seat, ticket: Ticket, job: Job, instant: int) -> None:
        """Run a job; its result is returned with the ticket."""
        lasts = 1 + int(self._job_ms * MILLISECOND * self._draw())
        if isinstance(job, KeepTopics | AskTopics):  # carried out in the order in which they were asked for
            key = (host.name, seat.name)
            lasts = max(lasts, self._busy_until.get(key, 0) + 1 - instant)
            self._busy_until[key] = instant + lasts
        self._loop.at(instant + lasts, self._finish, (host, seat, ticket, job))

    def _finish(self, started: Started, _instant: int) -> None:
        host, seat, ticket, job = started
        if seat.gone:
            return
        if isinstance(job, KeepTopics | AskTopics):
            self._use_repository(host, seat, ticket, job)
            return
        if isinstance(job, SiftDocuments):  # a simulation cannot run a real process
            host.fail(seat, ticket, Reason.QUERY_LANGUAGE_MISSING)
            return
        try:
            result: Any = host.settings if isinstance(job, LoadSettings) else job.run()
        except Exception:  # by the contract, any exception of a job becomes this answer
            host.fail(seat, ticket, Reason.JOB_FAILED)
        else:
            host.finish_job(seat, ticket, result)

    def repository(self, host: str, machine: str) -> MemoryRepository:
        """The repository of a machine."""
        return self._repositories.setdefault((host, machine), MemoryRepository())

    def _use_repository(self, host: HostInputs, seat: Seat, ticket: Ticket, job: RepositoryJob) -> None:
        outcome = outcome_of(self.repository(host.name, seat.name), job)
        if isinstance(outcome, Reason):
            host.fail(seat, ticket, outcome)
        else:
            host.finish_job(seat, ticket, outcome)
