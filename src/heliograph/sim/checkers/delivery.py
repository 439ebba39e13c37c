"""Delivery: what was published and confirmed reaches every subscriber that was connected and kept up.

In:    "published", "flushed", "received", and everything that puts a subscription in force or ends it; "settled" and
       "disturbed".
Out:   a violation for each missing publication, at the step at which it was published. Losses that a broker or a full
       inbox counted are no violation, but losses that were not counted are.
State: per subscription in force, the publications that it still has to receive.
Not here: repetitions (duplicates.py), order (order.py).
Paper: [grid] §1; N15, losses of a slow consumer are counted.

A publication is due to a subscription that was in force before it was published. It is excused if the subscription
ended, or the subscriber's link broke, before it was read: brokers keep nothing for clients that are away. A publication
that a later one of the same publisher overtook was lost before that, and is not excused. It is certainly due once the
publisher's flush was confirmed.

Across brokers it is due only while there is a stable path: the network must have been settled (maps.py) from its
publication until GRACE after the flush was confirmed, and the subscription in force for SPREAD before, so that all
brokers knew of it.
"""

from __future__ import annotations

from bisect import bisect_left

from heliograph.model.publication import Headers
from heliograph.model.topics import matches
from heliograph.notes import Note, PublicationsDropped
from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.maps import Graph, reach
from heliograph.sim.checkers.rules import may, people
from heliograph.sim.loop import SECOND
from heliograph.sim.selections import Comparisons, comparisons_of, fits

GRACE_NS = SECOND
OVERTAKEN_NS = 5 * SECOND  # this long after its flush, a missing publication of another broker is no longer just late
SPREAD_NS = SECOND

Key = tuple[str, int]
"""A subscription: (client, number)."""


