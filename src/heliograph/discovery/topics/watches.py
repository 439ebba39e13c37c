"""Standing searches at a topic directory: which requesters are told when a topic appears, changes or goes.

In:    standing searches, renewed by their requesters; entries that changed.
Out:   the watches that accept an entry.
State: at most ``watches_max`` watches, ``per_entity_max`` of one entity, each until it expires.
Not here: telling requesters (change_teller.py), searching what is stored (topic_searches.py).

Watches in a language of subscriptions share an index, as subscriptions do. The others are tested one by one, so there
are fewer of them. If there is no room, the entity with the most watches loses its newest one, which it learns when it
renews it: nobody keeps others out. However much room there is, an entity has few, because each costs a signed and
sealed message for each change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from heliograph.discovery.topics.held_grants import Held
from heliograph.discovery.topics.queries import CONDITIONS, Matcher, event_of
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant
from heliograph.matching.boxes.index import IndexFullError
from heliograph.matching.condition import Condition
from heliograph.matching.contents import ContentTable
from heliograph.matching.languages import condition_of
from heliograph.repository import TopicEntry, TopicQuestion

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder

PLAIN_MAX = 1_024  # watches that are tested one by one: about 2 ms per change
_ALL = b"#"
_TOPIC = b"topic"


@dataclass(frozen=True, slots=True)
class Watch:
    """One standing search."""

    id: bytes
    asker: Holder
    question: TopicQuestion
    held: Held  # rights that let it find hidden topics, as long as they are in force
    matcher: Matcher
    condition: Condition | None  # None: it is tested by itself
    until: Instant

    @property
    def key(self) -> tuple[str, bytes]:
        """Includes the entity, so that no entity can end another's search."""
        return (self.asker.identity.entity, self.id)


class Watches:
    """All standing searches of a directory."""

    def __init__(self, watches_max: int, per_entity_max: int) -> None:
        self._watches_max = watches_max
        self._per_entity_max = per_entity_max
        self._counts: Counter[str] = Counter()  # watches of each entity
        self._watches: dict[tuple[str, bytes], Watch] = {}
        self._indexed: ContentTable[tuple[str, bytes]] = ContentTable()
        self._plain: dict[tuple[str, bytes], None] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def reload(self, watches_max: int, per_entity_max: int) -> None:
        """Apply new limits; watches beyond them stay until they expire."""
        self._watches_max = watches_max
        self._per_entity_max = per_entity_max

    def add(self, id: bytes, asker: Holder, question: TopicQuestion, held: Held, until: Instant) -> bool:
        """Keep or renew a watch. Returns True if it is new. ProtocolError if there are too many."""
        key = (asker.identity.entity, id)
        is_new = key not in self._watches
        condition = condition_of(question.language, question.text) if question.language in CONDITIONS else None
        if is_new and self._counts[key[0]] >= self._per_entity_max:
            raise ProtocolError(
                Reason.SEARCHES_OVER_LIMIT, f"at most {self._per_entity_max} standing searches of one entity"
            )
        if is_new and len(self._watches) >= self._watches_max:
            self._make_room(key[0], self._watches, f"at most {self._watches_max} standing searches")
        if condition is None and key not in self._plain and len(self._plain) >= PLAIN_MAX:
            self._make_room(key[0], self._plain, f"at most {PLAIN_MAX} standing searches without an index")
        self.remove(*key)
        watch = Watch(id, asker, question, held, Matcher(question), condition, until)
        if condition is None:
            self._plain[key] = None
        else:
            try:
                self._indexed.add(_ALL, condition, key)
            except IndexFullError as error:
                raise ProtocolError(Reason.SEARCHES_OVER_LIMIT, str(error)) from None
        self._watches[key] = watch
        self._counts[key[0]] += 1
        return is_new

    def _make_room(self, entity: str, places: Mapping[tuple[str, bytes], object], said: str) -> None:
        """End a watch of the entity that has the most of these; ProtocolError if that is the one who asks."""
        counts = Counter(owner for owner, _ in places)
        most, count = max(counts.items(), key=itemgetter(1))
        if count <= counts[entity] + 1:
            raise ProtocolError(Reason.SEARCHES_OVER_LIMIT, said)
        self.remove(*next(key for key in reversed(list(places)) if key[0] == most))

    def has(self, entity: str, id: bytes) -> bool:
        """True if there is this standing search."""
        return (entity, id) in self._watches

    def entities(self, language: str) -> list[str]:
        """The entities with standing searches in a language without an index, one for each search."""
        return [entity for entity, id in self._plain if self._watches[entity, id].question.language == language]

    def remove(self, entity: str, id: bytes) -> bool:
        """End a standing search. Returns False if there is none."""
        key = (entity, id)
        watch = self._watches.pop(key, None)
        if watch is None:
            return False
        self._counts[entity] -= 1
        if not self._counts[entity]:
            del self._counts[entity]
        if watch.condition is None:
            del self._plain[key]
        else:
            self._indexed.remove(_ALL, watch.condition, key)
        return True

    def expire(self, now: Instant) -> None:
        """End the watches that were not renewed."""
        for watch in [watch for watch in self._watches.values() if watch.until <= now]:
            self.remove(*watch.key)

    def concerned(self, entry: TopicEntry) -> list[Watch]:
        """The watches that accept this entry."""
        event = event_of(entry)
        found = [
            self._watches[key]
            for field in self._indexed.fields(_TOPIC)
            for one in field.match(event)
            for key in one.values
        ]
        found = [watch for watch in found if watch.matcher.may_see(entry) and watch.matcher.fits(entry)]
        return found + [watch for key in self._plain if (watch := self._watches[key]).matcher.matches(entry)]
