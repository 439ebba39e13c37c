"""A simulated entity that creates and finds topics: the conversations of discovery/topics over one link to a broker.

In:    conversations to begin; the broker's bytes; time.
Out:   frames; the conversations' results stay in the conversations.
State: a session with one broker at a time, the conversations under way, own topics.
Not here: the conversations (discovery/topics/), a program's client (live/topics.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from heliograph.discovery.topics.creation import OwnTopic
from heliograph.discovery.topics.exchange import TopicConversation
from heliograph.discovery.topics.messages import ENTITY_TOPIC, OWNERS_TOPIC
from heliograph.discovery.topics.owners import OwnTopics
from heliograph.discovery.topics.statements import Statements
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import (
    Address,
    Dial,
    Effects,
    Instant,
    LinkId,
    Outbox,
    Peer,
    SocketName,
    Ticket,
    Timers,
)
from heliograph.model.publication import Publication
from heliograph.services.broker_session import BrokerSession

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

REDIAL_NS = 200_000_000
KEEP_ALIVE_MS = 5_000
BEAT_NS = 500_000_000
SILENT_NS = 2_000_000_000  # of a broker among several: then the next one is dialled


Make = Callable[[Statements, bytes], TopicConversation]
"""Makes a conversation from a party's statements and a seed."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Command: begin this conversation."""

    make: Make


@dataclass(frozen=True, slots=True)
class AskService:
    """Command: ask a service of the broker. A refusal is None; without ``answered``, answers are in ``answers``."""

    service: str
    body: dict[str, Any]
    answered: Callable[[Any, Instant], None] | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """Command: publish this."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Hear:
    """Command: subscribe to this. Publications are in ``heard``."""

    filter: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Command: these are own topics of earlier sessions, as they were kept."""

    records: tuple[bytes, ...]


