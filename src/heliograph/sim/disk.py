"""Simulated vaults: their contents outlive the host that uses them.

In:    commits and reads of machines; crashes of hosts; effects of faults on disks.
Out:   ``done`` and ``failed``, with delays drawn from the seed; VaultOpened and VaultFailed.
State: per host and vault: logs, keys, and the commits that are under way.
Not here: real files and databases (live/vaults/), when faults strike (disk_faults.py).

Commits that were asked for together finish together. When a host crashes, the seed draws how many of the commits under
way have survived at its next start: the first few of them, each complete.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from random import Random

from heliograph.errors import Reason
from heliograph.machine import Instant, Ticket
from heliograph.notes import VaultRefused
from heliograph.sim.inputs import HostInputs
from heliograph.sim.journal import Journal
from heliograph.sim.loop import MILLISECOND, Loop
from heliograph.sim.seat import Seat
from heliograph.vault import (
    PAGE_MAX,
    READ_RUNS_MAX,
    TAIL_BYTES,
    TAIL_LOGS,
    TAIL_RUNS,
    TRIM_BYTES_MAX,
    TRIM_RUNS_MAX,
    Append,
    Change,
    Committed,
    Damage,
    Delete,
    Drop,
    Found,
    KeysRead,
    Log,
    LogsRead,
    Measure,
    Measured,
    Position,
    Put,
    Query,
    Read,
    ReadKeys,
    ReadLogs,
    Run,
    RunSize,
    RunsRead,
    TailDamage,
    Trim,
    Vault,
    VaultFailed,
    VaultOpened,
    fitting,
    size_of,
)

COMMITS_MAX = 65_536  # under way at one disk, as in the live driver

Damaged = tuple[str, Position, int]
"""A log, a position in it, and a number of records."""


class Logged:
    """A log: its runs, in order."""

    __slots__ = ("begins", "bytes", "damaged", "first", "last_ns", "next", "reached", "runs")

    def __init__(self) -> None:
        self.begins: list[Position] = []
        self.runs: list[Run] = []
        self.reached: list[int] = []  # per run: the latest time up to it
        self.damaged: dict[Position, None] = {}
        self.first = self.next = self.bytes = self.last_ns = 0

    def append(self, change: Append) -> Position:
        """Add a run."""
        position = self.next
        self.last_ns = max(self.last_ns, change.last_ns) if position else change.last_ns
        self.begins.append(position)
        self.runs.append(Run(position, change.count, change.first_ns, change.last_ns, change.data))
        self.reached.append(self.last_ns)
        self.next += change.count
        self.bytes += len(change.data)
        return position

    def trim(self, before: Position) -> int:
        """Forget runs, as many as one Trim may; returns the bytes freed."""
        gone = size = 0
        for run in self.runs[:TRIM_RUNS_MAX]:
            if run.next > before or (gone and size + len(run.data) > TRIM_BYTES_MAX):
                break
            gone, size = gone + 1, size + len(run.data)
        if gone:
            self.first = self.runs[gone - 1].next
            for run in self.runs[:gone]:
                self.damaged.pop(run.position, None)
            del self.begins[:gone], self.runs[:gone], self.reached[:gone]
            self.bytes -= size
        return size

    def read(self, query: Read) -> tuple[Run | Damage, ...]:
        """Runs from a position or time on."""
        at = max(0, bisect_right(self.begins, query.start) - 1)
        if query.since_ns is not None:
            at = max(at, bisect_left(self.reached, query.since_ns))
        if query.start >= self.next:
            return ()
        runs = self.runs[at : at + READ_RUNS_MAX]
        count = fitting([len(run.data) for run in runs], query.bytes_max)
        return tuple(
            Damage(run.position, run.count, "checksum wrong") if run.position in self.damaged else run
            for run in runs[:count]
        )

    def measure(self, query: Measure) -> tuple[RunSize, ...]:
        """Sizes of runs from a position on."""
        at = max(0, bisect_right(self.begins, query.start) - 1)
        return tuple(
            RunSize(run.position, run.count, len(run.data), run.data if len(run.data) <= query.small else b"")
            for run in self.runs[at : at + READ_RUNS_MAX]
            if run.next > query.start
        )

    def damaged_tail(self) -> list[Run]:
        """The damaged ones of the last runs."""
        last = self.runs[: -TAIL_RUNS - 1 : -1]
        count = fitting([len(run.data) for run in last], TAIL_BYTES)
        return [run for run in reversed(last[:count]) if run.position in self.damaged]

    def describe(self, name: str) -> Log:
        """Its description in answers."""
        first_ns = self.runs[0].first_ns if self.runs else 0
        return Log(name, self.first, self.next, len(self.runs), self.bytes, first_ns, self.last_ns)


class Contents:
    """The contents of a vault."""

    def __init__(self) -> None:
        self.logs: dict[str, Logged] = {}
        self.keys: dict[str, bytes] = {}
        self.damaged_keys: dict[str, None] = {}
        self.bytes = 0  # of runs and values

    def commit(self, changes: Sequence[Change]) -> Committed:
        """Make all of these changes."""
        positions: list[Position] = []
        trimmed: list[Log] = []
        for change in changes:
            if isinstance(change, Append):
                positions.append(self.logs.setdefault(change.log, Logged()).append(change))
                self.bytes += len(change.data)
            elif isinstance(change, Trim):
                log = self.logs.get(change.log, Logged())
                self.bytes -= log.trim(change.before)
                trimmed.append(log.describe(change.log))
            elif isinstance(change, Drop):
                self.bytes -= self.logs.pop(change.log, Logged()).bytes
            else:
                self._set(change)
        return Committed(tuple(positions), tuple(trimmed))

    def _set(self, change: Put | Delete) -> None:
        self.bytes -= len(self.keys.pop(change.key, b""))
        self.damaged_keys.pop(change.key, None)
        if isinstance(change, Put):
            self.keys[change.key] = change.value
            self.bytes += len(change.value)

    def check_tail(self) -> tuple[TailDamage, ...]:
        """Damage among the last runs of the logs that were written to last."""
        last = sorted(self.logs.items(), key=lambda pair: -pair[1].last_ns)[:TAIL_LOGS]
        return tuple(
            TailDamage(name, run.position, run.count, "checksum wrong")
            for name, log in last
            for run in log.damaged_tail()
        )

    def find(self, query: Query) -> Found:
        """Answer a query."""
        if isinstance(query, Read):
            log = self.logs.get(query.log, Logged())
            return RunsRead(log.read(query), log.describe(query.log))
        if isinstance(query, Measure):
            log = self.logs.get(query.log, Logged())
            return Measured(log.measure(query), log.describe(query.log))
        if isinstance(query, ReadKeys):
            names = _page(self.keys, query.prefix, query.after)
            sizes = [len(name.encode()) + len(self.keys[name]) for name in names[:PAGE_MAX]]
            count = fitting(sizes, query.bytes_max)
            pairs = tuple((n, None if n in self.damaged_keys else self.keys[n]) for n in names[:count])
            return KeysRead(pairs, len(names) > count)
        return self._read_logs(query)

    def _read_logs(self, query: ReadLogs) -> LogsRead:
        names = _page(self.logs, query.prefix, query.after)
        logs = tuple(self.logs[name].describe(name) for name in names[: query.count_max])
        return LogsRead(logs, len(names) > query.count_max)


class SimulatedDisk:
    """One vault of one host."""

    def __init__(self, host: str, vault: Vault) -> None:
        self.host = host
        self.vault = vault
        self.contents = Contents()
        self.seat: Seat | None = None  # the machine that has it open
        self.waiting: deque[tuple[Ticket, Sequence[Change], int]] = deque()  # commits under way, with their generations
        self.free_at = 0
        self.refused: VaultFailed | None = None  # why it cannot be opened
        self.full = 0  # active faults that make it full
        self.slow = 1.0  # the factor by which everything takes longer
        self.torn = False  # the next crash leaves a torn record
        self.generation = self.generations = 0  # as in live/disk.py
        self.broken = -1
        self.broken_by = Reason.VAULT_FULL

    def fill(self) -> None:
        """A fault: nothing more fits, until ``make_room`` has been called as often."""
        self.full += 1

    def make_room(self) -> None:
        """That fault is over."""
        self.full -= 1

    def slow_down(self, factor: float) -> None:
        """Everything takes this many times as long."""
        self.slow *= factor

    def speed_up(self, factor: float) -> None:
        """End a slowdown."""
        self.slow /= factor

    def tear(self) -> None:
        """The next crash damages the last record."""
        self.torn = True

    def fits(self, changes: Sequence[Change]) -> bool:
        """True if there is room. Changes that need none always fit."""
        size = sum(map(size_of, changes))
        limit = self.vault.bytes_max
        return not size or not (self.full or (limit is not None and self.contents.bytes + size > limit))

    def flip(self, draw: float) -> Damaged | None:
        """Damage a run chosen by ``draw``."""
        runs = [(name, run) for name, log in self.contents.logs.items() for run in log.runs]
        return self._damage(*runs[int(draw * len(runs))]) if runs else None

    def _damage(self, log: str, run: Run) -> Damaged:
        self.contents.logs[log].damaged[run.position] = None
        return log, run.position, run.count

    def crash(self, draw: float) -> Damaged | None:
        """The host is gone: some of the commits under way survive, the rest do not. Returns the torn run, if any."""
        waiting = self._fresh()
        made = self._make(waiting[: max(int(draw * (len(waiting) + 1)), self.torn)])
        written = [change.log for change in made if isinstance(change, Append)]
        log = self.contents.logs.get(written[-1]) if written else None
        torn = self._damage(written[-1], log.runs[-1]) if self.torn and log is not None and log.runs else None
        self._let_go()
        return torn

    def stop(self) -> None:
        """The host ends in an orderly way: commits under way are finished."""
        self._make(self._fresh())
        self._let_go()

    def _fresh(self) -> list[Sequence[Change]]:
        return [changes for _, changes, generation in self.waiting if generation > self.broken]

    def _make(self, commits: list[Sequence[Change]]) -> Sequence[Change]:
        """Commit these, as far as there is room; returns the last one made."""
        made: Sequence[Change] = ()
        for changes in commits:
            if not self.fits(changes):
                break
            self.contents.commit(changes)
            made = changes
        return made

    def _let_go(self) -> None:
        self.waiting.clear()
        self.seat, self.torn = None, False
        self.free_at = self.generation = self.generations = 0
        self.broken = -1


class SimulatedDisks:
    """All vaults of a world."""

    def __init__(self, loop: Loop, journal: Journal, random: Random, disk_ms: float) -> None:
        self.all: dict[tuple[str, str], SimulatedDisk] = {}  # host and vault
        self._loop = loop
        self._journal = journal
        self._lasts_ns = disk_ms * MILLISECOND
        self._draw = random.random
        self._declared: dict[Seat, SimulatedDisk] = {}  # vaults that machines declared …
        self._open: dict[Seat, SimulatedDisk] = {}  # … and those that could be opened

    def of(self, host: HostInputs) -> list[SimulatedDisk]:
        """The disks of a host, even while it is down."""
        return [disk for (name, _), disk in self.all.items() if name == host.name]

    def open(self, host: HostInputs, seat: Seat, vault: Vault) -> None:
        """Open a machine's vault, new or with its earlier contents, and tell the machine."""
        disk = self.all.setdefault((host.name, vault.name), SimulatedDisk(host.name, vault))
        self._declared[seat] = disk
        if disk.refused is not None:
            refused = disk.refused
            self._journal.write("note", host.name, VaultRefused(vault.name, refused.problem, refused.reason))
            host.tell(seat, refused)
            return
        assert disk.seat is None, f"two machines of {host.name} have the vault {vault.name}"
        disk.seat, disk.vault = seat, vault
        self._open[seat] = disk
        host.tell(seat, VaultOpened(vault.name, disk.contents.bytes, disk.contents.check_tail()))

    def wipe(self, host: HostInputs) -> None:
        """Give the host new, empty disks for its next start."""
        assert not host.up
        for disk in self.of(host):
            del self.all[disk.host, disk.vault.name]

    def crash(self, host: HostInputs) -> None:
        """A host loses its memory."""
        for disk in self.of(host):
            self._tell_damage(disk, disk.crash(self._draw()))
        self._forget(host)

    def flip(self, host: HostInputs, draw: float) -> None:
        """Damage a run on each disk of a host."""
        for disk in self.of(host):
            self._tell_damage(disk, disk.flip(draw))

    def _tell_damage(self, disk: SimulatedDisk, damaged: Damaged | None) -> None:
        if damaged is not None:
            self._journal.write("damaged", disk.host, disk.vault.name, *damaged)

    def stop(self, host: HostInputs) -> None:
        """A host ends in an orderly way."""
        for disk in self.of(host):
            disk.stop()
        self._forget(host)

    def _forget(self, host: HostInputs) -> None:
        for seat in host.seats:
            self._open.pop(seat, None)
            self._declared.pop(seat, None)

    # Called for machines.

    def commit(
        self, host: HostInputs, seat: Seat, commits: Sequence[tuple[Ticket, Sequence[Change]]], instant: int
    ) -> None:
        """Make commits that were asked for together."""
        disk = self._open.get(seat)
        if disk is None:
            self._refuse(host, seat, [ticket for ticket, _ in commits], instant)
            return
        assert len(disk.waiting) + len(commits) <= COMMITS_MAX, f"{disk.host}: too many commits are under way"
        disk.waiting.extend((ticket, changes, disk.generation) for ticket, changes in commits)
        disk.free_at = max(disk.free_at, instant) + self._lasts(disk)
        self._loop.at(disk.free_at, self._finish, (host, disk, seat, len(commits)))

    def _finish(self, finished: tuple[HostInputs, SimulatedDisk, Seat, int], _instant: int) -> None:
        host, disk, seat, count = finished
        if seat.gone:
            return
        for _ in range(count):
            ticket, changes, generation = disk.waiting.popleft()
            if generation <= disk.broken:
                host.fail(seat, ticket, disk.broken_by)
            elif disk.fits(changes):
                host.finish_job(seat, ticket, disk.contents.commit(changes))
            else:
                disk.broken = disk.generations
                disk.generations += 1
                host.offer(self._failed, seat, (host, disk, ticket))

    def _failed(self, seat: Seat, detail: tuple[HostInputs, SimulatedDisk, Ticket], now: Instant) -> None:
        """The machine is told of the first failed commit. What it asked for before belongs to the old generation."""
        host, disk, ticket = detail
        host.settle(seat, now)
        disk.generation += 1
        seat.fail((ticket, disk.broken_by), now)

    def read(self, host: HostInputs, seat: Seat, reads: Sequence[tuple[Ticket, Query]], instant: int) -> None:
        """Make reads, each with a drawn delay."""
        disk = self._open.get(seat)
        if disk is None:
            self._refuse(host, seat, [ticket for ticket, _ in reads], instant)
            return
        for ticket, query in reads:
            self._loop.at(instant + self._lasts(disk), self._find, (host, disk, seat, ticket, query))

    def _find(self, asked: tuple[HostInputs, SimulatedDisk, Seat, Ticket, Query], _instant: int) -> None:
        host, disk, seat, ticket, query = asked
        if not seat.gone:
            host.finish_job(seat, ticket, disk.contents.find(query))

    def _lasts(self, disk: SimulatedDisk) -> int:
        return 1 + int(self._lasts_ns * disk.slow * self._draw())

    def _refuse(self, host: HostInputs, seat: Seat, tickets: Sequence[Ticket], instant: int) -> None:
        """Refuse: there is no vault, or it is not open."""
        disk = self._declared.get(seat)
        reason = Reason.VAULT_MISSING if disk is None or disk.refused is None else disk.refused.reason
        for ticket in tickets:
            self._loop.at(instant, self._fail, (host, seat, ticket, reason))

    def _fail(self, refused: tuple[HostInputs, Seat, Ticket, Reason], _instant: int) -> None:
        host, seat, ticket, reason = refused
        if not seat.gone:
            host.fail(seat, ticket, reason)


def _page(names: dict[str, bytes] | dict[str, Logged], prefix: str, after: str | None) -> list[str]:
    """Names with a prefix, in order, after one of them. Python orders text as UTF-8 does."""
    return sorted(name for name in names if name.startswith(prefix) and (after is None or name > after))
