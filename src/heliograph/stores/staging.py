"""Staging: what is staged in batches that are not committed, and the room for it, shared among those who stage.

In:    staged publications, each with its log and its holder: an entity, or for clients without credentials an address;
       what became durable or was lost; commits that begin and end; the vault's content.
Out:   whether something may be staged; batches that give way; what a part has, and the topics in it.
State: the unfinished batches with their parts (bounded, as each part takes some of the room).
Not here: committing (batches.py), removing what gave way (staged.py), shares (waiting.py).

A batch that gives way is lost as a whole. Its publisher is told when it stages more (``batches_over_limit``), and when
it commits (``batch_incomplete``). A batch that is being committed does not give way. After a start, what clients
without credentials have staged counts as that of one holder, as the vault does not know their addresses.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.errors import ProtocolError, Reason
from heliograph.stores.config import StoreConfig
from heliograph.stores.names import Holder
from heliograph.stores.waiting import GIVE_WAY_MAX, HolderShares
from heliograph.vault import Log
from heliograph.wire.stores import BatchEntry

STAGED = "b/"  # what the names of all parts' logs begin with
BYTES_MAX = 4 << 30  # if the store has no limits
PARTS_MAX = 65_536  # each takes its part of the room, however small it is
TOPICS_MAX = 4_096  # of one part that are remembered
TOPIC_BYTES_MAX = 32 << 20  # of all parts
SOURCES_TOLD = 10
GAVE_WAY_MAX = 10_000  # batches that are remembered as dropped

Where = tuple[Holder, str]  # a holder, and the prefix of a batch's logs


class Part:
    """One log of an unfinished batch."""

    __slots__ = ("bytes", "count", "pending", "runs", "topic_bytes", "topics")

    def __init__(self, log: Log | None = None) -> None:
        self.bytes = 0 if log is None else log.bytes  # durable
        self.count = 0 if log is None else log.next - log.first
        self.runs = 0 if log is None else log.runs
        self.pending: dict[Holder, int] = {}  # bytes that are not durable yet
        self.topics: dict[bytes, None] | None = None if log is not None else {}  # None: they are not known
        self.topic_bytes = 0

    def note(self, topic: bytes, bytes_max: int) -> int:
        """A publication with this topic is in it. Returns by how much its topics take more memory."""
        if self.topics is None or topic in self.topics:
            return 0
        before = self.topic_bytes
        if len(self.topics) >= TOPICS_MAX or len(topic) > bytes_max:
            self.topics, self.topic_bytes = None, 0
        else:
            self.topics[topic] = None
            self.topic_bytes += len(topic)
        return self.topic_bytes - before

    def trimmed(self, runs: int) -> None:
        """So many runs are left of it."""
        self.runs = runs

    def settle(self, size: int) -> None:
        """So many bytes are not pending any more."""
        for holder, pending in list(self.pending.items()):
            taken = min(size, pending)
            size -= taken
            self.pending[holder] = pending - taken
            if pending == taken:
                del self.pending[holder]


class Unfinished:
    """One batch."""

    __slots__ = ("commits", "parts", "shares")

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}  # by log
        self.shares: dict[Holder, int] = {}  # what counts for whom
        self.commits = 0  # under way


class Staging:
    """All unfinished batches of a store."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._batches: dict[str, Unfinished] = {}
        self._shares: HolderShares[Where] = HolderShares()
        self._pending: dict[str, None] = {}  # logs with something that is not durable
        self._gone: dict[str, None] = {}  # batches that were dropped
        self.leaving: list[tuple[str, Unfinished]] = []  # batches that gave way: their logs are to be removed
        self.gave_way = 0
        self._topic_bytes = 0

    def reload(self, config: StoreConfig) -> None:
        """Apply new limits."""
        self._config = config

    def clear(self) -> None:
        """The vault is read again."""
        self._batches.clear()
        self._shares.clear()
        self._pending.clear()
        self.leaving.clear()
        self._topic_bytes = 0

    def load(self, log: Log) -> None:
        """A log of the vault that no commit refers to."""
        prefix = batch_of(log.name)
        batch = self._batches.setdefault(prefix, Unfinished())
        batch.parts[log.name] = Part(log)
        self._count(prefix, batch, (log.name.split("/", 2)[1], ""), log.bytes + self._part_bytes)

    @property
    def bytes_max(self) -> int:
        """How much may be staged."""
        config = self._config
        if config.staged_bytes_max:
            return config.staged_bytes_max
        limits = [limit for limit in (config.retain_bytes, config.bytes_max // 4) if limit]
        return min(limits, default=BYTES_MAX)

    @property
    def _part_bytes(self) -> int:
        return max(1, self.bytes_max // PARTS_MAX)

    @property
    def total(self) -> int:
        """What is staged, as it counts."""
        return self._shares.total

    def __len__(self) -> int:
        return len(self._batches)

    # -- staging ------------------------------------------------------------------------------------------------

    def add(self, holder: Holder, log: str, topic: bytes, size: int) -> None:
        """Something is staged. ProtocolError if its batch has given way, or has to."""
        prefix = batch_of(log)
        if prefix in self._gone:
            raise ProtocolError(Reason.BATCHES_OVER_LIMIT, _GAVE_WAY)
        batch = self._batches.get(prefix)
        part = None if batch is None else batch.parts.get(log)
        more = size if part is not None else size + self._part_bytes
        self._make_room((holder, prefix), more)
        batch = self._batches.setdefault(prefix, Unfinished())  # whatever gave way
        part = batch.parts.setdefault(log, Part())
        self._topic_bytes += part.note(topic, TOPIC_BYTES_MAX - self._topic_bytes)
        part.pending[holder] = part.pending.get(holder, 0) + size
        self._pending[log] = None
        self._count(prefix, batch, holder, more)

    def _count(self, prefix: str, batch: Unfinished, holder: Holder, more: int) -> None:
        share = batch.shares[holder] = max(0, batch.shares.get(holder, 0) + more)
        self._shares.set((holder, prefix), holder, 0 if batch.commits else share)

    def _make_room(self, where: Where, size: int) -> None:
        for _ in range(GIVE_WAY_MAX):
            if self._shares.total + size <= self.bytes_max:
                return
            other = self._shares.who_gives_way(where, where[0], size)
            if other is None or other[1] == where[1]:
                break
            self.drop(other[1])
            self.gave_way += 1
        who = " at ".join(filter(None, where[0]))
        text = f"{self._shares.of(where[0])} bytes are staged by {who}, more than by others"
        raise ProtocolError(
            Reason.BATCHES_OVER_LIMIT, f"{text}, and the store keeps {self.bytes_max} (staged_bytes_max)"
        )

    def drop(self, prefix: str) -> bool:
        """Give up a batch. Returns False if there is none, or if it is being committed."""
        batch = self._batches.get(prefix)
        if batch is None or batch.commits:
            return False
        self._forget(prefix)
        self._gone[prefix] = None
        if len(self._gone) > GAVE_WAY_MAX:
            del self._gone[next(iter(self._gone))]
        self.leaving.append((prefix, batch))
        return True

    def is_gone(self, log: str) -> bool:
        """True if the batch of this log was given up: what is not written yet need not be."""
        return bool(self._gone) and batch_of(log) in self._gone

    def _forget(self, prefix: str) -> None:
        batch = self._batches.pop(prefix, None)
        if batch is not None:
            self._topic_bytes -= sum(part.topic_bytes for part in batch.parts.values())
            for holder in batch.shares:
                self._shares.set((holder, prefix), holder, 0)

    # -- the vault ----------------------------------------------------------------------------------------------

    def stored(self, log: str, size: int, count: int) -> None:
        """A run of a part is durable."""
        part = self._part(log)
        if part is None:
            return
        part.settle(size)
        part.bytes += size
        part.count += count
        part.runs += 1
        if not part.pending:
            self._pending.pop(log, None)

    def lost(self) -> None:
        """What is not durable will be sent again."""
        for log in self._pending:
            batch, part = self._batches.get(batch_of(log)), self._part(log)
            if batch is not None and part is not None:
                for holder, size in part.pending.items():
                    self._count(batch_of(log), batch, holder, -size)
                part.pending.clear()
        self._pending.clear()

    def removed(self, log: str) -> None:
        """A part was removed, as nothing will read it."""
        prefix = batch_of(log)
        batch = self._batches.get(prefix)
        part = None if batch is None else batch.parts.pop(log, None)
        if batch is None or part is None:
            return
        self._topic_bytes -= part.topic_bytes
        if not batch.parts:
            self._forget(prefix)
            return
        for holder in list(batch.shares)[:1]:  # whoever began the batch
            self._count(prefix, batch, holder, -part.bytes - self._part_bytes)

    def _part(self, log: str) -> Part | None:
        batch = self._batches.get(batch_of(log))
        return None if batch is None else batch.parts.get(log)

    # -- commits ------------------------------------------------------------------------------------------------

    def part(self, log: str) -> Part:
        """What is durable of a part; empty if nothing is known."""
        return self._part(log) or Part()

    def why_missing(self, prefix: str) -> str:
        """Why a batch may have lost parts."""
        return f": {_GAVE_WAY}" if prefix in self._gone else ""

    def begin(self, prefix: str) -> None:
        """A commit begins: the batch does not give way meanwhile, and does not count."""
        batch = self._batches.get(prefix)
        if batch is not None:
            batch.commits += 1
            for holder in list(batch.shares):
                self._count(prefix, batch, holder, 0)

    def end(self, prefix: str) -> None:
        """A commit has failed."""
        batch = self._batches.get(prefix)
        if batch is not None and batch.commits:
            batch.commits -= 1
            for holder in list(batch.shares):
                self._count(prefix, batch, holder, 0)

    def finish(self, prefix: str) -> Unfinished | None:
        """A batch has become visible."""
        batch = self._batches.get(prefix)
        self._forget(prefix)
        return batch

    def entries(self, after: str, entity: str) -> Iterator[BatchEntry]:
        """The unfinished batches of an entity, or of all, in order, after this one: entity/publisher/batch."""
        for place in sorted(prefix[len(STAGED) : -1] for prefix in self._batches):
            whose, publisher, number = place.split("/")
            if (whose == entity or not entity) and place > after:
                batch = self._batches[f"{STAGED}{place}/"]
                sources = sorted(source for _, source in batch.shares if source)[:SOURCES_TOLD]
                yield BatchEntry(whose, publisher, int(number), len(batch.parts), sum(batch.shares.values()), sources)


_GAVE_WAY = "the batch was dropped, as the store needed the room for what others stage (staged_bytes_max)"


def batch_of(log: str) -> str:
    """The prefix of a batch's logs, from the name of one."""
    return log[: log.rindex("/") + 1]
