"""Order: publications of one publisher session reach each subscription in the order in which they were published.

In:    "published", "received", "detached", "started", "fault", "healed", "unlinked"; a broker's overview if a
       publication came late.
Out:   a violation for each publication that arrives after a later one, whatever their topics; "measured": how many were
       excused.
State: per subscription and publisher session the highest number so far; when publications were made and links broke;
       until when the network counts as troubled.
Not here: gaps (delivery.py), repetitions (duplicates.py).
Paper: [grid] §1; N11, publisher order.

Order holds on a link. A subscriber that was away may receive late what it missed, when a publisher repeats to a new
broker what the old one never confirmed. So a publication made before the subscriber's link last broke is excused.

Across brokers order holds in a settled network: from two seconds after the last fault. Changing costs and added links
are no faults. A publication that was made, overtaken by one that was made, or arrives, while the network is troubled is
excused if the broker that delivers it has counted it as late: a broker must have counted every publication that it
delivered late since it started. What a slow subscriber reads after its broker crashed, from a link that it has not
noticed to be gone, was counted by a broker that cannot be asked any more.
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.maps import AT_ONCE
from heliograph.sim.checkers.rules import people
from heliograph.sim.loop import SECOND

NO_FAULTS = ("clock_step", "lag", "link", "lossy")  # brokers do not depend on clocks and datagrams; paths may change
SETTLED_NS = 2 * SECOND


class Order(Checker):
    """Publisher order holds across topics."""

    name = "order"

    def prepare(self) -> None:
        """The start counts as a fault, as brokers do not know each other yet."""
        self._highest: dict[tuple[str, int, str, int], int] = {}
        self._published: dict[tuple[str, int], tuple[int, bool]] = {}  # when, and whether the network was troubled
        self._broke: dict[str, int] = {}
        self._restarted: dict[str, int] = {}
        self._people = people(self.scenario)
        self._late: dict[str, dict[tuple[str, int, int], None]] = {}  # broker -> what it delivered late since its start
        self._is_network = bool(self.scenario.topology.links)
        self._active = 0  # active faults
        self._troubled_until = SETTLED_NS
        self.excused = 0

    def on_started(self, who: str, incarnation: int) -> None:
        """A broker or a client starts, perhaps again."""
        self._late.pop(who, None)
        if incarnation > 1:
            self._restarted[who] = self.journal.instant

    def on_published(self, who: str, number: int, _topic: str, *_: object) -> None:
        """A program published."""
        self._published[who, number] = (self.journal.instant, self._is_troubled())

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

    def _is_troubled(self) -> bool:
        return self._is_network and (self._active > 0 or self.journal.instant < self._troubled_until)

    def on_received(
        self, who: str, subscription: int, publisher: str, session: int, number: int, topic: str, *_: object
    ) -> None:
        """A program read a publication."""
        key = (who, subscription, publisher, session)
        before = self._highest.get(key, 0)
        if number > before:
            self._highest[key] = number
        elif number < before:
            published, is_troubled = self._published.get((publisher, number), (0, False))
            is_troubled = is_troubled or self._published.get((publisher, before), (0, False))[1]
            if published > self._broke.get(who, -1):
                self._came_late(who, publisher, session, number, topic, before, is_troubled)

    def _came_late(
        self, who: str, publisher: str, session: int, number: int, topic: str, before: int, is_troubled: bool
    ) -> None:
        broker = self._people[who].broker
        excused = (is_troubled or self._is_troubled()) and self._people[publisher].broker != broker
        if self._restarted.get(broker, -1) <= self._broke.get(who, -1) or not self._is_network:
            late = self._late.setdefault(broker, {})
            late[publisher, session, number] = None
            counted = (self.ask(broker, "overview") or {}).get("late", 0) if self._is_network else 0
            excused = excused and len(late) <= counted
        if not excused:
            self.blame(f"{who} got publication {number} of {publisher} on {topic} after its publication {before}")
        else:
            self.excused += 1

    def end(self) -> None:
        """Report how many were excused."""
        if self.excused:
            self.journal.write("measured", "the network", f"{self.excused} publications were overtaken during faults")
