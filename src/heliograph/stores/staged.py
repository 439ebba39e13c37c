"""Staged parts: the logs in which batches are staged, how `main` refers to them, and when they are forgotten.

In:    the parts of a batch and where they are in `main`; the position at which `main` begins; time.
Out:   names of logs; changes to the vault; logs removed that nothing will read.
State: which part is looked at, which batch is removed; commits that ended.
Not here: commits (batches.py), reading through a reference (references.py), room for what is staged (staging.py).

For each part that is visible the vault has a key with the name of its log: it says which batch was committed, by what,
and where that batch ends. So a repeat is recognised although the publisher is forgotten, and a part is removed once
retention has removed everything that refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Timers
from heliograph.stores.batch_publishers import BatchKey, BatchPublishers
from heliograph.stores.staging import STAGED, Part, Staging
from heliograph.stores.tail import Tail
from heliograph.stores.vault_calls import Unanswered, VaultCalls
from heliograph.vault import Change, Committed, Delete, Drop, KeysRead, Log, LogsRead, Put, ReadKeys, ReadLogs, Trim
from heliograph.wire.stores import NUMBER_MAX, check_name

REFERRED = "r/"
SWEEP_NS = 60_000_000_000
STALE_NS = 7 * 86_400_000_000_000  # a batch that was not committed for a week is forgotten
SLICE_NS = 20_000_000  # between two commits that remove parts
DROPPED_RUNS_MAX = 512  # of one commit; a longer log is trimmed in slices


class PartState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the vault keeps of a visible part."""

    position: int  # where its batch begins in `main` …
    until: int  # … and where it ends, at the latest
    query: str | None = None  # as in BatchState
    owner: str = ""  # the hash of the proof of its publisher, if that has no credentials


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PartState).decode


def log_of_part(key: BatchKey, batch: int, part: str) -> str:
    """The log in which a part is staged. ProtocolError if its names are invalid."""
    check_name(key[1])
    check_name(part)
    if not 0 <= batch <= NUMBER_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, "a batch number is not negative, and has at most 62 bits")
    return f"{prefix_of(key, batch)}{part}"


def prefix_of(key: BatchKey, batch: int) -> str:
    """What the logs of a batch begin with."""
    return f"{STAGED}{key[0]}/{key[1]}/{batch:020d}/"


