"""Owners that are online: they answer searches for their own topics when no directory does.

In:    searches on Services/Discovery/Topics/Owners; the topics that this party created, in this session or earlier.
Out:   FOUND messages to requesters.
State: its own topics, bounded, and the ids of the freshness window.
Not here: searching (finder.py), directories (directory.py), keeping topics between sessions
          (live/own_topics_folder.py).
Paper: [topics] §6.4, §7: as in peer-to-peer systems, with a time to live.

A search spreads to every owner. Its expiry and its budget of answers bound the traffic: of many owners only about as
many answer as the budget says, chosen by a hash that each of them computes for itself.
"""

from __future__ import annotations

from hashlib import sha256

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.creation import OwnTopic
from heliograph.discovery.topics.messages import ENTITY_TOPIC, FoundItem, FoundPage, Search
from heliograph.discovery.topics.queries import XQUERY, Matcher, entry_of, question_of
from heliograph.discovery.topics.statements import NS_PER_MS, Statements
from heliograph.errors import ProtocolError, Reason

TOPICS_MAX = 4_096
OWNERS_GUESSED = 1_024  # assumed number of owners: the real one is unknown, so requesters begin low and ask for more


class OwnTopics:
    """The topics of one owner that is online."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._topics: dict[bytes, OwnTopic] = {}
        self.outgoing: list[tuple[str, bytes]] = []
        self.refused = 0

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, topic: OwnTopic) -> None:
        """A topic that we created or renewed."""
        if len(self._topics) < TOPICS_MAX or topic.advertisement.id in self._topics:
            self._topics[topic.advertisement.id] = topic

    def restore(self, record: bytes, wall_ns: int) -> bytes:
        """A topic of an earlier session, as it was kept; returns its id. Of two versions the newer one counts.

        ProtocolError unless it is a valid topic of ours.
        """
        message = messages.unpack(record)
        self._statements.learn(message.chains, wall_ns)
        advertisement, creator, directory = self._statements.read_advertise(message.body, wall_ns)
        own = self._statements.keyring.own
        assert own is not None
        me = self._statements.keyring.holder(own.chain_hash, wall_ns).identity.entity
        if creator.identity.entity != me:
            raise ProtocolError(Reason.OWNER_OTHER, f"{advertisement.uuid} is a topic of {creator.identity.entity}")
        known = self._topics.get(advertisement.id)
        if known is None or known.advertisement.issued_ms < advertisement.issued_ms:
            self.add(OwnTopic(advertisement, record, directory.identity.entity))
        return advertisement.id

    def remove(self, id: bytes) -> None:
        """It was withdrawn."""
        self._topics.pop(id, None)

    def get(self, id: bytes) -> OwnTopic | None:
        """One of them."""
        return self._topics.get(id)

    def hear(self, payload: bytes, wall_ns: int) -> None:
        """A search; invalid ones are counted, and not answered."""
        try:
            said = self._statements.read(payload, wall_ns)
            search = self._statements.body(said, Search)
            self._statements.check_fresh(said, search.id, search.issued_ms, wall_ns)
            wall_ms = wall_ns // NS_PER_MS
            if search.query.language == XQUERY:
                raise ProtocolError(Reason.QUERY_LANGUAGE_MISSING, "only directories have a process for XQuery")
            matcher = Matcher(question_of(search.query, said.entity, wall_ms))
        except ProtocolError:
            self.refused += 1
            return
        own = self._statements.keyring.own
        assert own is not None
        if (search.until_ms and search.until_ms < wall_ms) or not self._is_among(search, own.chain_hash):
            return
        me = self._statements.keyring.holder(own.chain_hash, wall_ns).identity.entity
        chains: dict[bytes, None] = {}
        items: list[FoundItem] = []
        for topic in self._topics.values():
            if len(items) < search.count and matcher.matches(entry_of(topic.advertisement, topic.record)):
                message = messages.unpack(topic.record)
                chains.update(dict.fromkeys(message.chains))
                items.append(FoundItem(message.body))
        if items:
            found = FoundPage(search.id, me, items[:100], last=True)
            answer = self._statements.write(found, said.holder, tuple(chains))
            self.outgoing.append((f"{ENTITY_TOPIC}/{said.entity}", answer))

    def _is_among(self, search: Search, own: bytes) -> bool:
        """True if we are one of the owners that should answer."""
        if not search.answers or search.answers >= OWNERS_GUESSED:
            return True
        draw = int.from_bytes(sha256(search.id + own).digest()[:4], "big")
        return draw * OWNERS_GUESSED < search.answers * (1 << 32) or bool(search.query.topics or search.query.owner)