class Delivery(Checker):
    """Nothing is lost without being counted."""

    name = "delivery"

    def prepare(self) -> None:
        """Nothing has happened yet."""
        self._people = people(self.scenario)
        self._filters: dict[Key, tuple[str, bool]] = {}  # known subscriptions, in force or not: filter, echo
        self._conditions: dict[Key, Comparisons] = {}
        self._due: dict[Key, dict[tuple[str, int], tuple[str, int, int]]] = {}  # in force: (publisher, number) -> when
        self._takers: dict[tuple[str, str], list[Key]] = {}  # (publisher, topic) -> subscriptions in force that want it
        self._answers: dict[tuple[str, str, bool, str, str], bool] = {}  # does this subscriber get that topic? (cached)
        self._sessions: dict[str, int] = {}  # publisher -> the first number of its present session
        self._last: dict[str, int] = {}  # publisher -> its newest number
        self._confirmed: dict[str, list[tuple[int, int]]] = {}  # publisher -> spans [first, last]
        self._flushes: dict[str, list[tuple[int, int]]] = {}  # publisher -> (number, when it was confirmed)
        self._began: dict[Key, int] = {}  # when it came into force
        self._newest: dict[Key, dict[str, int]] = {}  # the highest number that was read, by publisher
        self._overtaken: dict[str, dict[tuple[str, int], tuple[str, int, int]]] = {}  # lost by a client, as in _due
        self._droppers: dict[str, None] = {}  # brokers that reported a drop
        self._links: dict[tuple[str, str], None] = dict.fromkeys(self.scenario.topology.links)
        self._reached: dict[str, set[str]] = {}  # brokers reachable from a broker over present links; made on demand
        self._settled = False
        self._stable: dict[Key, dict[tuple[str, int], None]] = {}  # the part of _due that came from other brokers

    # Subscriptions in force.

    def on_subscribing(
        self, who: str, subscription: int, pattern: str, _policy: str, echo: bool, where: str, _listens: bool = False
    ) -> None:
        """A program subscribed."""
        self._filters[who, subscription] = (pattern, echo)
        self._conditions[who, subscription] = comparisons_of(where)

    def on_subscribed(self, who: str, subscription: int) -> None:
        """The broker confirmed it."""
        self._begin((who, subscription))

    def on_restored(self, who: str) -> None:
        """A client is back: what was in force before is in force again."""
        for key in self._filters:
            if key[0] == who:
                self._begin(key)

    def on_unsubscribing(self, who: str, subscription: int) -> None:
        """The program unsubscribed."""
        self._end((who, subscription))
        self._filters.pop((who, subscription), None)

    def on_detached(self, who: str, *_: object) -> None:
        """A client's link broke (brokers have no filters here)."""
        for key in self._filters:
            if key[0] == who:
                self._end(key)

    def on_leaving(self, who: str) -> None:
        """A client's program says goodbye."""
        self._forget(who)

    def on_crashed(self, who: str, *_: object) -> None:
        """A client lost its memory."""
        self._forget(who)

    def on_started(self, who: str, _incarnation: int) -> None:
        """A new session: publications that the one before did not flush may be lost."""
        self._sessions[who] = self._last.get(who, 0) + 1

    def _begin(self, key: Key) -> None:
        if key in self._filters and key not in self._due:
            self._due[key] = {}
            self._stable[key] = {}
            self._newest[key] = {}
            self._began[key] = self.journal.instant
            self._takers.clear()

    def _end(self, key: Key) -> None:
        self._stable.pop(key, None)
        due = self._due.pop(key, None)
        if due is not None:
            self._takers.clear()
            self._keep_overtaken(key, due)

    def _keep_overtaken(self, key: Key, due: dict[tuple[str, int], tuple[str, int, int]]) -> None:
        """An overtaken publication is no longer under way. If something was dropped, it may have been this one."""
        who, newest = key[0], self._newest[key]
        here = self._people[who].broker
        if here in self._droppers or self._lost_by_inbox(who):
            return
        for (publisher, number), published in due.items():
            if number > newest.get(publisher, 0) or not self._is_confirmed(publisher, number):
                continue
            if self._people[publisher].broker != here:
                age = self.journal.instant - self._entered_by(publisher, number)
                if self._droppers or age < OVERTAKEN_NS:
                    continue
            self._overtaken.setdefault(who, {})[publisher, number] = published

    def on_note(self, who: str, note: Note) -> None:
        """A broker or a client wrote a note."""
        if isinstance(note, PublicationsDropped) and note.why in ("queue_full", "unprocessed"):
            self._droppers[who] = None

    def _forget(self, who: str) -> None:
        for key in [key for key in self._filters if key[0] == who]:
            self._end(key)
            del self._filters[key]

    # Publications that are due.

    def on_published(self, who: str, number: int, topic: str, _payload: bytes, headers: Headers) -> None:
        """A program published: find the subscribers that must receive it."""
        self._last[who] = number
        takers = self._takers.get((who, topic))
        if takers is None:
            takers = self._takers[who, topic] = [key for key in self._due if self._wants(key, who, topic)]
        if takers:
            now = self.journal.instant
            published = (topic, self.journal.step, now)
            here = self._people[who].broker
            for key in takers:
                if self._conditions[key] and not fits(self._conditions[key], headers):
                    continue
                if self._people[key[0]].broker == here:
                    self._due[key][who, number] = published
                elif (
                    self._settled
                    and now - self._began[key] >= SPREAD_NS
                    and self._people[key[0]].broker in self._reach(here)
                ):
                    self._due[key][who, number] = published
                    self._stable[key][who, number] = None

    def on_linked(self, one: str, other: str) -> None:
        """Two brokers are linked from now on."""
        self._links[one, other] = None
        self._reached.clear()

    def on_unlinked(self, one: str, other: str) -> None:
        """Two brokers are no longer linked."""
        del self._links[one, other]
        self._reached.clear()

    def _reach(self, broker: str) -> set[str]:
        if broker not in self._reached:
            graph: Graph = {name: {} for name in self.scenario.topology.brokers}
            for one, other in self._links:
                graph[one][other] = graph[other][one] = None
            self._reached[broker] = reach(broker, graph)
        return self._reached[broker]

    def on_received(self, who: str, subscription: int, publisher: str, _session: int, number: int, *_: object) -> None:
        """A program read a publication."""
        due = self._due.get((who, subscription))
        if due is not None:
            due.pop((publisher, number), None)
            self._stable[who, subscription].pop((publisher, number), None)
            newest = self._newest[who, subscription]
            newest[publisher] = max(number, newest.get(publisher, 0))

    def on_settled(self, _: str) -> None:
        """All brokers know the network as it is."""
        self._settled = True

    def on_disturbed(self, _: str) -> None:
        """Publications under way between brokers may be lost."""
        self._settled = False
        for key, publications in self._stable.items():
            for publication in publications:
                if self.journal.instant - self._entered_by(*publication) < GRACE_NS:
                    self._due[key].pop(publication, None)

    def _entered_by(self, publisher: str, number: int) -> int:
        """When a publication had certainly reached its broker; now, if that is not confirmed yet."""
        flushes = self._flushes.get(publisher, [])
        at = bisect_left(flushes, (number, 0))
        return flushes[at][1] if at < len(flushes) else self.journal.instant

    def on_flushed(self, who: str, number: int) -> None:
        """A broker confirmed everything that this session of the publisher published up to here."""
        first, spans = self._sessions[who], self._confirmed.setdefault(who, [])
        if spans and spans[-1][0] == first:
            spans.pop()
        spans.append((first, number))
        self._flushes.setdefault(who, []).append((number, self.journal.instant))

    def _wants(self, key: Key, publisher: str, topic: str) -> bool:
        question = (key[0], *self._filters[key], publisher, topic)
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = self._judge(*question)
        return answer

    def _judge(self, who: str, pattern: str, echo: bool, publisher: str, topic: str) -> bool:
        subscriber, sender = self._people[who], self._people[publisher]
        return (
            (subscriber.broker == sender.broker or bool(self.scenario.topology.links))
            and (echo or publisher != who)
            and matches(pattern.encode(), topic.encode())
            and may(self.scenario, sender, "publish", topic)
            and may(self.scenario, subscriber, "subscribe", topic)
        )

    # The end.

    def end(self) -> None:
        """Everything that is confirmed and still due is missing, except what was counted as lost."""
        missing = {who: dict(publications) for who, publications in self._overtaken.items()}
        for (who, _), due in self._due.items():
            for publication, published in due.items():
                if self._is_confirmed(*publication):
                    missing.setdefault(who, {})[publication] = published
        for who, publications in missing.items():
            counted = self._counted(who)
            if len(publications) > counted:
                for (publisher, number), (topic, step, instant) in publications.items():
                    text = f"{who} never got publication {number} of {publisher} on {topic}"
                    if counted:
                        text += f" ({len(publications)} are missing, {counted} were counted as lost)"
                    self.blame(text, step, instant)

    def _is_confirmed(self, publisher: str, number: int) -> bool:
        return any(first <= number <= last for first, last in self._confirmed.get(publisher, ()))

    def _counted(self, who: str) -> int:
        """The losses of this client's present link and inboxes, as the broker and the session count them."""
        links = self.ask(self._people[who].broker, "links") or []
        at_broker = sum(link["dropped"] for link in links if link["name"] == who)
        return int(at_broker) + self._lost_by_inbox(who)

    def _lost_by_inbox(self, who: str) -> int:
        session = self.ask(who, "overview") or {}
        return int(session["lost"]["inbox"]) if session else 0
