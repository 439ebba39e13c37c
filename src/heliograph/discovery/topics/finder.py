"""Finding topics: ask directories, or owners if there is none; check, merge and stream their answers.

In:    a query; FOUND messages of several directories, a page at a time.
Out:   a stream of FoundTopic, each topic once unless there is newer information; at the end a summary.
State: the newest version of each topic, bounded; the pages that came; what was refused, by reason.
Not here: the directory's side (topic_searches.py), languages (queries.py), owners that answer (owners.py).
Paper: [topics] §6.

A directory may lie. It cannot forge an advertisement, so an item counts only if it is signed, valid and what was asked
for. It cannot silence others either: that it has finished ends the search only if no other directory is expected. It
has finished when all pages of one answer are there; if some are lost, it is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heliograph.discovery.topics.exchange import TopicConversation
from heliograph.discovery.topics.listing import TopicAdvertisement
from heliograph.discovery.topics.messages import (
    OWNERS_TOPIC,
    TOPICS_TOPIC,
    Advertise,
    FoundItem,
    FoundPage,
    Search,
    TopicKind,
    TopicQuery,
    Unwatch,
    decode_body,
)
from heliograph.discovery.topics.queries import XQUERY, is_asked_for
from heliograph.discovery.topics.statements import NS_PER_MS, Glance, Statement, Statements
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant
from heliograph.model.identity import Role
from heliograph.trust import envelope
from heliograph.wire import bodies

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder

OWNERS_ANSWERS = 64  # about this many owners should answer, if there are a thousand; if none did, four times as many
OWNERS_RETRY_MS = 300
KNOWN_MAX = 100_000  # topics whose newest version is remembered
WATCH_MS = 60_000  # a standing search is renewed three times in this period
SETTLE_MS = 150  # after the first directory has finished, if their number is unknown
MATURITY_MS = 900  # without any answer, before owners are asked


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic that was found. Its directory's signature is verified; ``owner`` verifies its creator's."""

    advertisement: TopicAdvertisement
    directory: str  # the directory that signed it
    told_by: str  # the directory or owner that sent it
    change: str = ""  # of a standing search: "appeared", "changed" or "gone"
    record: bytes = field(default=b"", repr=False)  # the creator's countersigned advertisement
    chains: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def topic(self) -> str:
        """The topic to subscribe to."""
        return self.advertisement.synopsis.topic

    def owner(self, statements: Statements, wall_ns: int) -> Holder:
        """The proven creator; ProtocolError if it did not sign the advertisement."""
        statements.learn(self.chains, wall_ns)
        return statements.read_advertise(self.record, wall_ns)[1]


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """Summary of a search."""

    directories: tuple[str, ...]  # that finished
    owners: tuple[str, ...]  # that answered because no directory did
    topics: int
    left_out: tuple[str, ...]  # which directories or owners left something out, and why
    refused: dict[str, int] = field(default_factory=dict)  # items of answers that were not valid, by reason


