"""Simulated repositories of topic directories: in memory, but what was committed survives a crash.

In:    jobs of machines that have a repository.
Out:   the same answers as of live back ends, after a time drawn from the seed.
State: the entries, by host and machine.
Not here: live back ends (live/vaults/), the meaning of queries (discovery/topics/queries.py).
"""

from __future__ import annotations

from heliograph.discovery.topics.listing import uuid_text
from heliograph.discovery.topics.queries import Matcher
from heliograph.errors import ProtocolError, Reason
from heliograph.repository import (
    CHANGES_AT_ONCE_MAX,
    ID_VERSION,
    AskTopics,
    FoundTopics,
    KeepTopics,
    KeptTopics,
    RepositoryJob,
    TopicEntry,
)


class MemoryRepository:
    """A repository without a disk: the obviously correct twin of the others."""

    def __init__(self) -> None:
        self._entries: dict[bytes, TopicEntry] = {}
        self._numbers: dict[bytes, int] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def uuids(self) -> list[str]:
        """The topics that it has."""
        return [uuid_text(id) for id in self._entries]

    def carry_out(self, job: RepositoryJob) -> KeptTopics | FoundTopics:
        """Carry out a job; ProtocolError if its query makes no sense."""
        return self.keep(job) if isinstance(job, KeepTopics) else self.ask(job)

    def keep(self, job: KeepTopics) -> KeptTopics:
        """Make a change."""
        outcomes = tuple(self._put(entry, job) for entry in job.entries)
        gone = [id for id, owner in job.forgotten if id in self._entries and self._entries[id].owner == owner]
        if job.expired_ms:
            late = [id for id, entry in self._entries.items() if entry.expires_ms <= job.expired_ms]
            gone += sorted(late, key=lambda id: self._numbers[id])[:CHANGES_AT_ONCE_MAX]
        if job.outdated:
            gone += [id for id in self._entries if id[6] >> 4 != ID_VERSION][:CHANGES_AT_ONCE_MAX]
        forgotten = tuple(self._entries.pop(id) for id in dict.fromkeys(gone))
        for entry in forgotten:
            del self._numbers[entry.id]
        return KeptTopics(len(self._entries), outcomes, forgotten)

    def _put(self, entry: TopicEntry, job: KeepTopics) -> str | Reason:
        old = self._entries.get(entry.id)
        if old is not None:
            if old.owner != entry.owner:
                return Reason.OWNER_OTHER
            if old.issued_ms > entry.issued_ms:
                return Reason.TOPIC_OLDER
        else:
            if len(self._entries) >= job.topics_max:
                return Reason.TOPICS_OVER_QUOTA
            if sum(one.owner == entry.owner for one in self._entries.values()) >= job.per_owner_max:
                return Reason.TOPICS_OVER_QUOTA
            self._numbers[entry.id] = self._next
            self._next += 1
        self._entries[entry.id] = entry
        return "appeared" if old is None else "changed"

    def ask(self, job: AskTopics) -> FoundTopics:
        """The next slice of an answer."""
        matcher = Matcher(job.question)
        rows = sorted(((self._numbers[id], one) for id, one in self._entries.items()), key=lambda row: row[0])
        if job.question.newest_first:
            rows.sort(key=lambda row: (-row[1].created_ms, row[0]))
            rows = list(enumerate((entry for _, entry in rows), 1))
        rows = [row for row in rows if row[0] > job.after]
        found: list[TopicEntry] = []
        for looked_at, (number, entry) in enumerate(rows, 1):
            if matcher.matches(entry):
                found.append(entry)
            if looked_at < len(rows) and (len(found) >= job.count or looked_at >= job.rows):
                return FoundTopics(tuple(found), number, looked_at)
        return FoundTopics(tuple(found), None, len(rows))


def outcome_of(repository: MemoryRepository, job: RepositoryJob) -> KeptTopics | FoundTopics | Reason:
    """The result of a job."""
    try:
        return repository.carry_out(job)
    except ProtocolError as error:
        return error.reason
