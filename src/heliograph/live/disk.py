"""Live vaults: one thread for each, which commits everything that is waiting in one transaction.

In:    commits and reads of the machine that a vault belongs to.
Out:   one callback into the loop per group, with all its answers; VaultOpened and VaultFailed; notes.
State: per vault a bounded queue of commits and one of reads.
Not here: how data is stored (vaults/), jobs (jobs.py: they keep no order).

Groups of commits alternate with reads. Both are bounded, so neither waits long for the other.

Every commit has a *generation*, which implements rule 16. The loop raises it just before it tells the machine that a
commit failed. The thread also fails every commit whose generation is not above the last broken one, because the machine
asked for it before it could know of the failure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Any

from heliograph.errors import Reason
from heliograph.live.inputs import MachineInputs
from heliograph.live.vaults.backend import Backend, VaultError
from heliograph.live.vaults.choice import make_backend
from heliograph.machine import Ticket
from heliograph.notes import VaultFound, VaultNarrowed, VaultRefused
from heliograph.vault import Change, Committed, Query, Vault, VaultFailed, VaultOpened, size_of

COMMITS_MAX = 65_536  # waiting; the machines' own windows are smaller
WAITING_BYTES_MAX = 256 << 20
READS_MAX = 4_096
GROUP_COMMITS_MAX = 16_384  # in one transaction
GROUP_BYTES_MAX = 16 << 20
READS_PER_TURN = 16  # between two groups: at most 64 MiB, usually far less
RETRY_S = 1.0  # between attempts to open a vault that may come back
IDLE_S = 0.05  # without work, before work that is not urgent is done
CLOSE_S = 10.0  # for commits that wait when the node stops
PASSING = (Reason.VAULT_FAILED, Reason.VAULT_LOCKED, Reason.VAULT_FULL)  # reasons that may pass: opening is tried again

Commit = tuple[Ticket, Sequence[Change], int, Reason | None]
"""The ticket, the changes, the generation, and the reason if it is refused."""
Answers = list[tuple[Ticket, Any]]
"""The argument of ``done``, or a Reason for ``failed``."""


class Disks:
    """All vaults of a driver."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._disks: dict[str, VaultThread] = {}

    async def open(self, runner: MachineInputs, vault: Vault) -> Reason | None:
        """Open a machine's vault and tell the machine. None, or why it is not open; it may open later.

        None also if its server is not there, or starts: the machine is told when it is.
        """
        assert runner.name not in self._disks, f"{runner.name} has two vaults"
        disk = self._disks[runner.name] = VaultThread(self._loop, runner, vault)
        disk.start()
        return await disk.tried

    def commit(self, runner: MachineInputs, commits: Sequence[tuple[Ticket, Sequence[Change]]]) -> None:
        """Make the commits of a machine."""
        disk = self._disks.get(runner.name)
        if disk is not None:
            disk.commit(commits)
            return
        for ticket, _ in commits:
            runner.fail_soon(ticket, Reason.VAULT_MISSING)

    def read(self, runner: MachineInputs, reads: Sequence[tuple[Ticket, Query]]) -> None:
        """Make the reads of a machine."""
        disk = self._disks.get(runner.name)
        if disk is not None:
            disk.read(reads)
            return
        for ticket, _ in reads:
            runner.fail_soon(ticket, Reason.VAULT_MISSING)

    async def close(self) -> None:
        """Commit what is waiting, tell the machines, and close every vault."""
        for disk in self._disks.values():
            disk.end(flush=True)
        try:
            async with asyncio.timeout(CLOSE_S):
                for disk in self._disks.values():
                    await disk.ended.wait()
        except TimeoutError:
            pass  # a disk hangs: the thread is a daemon and does not keep the process alive

    def abort(self) -> None:
        """A machine crashed: do not commit what is waiting."""
        for disk in self._disks.values():
            disk.end(flush=False)


