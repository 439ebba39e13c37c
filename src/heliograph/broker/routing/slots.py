"""Slots: which slot this broker has in its cluster, and what happens if two brokers claim one or all are taken.

In:    the members of our part of the cluster, after each change of the map; brokers that want a link.
Out:   a new slot for this broker, told to all members; its links inside the cluster ended, if there is no slot for it.
State: until when a broker that found no slot stays outside.
Not here: what slots are for (parcels.py), the map (map.py).
Paper: N4; slots before self-organisation.

The oldest member keeps its slot. The others take free slots in order of age. So brokers with the same knowledge never
take the same slot, and a cluster whose brokers all start at once needs one round, not one for each broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from heliograph.broker.routing.announcements import Announcements
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.machine import Instant, Timers
from heliograph.notes import SlotChanged
from heliograph.wire.broker_bodies import MEMBERS_MAX, LinkUp, Member

OUTSIDE_MS = 60_000  # a broker without a slot tries again after this: each attempt costs every member some updates


class Slots:
    """This broker's place in its cluster."""

    def __init__(
        self,
        view: View,
        announcements: Announcements,
        teller: Teller,
        timers: Timers,
        stand_back: Callable[[str], None],
    ) -> None:
        self._view = view
        self._announcements = announcements
        self._teller = teller
        self._timers = timers
        self._leave = stand_back  # end our links in this cluster
        self._outside_until: Instant = 0

    def is_full(self, other: LinkUp, now: Instant) -> bool:
        """True if this broker must not become a member with us: there is no room for it, or none for us."""
        if other.cluster != self._view.map.me.cluster:
            return False
        cluster = self._view.paths.cluster
        return now < self._outside_until or (other.broker not in cluster and len(cluster) >= MEMBERS_MAX)

    def settle(self, now: Instant) -> None:
        """The map changed: take another slot if an older member has ours, and leave if none is free."""
        known = self._view.map
        me, slot = known.me, self._due()
        if slot == me.slot:
            return
        if slot is None:
            self._timers.set("stand back", now, self._stand_back)  # not while the map is being settled
            return
        self._teller.note(SlotChanged(me.slot, slot))
        epoch = (known.paths.epoch + 1) & 0xFFFF
        known.learn(replace(me, slot=slot, epoch=epoch, number=me.number + 1))
        self._announcements.announce(now, anew=True)

    def _due(self) -> int | None:
        """The slot that is ours in the current view."""
        me, cluster = self._view.map.me, self._view.map.paths.cluster
        return shared_out(cluster.values())[me.broker]

    def _stand_back(self, now: Instant) -> None:
        if self._due() is None:
            self._outside_until = now + OUTSIDE_MS * NS_PER_MS
            self._leave(self._view.map.me.cluster)


def shared_out(members: Iterable[Member]) -> dict[int, int | None]:
    """The slot of each member; None for those that came when all were taken."""
    slots: dict[int, int | None] = {}
    taken: dict[int, None] = {}
    by_age = sorted(members, key=lambda member: (member.incarnation, member.broker))
    for member in by_age:
        if member.slot not in taken:
            taken[member.slot] = None
            slots[member.broker] = member.slot
    free = iter([slot for slot in range(MEMBERS_MAX) if slot not in taken])
    for member in by_age:
        if member.broker not in slots:
            slots[member.broker] = next(free, None)
    return slots
