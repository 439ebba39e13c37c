"""Creating a topic: find a directory, have it sign, check what it signed, countersign, publish.

In:    the creator's request; answers of directories.
Out:   OwnTopic: the advertisement, signed twice, as directories keep it.
State: the current step, and the directories that answered.
Not here: the directory's side (directory.py), finding topics (finder.py), rights (grants.py).
Paper: [topics] §4.1, §5, and the six steps of §8.

A failed creation leaves nothing behind: a directory keeps no state of it, and a topic exists only once advertised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliograph.discovery.signed_bodies import SIGNED
from heliograph.discovery.topics import messages
from heliograph.discovery.topics.exchange import TopicConversation
from heliograph.discovery.topics.listing import Creation, TopicAdvertisement, check_creation
from heliograph.discovery.topics.messages import (
    DIRECTORIES_TOPIC,
    TOPICS_TOPIC,
    Advertise,
    Create,
    Created,
    Locate,
    Located,
    Renew,
    TopicAcknowledged,
    TopicKind,
    TopicMessage,
    WithdrawTopic,
)
from heliograph.discovery.topics.statements import NS_PER_MS, Statement, Statements
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import Instant
from heliograph.model.identity import Role
from heliograph.wire import bodies

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder

DIRECTORIES_MAX = 16  # directories that answered and can be tried
TRIES_PER_DIRECTORY = 3
REFUSED_MS = 300  # how long to wait for others after a first refusal

LOCATING, CREATING, ADVERTISING = "locate", "create", "advertise"


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """A topic that we created, or renewed."""

    advertisement: TopicAdvertisement
    record: bytes  # the countersigned advertisement with its chains, as directories keep it
    directory: str  # the directory that signed it
    stored_by: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        """The topic to publish on and to subscribe to."""
        return self.advertisement.synopsis.topic


@dataclass(frozen=True, slots=True)
class Renewal:
    """A topic of ours that is to be renewed."""

    advertisement: bytes  # as its directory signed it
    chains: tuple[bytes, ...]
    lifetime_s: int


class TopicCreation(TopicConversation):
    """The creator's side of a creation, or of a renewal. ``result`` is an OwnTopic."""

    def __init__(
        self,
        statements: Statements,
        wanted: Creation | Renewal,
        seed: bytes,
        *,
        directory: str = "",
        timeout_ms: int = 10_000,
    ) -> None:
        super().__init__(statements, seed, timeout_ms)
        if isinstance(wanted, Creation):
            try:
                check_creation(wanted)
            except ProtocolError as error:
                raise UsageError(str(error)) from None
        self._wanted = wanted
        self._directory = directory
        self._step = LOCATING
        self._ids: dict[bytes, str] = {}  # message -> the step that it belongs to
        self._candidates: list[Holder] = []  # directories that answered, best first
        self._tried: dict[str, int] = {}
        self._advertise = b""  # signed by both
        self._signed = b""  # signed by the directory
        self._advertisement: TopicAdvertisement | None = None
        self._signer: Holder | None = None

    @property
    def step(self) -> str:
        """LOCATING, CREATING or ADVERTISING."""
        return self._step

    # -- sending --------------------------------------------------------------------------------------------------

    def _say(self, now: Instant) -> None:
        id = self.draw()
        self._ids[id] = self._step
        if self._step == LOCATING:
            suffix = f"/{self._directory}" if self._directory else ""
            institution = self._wanted.institution if isinstance(self._wanted, Creation) else ""
            locate = Locate(id, self.wall_ms(now), institution)
            self.outgoing.append((DIRECTORIES_TOPIC + suffix, self._statements.write(locate)))
        elif self._step == CREATING:
            self._ask(id, self._candidates[0], now)
        else:
            assert self._signer is not None
            assert self._advertisement is not None
            self._countersign(id, now)
            message = self._statements_message()
            self.outgoing.append((TOPICS_TOPIC, message))

    def _ask(self, id: bytes, directory: Holder, now: Instant) -> None:
        name = directory.identity.entity
        self._tried[name] = self._tried.get(name, 0) + 1
        body: Create | Renew
        chains: tuple[bytes, ...] = ()
        if isinstance(self._wanted, Creation):
            body = Create(id, self.wall_ms(now), self._wanted)
        else:
            body = Renew(id, self.wall_ms(now), self._wanted.lifetime_s, self._wanted.advertisement)
            chains = self._wanted.chains
        self.outgoing.append((f"{DIRECTORIES_TOPIC}/{name}", self._statements.write(body, directory, chains)))

    def _countersign(self, id: bytes, now: Instant) -> None:
        """The creator's signature, new for every attempt: a statement that was seen before counts as a repeat."""
        keyring = self._statements.keyring
        body = messages.encode_body(Advertise(id, self.wall_ms(now), self._signed))
        self._advertise = keyring.sign(messages.domain_of(TopicKind.ADVERTISE), body)

    def _statements_message(self) -> bytes:
        own = self._statements.keyring.own
        assert own is not None
        assert self._signer is not None
        chains = tuple(dict.fromkeys((own.chain, self._signer.chain)))
        return messages.pack(TopicMessage(TopicKind.ADVERTISE, SIGNED, chains, self._advertise))

    # -- receiving ------------------------------------------------------------------------------------------------

    def _hear(self, said: Statement, now: Instant) -> None:
        match said.message.kind:
            case TopicKind.LOCATED:
                self._located(said, self._statements.body(said, Located), now)
            case TopicKind.CREATED:
                self._created(said, self._statements.body(said, Created), now)
            case TopicKind.ACKNOWLEDGED:
                self._acknowledged(said, self._statements.body(said, TopicAcknowledged), now)

    def _located(self, said: Statement, located: Located, now: Instant) -> None:
        """The first directory that answers is the nearest; the others are used if it fails."""
        if self._ids.get(located.id) != LOCATING:
            return
        said.holder.check_role(Role.DIRECTORY)
        if located.directory != said.entity or (self._directory and said.entity != self._directory):
            raise ProtocolError(Reason.SIGNER_NO_DIRECTORY, f"{said.entity} answers for {located.directory}")
        known = [holder.identity.entity for holder in self._candidates]
        if said.entity not in known and len(known) < DIRECTORIES_MAX:
            self._candidates.append(said.holder)
        if self._step == LOCATING:
            self._enter(CREATING, now)

    def _enter(self, step: str, now: Instant) -> None:
        self.next_step(self._step, now)
        self._step = step
        self._say_again(now)

    def _created(self, said: Statement, created: Created, now: Instant) -> None:
        if self._step != CREATING or self._ids.get(created.id) != CREATING:
            return
        if said.entity != self._candidates[0].identity.entity:
            return  # from a directory that we gave up on; the topic that it signed will never exist
        if created.reason:
            self.refuse(ProtocolError(bodies.reason_of(created.reason), created.text))
            self._give_up_directory(now)
            return
        try:
            self._check(created.advertisement, said, now)
        except ProtocolError as error:
            self.refuse(ProtocolError(Reason.CREATION_FAILED, f"{said.entity}: {error}"))
            self._give_up_directory(now)
            return
        self._enter(ADVERTISING, now)

    def _check(self, signed: bytes, said: Statement, now: Instant) -> None:
        """A directory may lie: accept only what we asked for, in our own name."""
        advertisement, signer = self._statements.read_advertisement(signed, self.wall_ns(now))
        if signer.identity.entity != said.entity:
            raise ProtocolError(Reason.SIGNER_NO_DIRECTORY, f"signed by {signer.identity.entity}")
        if isinstance(self._wanted, Creation):
            if advertisement.creation != self._wanted:
                raise ProtocolError(Reason.CREATION_FAILED, "it is not what was asked for")
        else:
            old, _ = self._statements.read_advertisement(self._wanted.advertisement, self.wall_ns(now))
            if (advertisement.id, advertisement.creation) != (old.id, old.creation):
                raise ProtocolError(Reason.CREATION_FAILED, "it is another topic")
        self._signed, self._advertisement, self._signer = signed, advertisement, signer

    def _acknowledged(self, said: Statement, answer: TopicAcknowledged, now: Instant) -> None:
        if self._step != ADVERTISING or self._ids.get(answer.id) != ADVERTISING:
            return
        said.holder.check_role(Role.DIRECTORY)
        if answer.reason:
            reason = bodies.reason_of(answer.reason)
            self.refuse(ProtocolError(reason, f"{said.entity}: {answer.text}"))
            return
        assert self._advertisement is not None
        assert self._signer is not None
        self.next_step(ADVERTISING, now)
        record = self._statements_message()
        self.succeed(OwnTopic(self._advertisement, record, self._signer.identity.entity, (said.entity,)))

    # -- without an answer ----------------------------------------------------------------------------------------

    def _again(self, now: Instant) -> None:
        if self._step == CREATING and self._tried[self._candidates[0].identity.entity] >= TRIES_PER_DIRECTORY:
            self._give_up_directory(now)
        else:
            self._say_again(now)

    def _give_up_directory(self, now: Instant) -> None:
        """Try the next directory; if there is none, look again for one that has not refused us."""
        self._candidates.pop(0)
        self._candidates = [one for one in self._candidates if one.identity.entity not in self._tried]
        if self._candidates:
            self._say_again(now)
        elif len(self._tried) > 1 or self.refusals:
            self.fail(Reason.CREATION_FAILED, "no directory created the topic")
        else:
            self._step = LOCATING
            self._tried.clear()
            self._say_again(now)

    def _time_out(self, now: Instant) -> None:
        if self._step == LOCATING:
            self.fail(Reason.DIRECTORIES_MISSING, f"no topic directory answered in {self._timeout_ms} ms")
        elif self._step == CREATING:
            self.fail(Reason.CREATION_FAILED, f"the topic directory did not answer in {self._timeout_ms} ms")
        else:
            self.fail(Reason.ADVERTISEMENT_UNSTORED, f"no directory stored the topic in {self._timeout_ms} ms")