def part_state(value: bytes | None) -> PartState | None:
    """What the vault keeps of a part; None if an older store wrote it, which did not say."""
    try:
        return _decode(value or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def referred(log: str, state: PartState) -> Put:
    """The change that keeps a part while `main` refers to it."""
    return Put(f"{REFERRED}{log}", _encode(state))


def dropped(logs: Iterable[Log]) -> list[Change]:
    """Changes that remove the first of these logs, as many as one commit should."""
    changes: list[Change] = []
    runs = 0
    for log in logs:
        runs += max(1, log.runs)
        if runs > DROPPED_RUNS_MAX:
            break
        changes.append(Drop(log.name))
    return changes


class StagedParts:
    """Forgets parts that nothing will read."""

    def __init__(
        self,
        vault: VaultCalls,
        timers: Timers,
        tail: Tail,
        publishers: BatchPublishers,
        staging: Staging,
        wall: Callable[[Instant], int],
    ) -> None:
        self._vault = vault
        self._timers = timers
        self._tail = tail
        self._publishers = publishers
        self._staging = staging
        self._wall = wall
        self._commits = 0
        self._is_removing = False

    def start(self, now: Instant) -> None:
        """The vault is open."""
        self._is_removing = False
        self._timers.set("staged", now + SWEEP_NS, lambda at: self._sweep(None, at))

    def committed(self, prefix: str, named: Iterable[str]) -> None:
        """A batch has become visible: what was read before that says nothing about it. Other parts are removed."""
        self._commits += 1
        batch = self._staging.finish(prefix)
        if batch is not None:
            for part in named:
                batch.parts.pop(f"{prefix}{part}", None)
            self._staging.leaving.append((prefix, batch))
            self.remove()

    # -- at the start -------------------------------------------------------------------------------------------

    def load(self, loaded: Callable[[Instant], None], unread: Unanswered, after: str | None = None) -> None:
        """Tell the staging of all parts to which `main` does not refer."""

        def answered(found: LogsRead, now: Instant) -> None:
            if found.logs:
                begin = None if after is None else f"{REFERRED}{after}"
                self._load_unreferred(found, {}, begin, loaded, unread)
            else:
                loaded(now)

        self._vault.read(ReadLogs(STAGED, after), answered, unread)

    def _load_unreferred(
        self,
        logs: LogsRead,
        referred: dict[str, None],
        after: str | None,
        loaded: Callable[[Instant], None],
        unread: Unanswered,
    ) -> None:
        last = logs.logs[-1].name

        def answered(found: KeysRead, now: Instant) -> None:
            referred.update((key.removeprefix(REFERRED), None) for key, _ in found.pairs)
            if found.more and found.pairs[-1][0] < f"{REFERRED}{last}":
                self._load_unreferred(logs, referred, found.pairs[-1][0], loaded, unread)
                return
            for log in logs.logs:
                if log.name not in referred:
                    self._staging.load(log)
            if logs.more:
                self.load(loaded, unread, last)
            else:
                loaded(now)

        self._vault.read(ReadKeys(f"{REFERRED}{STAGED}", after), answered, unread)

    # -- removing what gave way -----------------------------------------------------------------------------------

    def remove(self) -> None:
        """Remove the logs of batches that gave way, or that commits did not name; a slice at a time."""
        if self._staging.leaving and not self._is_removing:
            self._is_removing = True
            prefix, batch = self._staging.leaving.pop(0)
            self._find_referred(prefix, batch.parts, None)

    def _find_referred(self, prefix: str, parts: dict[str, Part], after: str | None) -> None:
        """Parts to which `main` refers stay, and what was added to them counts as a part of it."""

        def answered(found: KeysRead, now: Instant) -> None:
            for key, _ in found.pairs:
                part = parts.pop(key.removeprefix(REFERRED), None)
                if part is not None:
                    self._tail.refer(part.bytes + sum(part.pending.values()))
            if found.more:
                self._find_referred(prefix, parts, found.pairs[-1][0])
            else:
                self._remove_next(parts, now)

        self._vault.read(ReadKeys(f"{REFERRED}{prefix}", after), answered, self._not_removed)

    def _remove_next(self, parts: dict[str, Part], now: Instant) -> None:
        changes: list[Change] = []
        runs = 0
        while parts:
            log = next(reversed(parts))
            runs += max(1, parts[log].runs)
            if runs > DROPPED_RUNS_MAX:
                break
            del parts[log]
            changes.append(Drop(log))

        def answered(committed: Committed, now: Instant) -> None:
            for log in committed.trimmed:
                parts[log.name].trimmed(log.runs)
            if parts:
                self._timers.set("removing", now + SLICE_NS, lambda at: self._remove_next(parts, at))
            else:
                self._is_removing = False
                self.remove()

        if not changes and parts:
            changes.append(Trim(next(reversed(parts)), NUMBER_MAX))
        if changes:
            self._vault.commit(changes, answered, self._not_removed)
        else:
            self._is_removing = False
            self.remove()

    def _not_removed(self, reason: Reason, now: Instant) -> None:
        """What is left is found when the vault is opened again, or after a week."""
        self._is_removing = False

    # -- looking for what nothing reads ---------------------------------------------------------------------------

    def _sweep(self, after: str | None, now: Instant) -> None:
        """Check the staged logs one after another, and delete those that will not be read."""

        def answered(found: LogsRead, now: Instant) -> None:
            for log in found.logs:
                self._look(log, now)
            last = found.logs[-1].name if found.more else None
            wait = SWEEP_NS // 600 if found.more else SWEEP_NS
            self._timers.set("staged", now + wait, lambda at: self._sweep(last, at))

        self._vault.read(ReadLogs(STAGED, after, 1), answered, lambda reason, now: None)

    def _look(self, log: Log, now: Instant) -> None:
        entity, publisher, batch, _ = log.name.removeprefix(STAGED).split("/", 3)
        visible = self._publishers.get((entity, publisher))
        is_over = visible is not None and int(batch) <= visible.batch
        is_unwanted = is_over or self._wall(now) - log.last_ns > STALE_NS
        key, commits = f"{REFERRED}{log.name}", self._commits

        def answered(found: KeysRead, now: Instant) -> None:
            values = dict(found.pairs)
            if key not in values:
                if is_unwanted and commits == self._commits:
                    self._forget(log)
                    self._staging.removed(log.name)
                return
            state = part_state(values[key])
            if state is None:  # of an older store: everything that is visible now ends before the end of `main`
                self._commit([referred(log.name, PartState(0, self._tail.log.next + self._vault.adding))])
            elif self._tail.log.first >= state.until:
                self._forget(log)

        self._vault.read(ReadKeys(key), answered, lambda reason, now: None)

    def _forget(self, log: Log) -> None:
        if log.runs <= DROPPED_RUNS_MAX:
            self._commit([Drop(log.name), Delete(f"{REFERRED}{log.name}")])
        else:
            self._commit([Trim(log.name, log.next)])

    def _commit(self, changes: list[Change]) -> None:
        self._vault.commit(changes, lambda _, now: None, lambda reason, now: None)
