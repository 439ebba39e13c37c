"""Our own topics, at home: kept in a folder between sessions, and shown to searches that no directory answers.

In:    topics that we created, renewed or found; the folder; searches on Services/Discovery/Topics/Owners.
Out:   answers to requesters.
State: our topics (discovery/topics/owners.py), and what of them the folder had when it was last read.
Not here: which searches are answered (discovery/topics/owners.py), files (own_topics_folder.py), conversations
          (topic_desk.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol

from heliograph.discovery.signed_bodies import SIGNED
from heliograph.discovery.topics.creation import OwnTopic
from heliograph.discovery.topics.listing import uuid_text
from heliograph.discovery.topics.messages import OWNERS_TOPIC, TopicKind, TopicMessage, pack
from heliograph.discovery.topics.owners import OwnTopics
from heliograph.discovery.topics.statements import Statements
from heliograph.errors import HeliographError, ProtocolError, Reason, RefusedError
from heliograph.live.own_topics_folder import OwnTopicsFolder
from heliograph.model.publication import Publication

if TYPE_CHECKING:
    from heliograph.discovery.topics.finder import FoundTopic


class OwnerClient(Protocol):
    """What it needs of its client."""

    @property
    def entity(self) -> str:
        """Our entity, as the broker knows it."""
        ...

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish."""
        ...

    def subscribe(self, filter: str = ..., *, callback: Any = ...) -> Any:
        """Subscribe."""
        ...


class TopicHome:
    """The topics of one client's entity."""

    def __init__(self, client: OwnerClient, statements: Callable[[], Statements]) -> None:
        self._client = client
        self._statements = statements
        self._topics: OwnTopics | None = None
        self._made: OwnTopicsFolder | None = None
        self._kept: dict[str, bytes] = {}  # UUIDs that the folder had when we last read or wrote it -> ids
        self._subscription: Any = None
        self._subscribing = asyncio.Lock()

    @property
    def topics(self) -> OwnTopics:
        """Those that we know."""
        if self._topics is None:
            self._topics = OwnTopics(self._statements())
        return self._topics

    @property
    def _folder(self) -> OwnTopicsFolder:
        if self._made is None:
            self._made = OwnTopicsFolder(self._client.entity)
        return self._made

    @property
    def may_have_topics(self) -> bool:
        """True if our folder exists."""
        return bool(self._folder)

    async def come_back(self) -> None:
        """A new session: take up the topics of earlier ones."""
        try:
            await self._restore()
            if len(self.topics):
                await self._present()
        except (HeliographError, OSError):
            pass  # a call about topics tells what is wrong with our key; this program may need none

    async def _restore(self) -> None:
        """Take up the topics of our folder, and let go of those that another program of ours withdrew."""
        found, before = self._folder.read(), self._kept
        self._kept = {uuid: id for uuid, id in before.items() if uuid in found}
        for uuid, id in before.items():
            if uuid not in found:
                self.topics.remove(id)
        for uuid, record in found.items():
            known = self.topics.get(self._kept.get(uuid, b""))
            if known is not None and known.record == record:
                continue
            await asyncio.sleep(0)  # each costs two signatures
            try:
                self._kept[uuid] = self.topics.restore(record, time_ns())
            except ProtocolError as error:
                if error.reason is Reason.TOPIC_EXPIRED:
                    self._folder.forget(uuid)

    async def keep(self, topic: OwnTopic) -> None:
        """A topic of ours was created or renewed: answer searches for it, now and in later sessions."""
        self.topics.add(topic)
        self._write(topic.advertisement.id, topic.record)
        await self._present()

    async def take(self, found: FoundTopic) -> None:
        """A topic of ours was found, perhaps one that was created elsewhere; ignored if it is not valid."""
        record = pack(TopicMessage(TopicKind.ADVERTISE, SIGNED, found.chains, found.record))
        known = self.topics.get(found.advertisement.id)
        if known is not None and known.advertisement.issued_ms >= found.advertisement.issued_ms:
            return
        try:
            self._write(self.topics.restore(record, time_ns()), record)
            await self._present()
        except (ProtocolError, RefusedError):
            pass

    def _write(self, id: bytes, record: bytes) -> None:
        if self._folder.keep(id, record):
            self._kept[uuid_text(id)] = id

    def forget(self, id: bytes) -> None:
        """A topic of ours was withdrawn."""
        self.topics.remove(id)
        self._folder.forget(uuid_text(id))

    async def _present(self) -> None:
        """We own topics: listen to searches that no directory answers."""
        async with self._subscribing:
            if self._subscription is None:
                self._subscription = await self._client.subscribe(OWNERS_TOPIC, callback=self._hear_search)

    async def _hear_search(self, publication: Publication) -> None:
        if self._folder.has_changed:
            await self._restore()
        self.topics.hear(publication.payload, time_ns())
        outgoing, self.topics.outgoing[:] = list(self.topics.outgoing), []
        for topic, payload in outgoing:
            await self._client.publish(topic, payload)
