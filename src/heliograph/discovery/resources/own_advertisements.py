"""Our own advertisements: which of them other brokers are told, and which wait because another one covers them.

In:    advertisements of our resources that come and go.
Out:   what has to be told: new advertisements, and removed ones.
State: all our advertisements by kind (the same ranges); per kind that is not told, the one that covers it; kinds that
       ended and still cover others.
Not here: messages and their numbers (spreading.py), the resources themselves (hosting.py).

A dynamic advertisement is not told while another of ours covers it: requests come here anyway. Of equal ones one is
told. When the last of a kind goes, what it covered looks for another coverer or is told, COVERED_AT_ONCE per call; the
one that went stays told until then, so that no request misses what it covered.

An owner who withdraws one wide resource after the other would make all narrow ones look for coverers each time. So a
kind that lost its coverer MOVES_MAX times is told: the work is in proportion to what was registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from heliograph.discovery.resources.conditions import ResourceCondition, read_condition
from heliograph.discovery.resources.messages import AdvertisedResource
from heliograph.matching.boxes.index import BoxIndex, IndexFullError

COVERED_AT_ONCE = 128  # kinds that look for another coverer in one call: a few milliseconds
MOVES_MAX = 4  # coverers that a kind may lose before it is told
COVERERS_MAX = 64  # looked at; beyond, an advertisement is told, which is always right


class AdvertisedKind(msgspec.Struct, eq=False):
    """Dynamic advertisements with the same ranges."""

    condition: ResourceCondition
    all: dict[int, AdvertisedResource] = {}
    told: dict[int, None] = {}  # one of them, and those that their owners attached again
    slot: int = -1  # in the index, while one is told
    coverer: AdvertisedKind | None = None  # of a kind of which none is told
    covers: dict[AdvertisedKind, None] = {}
    moves: int = 0  # coverers that it lost


class Ended(NamedTuple):
    """A kind of which none is left, still told until what it covered has another coverer or is told."""

    kind: AdvertisedKind
    covered: Iterator[AdvertisedKind]
    last: AdvertisedResource  # the one that is told


class OwnAdvertisements:
    """What we host, and which of it is told."""

    def __init__(self) -> None:
        self.told: dict[int, AdvertisedResource] = {}
        self.searches = 0  # for coverers
        self._all: dict[int, AdvertisedResource] = {}
        self._kinds: dict[str, AdvertisedKind] = {}  # by their ranges as text
        self._index = BoxIndex()  # of kinds that are told
        self._by_slot: dict[int, AdvertisedKind] = {}
        self._ended: dict[int, Ended] = {}  # by the resource that is still told

    @property
    def is_unfinished(self) -> bool:
        """True if there is more to tell: call ``change`` again."""
        return bool(self._ended)

    def change(
        self, came: Iterable[AdvertisedResource], went: Iterable[int]
    ) -> tuple[list[AdvertisedResource], list[int]]:
        """What has to be told of a change: the new advertisements, and the removed ones."""
        add: dict[int, AdvertisedResource] = {}
        remove: dict[int, None] = {}
        bereft: dict[AdvertisedKind, AdvertisedResource] = {}
        for resource in went:
            self._go(resource, remove, bereft)
        for advertised in came:
            self._come(advertised, add)
        for kind, last in bereft.items():
            self._replace(kind, last, add, remove)
        self._go_on(COVERED_AT_ONCE, add, remove)
        while any(resource in self._ended for resource in add):
            self._go_on(COVERED_AT_ONCE, add, remove)  # it is told anew, so what it covered cannot wait
        return list(add.values()), [resource for resource in remove if resource not in add]

    def _come(self, advertised: AdvertisedResource, add: dict[int, AdvertisedResource]) -> None:
        self._all[advertised.id] = advertised
        if advertised.is_static:
            self.told[advertised.id] = add[advertised.id] = advertised
            return
        kind = self._kinds.get(advertised.where)
        if kind is None:
            kind = self._kinds[advertised.where] = AdvertisedKind(read_condition(advertised.where))
        kind.all[advertised.id] = advertised
        if advertised.attached:
            self._tell(kind, advertised, add)
        elif not kind.told and kind.coverer is None:
            self._settle(kind, advertised, add)

    def _go(self, resource: int, remove: dict[int, None], bereft: dict[AdvertisedKind, AdvertisedResource]) -> None:
        advertised = self._all.pop(resource, None)
        if advertised is None:
            return
        if advertised.is_static:
            del self.told[resource]
            remove[resource] = None
            return
        kind = self._kinds[advertised.where]
        del kind.all[resource]
        if resource in kind.told:
            del kind.told[resource]
            if kind.told:
                del self.told[resource]
                remove[resource] = None
            else:
                self._leave_index(kind)
                bereft[kind] = advertised
        elif not kind.all and not kind.told and kind.coverer is not None:
            del kind.coverer.covers[kind]
            kind.coverer = None
            del self._kinds[advertised.where]

    def _replace(
        self,
        kind: AdvertisedKind,
        last: AdvertisedResource,
        add: dict[int, AdvertisedResource],
        remove: dict[int, None],
    ) -> None:
        """None of a kind is told any more: tell another of it, or let what it covered find other coverers."""
        if not kind.all:
            del self._kinds[last.where]
            if kind.covers:
                self._ended[last.id] = Ended(kind, iter(list(kind.covers)), last)
                return
        elif not kind.told and kind.coverer is None:
            self._settle(kind, next(iter(kind.all.values())), add)
        self._untell(last, remove)

    def _go_on(self, most: int, add: dict[int, AdvertisedResource], remove: dict[int, None]) -> None:
        """Find other coverers for what ended kinds covered, or tell it; at most so many steps."""
        for _ in range(most if self._ended else 0):
            ended = next(iter(self._ended.values()), None)
            if ended is None:
                return
            kind = next(ended.covered, None)
            if kind is None:
                del self._ended[ended.last.id]
                self._untell(ended.last, remove)
            elif kind.coverer is ended.kind:
                kind.moves += 1
                self._settle(kind, next(iter(kind.all.values())), add)

    def _settle(self, kind: AdvertisedKind, advertised: AdvertisedResource, add: dict[int, AdvertisedResource]) -> None:
        """Tell one of a kind of which none is told, unless another kind covers it."""
        kind.coverer = None if kind.covers or kind.moves >= MOVES_MAX else self._find(kind.condition)
        if kind.coverer is not None:
            kind.coverer.covers[kind] = None
        else:
            self._tell(kind, advertised, add)

    def _find(self, condition: ResourceCondition) -> AdvertisedKind | None:
        """A kind that is told so that every request that overlaps this condition also overlaps it."""
        self.searches += 1
        for slot in islice(self._index.coverers(condition.conjunction), COVERERS_MAX):
            kind = self._by_slot[slot]
            if kind.condition.box.keys() == condition.box.keys():
                return kind
        return None

    def _tell(self, kind: AdvertisedKind, advertised: AdvertisedResource, add: dict[int, AdvertisedResource]) -> None:
        if kind.coverer is not None:
            kind.coverer.covers.pop(kind, None)
            kind.coverer = None
        kind.told[advertised.id] = None
        self.told[advertised.id] = add[advertised.id] = advertised
        if kind.slot < 0:
            slot = self._index.spare
            try:
                self._index.add(slot, kind.condition.conjunction)
            except IndexFullError:
                return  # it covers no other one
            kind.slot = slot
            self._by_slot[slot] = kind

    def _leave_index(self, kind: AdvertisedKind) -> None:
        if kind.slot >= 0:
            self._index.remove(kind.slot)
            del self._by_slot[kind.slot]
            kind.slot = -1

    def _untell(self, last: AdvertisedResource, remove: dict[int, None]) -> None:
        """It is told no more, unless something newer is told of the same resource."""
        if self.told.get(last.id) is last:
            del self.told[last.id]
            remove[last.id] = None
