"""Batches: publications that are staged in parts, and become visible by one commit.

In:    staged publications; requests to commit; the vault's content.
Out:   the log in which a part is staged; a commit that refers to the parts; answers.
State: commits in progress; publishers (batch_publishers.py); what is staged (staging.py).
Not here: accepting staged publications (intake.py), reading through a reference (channels.py), staged parts that are
          not needed (staged.py).

A part is a separate log. A commit adds to `main` one run for each part; the run takes as many positions as the part has
publications, and names its log. So batches of any size become visible at once. Parts that a commit does not name are
dropped with it. A commit that says ``once``, or that is empty, makes no publisher known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Timers
from heliograph.stores.batch_publishers import BatchKey, BatchPublishers, BatchState, check_owner, check_query, kept
from heliograph.stores.config import StoreConfig
from heliograph.stores.names import Holder, NameOwner
from heliograph.stores.references import refer
from heliograph.stores.staged import (
    REFERRED,
    PartState,
    StagedParts,
    dropped,
    log_of_part,
    part_state,
    prefix_of,
    referred,
)
from heliograph.stores.staging import Staging
from heliograph.stores.tail import Tail
from heliograph.stores.vault_calls import VaultCalls
from heliograph.vault import (
    RUN_RECORDS_MAX,
    Append,
    Change,
    Committed,
    Damage,
    KeysRead,
    Log,
    LogsRead,
    Read,
    ReadKeys,
    ReadLogs,
    Run,
    RunsRead,
)
from heliograph.wire.events import select
from heliograph.wire.stores import MAIN, CommitBatch, Quality, RequestDone

WAITING_MAX = 64  # commits of one publisher
LOOK_BYTES = 1 << 20  # of a part whose topics are not known, at once
JUDGED_MAX = 65_536  # topics that are remembered meanwhile
IDLE_EVERY_NS = 60_000_000_000
IDLE_SLICE = 100  # publishers that are forgotten at once

Answered = Callable[[RequestDone], None]
Refused = Callable[[Reason, str], None]


@dataclass(slots=True)
class _WaitingCommit:
    """A commit that a publisher waits for."""

    request: CommitBatch
    source: str
    answered: Answered
    refused: Refused
    may_publish: Callable[[bytes], bool]
    owner: NameOwner | None = None  # of the publisher, once this is visible
    is_begun: bool = False  # its parts are kept for it


class Batches:
    """All batches of a store."""

    def __init__(
        self,
        config: StoreConfig,
        vault: VaultCalls,
        timers: Timers,
        tail: Tail,
        grown: Callable[[list[Run], Instant], None],
        wall: Callable[[Instant], int],
    ) -> None:
        self._config = config
        self._vault = vault
        self._timers = timers
        self._tail = tail
        self._grown = grown
        self._wall = wall
        self.publishers = BatchPublishers()
        self.staging = Staging(config)
        self._staged = StagedParts(vault, timers, tail, self.publishers, self.staging, wall)
        self._under_way: dict[
            BatchKey, list[_WaitingCommit]
        ] = {}  # the first is being committed, the others wait for it

    def clear(self) -> None:
        """The vault is read again; publishers that wait get a time-out."""
        self.publishers.clear()
        self.staging.clear()
        self._under_way.clear()

    def reload(self, config: StoreConfig) -> None:
        """Apply new limits."""
        self._config = config
        self.staging.reload(config)

    def load(self, loaded: Callable[[Instant], None], unread: Callable[[Reason, Instant], None]) -> None:
        """Read what is staged from the vault."""
        self._staged.load(loaded, unread)

    def start(self, now: Instant) -> None:
        """The vault is open."""
        self._staged.start(now)
        self._timers.set("batches", now + IDLE_EVERY_NS, self._forget_idle)

    def log_of(self, holder: Holder, entity: str, quality: Quality, topic: bytes, size: int) -> str | None:
        """The log in which a publication is staged; None: its batch is already visible, and the publication is dropped.

        ProtocolError if its names are invalid, or if there is no room.
        """
        key = (entity, quality.publisher)
        log = log_of_part(key, quality.batch, quality.part)
        visible = self.publishers.get(key)
        if visible is not None and quality.batch <= visible.batch:
            return None
        self.staging.add(holder, log, topic, size)
        self._staged.remove()
        return log

    def drop(self, entity: str, publisher: str, batch: int) -> bool:
        """Give up what is staged for a batch. Returns False if nothing is, or if it is being committed."""
        is_dropped = self.staging.drop(prefix_of((entity, publisher), batch))
        self._staged.remove()
        return is_dropped

    # -- committing -----------------------------------------------------------------------------------------------

    def commit(
        self,
        entity: str,
        source: str,
        request: CommitBatch,
        answered: Answered,
        refused: Refused,
        may_publish: Callable[[bytes], bool],
    ) -> None:
        """Make a batch visible, unless it or a later one already is. Rights count that its publisher has now, whatever
        it had when it staged."""
        key = (entity, request.publisher)
        asked = _WaitingCommit(request, source, answered, refused, may_publish)
        if key not in self._under_way:
            self._begin(key, asked)
        elif len(self._under_way[key]) >= WAITING_MAX:
            refused(Reason.BATCHES_OVER_LIMIT, "too many commits of this publisher wait")
        else:
            self._under_way[key].append(asked)

    def _begin(self, key: BatchKey, asked: _WaitingCommit) -> None:
        request = asked.request
        visible = self.publishers.get(key)
        try:
            asked.owner = self.publishers.owner_for(key, request.proof, asked.source)
            if visible is not None and request.batch <= visible.batch:
                check_query(key[1], request.batch, request.query, visible.batch, visible.query)
                asked.answered(RequestDone(batch=visible.batch, position=visible.position, repeated=True))
                return
            if _becomes_known(request):
                self.publishers.reserve(key, asked.source)
        except ProtocolError as error:
            asked.refused(error.reason, error.detail)
            return
        self._under_way.setdefault(key, [asked])
        self._read_referred(key, asked)

    def _read_referred(self, key: BatchKey, asked: _WaitingCommit) -> None:
        """Was this batch committed before, by a publisher that was forgotten since?"""

        def answered(found: KeysRead, now: Instant) -> None:
            if found.pairs:
                self._repeat(key, asked, part_state(found.pairs[0][1]))
            elif self._is_whole(key, asked):
                self._look_at_topics(key, asked, [part for part, count in asked.request.parts if count], {})

        query = ReadKeys(f"{REFERRED}{prefix_of(key, asked.request.batch)}", None, 1)
        self._vault.read(query, answered, *self._failing(key, asked))

    def _repeat(self, key: BatchKey, asked: _WaitingCommit, state: PartState | None) -> None:
        request = asked.request
        try:
            if state is not None:
                if state.owner:
                    check_owner(key[1], request.proof, state.owner)
                check_query(key[1], request.batch, request.query, request.batch, state.query)
        except ProtocolError as error:
            self._fail(key, asked, error.reason, error.detail)
            return
        position = 0 if state is None else state.position
        asked.answered(RequestDone(batch=request.batch, position=position, repeated=True))
        self._end(key)

    def _is_whole(self, key: BatchKey, asked: _WaitingCommit) -> bool:
        """True if what is durable of each part is what the commit says. Nothing is read for one that is refused."""
        prefix = prefix_of(key, asked.request.batch)
        for part, count in dict(asked.request.parts).items():
            has = self.staging.part(f"{prefix}{part}").count
            if has != count:
                text = f"part {part} has {has} of {count} publications{self.staging.why_missing(prefix)}"
                self._fail(key, asked, Reason.BATCH_INCOMPLETE, text)
                return False
        self.staging.begin(prefix)
        asked.is_begun = True
        return True

    def _look_at_topics(
        self, key: BatchKey, asked: _WaitingCommit, parts: list[str], judged: dict[bytes, bool], at: int = 0
    ) -> None:
        """May the publisher publish on all topics of these parts? A part whose topics are not known is read."""
        prefix = prefix_of(key, asked.request.batch)
        while parts:
            topics = self.staging.part(f"{prefix}{parts[-1]}").topics
            if topics is None:
                break
            parts.pop()
            for topic in topics:
                if not asked.may_publish(topic):
                    self._deny(key, asked, topic)
                    return
        if not parts:
            self._read_parts(key, asked, {}, None)
            return

        def judge(topic: bytes) -> bool:
            may = judged[topic] = asked.may_publish(topic)
            return may

        def answered(found: RunsRead, now: Instant) -> None:
            next = at
            for run in found.runs:
                next = run.next
                if not isinstance(run, Damage):
                    select(run.data, 0, run.count, len(run.data) + 1, judged, judge)
            denied = [topic for topic, may in judged.items() if not may]
            if denied:
                self._deny(key, asked, denied[0])
                return
            if len(judged) > JUDGED_MAX:
                judged.clear()
            if not found.runs or next >= found.log.next:
                parts.pop()
                next = 0
            self._look_at_topics(key, asked, parts, judged, next)

        self._vault.read(Read(f"{prefix}{parts[-1]}", at, None, LOOK_BYTES), answered, *self._failing(key, asked))

    def _deny(self, key: BatchKey, asked: _WaitingCommit, topic: bytes) -> None:
        text = f"{key[0]} may not publish on {topic.decode(errors='replace')[:256]}"
        self._fail(key, asked, Reason.PUBLISH_DENIED, text)

    def _read_parts(self, key: BatchKey, asked: _WaitingCommit, found: dict[str, Log], after: str | None) -> None:
        prefix = prefix_of(key, asked.request.batch)

        def answered(page: LogsRead, now: Instant) -> None:
            found.update({log.name.removeprefix(prefix): log for log in page.logs})
            if page.more:
                self._read_parts(key, asked, found, page.logs[-1].name)
            else:
                self._refer(key, asked, found, now)

        self._vault.read(ReadLogs(prefix, after), answered, *self._failing(key, asked))

    def _refer(self, key: BatchKey, asked: _WaitingCommit, found: dict[str, Log], now: Instant) -> None:
        request = asked.request
        parts = dict(request.parts)
        for part, count in parts.items():
            log = found.get(part, Log(part))
            if log.next - log.first != count:
                text = f"part {part} has {log.next - log.first} of {count} publications"
                self._fail(key, asked, Reason.BATCH_INCOMPLETE, text)
                return
        wall = self._wall(now)
        named = [found[part] for part, count in parts.items() if count]
        appends = [
            Append(MAIN, refer(log.name, start, self._tail.refer(size)), count, wall, wall)
            for log in named
            for start, count, size in _pieces(log)
        ]
        size = sum(log.bytes for log in named)
        fails = self._failing(key, asked)[0]

        def failed(reason: Reason, now: Instant) -> None:
            self._tail.refer(-size)
            fails(reason, now)

        begin = self._tail.log.next + self._vault.adding  # behind what is being committed
        notes = self._notes(key, asked, named, begin, wall)
        unnamed = dropped(log for part, log in found.items() if part not in parts) if named else []

        def answered(committed: Committed, now: Instant) -> None:
            position = committed.positions[0] if committed.positions else begin
            if position != begin:  # keep it as it is told
                right = self._notes(key, asked, named, position, wall)
                self._vault.commit(right, lambda _, now: None, lambda reason, now: None)
            self._visible(key, asked, position, wall)
            self._grown(
                [
                    Run(at, change.count, wall, wall, change.data)
                    for at, change in zip(committed.positions, appends, strict=True)
                ],
                now,
            )
            asked.answered(RequestDone(batch=request.batch, position=position))
            self._end(key)

        sums = [self._tail.referred_put()] if appends else []
        changes = [*appends, *notes, *unnamed, *sums]
        if not changes:  # an empty batch of a publisher that is not known
            self.staging.end(prefix_of(key, request.batch))
            asked.answered(RequestDone(batch=request.batch, position=begin))
            self._end(key)
            return
        self._vault.commit(changes, answered, failed)

    def _notes(self, key: BatchKey, asked: _WaitingCommit, named: list[Log], begin: int, wall: int) -> list[Change]:
        """What the vault keeps of a batch that begins at this position."""
        request = asked.request
        owner = "" if asked.owner is None else asked.owner.proof
        until = begin + sum(log.next - log.first for log in named)
        part = PartState(begin, until, request.query, owner)
        notes: list[Change] = [referred(log.name, part) for log in named]
        if _becomes_known(request) or self.publishers.get(key) is not None:
            notes.append(kept(key, self._state(asked, begin, wall)))
        return notes

    def _state(self, asked: _WaitingCommit, position: int, wall: int) -> BatchState:
        return BatchState(asked.request.batch, position, asked.request.query, wall, asked.owner)

    def _visible(self, key: BatchKey, asked: _WaitingCommit, position: int, wall: int) -> None:
        self._staged.committed(prefix_of(key, asked.request.batch), dict(asked.request.parts))
        if _becomes_known(asked.request) or self.publishers.get(key) is not None:
            self.publishers.put(key, self._state(asked, position, wall))

    def _failing(
        self, key: BatchKey, asked: _WaitingCommit
    ) -> tuple[Callable[[Reason, Instant], None], Callable[[Instant], None]]:
        """What to call if the vault fails, and if its answer raises."""
        return (
            lambda reason, now: self._fail(key, asked, reason, ""),
            lambda now: self._fail(key, asked, Reason.INTERNAL_ERROR, ""),
        )

    def _fail(self, key: BatchKey, asked: _WaitingCommit, reason: Reason, text: str) -> None:
        if asked.is_begun:
            self.staging.end(prefix_of(key, asked.request.batch))
        asked.refused(reason, text)
        self._end(key)

    def _end(self, key: BatchKey) -> None:
        """A commit was answered: begin the publisher's next one."""
        self.publishers.release(key)
        waiting = self._under_way.pop(key, [])[1:]
        while waiting and key not in self._under_way:
            asked = waiting.pop(0)
            self._begin(key, asked)
        if waiting:
            self._under_way[key].extend(waiting)

    # -- forgetting -----------------------------------------------------------------------------------------------

    def _forget_idle(self, now: Instant) -> None:
        """Forget publishers that were silent for long; one of an older store counts as used now."""
        self._timers.set("batches", now + IDLE_EVERY_NS, self._forget_idle)
        wall = self._wall(now)
        limit = wall - self._config.name_idle_s * 1_000_000_000
        idle = [
            (key, state)
            for key, state in self.publishers.items()
            if state.used_ns < limit and key not in self._under_way
        ]
        changes: list[Change] = []
        for key, state in idle[:IDLE_SLICE]:
            if state.used_ns:
                changes.append(self.publishers.drop(key))
            else:
                self.publishers.put(key, replace(state, used_ns=wall))
                changes.append(kept(key, replace(state, used_ns=wall)))
        if changes:
            self._vault.commit(changes, lambda _, now: None, lambda reason, now: None)


def _pieces(log: Log) -> Iterator[tuple[int, int, int]]:
    """A part in as many pieces as runs refer to it: where each begins, its publications and its share of the bytes."""
    all = log.next - log.first
    for start in range(log.first, log.next, RUN_RECORDS_MAX):
        end = min(start + RUN_RECORDS_MAX, log.next)
        yield start, end - start, log.bytes * (end - log.first) // all - log.bytes * (start - log.first) // all


def _becomes_known(request: CommitBatch) -> bool:
    """True if the store remembers its publisher."""
    return not request.once and any(count for _, count in request.parts)
