"""The exchange: two neighbours tell each other what one of them lacks.

In:    neighbours whose link has begun to count; items that came back into reach; SYNC frames.
Out:   SYNC frames (what we have, what we ask for); MAP and INTEREST frames with what was asked for.
State: requests of neighbours that are not answered yet.
Not here: what is learned and passed on in the meantime (routing.py), how long items are kept (out_of_reach.py).
Paper: [grid] §1.2; N8, a healed partition merges.

A broker offers what is in reach, by owner and number; the other side asks for what it lacks. So items out of reach do
not spread, with one exception: if a neighbour offers something older than what we know, we send it the newer version,
because it may be about that neighbour itself, from an earlier incarnation whose clock was ahead.

A short request may have a long answer. So answers are sent in portions, to neighbours in turn, and a request that is
repeated before it was answered is answered once.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.broker.routing.catalogue import INNER, Catalogue, Item
from heliograph.broker.routing.interests import told_in
from heliograph.broker.routing.ports import Neighbour, Port
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.errors import Reason
from heliograph.machine import Instant, Timers
from heliograph.model.ages import lacks
from heliograph.timekeeping.incarnations import Incarnations
from heliograph.wire import broker_bodies as wire
from heliograph.wire.broker_bodies import SYNC_PER_BODY_MAX, Sync, What
from heliograph.wire.frames import Frame, Kind

TOLD_AT_ONCE = 16_384  # records and interests in answers: a few tens of milliseconds


class Exchange:
    """Offers, asks and answers."""

    def __init__(
        self, view: View, catalogue: Catalogue, incarnations: Incarnations[Item], teller: Teller, timers: Timers
    ) -> None:
        self._view = view
        self._incarnations = incarnations
        self._catalogue = catalogue
        self._teller = teller
        self._timers = timers
        self._owed: dict[Neighbour, dict[Item, None]] = {}

    def greet(self, neighbour: Neighbour) -> None:
        """The link has begun to count: offer everything that is in reach."""
        known = self._catalogue.known()
        self._offer(neighbour, [item for item in known if self._catalogue.in_reach(*item)])

    def offer(self, items: list[Item]) -> None:
        """These came back into reach: neighbours may have forgotten them, or never had them."""
        for neighbour in self._view.neighbours.values():
            self._offer(neighbour, items)

    def _offer(self, neighbour: Neighbour, items: Iterable[Item]) -> None:
        has = []
        for what, broker in items:
            age = self._catalogue.age(what, broker)
            if age is not None and self._concerns(neighbour, what):
                has.append((what, broker, *age))
        for start in range(0, len(has), SYNC_PER_BODY_MAX):
            self._say(neighbour, Sync(has=has[start : start + SYNC_PER_BODY_MAX]))

    def ask(self, neighbour: Neighbour, items: list[Item]) -> None:
        """Ask for full snapshots of these items."""
        if items:
            self._say(neighbour, Sync(wants=items))

    def receive(self, link: Port, frame: Frame, now: Instant) -> None:
        """What a neighbour has, or asks for."""
        neighbour = link.neighbour
        assert neighbour is not None
        sync = wire.decode_sync(frame.payload)
        wants: list[Item] = []
        for what, broker, incarnation, number in sync.has:
            if not self._concerns(neighbour, what):
                continue
            theirs, ours = (incarnation, number), self._catalogue.age(what, broker)
            if lacks(ours, theirs):
                if self._incarnations.refuses(incarnation, neighbour.broker, (what, broker), now):
                    self._teller.refuse(Reason.INCARNATION_AHEAD)
                else:
                    wants.append((what, broker))
            elif ours is not None and theirs < ours and not self._catalogue.in_reach(what, broker):
                self._owe(neighbour, what, broker)
        self.ask(neighbour, wants)
        for what, broker in sync.wants:
            if self._concerns(neighbour, what):
                self._owe(neighbour, what, broker)
        self._answer(now)

    def _owe(self, neighbour: Neighbour, what: What, broker: int) -> None:
        if self._catalogue.age(what, broker) is not None:
            self._owed.setdefault(neighbour, {})[(what, broker)] = None

    def _answer(self, now: Instant) -> None:
        """Send some of what was asked for; the rest follows at the next wake."""
        room = TOLD_AT_ONCE
        while self._owed and room > 0:
            neighbour = next(iter(self._owed))
            items = self._owed.pop(neighbour)
            if self._view.neighbours.get(neighbour.broker) is not neighbour:
                continue
            item = next(iter(items))
            del items[item]
            if items:
                self._owed[neighbour] = items
            room -= self.send(neighbour, *item)
        if self._owed:
            self._timers.set("owed", 0, self._answer)

    def _concerns(self, neighbour: Neighbour, what: What) -> bool:
        return what not in INNER or neighbour.cluster == self._view.map.me.cluster

    def send(self, neighbour: Neighbour, what: What, broker: int) -> int:
        """Send the newest version of an item, if there is one. Returns its size in records and interests."""
        if what in ("member", "gateway"):
            records = self._view.map.members if what == "member" else self._view.map.gateways
            if broker in records:
                self._teller.send_record(neighbour, wire.encode(records[broker]))
            return 1
        bodies = self._catalogue.interests_of(broker, what == "wide")
        self._teller.tell_interests(bodies, neighbour)
        return 1 + sum(map(told_in, bodies))

    def _say(self, neighbour: Neighbour, sync: Sync) -> None:
        self._teller.put(neighbour, Kind.SYNC, wire.encode(sync))
