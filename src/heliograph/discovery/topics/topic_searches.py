"""Searches at a topic directory: a slice at a time from the repository, a page at a time to the asker.

In:    searches whose askers are proven; slices that the repository found; entries that changed.
Out:   questions for the repository, FOUND messages.
State: searches under way, bounded; standing searches.
Not here: what a query means (queries.py), the repository (repository.py), who may ask (policy.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.bundle import decode_bundle
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.grants import right_of
from heliograph.discovery.topics.messages import FoundItem, FoundPage, Search, TopicBody
from heliograph.discovery.topics.queries import question_of
from heliograph.discovery.topics.statements import NS_PER_MS, Statement, Statements
from heliograph.discovery.topics.watches import Watches
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox
from heliograph.notes import TopicsDamaged
from heliograph.repository import AskTopics, FoundTopics, TopicEntry, TopicQuestion

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder

PAGE_BYTES_MAX = 1 << 18
PAGE_ITEMS_MAX = 100
WATCH_MS_MAX = 600_000  # it is renewed before that, or it ends

Say = Callable[[TopicBody, "Holder", tuple[bytes, ...]], None]
AskRepository = Callable[[Any, Callable[[Any, Instant], None]], None]


@dataclass(slots=True)
class UnderWay:
    """One search."""

    search: Search
    asker: Holder
    question: TopicQuestion
    until: Instant
    left: int  # entries that may still be sent
    looked_at: int = 0
    pages: int = 0
    entries: list[TopicEntry] = field(default_factory=list)  # found, not sent

    def keep(self, found: FoundTopics) -> None:
        """A slice came."""
        self.looked_at += found.looked_at
        self.entries += found.entries
        self.left -= len(found.entries)

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
        statements: Statements,
        outbox: Outbox,
        ask: AskRepository,
        say: Say,
    ) -> None:
        self._config = config
        self._name = name
        self._statements = statements
        self._outbox = outbox
        self._ask = ask
        self._say = say
        self._open = 0
        self.watches = Watches(config.watches_max)
        self.damaged = 0

    def reload(self, config: TopicDirectoryConfig) -> None:
        """Put new limits in force."""
        self._config = config
        self.watches.reload(config.watches_max)

    def search(self, said: Statement, search: Search, wall_ns: int, now: Instant) -> None:
        """Begin one; a search that cannot be carried out is answered with the reason."""
        try:
            wall_ms = wall_ns // NS_PER_MS
            question = question_of(search.query, said.entity, wall_ms, self._granted(search, said, wall_ns))
            if search.until_ms and search.until_ms < wall_ms:
                raise ProtocolError(Reason.STALE, "nobody waits for this any more")
            if self._open >= self._config.searches_max:
                raise ProtocolError(Reason.SEARCHES_OVER_LIMIT, f"at most {self._config.searches_max} at once")
            is_new = True
            if search.watch_ms:
                until = now + min(search.watch_ms, WATCH_MS_MAX) * NS_PER_MS
                is_new = self.watches.add(search.watch_id, said.holder, question, until)
        except ProtocolError as error:
            self._say(
                FoundPage(search.id, self._name, last=True, reason=error.reason, text=error.detail[:1_000]),
                said.holder,
                (),
            )
            return
        if not is_new:
            return  # a standing search that was renewed: what there was has been told
        remaining_ms = search.until_ms - wall_ms if search.until_ms else 60_000
        under_way = UnderWay(search, said.holder, question, now + remaining_ms * NS_PER_MS, search.count)
        self._open += 1
        self._next(under_way, 0)

    def _granted(self, search: Search, said: Statement, wall_ns: int) -> tuple[bytes, ...]:
        """The topics that grants let the asker discover; a grant that is not valid counts for nothing."""
        found = []
        for text in search.grants:
            try:
                bundle = decode_bundle(text.decode("ascii", "replace"))
                self._statements.learn(bundle.chains[:4], wall_ns)
                advertisement, _, _ = self._statements.read_advertise(bundle.advertise, wall_ns)
                right = right_of(self._statements.keyring, advertisement, bundle.grants, wall_ns)
            except ProtocolError:
                continue
            if right.discover and right.holder == said.entity:
                found.append(advertisement.id)
        return tuple(found)

    def _next(self, under_way: UnderWay, after: int) -> None:
        job = AskTopics(under_way.question, after, max(1, under_way.left))
        self._ask(job, lambda found, now: self._found(under_way, found, now))

    def _found(self, under_way: UnderWay, found: FoundTopics | Reason, now: Instant) -> None:
        if isinstance(found, Reason):
            self._send(under_way, last=True, reason=found)
            return
        if found.damaged:
            self.damaged += len(found.damaged)
            self._outbox.note(TopicsDamaged(len(found.damaged)))
        under_way.keep(found)
        spent = under_way.looked_at >= self._config.rows_per_search_max or now >= under_way.until
        if found.next is None or under_way.left <= 0:
            left_out = Reason.SEARCH_OVER_BUDGET if found.next is not None else None
            self._send(under_way, last=True, reason=left_out)
        elif spent:
            self._send(under_way, last=True, reason=Reason.SEARCH_OVER_BUDGET)
        else:
            self._send(under_way, last=False, reason=None)
            self._next(under_way, found.next)

    def _send(self, under_way: UnderWay, *, last: bool, reason: Reason | None) -> None:
        """Send what was found; the last page also if it is empty."""
        while True:
            page = under_way.page()
            is_last = last and not under_way.entries
            if page or is_last:
                self._tell(under_way.search.id, page, under_way, last=is_last, reason=reason if is_last else None)
            if not under_way.entries:
                break
        if last:
            self._open -= 1

    def _tell(
        self, id: bytes, page: list[TopicEntry], under_way: UnderWay, *, last: bool, reason: Reason | None
    ) -> None:
        chains: dict[bytes, None] = {}
        items = [_item(entry, "", chains) for entry in page]
        found = FoundPage(id, self._name, items, under_way.pages, last, 0 if reason is None else reason)
        self._say(found, under_way.asker, tuple(chains))

    def changed(self, entry: TopicEntry, change: str, now: Instant) -> None:
        """An entry appeared, changed or went: tell those who watch."""
        for watch in self.watches.concerned(entry):
            chains: dict[bytes, None] = {}
            items = [_item(entry, change, chains)]
            self._say(FoundPage(watch.id, self._name, items), watch.asker, tuple(chains))

    def expire(self, now: Instant) -> None:
        """Standing searches that were not renewed end."""
        self.watches.expire(now)

    def report(self) -> dict[str, int]:
        """How many there are."""
        return {"searches_under_way": self._open, "watches": len(self.watches), "damaged": self.damaged}


def _item(entry: TopicEntry, change: str, chains: dict[bytes, None]) -> FoundItem:
    """An entry as an answer carries it; the chains of its signers are gathered, each once."""
    message = messages.unpack(entry.record)
    chains.update(dict.fromkeys(message.chains))
    return FoundItem(message.body, change)
