"""Searches at a topic directory: a slice at a time from the repository, a page at a time to the requester.

In:    searches whose requesters are proven; slices that the repository found; entries that changed.
Out:   queries for the repository, FOUND messages.
State: searches in progress, bounded; standing searches, and changes that they have yet to be told.
Not here: what a query means (queries.py), the repository (repository.py), which entities may search (policy.py), the
          grants that let them find hidden topics (held_grants.py), when who is told of a change (change_teller.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import structs

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.change_teller import ChangeTeller
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.held_grants import Held, HeldGrants
from heliograph.discovery.topics.messages import FoundItem, FoundPage, Search, TopicBody
from heliograph.discovery.topics.queries import XQUERY, question_of
from heliograph.discovery.topics.statements import NS_PER_MS, Statement
from heliograph.discovery.topics.watches import Watch, Watches
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox, Timers
from heliograph.notes import TopicsDamaged
from heliograph.repository import AskTopics, FoundTopics, SiftDocuments, Sifted, TopicEntry, TopicQuestion

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder

PAGE_BYTES_MAX = 1 << 18
PAGE_ITEMS_MAX = 100
FOUND_AT_FIRST = 16  # topics in the first slice: the requester verifies them while the others are fetched
SIFTED_AT_FIRST = 200  # documents in the first slice for XQuery; then SIFTED_AT_ONCE, or fewer if they are long
SIFTED_AT_ONCE = 1_000
SIFTED_BYTES = 4 << 20
SIFTING_PER_ENTITY_MAX = 2  # searches by XQuery: they all share one process
SIFTED_WATCHES_MAX = 16  # standing searches by XQuery
CHANGES_MAX = 256  # queries of standing searches that wait for the process
SIFT_MS_MAX = 2_000  # for one slice; a query that takes longer is killed
WATCH_MS_MAX = 600_000  # a standing search ends after this unless renewed

Say = Callable[[TopicBody, "Holder", tuple[bytes, ...]], None]
AskRepository = Callable[[Any, Callable[[Any, Instant], None], Callable[[], None]], None]
"""A job, what gets its answer, and what to do if that raises: it then costs the entity that searches, and no other."""


@dataclass(slots=True)
class UnderWay:
    """One search."""

    search: Search
    asker: Holder
    question: TopicQuestion
    held: Held
    until: Instant
    left: int  # entries that may still be sent
    looked_at: int = 0
    pages: int = 0
    entries: list[TopicEntry] = field(default_factory=list)  # found, not sent
    sifted_at_once: int = SIFTED_AT_FIRST

    @property
    def wanted(self) -> int:
        """Topics in the next slice. In order of age there is one slice: a new topic would move all others."""
        is_first = not self.looked_at and not self.question.newest_first
        return max(1, min(self.left, FOUND_AT_FIRST) if is_first else self.left)

    def expect(self, documents: Sequence[bytes]) -> None:
        """Documents had these lengths: choose how many are filtered next."""
        mean = sum(map(len, documents)) // len(documents) + 1
        self.sifted_at_once = max(SIFTED_AT_FIRST, min(SIFTED_AT_ONCE, SIFTED_BYTES // mean))

    def keep(self, entries: Sequence[TopicEntry], looked_at: int) -> None:
        """A slice came."""
        self.looked_at += looked_at
        self.entries += entries
        self.left -= len(entries)

    def page(self) -> list[TopicEntry]:
        """The entries of the next page."""
        size = count = 0
        for entry in self.entries[:PAGE_ITEMS_MAX]:
            size += len(entry.record)
            if count and size > PAGE_BYTES_MAX:
                break
            count += 1
        page, self.entries = self.entries[:count], self.entries[count:]
        self.pages += 1
        return page


class TopicSearches:
    """All searches of a directory."""

    def __init__(
        self,
        config: TopicDirectoryConfig,
        name: str,
        grants: HeldGrants,
        outbox: Outbox,
        timers: Timers,
        ask: AskRepository,
        say: Say,
        counts: Counter[str],
    ) -> None:
        self._config = config
        self._name = name
        self._grants = grants
        self._outbox = outbox
        self._ask = ask
        self._say = say
        self._counts = counts  # the directory's
        self._open = 0
        self._sifting: Counter[str] = Counter()  # searches by XQuery under way, per entity
        self._changes = 0  # queries of standing searches under way
        self.watches = Watches(config.watches_max, config.watches_per_entity_max)
        self._teller = ChangeTeller(timers, self._change)
        self.damaged = 0

    def reload(self, config: TopicDirectoryConfig) -> None:
        """Apply new limits."""
        self._config = config
        self.watches.reload(config.watches_max, config.watches_per_entity_max)

    def search(self, said: Statement, search: Search, wall_ns: int, now: Instant) -> None:
        """Begin a search; one that cannot be carried out is answered with the reason."""
        try:
            wall_ms = wall_ns // NS_PER_MS
            held = self._grants.of(search, said.entity, wall_ns)
            question = question_of(search.query, said.entity, wall_ms, tuple(held))
            if search.until_ms and search.until_ms < wall_ms:
                raise ProtocolError(Reason.STALE, "nobody waits for this any more")
            if self._open >= self._config.searches_max:
                raise ProtocolError(Reason.SEARCHES_OVER_LIMIT, f"at most {self._config.searches_max} at once")
            is_new = True
            if search.query.language == XQUERY:
                self._check_sifting(search, said.entity)
            if search.watch_ms:
                until = now + min(search.watch_ms, WATCH_MS_MAX) * NS_PER_MS
                is_new = self.watches.add(search.watch_id, said.holder, question, held, until)
        except ProtocolError as error:
            self._counts[error.reason.word] += 1
            self._say(
                FoundPage(search.id, self._name, last=True, reason=error.reason, text=error.detail[:1_000]),
                said.holder,
                (),
            )
            return
        if not is_new:
            return  # a standing search was renewed: its results have been sent
        remaining_ms = search.until_ms - wall_ms if search.until_ms else 60_000
        under_way = UnderWay(search, said.holder, question, held, now + remaining_ms * NS_PER_MS, search.count)
        self._open += 1
        self._sifting[said.entity] += question.language == XQUERY
        self._next(under_way, 0)

    def _check_sifting(self, search: Search, entity: str) -> None:
        if search.watch_ms:
            if self.watches.has(entity, search.watch_id):
                return  # it is renewed, and not searched again
            self._check_sifted_watches(entity)
        if self._sifting[entity] >= SIFTING_PER_ENTITY_MAX:
            said = f"at most {SIFTING_PER_ENTITY_MAX} searches by XQuery of one entity at once"
            raise ProtocolError(Reason.SEARCHES_OVER_LIMIT, said)

    def _check_sifted_watches(self, entity: str) -> None:
        """Each is a query in the process that all share, for every topic with a document that appears or changes."""
        entities = self.watches.entities(XQUERY)
        if len(entities) >= SIFTED_WATCHES_MAX or entities.count(entity) >= SIFTING_PER_ENTITY_MAX:
            said = f"at most {SIFTED_WATCHES_MAX} standing searches by XQuery, {SIFTING_PER_ENTITY_MAX} of one entity"
            raise ProtocolError(Reason.SEARCHES_OVER_LIMIT, said)

    def _next(self, under_way: UnderWay, after: int) -> None:
        is_sifted = under_way.question.language == XQUERY
        count = under_way.sifted_at_once if is_sifted else under_way.wanted
        use = self._sift if is_sifted else self._found
        job = AskTopics(under_way.question, after, count)
        self._ask(job, lambda found, now: use(under_way, found, now), lambda: self._give_up(under_way))

    def _give_up(self, under_way: UnderWay) -> None:
        """It raised, which is a bug of ours: the search ends with what was sent."""
        under_way.entries.clear()
        self._send(under_way, last=True, reason=Reason.INTERNAL_ERROR)

    def _sift(self, under_way: UnderWay, found: FoundTopics | Reason, now: Instant) -> None:
        """A slice of documents arrived: a separate process finds those that the query accepts."""
        if isinstance(found, Reason) or not found.entries:
            self._found(under_way, found, now)
            return
        left_ms = (under_way.until - now) // NS_PER_MS
        job = SiftDocuments(
            under_way.question.text,
            tuple(entry.document for entry in found.entries),
            max(1, min(SIFT_MS_MAX, left_ms)),
        )
        under_way.expect(job.documents)

        def sifted(sifted: Sifted | Reason, now: Instant) -> None:
            if isinstance(sifted, Reason):
                self._found(under_way, sifted, now)
                return
            if sifted.problem:
                self._counts[Reason.QUERY_INVALID.word] += 1
                self._send(under_way, last=True, reason=Reason.QUERY_INVALID, text=sifted.problem)
                return
            fitting = tuple(found.entries[number] for number in sifted.numbers)
            is_cut = len(fitting) > under_way.left
            going_on = 0 if is_cut and found.next is None else found.next  # something is left out either way
            self._found(under_way, structs.replace(found, entries=fitting[: under_way.left], next=going_on), now)

        self._ask(job, sifted, lambda: self._give_up(under_way))

    def _found(self, under_way: UnderWay, found: FoundTopics | Reason, now: Instant) -> None:
        if isinstance(found, Reason):
            self._send(under_way, last=True, reason=found)
            return
        if found.damaged:
            self.damaged += len(found.damaged)
            self._outbox.note(TopicsDamaged(len(found.damaged)))
        asker, held = under_way.asker.identity.entity, under_way.held
        shown = [entry for entry in found.entries if self._grants.may_see(entry, asker, held, now)]
        under_way.keep(shown, found.looked_at)
        spent = under_way.looked_at >= self._config.rows_per_search_max or now >= under_way.until
        if found.next is None or under_way.left <= 0:
            left_out = Reason.SEARCH_OVER_BUDGET if found.next is not None else None
            self._send(under_way, last=True, reason=left_out)
        elif spent:
            self._send(under_way, last=True, reason=Reason.SEARCH_OVER_BUDGET)
        else:
            self._send(under_way, last=False, reason=None)
            self._next(under_way, found.next)

    def _send(self, under_way: UnderWay, *, last: bool, reason: Reason | None, text: str = "") -> None:
        """Send the entries found; the last page is sent even if it is empty."""
        while True:
            page = under_way.page()
            is_last = last and not under_way.entries
            if page or is_last:
                self._tell(page, under_way, last=is_last, reason=reason if is_last else None, text=text)
            if not under_way.entries:
                break
        if last:
            self._open -= 1
            self._end_sifting(under_way)

    def _end_sifting(self, under_way: UnderWay) -> None:
        entity = under_way.asker.identity.entity
        if under_way.question.language == XQUERY:
            self._sifting[entity] -= 1
            if not self._sifting[entity]:
                del self._sifting[entity]

    def _tell(
        self, page: list[TopicEntry], under_way: UnderWay, *, last: bool, reason: Reason | None, text: str
    ) -> None:
        chains: dict[bytes, None] = {}
        items = _items(page, "", chains)
        told, id = 0 if reason is None else reason, under_way.search.id
        found = FoundPage(id, self._name, items, under_way.pages, last, told, text)
        self._say(found, under_way.asker, tuple(chains))

    def changed(self, entry: TopicEntry, change: str, now: Instant) -> None:
        """An entry appeared, changed or was removed: those who watch it are told soon."""
        for watch in self.watches.concerned(entry):
            if not self._teller.add(watch, entry, change, now):
                self._end_watch(watch, Reason.SEARCH_OVER_BUDGET, "too many topics change at once")

    def _change(self, watch: Watch, entry: TopicEntry, change: str, now: Instant) -> None:
        """The turn of a standing search has come."""
        if not self.watches.has(*watch.key):
            return  # it has ended
        try:
            if watch.question.language == XQUERY:
                self._sift_change(watch, entry, change)
            else:
                self._tell_change(watch, entry, change, now)
        except Exception as error:  # it costs the watch, not the owner of the topic
            self._outbox.guard.caught("standing search", error, now, entity=watch.asker.identity.entity)
            self.watches.remove(*watch.key)

    def _tell_change(self, watch: Watch, entry: TopicEntry, change: str, now: Instant) -> None:
        if not self._grants.may_see(entry, watch.asker.identity.entity, watch.held, now):
            return  # the grant that let it find this topic has ended
        chains: dict[bytes, None] = {}
        items = _items((entry,), change, chains)
        self._say(FoundPage(watch.id, self._name, items), watch.asker, tuple(chains))

    def _sift_change(self, watch: Watch, entry: TopicEntry, change: str) -> None:
        """A separate process runs the query of a standing search. One that takes too long ends, with the reason."""
        if self._changes >= CHANGES_MAX:
            self._end_watch(watch, Reason.SEARCH_OVER_BUDGET, "too many topics change at once")
            return
        self._changes += 1

        def sifted(sifted: Sifted | Reason, now: Instant) -> None:
            self._changes -= 1
            if isinstance(sifted, Reason):
                self._end_watch(watch, sifted, "")
            elif sifted.problem:
                self._end_watch(watch, Reason.QUERY_INVALID, sifted.problem)
            elif sifted.numbers and self.watches.has(*watch.key):
                self._tell_change(watch, entry, change, now)

        job = SiftDocuments(watch.question.text, (entry.document,), SIFT_MS_MAX)
        self._ask(job, sifted, lambda: self._end_watch(watch, Reason.INTERNAL_ERROR, ""))

    def _end_watch(self, watch: Watch, reason: Reason, text: str) -> None:
        if self.watches.remove(*watch.key):
            self._counts[reason.word] += 1
            page = FoundPage(watch.id, self._name, last=True, reason=reason, text=text[:1_000])
            self._say(page, watch.asker, ())

    def expire(self, now: Instant) -> None:
        """End standing searches that were not renewed."""
        self.watches.expire(now)

    def report(self) -> dict[str, int]:
        """How many there are."""
        return {"searches_under_way": self._open, "watches": len(self.watches), "damaged": self.damaged}


def _items(entries: Sequence[TopicEntry], change: str, chains: dict[bytes, None]) -> list[FoundItem]:
    """Entries as an answer carries them; the chains of their signers are collected, each once.

    Entries with the same signers, which are most, begin with the same bytes, so these are decoded once.
    """
    items: list[FoundItem] = []
    head = b""
    for entry in entries:
        record = entry.record
        if not head or not record.startswith(head):
            message = messages.unpack(record)
            chains.update(dict.fromkeys(message.chains))
            head = record[: len(record) - len(message.body)]
        items.append(FoundItem(record[len(head) :], change))
    return items
