"""Batches: publications that are staged in parts, and become visible by one commit.

In:    staged publications; requests to commit; the vault's content.
Out:   the log in which a part is staged; a commit that refers to the parts; answers.
State: the last visible batch of each publisher (bounded), commits in progress.
Not here: accepting staged publications (intake.py), reading through a reference (channels.py).

A part is a separate log. A commit adds to `main` one run for each part; the run takes as many positions as the part has
publications, and names its log. So batches of any size become visible at once. A publisher's name belongs to an entity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Timers
from heliograph.stores.references import refer
from heliograph.stores.tail import Tail
from heliograph.stores.vault_calls import VaultCalls
from heliograph.vault import (
    RUN_RECORDS_MAX,
    Append,
    Change,
    Committed,
    Delete,
    Drop,
    Log,
    LogsRead,
    Put,
    ReadKeys,
    ReadLogs,
    Run,
    Trim,
)
from heliograph.wire.stores import MAIN, NUMBER_MAX, CommitBatch, RequestDone, check_name

COMMITS = "c/"
STAGED = "b/"
REFERRED = "r/"
PUBLISHERS_MAX = 10_000
SWEEP_NS = 60_000_000_000
STALE_NS = 7 * 86_400_000_000_000  # a batch that was not committed for a week is forgotten

BatchKey = tuple[str, str]  # entity, publisher
Answered = Callable[[RequestDone], None]
Refused = Callable[[Reason, str], None]


class BatchState(msgspec.Struct, frozen=True):
    """The last visible batch of a publisher, as the vault keeps it."""

    batch: int
    position: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BatchState).decode


@dataclass(frozen=True, slots=True)
class _WaitingCommit:
    """A commit that a publisher waits for."""

    request: CommitBatch
    answered: Answered
    refused: Refused


class Batches:
    """All batches of a store."""

    def __init__(
        self,
        vault: VaultCalls,
        timers: Timers,
        tail: Tail,
        grown: Callable[[list[Run], Instant], None],
        wall: Callable[[Instant], int],
    ) -> None:
        self._vault = vault
        self._timers = timers
        self._tail = tail
        self._grown = grown
        self._wall = wall
        self._visible: dict[BatchKey, BatchState] = {}
        self._under_way: dict[
            BatchKey, list[_WaitingCommit]
        ] = {}  # the first is being committed, the others wait for it

    def clear(self) -> None:
        """The vault is read again; publishers that wait get a time-out."""
        self._visible.clear()
        self._under_way.clear()

    def load(self, key: str, value: bytes | None) -> None:
        """A key and value of the vault."""
        entity, _, publisher = key.removeprefix(COMMITS).partition("/")
        try:
            self._visible[(entity, publisher)] = _decode(value or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return

    def start(self, now: Instant) -> None:
        """The vault is open."""
        self._timers.set("batches", now + SWEEP_NS, lambda at: self._sweep(None, at))

    def log_of(self, entity: str, publisher: str, batch: int, part: str) -> str | None:
        """The log in which a publication is staged; None: its batch is already visible, and the publication is dropped.

        ProtocolError if its names are invalid.
        """
        check_name(publisher)
        check_name(part)
        if not 0 <= batch <= NUMBER_MAX:
            raise ProtocolError(Reason.BODY_MALFORMED, "a batch number is not negative, and has at most 62 bits")
        visible = self._visible.get((entity, publisher))
        if visible is not None and batch <= visible.batch:
            return None
        return f"{_prefix((entity, publisher), batch)}{part}"

    # -- committing -----------------------------------------------------------------------------------------------

    def commit(self, entity: str, request: CommitBatch, answered: Answered, refused: Refused) -> None:
        """Make a batch visible, unless it or a later one already is."""
        key = (entity, request.publisher)
        asked = _WaitingCommit(request, answered, refused)
        if key in self._under_way:
            if len(self._under_way[key]) >= 64:
                refused(Reason.BATCHES_OVER_LIMIT, "too many commits of this publisher wait")
            else:
                self._under_way[key].append(asked)
            return
        if key not in self._visible and len(self._visible) >= PUBLISHERS_MAX:
            refused(Reason.BATCHES_OVER_LIMIT, f"this store knows {PUBLISHERS_MAX} publishers of batches")
            return
        free = PUBLISHERS_MAX - len(self._visible)
        if key not in self._visible and (has := sum(known == entity for known, _ in self._visible)) >= free:
            text = f"{entity} has {has} publishers of batches here, and {free} places are left: they are for others"
            refused(Reason.BATCHES_OVER_LIMIT, text)
            return
        self._begin(key, asked)

    def _begin(self, key: BatchKey, asked: _WaitingCommit) -> None:
        visible = self._visible.get(key)
        if visible is not None and asked.request.batch <= visible.batch:
            asked.answered(RequestDone(batch=visible.batch, position=visible.position, repeated=True))
            return
        self._under_way.setdefault(key, [asked])
        self._read_parts(key, asked, {}, None)

    def _read_parts(self, key: BatchKey, asked: _WaitingCommit, found: dict[str, Log], after: str | None) -> None:
        prefix = _prefix(key, asked.request.batch)

        def answered(page: LogsRead, now: Instant) -> None:
            found.update({log.name.removeprefix(prefix): log for log in page.logs})
            if page.more:
                self._read_parts(key, asked, found, page.logs[-1].name)
            else:
                self._refer(key, asked, found, now)

        self._vault.read(
            ReadLogs(prefix, after),
            answered,
            lambda reason, now: self._fail(key, asked, reason, ""),
            lambda now: self._fail(key, asked, Reason.INTERNAL_ERROR, ""),
        )

    def _refer(self, key: BatchKey, asked: _WaitingCommit, found: dict[str, Log], now: Instant) -> None:
        request = asked.request
        wall = self._wall(now)
        changes: list[Change] = []
        begin = self._tail.log.next + self._vault.adding  # behind what is being committed
        for part, count in dict(request.parts).items():
            log = found.get(part, Log(part))
            if log.next - log.first != count:
                text = f"part {part} has {log.next - log.first} of {count} publications"
                self._fail(key, asked, Reason.BATCH_INCOMPLETE, text)
                return
            for start in range(log.first, log.next, RUN_RECORDS_MAX):
                runs = min(RUN_RECORDS_MAX, log.next - start)
                changes.append(Append(MAIN, refer(log.name, start), runs, wall, wall))
            if count:
                changes.append(Put(f"{REFERRED}{log.name}", b""))
        appends = [change for change in changes if isinstance(change, Append)]

        def answered(committed: Committed, now: Instant) -> None:
            position = committed.positions[0] if committed.positions else begin
            self._visible[key] = BatchState(request.batch, position)
            if position != begin:
                self._keep(key)
            self._grown(
                [
                    Run(at, change.count, wall, wall, change.data)
                    for at, change in zip(committed.positions, appends, strict=True)
                ],
                now,
            )
            asked.answered(RequestDone(batch=request.batch, position=position))
            self._end(key)

        state = BatchState(request.batch, begin)
        self._vault.commit(
            [*changes, _put(key, state)],
            answered,
            lambda reason, now: self._fail(key, asked, reason, ""),
        )

    def _keep(self, key: BatchKey) -> None:
        """A batch begins elsewhere than expected: keep its position as it is told."""
        self._vault.commit([_put(key, self._visible[key])], lambda _, now: None, lambda reason, now: None)

    def _fail(self, key: BatchKey, asked: _WaitingCommit, reason: Reason, text: str) -> None:
        asked.refused(reason, text)
        self._end(key)

    def _end(self, key: BatchKey) -> None:
        """A commit was answered: begin the publisher's next one."""
        waiting = self._under_way.pop(key, [])[1:]
        while waiting and key not in self._under_way:
            asked = waiting.pop(0)
            self._begin(key, asked)
        if waiting:
            self._under_way[key].extend(waiting)

    # -- forgetting -----------------------------------------------------------------------------------------------

    def _sweep(self, after: str | None, now: Instant) -> None:
        """Check the staged logs one after another, and delete those that will not be read."""

        def answered(found: LogsRead, now: Instant) -> None:
            for log in found.logs:
                self._look(log, now)
            last = found.logs[-1].name if found.more else None
            wait = SWEEP_NS // 600 if found.more else SWEEP_NS
            self._timers.set("batches", now + wait, lambda at: self._sweep(last, at))

        self._vault.read(ReadLogs(STAGED, after, 1), answered, lambda reason, now: None)

    def _look(self, log: Log, now: Instant) -> None:
        entity, publisher, batch, _ = log.name.removeprefix(STAGED).split("/", 3)
        visible = self._visible.get((entity, publisher))
        if visible is None or int(batch) > visible.batch:
            if self._wall(now) - log.last_ns > STALE_NS:
                self._forget(log)
            return
        key = f"{REFERRED}{log.name}"
        if int(batch) < visible.batch and self._tail.log.first >= visible.position:
            self._forget(log)  # it comes before the batches that retention keeps
            return
        self._vault.read(
            ReadKeys(key),
            lambda found, now: self._forget(log) if key not in dict(found.pairs) else None,
            lambda reason, now: None,
        )

    def _forget(self, log: Log) -> None:
        changes: list[Change] = [Trim(log.name, log.next)]
        if log.runs <= 512:
            changes = [Drop(log.name), Delete(f"{REFERRED}{log.name}")]
        self._vault.commit(changes, lambda _, now: None, lambda reason, now: None)


def _put(key: BatchKey, state: BatchState) -> Put:
    return Put(f"{COMMITS}{key[0]}/{key[1]}", _encode(state))


def _prefix(key: BatchKey, batch: int) -> str:
    return f"{STAGED}{key[0]}/{key[1]}/{batch:020d}/"
