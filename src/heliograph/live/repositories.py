"""Live repositories of topic directories: one thread for each, which runs jobs in order.

In:    jobs of the machine that a repository belongs to.
Out:   ``done`` or ``failed`` at that machine, on the loop's own thread; RepositoryOpened and RepositoryFailed.
State: per repository a bounded queue.
Not here: how topics are stored (vaults/topic_sqlite.py, vaults/topic_postgres.py), other jobs (jobs.py), vaults
          (disk.py).

Changes that wait together become one transaction. If the database refuses the content of one of them, each is made by
itself, so that the others succeed. A query takes at most one slice of time, so no job waits long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from threading import Condition, Thread
from typing import Any, Protocol

from heliograph.errors import ProtocolError, Reason
from heliograph.live.inputs import MachineInputs
from heliograph.live.vaults.backend import VaultError
from heliograph.machine import Ticket
from heliograph.model.places import POSTGRES
from heliograph.notes import VaultNarrowed, VaultRefused
from heliograph.repository import (
    AskTopics,
    FoundTopics,
    KeepTopics,
    KeptTopics,
    Repository,
    RepositoryFailed,
    RepositoryJob,
    RepositoryOpened,
)

JOBS_MAX = 4_096
GROUP_MAX = 256  # changes in one transaction
CLOSE_S = 10.0


class TopicBackend(Protocol):
    """One repository, used by one thread. Every method may raise VaultError."""

    narrowed: bool  # others could read it until it was opened

    def open(self) -> tuple[int, int]:
        """Returns how many topics it has, and how many were put aside."""
        ...

    def keep(self, jobs: Sequence[KeepTopics]) -> list[KeptTopics]:
        """Keep all of them durably, in order, in one transaction; or none."""
        ...

    def ask(self, job: AskTopics) -> FoundTopics:
        """The next slice of an answer; ProtocolError if the query makes no sense."""
        ...

    def check(self) -> list[str]:
        """Problems of its structure."""
        ...

    def close(self) -> None:
        """Release it. Never raises."""
        ...


def make_topic_backend(repository: Repository) -> TopicBackend:
    """The back end for this place. VaultError if a library that it needs is not installed."""
    if not repository.place.startswith(POSTGRES):
        from heliograph.live.vaults.topic_sqlite import SqliteTopics

        return SqliteTopics(repository)
    try:
        from heliograph.live.vaults.topic_postgres import PostgresTopics
    except ImportError as error:
        problem = f"PostgreSQL needs the extra: pip install 'heliograph[postgres]' ({error})"
        raise VaultError(Reason.VAULT_MISSING, problem) from None
    return PostgresTopics(repository)


class LiveRepositories:
    """All repositories of a driver."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads: dict[str, RepositoryThread] = {}

    async def open(self, runner: MachineInputs, repository: Repository) -> Reason | None:
        """Open a machine's repository and tell the machine; None, or why it is not open."""
        thread = self._threads[runner.name] = RepositoryThread(self._loop, runner, repository)
        return await thread.open()

    def start(self, runner: MachineInputs, ticket: Ticket, job: RepositoryJob) -> None:
        """Run a job in its turn."""
        thread = self._threads.get(runner.name)
        if thread is None:
            runner.fail_soon(ticket, Reason.VAULT_MISSING)
        else:
            thread.start(ticket, job)

    async def close(self) -> None:
        """Finish the waiting jobs, and close every repository."""
        for thread in self._threads.values():
            thread.end()
        try:
            async with asyncio.timeout(CLOSE_S):
                for thread in self._threads.values():
                    await thread.ended.wait()
        except TimeoutError:
            pass  # a disk hangs: the thread is a daemon and does not keep the process alive


class RepositoryThread:
    """One repository with its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runner: MachineInputs, repository: Repository) -> None:
        self._loop = loop
        self._runner = runner
        self._repository = repository
        self._opened: asyncio.Future[RepositoryOpened | RepositoryFailed] = loop.create_future()
        self.ended = asyncio.Event()
        self._ready = Condition()
        self._jobs: deque[tuple[Ticket, RepositoryJob]] = deque()
        self._ending = False

    # On the loop.

    async def open(self) -> Reason | None:
        """Start the thread, and wait until the repository is open or has failed to open."""
        Thread(target=self._work, name=f"heliograph-topics-{self._repository.name}", daemon=True).start()
        outcome = await self._opened
        if isinstance(outcome, RepositoryFailed):
            self._runner.note(VaultRefused(self._repository.name, outcome.problem, outcome.reason))
        self._runner.tell(outcome)
        return outcome.reason if isinstance(outcome, RepositoryFailed) else None

    def start(self, ticket: Ticket, job: RepositoryJob) -> None:
        """Queue a job."""
        with self._ready:
            if len(self._jobs) < JOBS_MAX and not self._ending:
                self._jobs.append((ticket, job))
                self._ready.notify()
                return
        self._runner.fail_soon(ticket, Reason.REQUESTS_OVER_LIMIT)

    def end(self) -> None:
        """Finish the waiting jobs, then close."""
        with self._ready:
            self._ending = True
            self._ready.notify()

    def _answer(self, answers: list[tuple[Ticket, Any]]) -> None:
        for ticket, result in answers:
            if isinstance(result, Reason):
                self._runner.failed(ticket, result)
            else:
                self._runner.done(ticket, result)

    # On the thread.

    def _work(self) -> None:
        backend: TopicBackend | None = None
        try:
            backend = make_topic_backend(self._repository)
            outcome: RepositoryOpened | RepositoryFailed = RepositoryOpened(*backend.open())
            if backend.narrowed:
                self._call(self._runner.note, VaultNarrowed(self._repository.name))
        except VaultError as error:
            outcome, backend = RepositoryFailed(error.reason, error.problem), None
        self._call(self._opened.set_result, outcome)
        while (jobs := self._next()) is not None:
            self._call(self._answer, _carry_out(backend, jobs))
        if backend is not None:
            backend.close()
        self._call(self.ended.set)

    def _next(self) -> list[tuple[Ticket, RepositoryJob]] | None:
        """A query, or all changes up to the next one; None at the end."""
        with self._ready:
            while not self._jobs and not self._ending:
                self._ready.wait()
            if not self._jobs:
                return None
            jobs = [self._jobs.popleft()]
            while isinstance(jobs[0][1], KeepTopics) and self._jobs and len(jobs) < GROUP_MAX:
                if not isinstance(self._jobs[0][1], KeepTopics):
                    break
                jobs.append(self._jobs.popleft())
            return jobs

    def _call(self, call: Any, *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            pass  # the loop was closed meanwhile: no machine is waiting


def _carry_out(backend: TopicBackend | None, jobs: list[tuple[Ticket, RepositoryJob]]) -> list[tuple[Ticket, Any]]:
    if backend is None:
        return [(ticket, Reason.VAULT_FAILED) for ticket, _ in jobs]
    try:
        ticket, job = jobs[0]
        if isinstance(job, AskTopics):
            return [(ticket, backend.ask(job))]
        kept = backend.keep([job for _, job in jobs if isinstance(job, KeepTopics)])
        return list(zip([ticket for ticket, _ in jobs], kept, strict=True))
    except ProtocolError as error:
        return [(ticket, error.reason) for ticket, _ in jobs]
    except VaultError as error:
        if error.is_content and len(jobs) > 1:
            return [answer for one in jobs for answer in _carry_out(backend, [one])]
        return [(ticket, error.reason) for ticket, _ in jobs]
