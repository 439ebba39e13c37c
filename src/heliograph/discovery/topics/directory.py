"""The topic directory (TDN): signs new topics, keeps topic advertisements and answers searches for them.

In:    publications on Services/Discovery/…, from links to brokers or from its pipe; answers of its repository.
Out:   signed and sealed answers on Entity/<entity>; changes and queries for the repository.
State: ids of the freshness window, standing searches, searches in progress, known revocations; topics are in the
       repository.
Not here: what is stored (policy.py), matching (queries.py), links to brokers (discovery/anchors.py), databases.
Paper: [topics] §4, §5, §6.

A directory keeps no state of a creation: publishing the signed advertisement is up to the creator.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heliograph.discovery.anchors import Anchors, AnchorSettings
from heliograph.discovery.brokers.config import address_of
from heliograph.discovery.brokers.questions import Questions
from heliograph.discovery.buckets import Buckets
from heliograph.discovery.list_learner import ListLearner
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.grants import check_revoked, owner_right
from heliograph.discovery.topics.held_grants import HeldGrants
from heliograph.discovery.topics.messages import (
    DIRECTORIES_TOPIC,
    ENTITY_TOPIC,
    TOPICS_TOPIC,
    Advertise,
    Create,
    Created,
    Locate,
    Located,
    Renew,
    Search,
    TopicAcknowledged,
    TopicBody,
    TopicKind,
    TopicMessage,
    Unwatch,
    WithdrawTopic,
    pack,
)
from heliograph.discovery.topics.policy import TopicPolicy
from heliograph.discovery.topics.queries import entry_of
from heliograph.discovery.topics.revocation_learner import RevocationLearner
from heliograph.discovery.topics.signer import TopicSigner
from heliograph.discovery.topics.statements import NS_PER_MS, Statement, Statements
from heliograph.discovery.topics.topic_searches import TopicSearches
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import (
    Address,
    Effects,
    Instant,
    LinkId,
    Outbox,
    Peer,
    SocketName,
    Ticket,
    Timers,
    TurnedAway,
)
from heliograph.model.chance import Seed
from heliograph.model.publication import Publication
from heliograph.notes import PeerRefused, TopicDirectoryOpened, TopicsOutdated
from heliograph.repository import KeepTopics, KeptTopics, RepositoryFailed, RepositoryOpened
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind
from heliograph.wire.splitter import Splitter

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

TICK_NS = 1_000 * NS_PER_MS
SEEN_MAX = 4_096  # publications received over one link that may arrive over another
GUESTS_MAX = 64
QUESTION_BYTES_MAX = 4_096

Done = Callable[[Any, Instant], None]
Rescue = Callable[[], None]


class ReloadTopicDirectory:
    """Told to a topic directory: apply these settings."""

    def __init__(self, config: TopicDirectoryConfig) -> None:
        self.config = config


class TopicDirectory:
    """A machine (machine.py): one topic directory.

    It has 31 methods because the contract takes twelve of them, and each kind of message one.
    """

    def __init__(self, config: TopicDirectoryConfig, *, seed: Seed, keyring: Keyring) -> None:
        assert keyring.own is not None
        self._config = self._started = config
        self._outbox = Outbox()
        self._timers = Timers()
        self._clock = WallTime()
        self._counts: Counter[str] = Counter()
        self._keyring = keyring
        self._statements = Statements(keyring)
        self._name = ""
        self._buckets = Buckets(config.rate_per_s, config.burst, config.entities_max)
        self._seen: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._guests: dict[LinkId, Splitter] = {}
        self._questions = Questions(config.local_digest, self.report)
        self._done: dict[Ticket, tuple[Done, Rescue | None]] = {}
        self._topics = 0
        self._opened = False
        self._anchors: Anchors | None = None
        self._seed = seed
        self._attached: list[tuple[LinkId, Peer]] = []  # links from before the first reading of the clock

    # -- the start ------------------------------------------------------------------------------------------------

    def clock(self, wall_ns: int, now: Instant) -> None:
        """On the first reading it checks its own certificate, from which it takes its name."""
        self._clock.read(wall_ns, now)
        if self._anchors is not None:
            self._anchors.clock(wall_ns, now)
            return
        own = self._keyring.own
        assert own is not None
        try:
            self._name = self._keyring.learn(own.chain, wall_ns).identity.entity
        except ProtocolError as error:
            self._outbox.note(PeerRefused(0, error.reason, f"the directory's own certificate: {error.detail}"))
            self._outbox.finish()
            return
        self._policy = TopicPolicy(self._config, self._name)
        self._signer = TopicSigner(self._config, self._name, self._seed, self._statements, self._policy)
        self._learner = ListLearner(self._keyring, self._clock, self._counts)
        self._revocations = RevocationLearner(self._statements, self._clock, self._counts)
        grants = HeldGrants(self._statements, self._revocations.known, self._clock)
        self._searches = TopicSearches(
            *(self._config, self._name, grants, self._outbox, self._timers, self._ask, self._say, self._counts)
        )
        self._anchors = Anchors(self._anchor_settings(), self._seed, self._outbox, self._timers, self._heard)
        self._anchors.clock(wall_ns, now)
        self._anchors.start(now)
        for link, peer in self._attached:
            self._anchors.attach(link, peer, now)
        self._timers.set("tick", now + TICK_NS, self._tick)

    def _anchor_settings(self) -> AnchorSettings:
        name = self._name
        topics = (TOPICS_TOPIC, f"{TOPICS_TOPIC}/{name}", DIRECTORIES_TOPIC, f"{DIRECTORIES_TOPIC}/{name}")
        return AnchorSettings(
            name=name,
            brokers=tuple(address for text in self._config.links if (address := address_of(text)) is not None),
            topics=tuple(map(str.encode, topics)),
            secure=self._config.links_secure,
        )

    # -- receiving ------------------------------------------------------------------------------------------------

    def _heard(self, publication: Publication, now: Instant) -> None:
        """A publication on one of its topics."""
        if publication.id in self._seen:
            return
        self._seen[publication.id] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        try:
            wall_ns = self._clock.at(now)
            said = self._statements.read(publication.payload, wall_ns)
            assert wall_ns is not None
            if not self._buckets.may(said.entity, now):
                raise ProtocolError(Reason.RATE_OVER_LIMIT, said.entity)
            self._take(said, wall_ns, now)
        except ProtocolError as error:
            self._counts[error.reason.word] += 1

    def _take(self, said: Statement, wall_ns: int, now: Instant) -> None:
        match said.message.kind:
            case TopicKind.LOCATE:
                self._locate(said, self._statements.body(said, Locate), wall_ns)
            case TopicKind.CREATE:
                self._create(said, self._statements.body(said, Create), wall_ns)
            case TopicKind.RENEW:
                self._renew(said, self._statements.body(said, Renew), wall_ns)
            case TopicKind.ADVERTISE:
                self._advertise(said, self._statements.body(said, Advertise), wall_ns)
            case TopicKind.WITHDRAW:
                self._withdraw(said, self._statements.body(said, WithdrawTopic), wall_ns)
            case TopicKind.SEARCH:
                search = self._statements.body(said, Search)
                self._statements.check_fresh(said, search.id, search.issued_ms, wall_ns)
                self._policy.check_asker(said.entity)
                self._searches.search(said, search, wall_ns, now)
                self._counts["searches"] += 1
            case TopicKind.UNWATCH:
                unwatch = self._statements.body(said, Unwatch)
                self._statements.check_fresh(said, unwatch.id, unwatch.issued_ms, wall_ns)
                self._searches.watches.remove(said.entity, unwatch.search)
            case kind:
                raise ProtocolError(Reason.KIND_UNEXPECTED, kind.name)

    # -- creation -------------------------------------------------------------------------------------------------

    def _locate(self, said: Statement, locate: Locate, wall_ns: int) -> None:
        self._statements.check_fresh(said, locate.id, locate.issued_ms, wall_ns)
        self._policy.check_asker(said.entity)
        if locate.creates and not self._config.creates:
            raise ProtocolError(Reason.CREATION_REFUSED)
        self._say(Located(locate.id, self._name), said.holder)
        self._counts["located"] += 1

    def _create(self, said: Statement, create: Create, wall_ns: int) -> None:
        self._statements.check_fresh(said, create.id, create.issued_ms, wall_ns)
        self._answer_creation("created", self._signer.create(said, create, wall_ns), said)

    def _renew(self, said: Statement, renew: Renew, wall_ns: int) -> None:
        self._statements.check_fresh(said, renew.id, renew.issued_ms, wall_ns)
        self._answer_creation("renewed", self._signer.renew(said, renew, wall_ns, self._revocations.known.has), said)

    def _answer_creation(self, what: str, answer: Created, said: Statement) -> None:
        self._counts[bodies.reason_of(answer.reason).word if answer.reason else what] += 1
        self._say(answer, said.holder)

    # -- storing --------------------------------------------------------------------------------------------------

    def _advertise(self, said: Statement, advertise: Advertise, wall_ns: int) -> None:
        self._statements.check_fresh(said, advertise.id, advertise.issued_ms, wall_ns)
        try:
            advertisement, creator, signer = self._statements.read_advertise(said.signed, wall_ns)
            self._policy.check_advertisement(advertisement, signer.identity.entity)
            check_revoked(owner_right(advertisement), self._revocations.known.has)
        except ProtocolError as error:
            self._counts[error.reason.word] += 1
            self._acknowledge(advertise.id, error.reason, error.detail, said.holder)
            return
        chains = dict.fromkeys((creator.chain, signer.chain))
        record = pack(TopicMessage(TopicKind.ADVERTISE, said.message.flags, tuple(chains), said.signed))
        entry = entry_of(advertisement, record)
        job = KeepTopics((entry,), topics_max=self._config.topics_max, per_owner_max=self._config.topics_per_owner_max)

        def kept(result: KeptTopics | Reason, now: Instant) -> None:
            outcome = result if isinstance(result, Reason) else result.outcomes[0]
            if isinstance(outcome, Reason):
                self._counts[outcome.word] += 1
                self._acknowledge(advertise.id, outcome, "", said.holder)
                return
            self._counts["stored"] += 1
            self._acknowledge(advertise.id, None, "", said.holder)
            self._searches.changed(entry, outcome, now)

        self._ask(job, kept, lambda: self._acknowledge(advertise.id, Reason.INTERNAL_ERROR, "", said.holder))

    def _withdraw(self, said: Statement, withdraw: WithdrawTopic, wall_ns: int) -> None:
        self._statements.check_fresh(said, withdraw.id, withdraw.issued_ms, wall_ns)

        def forgotten(result: KeptTopics | Reason, now: Instant) -> None:
            if isinstance(result, Reason):
                self._acknowledge(withdraw.id, result, "", said.holder)
            elif not result.forgotten:
                self._counts[Reason.TOPIC_UNKNOWN.word] += 1
                self._acknowledge(withdraw.id, Reason.TOPIC_UNKNOWN, "no such topic of yours", said.holder)
            else:
                self._counts["withdrawn"] += 1
                self._acknowledge(withdraw.id, None, "", said.holder)
                for entry in result.forgotten:
                    self._searches.changed(entry, "gone", now)

        job = KeepTopics(forgotten=((withdraw.topic, said.entity),))
        self._ask(job, forgotten, lambda: self._acknowledge(withdraw.id, Reason.INTERNAL_ERROR, "", said.holder))

    def _forget_withdrawn(self) -> None:
        """Remove the topics that were withdrawn where this directory did not hear of it."""
        gone = tuple((one.what[0], one.what[2]) for one in self._revocations.take() if one.withdraws)
        if gone:
            self._ask(KeepTopics(forgotten=gone), self._removed)

    def _removed(self, result: KeptTopics | Reason, now: Instant) -> None:
        if isinstance(result, KeptTopics):
            for entry in result.forgotten:
                self._counts["withdrawn"] += 1
                self._searches.changed(entry, "gone", now)

    def _acknowledge(self, id: bytes, reason: Reason | None, text: str, entity: Holder) -> None:
        self._say(TopicAcknowledged(id, self._name, 0 if reason is None else reason, text[:1_000]), entity)

    def _tick(self, now: Instant) -> None:
        """Forget topics that expired, and standing searches that were not renewed; ask what was revoked."""
        wall_ns = self._clock.at(now)
        self._searches.expire(now)
        assert self._anchors is not None
        self._learner.ask(self._anchors.dialled, now)
        self._revocations.ask(self._anchors.sessions, now)
        if self._opened and wall_ns is not None:
            self._forget_withdrawn()
            self._ask(KeepTopics(expired_ms=wall_ns // NS_PER_MS), self._expired)
        self._timers.set("tick", now + TICK_NS, self._tick)

    def _expired(self, result: KeptTopics | Reason, now: Instant) -> None:
        if isinstance(result, KeptTopics):
            for entry in result.forgotten:
                self._counts["expired"] += 1
                self._searches.changed(entry, "gone", now)

    def _outdated(self, result: KeptTopics | Reason, now: Instant) -> None:
        """Topics of an earlier version are gone; there may be more of them."""
        if isinstance(result, KeptTopics) and result.forgotten:
            self._counts["outdated"] += len(result.forgotten)
            self._outbox.note(TopicsOutdated(len(result.forgotten)))
            self._ask(KeepTopics(outdated=True), self._outdated)

    # -- sending and querying -------------------------------------------------------------------------------------

    def _say(self, body: TopicBody, entity: Holder, chains: tuple[bytes, ...] = ()) -> None:
        """Send an entity a message, sealed for it."""
        assert self._anchors is not None
        sessions = self._anchors.sessions
        if sessions:
            topic = f"{ENTITY_TOPIC}/{entity.identity.entity}".encode()
            sessions[0].publish(topic, self._statements.write(body, entity, chains))

    def _ask(self, job: Any, done: Done, rescue: Rescue | None = None) -> None:
        """Query the repository; ``done`` gets its answer, or a Reason. For a job that one entity caused, ``rescue`` is
        called if ``done`` raises."""
        self._done[self._outbox.job(job)] = (done, rescue)

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """The repository answered."""
        if isinstance(result, KeptTopics):
            self._topics = result.topics
        done, rescue = self._done.pop(ticket, (None, None))
        if done is None:
            return
        try:
            done(result, now)
        except Exception as error:
            if rescue is None:  # it is about more than one entity
                raise
            self._outbox.guard.caught("answer of the repository", error, now)
            rescue()

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """The repository failed, or a broker could not be dialled."""
        if ticket in self._done:
            self._counts[reason.word] += 1
            self.done(ticket, reason, now)
        elif self._anchors is not None:
            self._anchors.failed(ticket, now)

    # -- links ----------------------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A broker that we dialled, our pipe, or an administrator with a question."""
        if self._anchors is None:
            if peer.transport == "pipe":
                self._attached.append((link, peer))
            return
        if self._anchors.attach(link, peer, now):
            return
        if len(self._guests) >= GUESTS_MAX:
            self._outbox.hang_up(link, Reason.LINKS_OVER_LIMIT)
            return
        self._guests[link] = Splitter({Kind.SERVICE: QUESTION_BYTES_MAX})

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes from a broker, or an administrator's question."""
        if self._anchors is not None and self._anchors.receive(link, data, now):
            return
        splitter = self._guests.get(link)
        if splitter is None:
            return
        for raw in splitter.split(data):
            try:
                self._outbox.writes.append((link, [self._questions.answer(Frame(raw))]))
            except Exception as error:
                self._outbox.guard.caught("question to the topic directory", error, now, link)
                self._outbox.hang_up(link, Reason.INTERNAL_ERROR)
                return
        if splitter.fault is not None:
            self._outbox.hang_up(link, splitter.fault)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """A link has closed."""
        self._guests.pop(link, None)
        if self._anchors is not None:
            self._anchors.detach(link, now)

    def tell(self, command: Any, now: Instant) -> None:
        """RepositoryOpened, RepositoryFailed, ReloadTopicDirectory, TurnedAway."""
        if isinstance(command, RepositoryOpened):
            self._topics, self._opened = command.topics, True
            self._outbox.note(TopicDirectoryOpened(command.topics, command.damaged))
            self._ask(KeepTopics(outdated=True), self._outdated)
        elif isinstance(command, RepositoryFailed):
            self._opened = False
        elif isinstance(command, ReloadTopicDirectory):
            self._reload(command.config, now)
        elif isinstance(command, TurnedAway):
            self._counts[command.reason.word] += 1
        else:
            raise UsageError(f"a topic directory does not know the command {command!r}")

    def _reload(self, config: TopicDirectoryConfig, now: Instant) -> None:
        self._config = config = config.as_far_as_reloadable(self._started)
        if self._anchors is not None:
            self._policy.reload(config)
            self._signer.reload(config)
            self._searches.reload(config)
            self._anchors.reload(self._anchor_settings(), now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Ignored: it has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: answers are bounded by searches_max."""

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """What it keeps, and what it has done."""
        if question != "overview":
            raise UsageError(f"no report is called {question[:64]!r}; ask for overview")
        running = self._anchors is not None
        searches = {**self._searches.report(), "revocations": len(self._revocations.known)} if running else {}
        return {
            "directory": self._name,
            "topics": self._topics,
            "place": self._config.place,
            "links": 0 if self._anchors is None else len(self._anchors.sessions),
            **searches,
            "counts": dict(sorted(self._counts.items())),
        }
