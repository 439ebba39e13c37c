"""The vault: the requests of a machine to its durable storage, and the answers. Rule 16 of machine.py.

In:    nothing; these are values.
Out:   Vault (declared by a machine's owner), changes for a commit, queries for a read, and the answers to both.
State: none.
Not here: back ends (live/vaults/), the live thread (live/disk.py), the simulated disk (sim/disk.py), stores.

A vault has *logs* and *keys*. A log is a list of runs, each of one or more records; every record has a *position*,
counted from 0, which is never used again. Keys hold small values and are ordered by their UTF-8 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from heliograph.errors import Reason

Position = int
"""The number of a record in its log."""

NAME = re.compile("[A-Za-z0-9_-]{1,40}")
NAME_BYTES_MAX = 512  # of a log's name or a key, in UTF-8
VALUE_BYTES_MAX = 1 << 16  # of a key: larger values belong in a log
RUN_BYTES_MAX = 2 << 20  # the largest frame, and others with it
RUN_RECORDS_MAX = 1 << 20
COMMIT_BYTES_MAX = 16 << 20  # a vault may have to hold this in memory, and to write it at once
CHANGES_MAX = 16_384  # of one commit
READ_BYTES_MAX = 4 << 20  # one answer; a read must not keep commits waiting for long
READ_RUNS_MAX = 1_024  # also of which one answer tells the sizes
SMALL_BYTES_MAX = 1_024  # of a run whose data comes with its size
PAGE_MAX = 1_024  # keys or logs of one answer
TRIM_RUNS_MAX = 1_024  # removed by one Trim; the rest needs another
TRIM_BYTES_MAX = 8 << 20
TAIL_LOGS = 64  # checked when a vault is opened: the logs that were written to last …
TAIL_RUNS = 16  # … and of each the last runs …
TAIL_BYTES = 1 << 20  # … as far as this reaches, and one run in any case
NUMBER_MAX = 1 << 62  # of positions and times (nanoseconds: the year 2116), positive or negative


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """The vault of a machine. A machine has at most one."""

    name: str  # letters, digits, "-" and "_", at most 40: a file or schema is named after it
    place: str = field(default="", repr=False)  # a folder, or postgresql://…; the simulated world has its own places
    bytes_max: int | None = None  # on disk; beyond this the vault is full

    def __post_init__(self) -> None:
        assert NAME.fullmatch(self.name), f"no name for a vault: {self.name!r}"


# The changes of a commit.


class Append(Struct, frozen=True):
    """Add a run to the end of a log, which need not exist yet."""

    log: str
    data: bytes
    count: int  # records in it; each has a position
    first_ns: int  # network time of its first record …
    last_ns: int  # … and of its last


class Put(Struct, frozen=True):
    """Set a key."""

    key: str
    value: bytes


class Delete(Struct, frozen=True):
    """Remove a key, if it exists."""

    key: str


class Trim(Struct, frozen=True):
    """Remove the runs of a log that lie entirely before a position: TRIM_RUNS_MAX or TRIM_BYTES_MAX at once."""

    log: str
    before: Position


class Drop(Struct, frozen=True):
    """Remove a log, its name and its numbering. A long one is trimmed in slices first."""

    log: str


Change = Append | Put | Delete | Trim | Drop


class Log(Struct, frozen=True):
    """What a vault knows about a log. A log that does not exist is empty and begins at 0."""

    name: str
    first: Position = 0  # of the oldest record that is kept; equal to ``next`` if there is none
    next: Position = 0  # the position of the next record
    runs: int = 0
    bytes: int = 0  # of its runs' data
    first_ns: int = 0  # when the oldest run began
    last_ns: int = 0  # the latest time at which any run ended, including removed ones


class Committed(Struct, frozen=True):
    """The result of a commit."""

    positions: tuple[Position, ...] = ()  # per Append, in order: where its run begins
    trimmed: tuple[Log, ...] = ()  # per Trim, in order: what is left


# The queries, and their answers.


class Read(Struct, frozen=True):
    """Runs of a log, from the one that contains ``start``; answered by RunsRead.

    With ``since_ns``, from the first run whose end reaches that time, if it is after ``start``.
    """

    log: str
    start: Position = 0
    since_ns: int | None = None
    bytes_max: int = 1 << 18  # of data; one run is read even if it is larger


class Run(Struct, frozen=True):
    """A run as it was appended, and where it begins."""

    position: Position
    count: int
    first_ns: int
    last_ns: int
    data: bytes

    @property
    def next(self) -> Position:
        """Where the next run begins."""
        return self.position + self.count


class Damage(Struct, frozen=True):
    """Records that were written and cannot be read."""

    position: Position
    count: int
    problem: str

    @property
    def next(self) -> Position:
        """Where the next run or damage begins."""
        return self.position + self.count


class RunsRead(Struct, frozen=True):
    """The result of a Read: runs and damage, without gaps between them, and the log."""

    runs: tuple[Run | Damage, ...]
    log: Log


class Measure(Struct, frozen=True):
    """Sizes of the runs of a log, from the one that contains ``start``; answered by Measured."""

    log: str
    start: Position = 0
    small: int = 0  # bytes: the data of runs that are no larger comes too


class RunSize(Struct, frozen=True):
    """How large a run is. It is not read, so it may be damaged."""

    position: Position
    count: int
    size: int
    data: bytes = b""  # of a small run

    @property
    def next(self) -> Position:
        """Where the next run begins."""
        return self.position + self.count


class Measured(Struct, frozen=True):
    """The result of a Measure: at most READ_RUNS_MAX runs, and the log."""

    runs: tuple[RunSize, ...]
    log: Log


class ReadKeys(Struct, frozen=True):
    """Keys that begin with ``prefix`` and come after ``after``, in order, at most PAGE_MAX; answered by KeysRead."""

    prefix: str = ""
    after: str | None = None
    bytes_max: int = 1 << 18  # of keys and values; one is read even if it is larger


class KeysRead(Struct, frozen=True):
    """The result of a ReadKeys. ``more``: ask again after the last one."""

    pairs: tuple[tuple[str, bytes | None], ...]  # None: the value is damaged
    more: bool


class ReadLogs(Struct, frozen=True):
    """Logs whose names begin with ``prefix`` and come after ``after``, in order; answered by LogsRead."""

    prefix: str = ""
    after: str | None = None
    count_max: int = PAGE_MAX


class LogsRead(Struct, frozen=True):
    """The result of a ReadLogs. ``more``: ask again after the last one."""

    logs: tuple[Log, ...]
    more: bool


Query = Read | Measure | ReadKeys | ReadLogs
Found = RunsRead | Measured | KeysRead | LogsRead


# What a machine is told.


class TailDamage(Struct, frozen=True):
    """Records at the end of a log that cannot be read, found when the vault was opened. They keep their positions."""

    log: str
    position: Position
    count: int
    problem: str


class VaultOpened(Struct, frozen=True):
    """The vault can be used from now on. Its content has to be read, even if the machine knew it before."""

    name: str
    bytes: int  # its size on disk
    damaged: tuple[TailDamage, ...] = ()  # what is wrong with the ends of its logs


class VaultFailed(Struct, frozen=True):
    """The vault could not be opened, or was lost: all requests fail until VaultOpened comes."""

    name: str
    reason: Reason
    problem: str


def size_of(change: Change) -> int:
    """The size of a change, as counted against COMMIT_BYTES_MAX."""
    if isinstance(change, Append):
        return len(change.data)
    return len(change.value) if isinstance(change, Put) else 0


def fitting(sizes: Sequence[int], bytes_max: int) -> int:
    """How many of these fit into one answer; at least one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > bytes_max:
            return max(count, 1)
    return len(sizes)


