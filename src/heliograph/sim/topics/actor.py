"""A simulated entity with a script: creates and withdraws topics, publishes, grants and revokes, searches and reads.

In:    its part of a scenario; the broker's bytes; time; bundles that others hand it.
Out:   frames; entries "creating", "created", "withdrawing", "withdrawn", "granted", "revoking", "revoked", "allowed",
       "sought", "found", "noticed", "sent", "read" and "leaked" of the journal.
State: what is under way on the present link; its notebook outlives it.
Not here: conversations and sessions (topic_party.py), rights and keys (rights_user.py), judging (checkers/).

It works towards what its script wants, step by step, and tries again whatever got no answer: so a lost message, a
crash, or a broker that is away only costs time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heliograph.discovery.topics.bundle import GrantBundle
from heliograph.discovery.topics.creation import OwnTopic, TopicCreation, TopicWithdrawal
from heliograph.discovery.topics.finder import FoundTopic, SearchSummary, TopicFinder
from heliograph.discovery.topics.listing import Creation, Descriptors, Synopsis
from heliograph.discovery.topics.messages import TopicQuery
from heliograph.errors import ProtocolError
from heliograph.machine import Address, Instant, LinkId, Peer
from heliograph.model.publication import Publication
from heliograph.sim.clock import EPOCH_NS
from heliograph.sim.topic_party import Restore, TopicParty
from heliograph.sim.topics.notebook import TopicNotebook
from heliograph.sim.topics.plans import SearchPlan, TopicPlan
from heliograph.sim.topics.rights_user import RightsUser
from heliograph.sim.topics.script import Leaked, Row, Script, Write

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

STEP_NS = 250_000_000
CREATION_MS = 6_000
WITHDRAWAL_MS = 3_000
SEARCH_MS = 4_000
NS_PER_S = 1_000_000_000


class TopicActor(TopicParty):
    """A machine (machine.py): one entity."""

    def __init__(
        self,
        script: Script,
        keyring: Keyring,
        brokers: tuple[Address, ...],
        seed: bytes,
        notebook: TopicNotebook,
        write: Write,
        hand_over: Callable[[str, str, GrantBundle], None],
        leak: Callable[[Leaked], None],
    ) -> None:
        name = script.entity.name
        super().__init__(name, keyring, brokers[0], seed, others=brokers[1:])
        self._script = script
        self._notebook = notebook
        self._leak = leak
        self._write = write
        self._rights = RightsUser(self, keyring, notebook, script, write, hand_over)
        self._creations: dict[str, TopicCreation] = {}
        self._withdrawals: dict[str, TopicWithdrawal] = {}
        self._finders: dict[int, tuple[TopicFinder, list[Row]]] = {}  # with what each has found so far
        self._watches: list[TopicFinder] = []
        self._next_search: list[float] = [one.at_s for one in script.searches]
        self._next_sent = {one.name: one.at_s for one in script.topics}
        self._known: tuple[str, ...] = ()  # directories that finished our last search

    # -- the driver's calls ---------------------------------------------------------------------------------------

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The first reading marks the start: own topics of earlier sessions are taken up."""
        is_first = self._clock.at(now) is None
        super().clock(wall_ns, now)
        if is_first:
            wanted = [topic for name, topic in self._notebook.topics.items() if name not in self._notebook.ending]
            self.tell(Restore(tuple(topic.record for topic in wanted)), now)
            start_s = self.elapsed_s(now)
            self._next_search = [max(at_s, start_s) for at_s in self._next_search]
            self._step(now)

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A new link: the broker knows nothing of our rights yet."""
        self._rights.begin_link()
        super().attach(link, peer, now)

    def elapsed_s(self, now: Instant) -> float:
        """Seconds since the start of the scenario, by our own clock."""
        return (self.wall_ns(now) - EPOCH_NS) / NS_PER_S

    def wall_ns(self, now: Instant) -> int:
        """Our own clock."""
        wall_ns = self._clock.at(now)
        assert wall_ns is not None
        return wall_ns

    def tell(self, command: Any, now: Instant) -> None:
        """Handle Leaked, and what every party does."""
        if isinstance(command, Leaked):
            self._rights.open_leaked(command.topic, command.payload)
        else:
            super().tell(command, now)

    def _heard(self, publication: Publication, now: Instant) -> None:
        """Read a message once, whatever number of conversations are under way."""
        try:
            said = self.statements.read(publication.payload, self.wall_ns(now))
        except ProtocolError:
            return
        for conversation in self.conversations:
            conversation.take_statement(said, now)

    def _pump(self, now: Instant) -> None:
        super()._pump(now)
        self._collect(now)
        self.conversations = [one for one in self.conversations if not one.is_over]

    # -- steps ----------------------------------------------------------------------------------------------------

    def _step(self, now: Instant) -> None:
        """Go on with everything that is not as the script wants it."""
        elapsed_s = self.elapsed_s(now)
        for plan in self._script.topics:
            self._go_on(plan, elapsed_s, now)
        if self.is_welcome:
            self._rights.go_on(elapsed_s, now)
        if elapsed_s < self._script.ends_s:
            for number, search in enumerate(self._script.searches):
                if elapsed_s >= self._next_search[number]:
                    again_s = search.every_s or 1e9
                    self._next_search[number] += again_s
                    self._search(search, now)
        self._pump(now)
        self._timers.set("step", now + STEP_NS, self._step)

    @property
    def is_welcome(self) -> bool:
        """True if a broker has taken our session."""
        return self._session is not None and self._session.welcomed

    def _go_on(self, plan: TopicPlan, elapsed_s: float, now: Instant) -> None:
        name, book = plan.name, self._notebook
        if name not in book.topics:
            if plan.at_s <= elapsed_s < self._script.ends_s and name not in self._creations:
                self._write("creating", self.entity, name)
                wanted = creation_of(plan)
                made = self.begin(lambda say, seed: TopicCreation(say, wanted, seed, timeout_ms=CREATION_MS), now)
                assert isinstance(made, TopicCreation)
                self._creations[name] = made
            return
        topic = book.topics[name]
        if plan.withdraw_s and elapsed_s >= plan.withdraw_s:
            self._withdraw(name, topic, now)
        elif plan.every_s and self._next_sent[name] <= elapsed_s < self._script.quiet_s:
            self._publish(plan, topic, now)

    def _publish(self, plan: TopicPlan, topic: OwnTopic, now: Instant) -> None:
        if self._session is None or not self._rights.may_use(plan.name):
            return
        self._next_sent[plan.name] = self.elapsed_s(now) + plan.every_s
        number = self._notebook.sent[plan.name] = self._notebook.sent.get(plan.name, 0) + 1
        payload = self._rights.sealed(plan, topic, f"{plan.name}/{number}/", now)
        self._write("sent", self.entity, plan.name, number)
        self._session.publish(topic.topic.encode(), payload)
        if plan.encrypted:
            self._leak(Leaked(topic.topic, payload))

    def _withdraw(self, name: str, topic: OwnTopic, now: Instant) -> None:
        """First the brokers are told, then the directories."""
        book, id = self._notebook, topic.advertisement.id
        if name not in book.ending:
            book.ending[name] = None
            self._own.remove(id)
            self._write("withdrawing", self.entity, name)
        if name in book.told and name not in book.ended and name not in self._withdrawals:
            going = self.begin(lambda say, seed: TopicWithdrawal(say, id, seed, timeout_ms=WITHDRAWAL_MS), now)
            assert isinstance(going, TopicWithdrawal)
            self._withdrawals[name] = going

    # -- searching and reading ------------------------------------------------------------------------------------

    def _search(self, plan: SearchPlan, now: Instant) -> None:
        grants = self._rights.shown()
        query = TopicQuery("keywords", plan.text)

        def make_finder() -> TopicFinder:
            made = self.begin(
                lambda say, seed: TopicFinder(
                    *(say, query, seed),
                    known=() if plan.watch else self._known,
                    watch=plan.watch,
                    timeout_ms=SEARCH_MS,
                    grants=grants,
                ),
                now,
            )
            assert isinstance(made, TopicFinder)
            return made

        if plan.watch:
            self._watches.append(make_finder())
            return
        number = self._notebook.count_search()
        self._write("sought", self.entity, number, plan.text)
        self._finders[number] = (make_finder(), [])

    def _collect(self, now: Instant) -> None:
        """Write down what conversations came to."""
        for name, creation in list(self._creations.items()):
            if creation.is_over:
                del self._creations[name]
                if isinstance(creation.result, OwnTopic):
                    own = self._notebook.topics[name] = creation.result
                    ends = own.advertisement.expires_ms * 1_000_000 - EPOCH_NS
                    self._write("created", self.entity, name, own.advertisement.uuid, own.stored_by, ends)
        for name, going in list(self._withdrawals.items()):
            if going.is_over:
                del self._withdrawals[name]
                if going.error is None:
                    self._notebook.ended[name] = None
                    self._write("withdrawn", self.entity, name)
        for number, (finder, rows) in list(self._finders.items()):
            rows += [self._row(found, now) for found in finder.take()]
            if finder.is_over:
                del self._finders[number]
                self._tell_found(number, finder, rows)
        for watch in self._watches:
            for found in watch.take():
                self._write("noticed", self.entity, found.change or "there", *self._row(found, now))
        self._rights.collect(now)

    def _tell_found(self, number: int, finder: TopicFinder, rows: list[Row]) -> None:
        if isinstance(finder.result, SearchSummary):
            if not finder.is_cut:
                self._known = finder.result.directories
            self._write("found", self.entity, number, rows, finder.result.directories, finder.result.owners, "")
        else:
            self._write("found", self.entity, number, rows, (), (), str(finder.error))

    def _row(self, found: FoundTopic, now: Instant) -> Row:
        try:
            owner = found.owner(self.statements, self.wall_ns(now)).identity.entity
        except ProtocolError as error:
            owner = f"nobody: {error}" if found.change != "gone" else found.advertisement.creator
        if self._script.entity.intrudes and found.change != "gone":
            self._rights.intrude(found.topic)
        return found.advertisement.creation.descriptors.path, found.advertisement.uuid, owner, found.told_by


def creation_of(plan: TopicPlan) -> Creation:
    """The request for a topic of a scenario."""
    return Creation(
        plan.owner,
        plan.lifetime_s,
        descriptors=Descriptors(path=plan.name, text=f"plant {plan.name}"),
        synopsis=Synopsis("string", "events"),
        readers=list(plan.readers),
        encrypted=plan.encrypted,
    )