class TopicParty:
    """A machine (machine.py): one entity."""

    def __init__(
        self,
        entity: str,
        keyring: Keyring,
        broker: Address,
        seed: bytes,
        *,
        secure: bool = True,
        others: tuple[Address, ...] = (),
    ) -> None:
        self.entity = entity
        self._dials = tuple(Dial(*address, secure=secure) for address in (broker, *others))
        self._tries = 0
        self._heard_at: Instant = 0
        self._seed = seed
        self._outbox = Outbox()
        self._timers = Timers()
        self._clock = WallTime()
        self.statements = Statements(keyring)
        self._session: BrokerSession | None = None
        self._links = 0
        self._own = OwnTopics(self.statements)
        self._begun = 0
        self.conversations: list[TopicConversation] = []
        self.answers: list[Any] = []
        self.heard: list[bytes] = []

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The first reading marks the start."""
        is_first = self._clock.at(now) is None
        self._clock.read(wall_ns, now)
        if is_first:
            self._redial()

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker has answered."""
        self._links += 1
        secret = sha256(self._seed + b"link" + self._links.to_bytes(4, "little")).digest()
        self._session = session = BrokerSession(link, self._outbox, secret)
        session.hello(self.entity, keep_alive_ms=KEEP_ALIVE_MS)
        session.subscribe(f"{ENTITY_TOPIC}/{self.entity}".encode(), self._heard)
        session.subscribe(OWNERS_TOPIC.encode(), self._searched)
        self._heard_at = now
        if len(self._dials) > 1:
            self._beat(now)
        self._pump(now)

    def _beat(self, now: Instant) -> None:
        """A broker that is silent may be cut off from us: with others to go to, we do not wait."""
        if self._session is None:
            return
        if now - self._heard_at > SILENT_NS:
            self._session.give_up(Reason.SILENT)
            return
        self._session.beat()
        self._timers.set("beat", now + BEAT_NS, self._beat)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Read bytes of the broker."""
        if self._session is None or self._session.link != link:
            return
        self._heard_at = now
        self._session.receive(data, now)
        if self._session.fault is not None:
            self._outbox.hang_up(link, self._session.fault)
        self._pump(now)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link is gone: dial the next broker."""
        if self._session is not None and self._session.link == link:
            self._session = None
        self._try_next(now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """No broker answered."""
        self._try_next(now)

    def _try_next(self, now: Instant) -> None:
        self._tries += 1
        self._timers.set("dial", now + REDIAL_NS, lambda now: self._redial())

    def _redial(self) -> None:
        if self._session is None:
            self._outbox.dial(self._dials[self._tries % len(self._dials)])

    def tell(self, command: Any, now: Instant) -> None:
        """Handle Begin, AskService, Say, Hear or Restore."""
        session = self._session
        if isinstance(command, Restore):
            self._restore(command.records, now)
            return
        if isinstance(command, AskService | Say | Hear):
            if session is None:
                return  # there is no broker, so it is lost
            if isinstance(command, AskService):
                answered = command.answered or (lambda answer, now: self.answers.append(answer))
                session.ask(command.service.encode(), command.body, answered)
            elif isinstance(command, Say):
                session.publish(command.topic.encode(), command.payload)
            else:
                self.listen(command.filter, lambda heard, now: self.heard.append(heard.payload))
            return
        if not isinstance(command, Begin):
            raise UsageError(f"a party does not know the command {command!r}")
        self.begin(command.make, now)
        self._pump(now)

    def listen(self, filter: str, deliver: Callable[[Publication, Instant], None]) -> None:
        """Subscribe on the present link; without one, nothing happens."""
        if self._session is not None:
            self._session.subscribe(filter.encode(), deliver)

    def begin(self, make: Make, now: Instant) -> TopicConversation:
        """Begin a conversation."""
        seed = sha256(self._seed + self._begun.to_bytes(4, "little")).digest()
        self._begun += 1
        conversation = make(self.statements, seed)
        self.conversations.append(conversation)
        wall_ns = self._clock.at(now)
        assert wall_ns is not None
        conversation.start(wall_ns, now)
        return conversation

    def _restore(self, records: tuple[bytes, ...], now: Instant) -> None:
        wall_ns = self._clock.at(now)
        assert wall_ns is not None
        for record in records:
            with suppress(ProtocolError):  # not valid, or not ours
                self._own.restore(record, wall_ns)

    def _heard(self, publication: Publication, now: Instant) -> None:
        for conversation in self.conversations:
            conversation.hear(publication.payload, now)

    def _searched(self, publication: Publication, now: Instant) -> None:
        wall_ns = self._clock.at(now)
        if wall_ns is not None:
            self._own.hear(publication.payload, wall_ns)

    def _pump(self, now: Instant) -> None:
        """Publish for conversations; without a broker it is lost, and they will repeat it."""
        due: Instant | None = None
        for conversation in self.conversations:
            if isinstance(conversation.result, OwnTopic):
                self._own.add(conversation.result)
            self._say(conversation.outgoing)
            if not conversation.is_over:
                due = conversation.wake_at if due is None else min(due, conversation.wake_at)
        self._say(self._own.outgoing)
        if due is not None:
            self._timers.set("conversations", due, self._woken)

    def _say(self, outgoing: list[tuple[str, bytes]]) -> None:
        for topic, payload in outgoing:
            if self._session is not None:
                self._session.publish(topic.encode(), payload)
        outgoing.clear()

    def _woken(self, now: Instant) -> None:
        for conversation in self.conversations:
            conversation.wake(now)
        self._pump(now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """It has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """It writes too little for this to matter."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """It asks only for links."""

    def take(self) -> Effects:
        """All effects since the last take."""
        return self._outbox.empty(self._timers.next())

    @property
    def refused(self) -> list[str]:
        """What the broker refused on this link."""
        return [] if self._session is None else self._session.refused

    def report(self, question: str) -> Any:
        """The state of its conversations."""
        return {
            "conversations": [
                "under way" if not one.is_over else "done" if one.error is None else str(one.error)
                for one in self.conversations
            ]
        }
