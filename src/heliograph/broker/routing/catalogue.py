"""The catalogue: every known record and interest, by kind and owner, with its age.

In:    the view, and what we ourselves advertise.
Out:   items with their ages; whether they are in reach; the bodies that describe them.
State: none.
Not here: what neighbours lack (exchange.py), how long things are kept (out_of_reach.py).
"""

from __future__ import annotations

from heliograph.broker.routing.advertising import Advertising
from heliograph.broker.routing.interests import AdvertisedInterests, snapshot_of
from heliograph.broker.routing.view import View
from heliograph.wire.broker_bodies import Interest, Record, What

Item = tuple[What, int]
"""A record or an interest, by kind and owner."""
INNER: tuple[What, ...] = ("member", "narrow")  # what stays inside a cluster


class Catalogue:
    """Looks up what is known."""

    def __init__(self, view: View, advertising: Advertising) -> None:
        self._view = view
        self._advertising = advertising

    def known(self) -> dict[Item, None]:
        """Everything that other brokers told us, and what we advertise."""
        view = self._view
        items: dict[Item, None] = {("member", broker): None for broker in view.map.members}
        items.update({("gateway", broker): None for broker in view.map.gateways})
        items["narrow", view.me] = None
        if self._advertising.leadership.advertised is not None:
            items["wide", view.me] = None
        items.update({("wide" if wide else "narrow", broker): None for broker, wide in view.interests.owners})
        return items

    def age(self, what: What, broker: int) -> tuple[int, int] | None:
        """The age of the newest version that is known; None if there is none."""
        view = self._view
        if what == "member" or what == "gateway":
            record: Record | None = (view.map.members if what == "member" else view.map.gateways).get(broker)
            return None if record is None else record.age
        if broker == view.me:
            advertised = self._ours(what == "wide")
            return None if advertised is None else advertised.age
        return view.interests.age(broker, what == "wide")

    def in_reach(self, what: What, broker: int) -> bool:
        """True if there is a path to its owner and the item still has a meaning."""
        view = self._view
        if what in INNER:
            return broker in view.paths.cluster
        if what == "gateway":
            return broker in view.paths.costs and bool(view.map.gateways[broker].outside)
        return broker in view.paths.parts or broker in (self._advertising.leadership.leader, view.me)

    def interests_of(self, broker: int, wide: bool) -> list[Interest]:
        """A full snapshot of an owner's interests; empty if they are not known."""
        view = self._view
        if broker == view.me:
            advertised = self._ours(wide)
            return [] if advertised is None else advertised.snapshot()
        age = view.interests.age(broker, wide)
        if age is None:
            return []
        owner = view.interests.owners[(broker, wide)]
        return snapshot_of(broker, wide, age, list(owner.filters), list(owner.groups), list(owner.listening))

    def count(self, broker: int, wide: bool) -> int:
        """How many filters an owner wants, without those that only listen."""
        if broker == self._view.me:
            advertised = self._ours(wide)
            return 0 if advertised is None else len(advertised.filters)
        owner = self._view.interests.owners.get((broker, wide))
        return 0 if owner is None else len(owner.filters)

    def count_listening(self, broker: int, wide: bool) -> int:
        """How many filters of an owner only listen."""
        if broker == self._view.me:
            advertised = self._ours(wide)
            return 0 if advertised is None else len(advertised.listening)
        owner = self._view.interests.owners.get((broker, wide))
        return 0 if owner is None else len(owner.listening)

    def _ours(self, wide: bool) -> AdvertisedInterests | None:
        return self._advertising.leadership.advertised if wide else self._advertising.own
