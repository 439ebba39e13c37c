"""Order: publications of one publisher session reach each subscription in the order in which they were published.

In:    "published", "reached", "received", "subscribed", "detached", "started", "crashed", "stopped", "fault", "healed",
       "unlinked"; a broker's overview if a publication came late.
Out:   a violation for each publication that is read after a later one, whatever their topics; "measured": how many were
       excused.
State: how far each subscription has read, over which link each publication came, which were between brokers in
       trouble; until when the network counts as troubled.
Not here: gaps (delivery.py), repetitions (duplicates.py).
Paper: [grid] §1; N11, publisher order.

What a broker sends to a subscriber over one link, it sends in the order in which it was published, except what was
overtaken on the way to this broker. Two things may be read after a later publication, however late that is:

- What was overtaken in trouble. Trouble lasts from the start until two seconds after it, and from a fault of the
  network until two seconds after its end. Changing costs and added links are no faults. The later publication must have
  been between the publisher's broker and the subscriber's in trouble: that it was read or waited to be sent in trouble,
  or that the earlier one was published in trouble, excuses nothing. The broker that sent the earlier one must have
  counted as many late publications since it started as subscribers had from it. A crashed broker is asked as it
  crashes.
- What the publisher repeated. It lost its link after publishing the earlier one. Besides, that was published before
  all brokers knew the subscription, or the subscriber got the later one over a link that ended before it got the
  earlier one.
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.maps import AT_ONCE, SPREAD_NS
from heliograph.sim.checkers.rules import people
from heliograph.sim.loop import SECOND

NO_FAULTS = ("clock_step", "lag", "link", "lossy")  # brokers do not depend on clocks and datagrams; paths may change
SETTLED_NS = 2 * SECOND

Publication = tuple[str, int, int]
"""Publisher, session, number."""
Life = tuple[str, int]
"""A broker from one start to its end: its host, and how often that has started."""


class Order(Checker):
    """Publisher order holds across topics."""

    name = "order"

    def prepare(self) -> None:
        """The start counts as a fault, as brokers do not know each other yet."""
        # By subscription and publisher session, for each link of the subscriber: the highest number that was read …
        self._highest: dict[tuple[str, int, str, int], dict[int, int]] = {}
        self._calm: dict[tuple[str, int, str, int], dict[int, int]] = {}  # … and that was not in trouble on its way
        self._published: dict[tuple[str, int], int] = {}  # when
        self._entered: dict[Publication, int] = {}  # when a broker last got it from its publisher
        self._subscribed: dict[tuple[str, int], int] = {}  # when
        self._broke: dict[str, int] = {}
        self._came: dict[tuple[str, Publication], tuple[Life, int]] = {}  # to a client: from whom, over which link
        self._in_trouble: dict[tuple[Life, Publication], None] = {}  # was in trouble on its way to this broker
        self._lives: dict[str, int] = {}
        self._late: dict[Life, dict[Publication, None]] = {}  # read late from this broker
        self._counted: dict[Life, int] = {}  # by brokers that run no longer
        self._people = people(self.scenario)
        self._is_network = bool(self.scenario.topology.links)
        self._active = 0  # active faults
        self._troubled_until = SETTLED_NS
        self.excused = 0

    def on_started(self, who: str, incarnation: int) -> None:
        """A broker or a client starts, perhaps again."""
        self._lives[who] = incarnation

    def on_crashed(self, who: str, *_: object) -> None:
        """A broker ends, and with it what it counted."""
        if self._is_network and who in self.scenario.topology.brokers:
            self._counted[who, self._lives[who]] = self._late_at(who)

    on_stopped = on_crashed

    def on_published(self, who: str, number: int, *_: object) -> None:
        """A program published."""
        self._published[who, number] = self.journal.instant

    def on_subscribed(self, who: str, subscription: int) -> None:
        """A subscription is in force, but only its own broker knows it."""
        self._subscribed[who, subscription] = self.journal.instant

    def on_detached(self, who: str, *_: object) -> None:
        """A host lost a link."""
        self._broke[who] = self.journal.instant

    def on_fault(self, target: str, kind: str) -> None:
        """A fault began."""
        if self._concerns(target, kind):
            self._active += kind not in AT_ONCE
            self._trouble()

    def on_healed(self, target: str, kind: str) -> None:
        """A fault ended."""
        if self._concerns(target, kind):
            self._active -= kind not in AT_ONCE
            self._trouble()

    def on_unlinked(self, *_: object) -> None:
        """A link between brokers was removed."""
        self._trouble()

    def _concerns(self, target: str, kind: str) -> bool:
        hosts = target.replace(" > ", ",").split(",")
        return kind not in NO_FAULTS and all(host in self.scenario.topology.brokers for host in hosts)

    def _trouble(self) -> None:
        self._troubled_until = self.journal.instant + SETTLED_NS

    def on_reached(
        self, who: str, source: str, incarnation: int, link: int, publisher: str, session: int, number: int
    ) -> None:
        """A broker or a client was given a publication, for the first time or again."""
        publication = (publisher, session, number)
        if who in self._people:
            self._came.setdefault((who, publication), ((source, incarnation), link))
        elif source in self._people:
            self._entered[publication] = self.journal.instant
        elif self._active or self._troubled_until > self._entered[publication]:
            self._in_trouble[(who, self._lives[who]), publication] = None

    def on_received(
        self, who: str, subscription: int, publisher: str, session: int, number: int, topic: str, *_: object
    ) -> None:
        """A program read a publication."""
        publication = (publisher, session, number)
        life, link = self._came[who, publication]
        key = (who, subscription, publisher, session)
        highest = self._highest.setdefault(key, {})
        calm = self._calm.setdefault(key, {})
        if number < max(highest.values(), default=0):
            first = self._first_that_counts((who, subscription), publication, link)
            highest = {each: most for each, most in highest.items() if each >= first}
            calm = {each: most for each, most in calm.items() if each >= first}
            before, most = max(calm.values(), default=0), max(highest.values(), default=0)
            if before < number < most and not self._is_counted(life, publication):
                before = most
            if number < before:
                self.blame(f"{who} got publication {number} of {publisher} on {topic} after its publication {before}")
            else:
                self.excused += 1
        self._note_highest(self._highest[key], link, number)
        if self._people[publisher].broker == life[0] or (life, publication) not in self._in_trouble:
            self._note_highest(self._calm[key], link, number)

    def _first_that_counts(self, subscription: tuple[str, int], late: Publication, link: int) -> int:
        """The first link of the subscriber over which nothing later may have come before this publication."""
        publisher, _, number = late
        published = self._published[publisher, number]
        if self._broke.get(publisher, -1) < published:  # it was not repeated
            return 0
        known = self._subscribed.get(subscription, -SPREAD_NS) + SPREAD_NS
        return link if published >= known else link + 1

    def _note_highest(self, highest: dict[int, int], link: int, number: int) -> None:
        highest[link] = max(number, highest.get(link, 0))

    def _is_counted(self, life: Life, late: Publication) -> bool:
        known = self._late.setdefault(life, {})
        known[late] = None
        counted = self._counted.get(life)
        return len(known) <= (self._late_at(life[0]) if counted is None else counted)

    def _late_at(self, broker: str) -> int:
        return int((self.ask(broker, "overview") or {}).get("late", 0))

    def end(self) -> None:
        """Report how many were excused."""
        if self.excused:
            self.journal.write("measured", "the network", f"{self.excused} publications were overtaken during faults")
