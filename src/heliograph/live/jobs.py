"""Workers: slow pure work beside the loop.

In:    jobs of machines.
Out:   ``done`` or ``failed`` at the machine that asked, on the loop's own thread.
State: a bounded queue and a few threads, started when the first job comes.
Not here: what a job does (each is a value with ``run``); repositories (repositories.py), untrusted queries (xquery.py).

The threads are daemons, unlike those of concurrent.futures: a job that hangs must not keep a stopped node alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from heliograph.broker.commands import LoadSettings
from heliograph.errors import ConfigError, Reason
from heliograph.live.inputs import MachineInputs
from heliograph.live.repositories import LiveRepositories
from heliograph.live.xquery import QueryWorker
from heliograph.machine import Job, Ticket
from heliograph.notes import ReloadFailed
from heliograph.repository import AskTopics, KeepTopics, SiftDocuments

WORKERS = 2  # a job releases the interpreter (scrypt) or is rare (reload)
JOBS_MAX = 1_024  # waiting or running; beyond it a job fails at once

_Work = tuple[MachineInputs, Ticket, Callable[[], Any]]


class Workers:
    """A few threads that run jobs in the order they were asked for."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        load_settings: Callable[[], object] | None,
        repositories: LiveRepositories,
    ) -> None:
        self._repositories = repositories
        self._queries = QueryWorker(loop)
        self._loop = loop
        self._load_settings = load_settings
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._jobs = 0
        self._ended = False

    def start(self, runner: MachineInputs, ticket: Ticket, job: Job) -> None:
        """Run a job soon; its result is returned with the ticket."""
        if isinstance(job, KeepTopics | AskTopics):
            self._repositories.start(runner, ticket, job)
            return
        if isinstance(job, SiftDocuments):
            self._queries.start(runner, ticket, job)
            return
        if self._jobs >= JOBS_MAX or self._ended:
            runner.fail_soon(ticket, Reason.REQUESTS_OVER_LIMIT)
            return
        call = job.run
        if isinstance(job, LoadSettings):  # only the process knows where its settings are
            if self._load_settings is None:
                runner.fail_soon(ticket, Reason.CONFIG_INVALID)
                return
            call = self._load_settings
        self._jobs += 1
        self._queue.put((runner, ticket, call))
        if len(self._threads) < min(self._jobs, WORKERS):
            thread = Thread(target=self._work, name=f"heliograph-job-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Accept no more jobs. A running one is left alone; its result is dropped."""
        self._ended = True
        self._queries.end()
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None and not self._ended:
            runner, ticket, call = work
            try:
                answer: tuple[Any, ...] = (runner.done, ticket, call())
            except Exception as error:
                answer = (self._failed, runner, ticket, error)
            try:
                self._loop.call_soon_threadsafe(self._answer, *answer)
            except RuntimeError:
                return  # the loop was closed meanwhile: no machine is waiting

    def _answer(self, call: Callable[..., None], *arguments: Any) -> None:
        self._jobs -= 1
        if not self._ended:
            call(*arguments)

    def _failed(self, runner: MachineInputs, ticket: Ticket, error: Exception) -> None:
        if isinstance(error, ConfigError):
            runner.note(ReloadFailed(error.problems))
            runner.failed(ticket, Reason.CONFIG_INVALID)
        else:
            runner.failed(ticket, Reason.JOB_FAILED)