def check_changes(changes: Sequence[Change]) -> None:
    """Assert that a commit keeps the limits; if not, the machine has a bug."""
    assert 0 < len(changes) <= CHANGES_MAX, f"a commit of {len(changes)} changes"
    assert sum(map(size_of, changes)) <= COMMIT_BYTES_MAX, "a commit is too large"
    for change in changes:
        if isinstance(change, Put | Delete):
            _check_name(change.key)
            assert isinstance(change, Delete) or len(change.value) <= VALUE_BYTES_MAX, f"{change.key}: too large"
            continue
        _check_name(change.log)
        if isinstance(change, Append):
            assert 0 < change.count <= RUN_RECORDS_MAX, f"{change.log}: a run of {change.count} records"
            assert len(change.data) <= RUN_BYTES_MAX, f"{change.log}: a run of {len(change.data)} bytes"
            assert abs(change.first_ns) < NUMBER_MAX > abs(change.last_ns), f"{change.log}: a run out of all time"
        elif isinstance(change, Trim):
            assert abs(change.before) < NUMBER_MAX, f"{change.log}: position {change.before}"


def check_query(query: Query) -> None:
    """The same for a query."""
    if isinstance(query, ReadLogs):
        assert 0 < query.count_max <= PAGE_MAX, f"{query.count_max} logs at once"
    elif isinstance(query, Measure):
        _check_name(query.log)
        assert 0 <= query.start < NUMBER_MAX, f"{query.log}: position {query.start}"
        assert 0 <= query.small <= SMALL_BYTES_MAX, f"{query.log}: runs of {query.small} bytes"
    else:
        assert 0 < query.bytes_max <= READ_BYTES_MAX, f"{query.bytes_max} bytes at once"
    if isinstance(query, Read):
        _check_name(query.log)
        assert 0 <= query.start < NUMBER_MAX, f"{query.log}: position {query.start}"
        assert query.since_ns is None or abs(query.since_ns) < NUMBER_MAX, f"{query.log}: time {query.since_ns}"


def _check_name(name: str) -> None:
    assert 0 < len(name.encode()) <= NAME_BYTES_MAX, f"a name of {len(name)} characters"