class TopicWithdrawal(TopicConversation):
    """The owner withdraws a topic. ``result`` names the directory that confirmed it first."""

    def __init__(self, statements: Statements, topic: bytes, seed: bytes, *, timeout_ms: int = 10_000) -> None:
        super().__init__(statements, seed, timeout_ms)
        self._topic = topic
        self._ids: dict[bytes, None] = {}

    def _say(self, now: Instant) -> None:
        id = self.draw()
        self._ids[id] = None
        body = WithdrawTopic(id, self.wall_ms(now), self._topic)
        self.outgoing.append((TOPICS_TOPIC, self._statements.write(body)))

    def _hear(self, said: Statement, now: Instant) -> None:
        answer = self._statements.body(said, TopicAcknowledged)
        if answer.id not in self._ids:
            return
        said.holder.check_role(Role.DIRECTORY)
        if answer.reason:
            self.refuse(ProtocolError(bodies.reason_of(answer.reason), f"{said.entity}: {answer.text}"))
            self._ends_at = min(self._ends_at, now + REFUSED_MS * NS_PER_MS)  # another directory may have it
            self.wake_at = min(self.wake_at, self._ends_at)
        else:
            self.succeed(said.entity)

    def _time_out(self, now: Instant) -> None:
        self.fail(Reason.TOPIC_UNKNOWN, "no directory withdrew the topic")


class DirectoryRoll(TopicConversation):
    """Lists the directories. ``result`` has their names."""

    def __init__(self, statements: Statements, seed: bytes, *, timeout_ms: int = 1_000) -> None:
        super().__init__(statements, seed, timeout_ms)
        self._ids: dict[bytes, None] = {}
        self._found: dict[str, None] = {}

    def _say(self, now: Instant) -> None:
        id = self.draw()
        self._ids[id] = None
        self.outgoing.append((DIRECTORIES_TOPIC, self._statements.write(Locate(id, self.wall_ms(now), creates=False))))

    def _hear(self, said: Statement, now: Instant) -> None:
        located = self._statements.body(said, Located)
        said.holder.check_role(Role.DIRECTORY)
        if located.id in self._ids and len(self._found) < 1_024:
            self._found[said.entity] = None

    def _time_out(self, now: Instant) -> None:
        self.succeed(sorted(self._found))