class VaultThread:
    """One vault with its thread. Methods below "On the thread" are called there, all others on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runner: MachineInputs, vault: Vault) -> None:
        self._loop = loop
        self._runner = runner
        self._vault = vault
        self.tried: asyncio.Future[Reason | None] = loop.create_future()  # the result of the first attempt
        self.ended = asyncio.Event()
        self._generation = 0
        # Shared, under the lock of the condition:
        self._ready = Condition()
        self._commits: deque[Commit] = deque()
        self._reads: deque[tuple[Ticket, Query | Reason]] = deque()
        self._bytes = 0  # of the commits
        self._ending = False
        # The thread's own:
        self._backend: Backend | None = None  # while it is open
        self._refused: VaultError | None = None  # why it is not
        self._is_tidy = True  # nothing was committed since it was last tidied
        self._generations = 0  # how often the loop was told to raise ``_generation``
        self._broken = -1  # commits of this generation and of older ones fail …
        self._broken_by = Reason.VAULT_FAILED  # … for this

    def start(self) -> None:
        """Begin to open it."""
        Thread(target=self._work, name=f"heliograph-vault-{self._vault.name}", daemon=True).start()

    def commit(self, commits: Sequence[tuple[Ticket, Sequence[Change]]]) -> None:
        """Queue commits. One for which there is no room is answered in its turn as well."""
        with self._ready:
            for ticket, changes in commits:
                size = sum(map(size_of, changes))
                if len(self._commits) >= COMMITS_MAX or self._bytes + size > WAITING_BYTES_MAX:
                    self._commits.append((ticket, (), self._generation, Reason.REQUESTS_OVER_LIMIT))
                else:
                    self._bytes += size
                    self._commits.append((ticket, changes, self._generation, None))
            self._ready.notify()

    def read(self, reads: Sequence[tuple[Ticket, Query]]) -> None:
        """Queue reads."""
        with self._ready:
            for ticket, query in reads:
                has_room = len(self._reads) < READS_MAX
                self._reads.append((ticket, query if has_room else Reason.REQUESTS_OVER_LIMIT))
            self._ready.notify()

    def end(self, *, flush: bool) -> None:
        """Accept no more; with ``flush``, first do what is waiting."""
        with self._ready:
            self._ending = True
            if not flush:
                self._commits.clear()
                self._reads.clear()
            self._ready.notify()

    def _answer(
        self,
        answers: Answers,
        told: VaultOpened | VaultFailed | None,
        is_new_generation: bool,
        is_absent: bool = False,
    ) -> None:
        """Pass the thread's answers to the machine. A vault whose server is absent counts as tried: it may come."""
        if is_new_generation:
            self._runner.answer(())  # take the effects that the machine asked for before it knew of the failure
            self._generation += 1
        self._runner.answer(answers)
        if isinstance(told, VaultFailed):
            self._runner.note(VaultRefused(told.name, told.problem, told.reason))
        elif told is not None and self.tried.done():
            self._runner.note(VaultFound(told.name))
        if told is not None:
            self._runner.hand("tell", 0, self._runner.machine.tell, told)
            if not self.tried.done():
                self.tried.set_result(told.reason if isinstance(told, VaultFailed) and not is_absent else None)

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            self._runner.crash(error)
        if not self.tried.done():
            self.tried.set_result(Reason.VAULT_FAILED)
        self.ended.set()

    # On the thread.

    def _work(self) -> None:
        failure: BaseException | None = None
        try:
            self._open()
            while (waiting := self._take()) is not None:
                commits, reads = waiting
                if commits:
                    self._commit(commits)
                if reads:
                    self._read(reads)
                if commits or reads:
                    self._tidy(busy=True)
                else:
                    self._rest()
        except Exception as error:  # our own bug: all failures of a disk are VaultErrors
            failure = error
        if self._backend is not None:
            self._backend.close()
        self._call(self._end, failure)

    def _take(self) -> tuple[list[Commit], list[tuple[Ticket, Query | Reason]]] | None:
        """What to do next; empty if nothing came for a while, None at the end."""
        with self._ready:
            if not (self._commits or self._reads or self._ending):
                self._ready.wait(self._patience_s())
            if self._ending and not (self._commits or self._reads):
                return None
            count = min(len(self._reads), READS_PER_TURN)
            return self._take_group(), [self._reads.popleft() for _ in range(count)]

    def _take_group(self) -> list[Commit]:
        """Commits for one transaction. A refused one is alone."""
        group: list[Commit] = []
        total = 0
        while self._commits and len(group) < GROUP_COMMITS_MAX:
            _, changes, _, refused = self._commits[0]
            size = sum(map(size_of, changes))
            if group and (refused is not None or total + size > GROUP_BYTES_MAX):
                break
            group.append(self._commits.popleft())
            total += size
            if refused is not None:
                break
        self._bytes -= total
        return group

    def _patience_s(self) -> float | None:
        if self._backend is None:
            return RETRY_S
        return None if self._is_tidy else IDLE_S

    def _rest(self) -> None:
        if self._backend is None:
            if self._refused is None or self._refused.reason in PASSING:
                self._open()
        else:
            self._tidy(busy=False)
            self._is_tidy = True

    def _open(self) -> None:
        name = self._vault.name
        backend: Backend | None = None
        try:
            backend = make_backend(self._vault)
            size = backend.open()
            damaged = backend.check_tail()
        except VaultError as error:
            if backend is not None:
                backend.close()
            before, self._refused = self._refused, error
            if before is None or (before.reason, before.is_absent) != (error.reason, error.is_absent):
                self._call(self._answer, [], VaultFailed(name, error.reason, error.problem), False, error.is_absent)
            return
        self._backend, self._refused = backend, None
        if backend.narrowed:
            self._call(self._runner.note, VaultNarrowed(name))
        self._break(Reason.VAULT_FAILED)  # commits asked for before the machine knew that the vault is open
        self._call(self._answer, [], VaultOpened(name, size, damaged), True)

    def _break(self, reason: Reason) -> None:
        """Fail all commits that are asked for until the next answer, which begins a new generation."""
        self._broken, self._broken_by = self._generations, reason
        self._generations += 1

    def _commit(self, group: list[Commit]) -> None:
        answers: Answers = [
            (ticket, self._broken_by) for ticket, _, generation, _ in group if generation <= self._broken
        ]
        fresh = group[len(answers) :]  # generations never decrease
        if not fresh:
            self._call(self._answer, answers, None, False)
            return
        tickets = [ticket for ticket, *_ in fresh]
        told: VaultFailed | None = None
        try:
            done = self._store(fresh)
        except VaultError as error:
            answers += [(ticket, error.reason) for ticket in tickets]
            told = self._lose(error)
            self._break(error.reason)
            self._call(self._answer, answers, told, True)
        else:
            answers += zip(tickets, done, strict=True)
            self._call(self._answer, answers, None, False)

    def _store(self, fresh: list[Commit]) -> list[Committed]:
        refused = fresh[0][3]
        if refused is not None:
            raise VaultError(refused, "too much waits")
        if self._backend is None:
            assert self._refused is not None
            raise VaultError(self._refused.reason, self._refused.problem)
        self._is_tidy = False
        return self._backend.commit([changes for _, changes, _, _ in fresh])

    def _read(self, reads: list[tuple[Ticket, Query | Reason]]) -> None:
        answers: Answers = []
        told: VaultFailed | None = None
        for ticket, query in reads:
            if isinstance(query, Reason):
                answers.append((ticket, query))
            elif self._backend is None:
                answers.append((ticket, Reason.VAULT_FAILED if self._refused is None else self._refused.reason))
            else:
                try:
                    answers.append((ticket, self._backend.read(query)))
                except VaultError as error:
                    answers.append((ticket, error.reason))
                    if error.reason is not Reason.VAULT_DAMAGED:  # otherwise other reads may still succeed
                        told = self._lose(error)
        self._call(self._answer, answers, told, False)

    def _tidy(self, busy: bool) -> None:
        if self._backend is not None:
            try:
                self._backend.tidy(busy)
            except VaultError as error:
                self._call(self._answer, [], self._lose(error), False)

    def _lose(self, error: VaultError) -> VaultFailed | None:
        """After any failure except a full disk, the vault is opened again. Returns what to tell the machine."""
        if error.reason in (Reason.VAULT_FULL, Reason.REQUESTS_OVER_LIMIT) or self._backend is None:
            return None
        self._backend.close()
        self._backend, self._refused = None, error
        return VaultFailed(self._vault.name, error.reason, error.problem)

    def _call(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            pass  # the loop was closed meanwhile: no machine is waiting