class TopicFinder(TopicConversation):
    """The requester's side of a search. Found topics stay in ``found`` until they are taken."""

    def __init__(
        self,
        statements: Statements,
        query: TopicQuery,
        seed: bytes,
        *,
        count: int = 100,
        directories: tuple[str, ...] = (),
        known: tuple[str, ...] = (),
        watch: bool = False,
        timeout_ms: int = 5_000,
        grants: tuple[bytes, ...] = (),
        owners: bool = True,
    ) -> None:
        super().__init__(statements, seed, timeout_ms)
        self._query = query
        self._count = count
        self._asked = directories
        self._expected = dict.fromkeys(directories or known)  # directories that the search waits for
        self._watch = watch
        self._grants = grants
        self._owners_too = owners
        self._ids: dict[bytes, None] = {}
        self._watch_id = b""
        self._began_at: Instant = 0
        self._asks_owners = False
        self._owner_attempts = 0
        self._newest: dict[bytes, int] = {}
        self._told: dict[tuple[str, bytes], dict[bytes, None]] = {}  # directory and request -> the topics in its answer
        self.is_cut = False  # enough topics were found before all directories had finished
        self._answered: dict[str, None] = {}
        self._finished: dict[str, None] = {}
        self._owners: dict[str, None] = {}
        # directory and request -> the numbers of the pages of its answer, and of the last one, if it came
        self._pages: dict[tuple[str, bytes], tuple[dict[int, None], list[int]]] = {}
        self._left_out: dict[str, str] = {}
        self.found: list[FoundTopic] = []

    def take(self) -> list[FoundTopic]:
        """The topics found since the last call."""
        found, self.found = self.found, []
        return found

    @property
    def has_news(self) -> bool:
        """True if there is something to send or to take."""
        return super().has_news or bool(self.found)

    # -- sending --------------------------------------------------------------------------------------------------

    def _say(self, now: Instant) -> None:
        id = self.draw()
        self._ids[id] = None
        self._watch_id = self._watch_id or id
        self._began_at = self._began_at or now
        search = Search(
            id,
            self.wall_ms(now),
            self._query,
            self._count,
            self.wall_ms(now) + self._timeout_ms,
            WATCH_MS if self._watch else 0,
            self._watch_id if self._watch else b"",
            OWNERS_ANSWERS << 2 * self._owner_attempts if self._asks_owners else 0,
            list(self._grants),
        )
        message = self._statements.write(search)
        if self._asks_owners:
            self.outgoing.append((OWNERS_TOPIC, message))
        elif self._asked:
            missing = [name for name in self._asked if name not in self._finished] or list(self._asked)
            self.outgoing += [(f"{TOPICS_TOPIC}/{name}", message) for name in missing]
        else:
            self.outgoing.append((TOPICS_TOPIC, message))

    def end_watch(self, now: Instant) -> None:
        """End a standing search."""
        self._unwatch(now)
        self.is_over = True

    def _unwatch(self, now: Instant) -> None:
        body = Unwatch(self.draw(), self.wall_ms(now), self._watch_id)
        topics = [f"{TOPICS_TOPIC}/{name}" for name in self._asked] or [TOPICS_TOPIC]
        message = self._statements.write(body)
        self.outgoing += [(topic, message) for topic in topics]

    # -- receiving ------------------------------------------------------------------------------------------------

    def _hear(self, said: Statement, now: Instant) -> None:
        if said.message.kind is not TopicKind.FOUND:
            return
        found = self._statements.body(said, FoundPage)
        if found.id not in self._ids:
            return
        if found.directory != said.entity:
            raise ProtocolError(Reason.SIGNER_NO_DIRECTORY, f"{said.entity} answers for {found.directory}")
        is_directory = said.holder.identity.has(Role.DIRECTORY)
        for item, glance in zip(found.items, self._glance(found.items, said, is_directory, now), strict=True):
            try:
                self._take(item, glance, found.id, said)
            except ProtocolError as error:
                self.refuse(error)
        if not is_directory:
            self._owners[said.entity] = None
            return
        self._answered[said.entity] = None
        if found.reason:
            reason = bodies.reason_of(found.reason)
            self._left_out[said.entity] = f"{reason.word}: {found.text}" if found.text else reason.word
        if self._is_whole(said.entity, found):
            self._finished[said.entity] = None
            self._review(now)

    def _is_whole(self, directory: str, found: FoundPage) -> bool:
        """True if this was the last page of an answer that still lacked: a lost page is asked for again."""
        if not found.page:
            return found.last  # an answer of one page, which may be a refusal
        pages, last = self._pages.setdefault((directory, found.id), ({}, []))
        pages[found.page] = None
        if found.last:
            last[:] = [found.page]
        return bool(last) and len(pages) >= last[0]

    def _glance(
        self, items: Sequence[FoundItem], said: Statement, is_directory: bool, now: Instant
    ) -> list[Glance | ProtocolError]:
        """The items that a directory signed, or why they are refused; signatures of a page are verified together."""
        wall_ns = self.wall_ns(now)
        if not is_directory:
            return [self._glance_owner(item, said, wall_ns) for item in items]
        present = iter(self._statements.glance_all([one.advertise for one in items if one.change != "gone"], wall_ns))
        return [self._glance_gone(item, wall_ns) if item.change == "gone" else next(present) for item in items]

    def _glance_gone(self, item: FoundItem, wall_ns: int) -> Glance | ProtocolError:
        """The topic may have expired, which is what the item reports."""
        try:
            issued_ms = decode_body(Advertise, envelope.decode(item.advertise).payload).issued_ms
        except ProtocolError as error:
            return error
        return self._statements.glance_all([item.advertise], min(wall_ns, issued_ms * NS_PER_MS))[0]

    def _glance_owner(self, item: FoundItem, said: Statement, wall_ns: int) -> Glance | ProtocolError:
        """An owner may report only its own topics."""
        try:
            advertisement, creator, directory = self._statements.read_advertise(item.advertise, wall_ns)
        except ProtocolError as error:
            return error
        if creator.identity.entity != said.entity:
            told = f"{said.entity} answers for a topic of {advertisement.creator}"
            return ProtocolError(Reason.OWNER_OTHER, told)
        return Glance(advertisement, creator.chain_hash, directory)

    def _take(self, item: FoundItem, glance: Glance | ProtocolError, request: bytes, said: Statement) -> None:
        """Keep an item that is valid and new."""
        if isinstance(glance, ProtocolError):
            raise glance
        advertisement, creator_hash, signer = glance
        if not self._watch:
            self._check_answer(advertisement, self._told.setdefault((said.entity, request), {}))
        newest = self._newest.get(advertisement.id)
        gone = item.change == "gone"
        if newest is not None and (newest < 0 if gone else newest >= advertisement.issued_ms):
            return
        if newest is None and len(self._newest) >= KNOWN_MAX:
            raise ProtocolError(Reason.SEARCH_OVER_BUDGET, f"more than {KNOWN_MAX} topics")
        self._newest[advertisement.id] = -1 if gone else advertisement.issued_ms
        change = item.change or ("changed" if newest is not None else "")
        creator_chain = self._statements.keyring.chain(creator_hash)
        chains = (signer.chain,) if creator_chain in (None, signer.chain) else (creator_chain, signer.chain)
        self.found.append(
            FoundTopic(advertisement, signer.identity.entity, said.entity, change, item.advertise, chains)
        )

    def _check_answer(self, advertisement: TopicAdvertisement, told: dict[bytes, None]) -> None:
        """ProtocolError for a topic that was not asked for, that is repeated, or that is one too many."""
        if advertisement.id in told:
            raise ProtocolError(Reason.TOPIC_OLDER, f"{advertisement.uuid} is twice in one answer")
        if len(told) >= self._count:
            raise ProtocolError(Reason.SEARCH_OVER_BUDGET, f"more than the {self._count} topics that were asked for")
        told[advertisement.id] = None
        if not is_asked_for(self._query, advertisement):
            raise ProtocolError(Reason.TOPIC_UNWANTED, f"{advertisement.uuid} is not what was asked for")

    # -- the end --------------------------------------------------------------------------------------------------

    def _review(self, now: Instant) -> None:
        """Finish once all expected directories have. If their number is unknown, wait a little for others."""
        if self._watch:
            self.wake_at = now + WATCH_MS // 3 * NS_PER_MS
            return
        if self._expected:
            if all(name in self._finished for name in self._expected):
                self._finish()
            return
        if len(self._newest) >= self._count and not self._query.newest_first:
            self.is_cut = True  # whatever others have is too much
            self._finish()
        elif all(name in self._finished for name in self._answered):
            self.wake_at = min(self.wake_at, now + SETTLE_MS * NS_PER_MS)

    def _again(self, now: Instant) -> None:
        if self._watch:
            self._renew(now)
        elif self._finished and all(name in self._finished for name in self._answered):
            self._finish()
        elif (
            not self._answered
            and self._owners_too
            and self._query.language != XQUERY
            and now - self._began_at >= MATURITY_MS * NS_PER_MS
        ):
            self._ask_owners(now)
        else:
            self._say_again(now)

    def _ask_owners(self, now: Instant) -> None:
        if self._asks_owners and self._owners:
            self._finish()  # they had enough time
            return
        self._owner_attempts += self._asks_owners
        self._asks_owners = True
        self._say(now)
        self.wake_at = min(self._ends_at, now + OWNERS_RETRY_MS * NS_PER_MS)

    def _renew(self, now: Instant) -> None:
        """Renew a standing search, which never ends by itself; a directory that was down learns of it this way.

        Directories answer a standing search once. If pages of that are missing, it begins anew.
        """
        self._ends_at = now + self._timeout_ms * NS_PER_MS
        if self._answered and all(name in self._finished for name in self._answered):
            self._say(now)
            self.wake_at = now + WATCH_MS // 3 * NS_PER_MS
        else:
            self._unwatch(now)
            self._watch_id = b""
            self._say_again(now)

    def _time_out(self, now: Instant) -> None:
        if self._watch:
            self._renew(now)
        elif self._answered or self._owners:
            for name in {**self._expected, **self._answered}:
                if name not in self._finished:
                    self._left_out.setdefault(name, Reason.TIME_OUT.word)
            self._finish()
        else:
            told = "no topic directory answered, and no owner of a topic"
            if self._query.language == XQUERY:
                told = "no topic directory answered; owners of topics cannot be asked in XQuery"
            self.fail(Reason.DIRECTORIES_MISSING, told)

    def _finish(self) -> None:
        left_out = tuple(f"{name}: {text}" for name, text in self._left_out.items())
        summary = SearchSummary(
            tuple(self._finished), tuple(self._owners), len(self._newest), left_out, dict(self.refused)
        )
        only = [text for name, text in self._left_out.items() if name in self._finished]
        if not self._newest and only and len(only) == len(self._finished):
            reason = next((one for one in Reason if one.word == only[0].split(":")[0]), Reason.QUERY_INVALID)
            if reason is not Reason.SEARCH_OVER_BUDGET:
                self.fail(reason, only[0].partition(": ")[2])
                return
        self.succeed(summary)
