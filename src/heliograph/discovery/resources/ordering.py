"""Ordering: the best k of the resources found.

In:    resources, an order ("memory desc", "load", "near", "together"), costs to their hosts.
Out:   the best k, best first; what a broker has to pass on so that the requester's broker can choose.
State: none, except in BestSoFar: the best of one request's answers that have passed a broker.
Not here: what costs are (places.py).

By attribute: ascending unless "desc"; resources without the attribute come last. "load" is the attribute of that name,
ascending. "near": by the cost of the path to the host broker. "together": near one another, by a greedy search: for
each possible first resource take those nearest to it, and of these sets the one with the smallest sum of distances.
This is not always the best set. An unknown cost between two others is taken as the sum of their costs from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heliograph.discovery.resources.messages import FoundResource
from heliograph.errors import UsageError

NEAR, TOGETHER = "near", "together"
FIRST_TRIED_MAX = 64  # first resources that "together" tries

Cost = Callable[[int], int]


def check_order(order: str) -> None:
    """UsageError if this is not an order."""
    words = order.split()
    if order and (len(words) > 2 or not words or (len(words) == 2 and words[1] not in ("asc", "desc"))):
        raise UsageError(f"an order is an attribute, perhaps with desc, or near or together; not {order[:64]!r}")


def best(found: Sequence[FoundResource], count: int, order: str, cost: Cost) -> list[FoundResource]:
    """The best ``count`` (0: all of them), in order."""
    if not order:
        chosen = sorted(found, key=lambda each: (cost(each.host), each.id)) if count else list(found)
        return chosen[:count] if count else chosen
    if order == TOGETHER:
        return _together(found, count or len(found), cost)
    if order == NEAR:
        chosen = sorted(found, key=lambda each: (cost(each.host), each.id))
    else:
        chosen = sorted(found, key=key_of(order))
    return chosen[:count] if count else chosen


def key_of(order: str) -> Callable[[FoundResource], tuple[object, ...]]:
    """The sort key of an order by attribute."""
    name, _, direction = order.partition(" ")
    descends = direction.strip() == "desc"
    return lambda each: value_key((each.values or {}).get(name), descends, each.id)


def value_key(value: object, descends: bool, id: int) -> tuple[object, ...]:
    """The sort key of a resource with this value of the attribute: what is not a number comes last."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (1, 0, str(value or ""), id)
    return (0, -value if descends else value, "", id)


def enough(found: Sequence[FoundResource], count: int, order: str) -> list[FoundResource]:
    """What a host passes on: its own best, if the others cannot affect which these are; otherwise everything.

    By nearness all resources of one host are equal, so any ``count`` of them will do.
    """
    if not count or order == TOGETHER or len(found) <= count:
        return list(found)
    if order in ("", NEAR):
        return sorted(found, key=lambda each: each.id)[:count]
    return sorted(found, key=key_of(order))[:count]


class BestSoFar:
    """Of the answers that pass a broker on the way: which of them may still be among the best.

    By an attribute these are the best ``count`` seen so far: an answer that is worse than ``count`` others cannot be
    chosen at the end. Nearness is the requester's, which a broker on the way does not know, so it passes everything on;
    hosts have cut their own answers already (``enough``).
    """

    __slots__ = ("_count", "_ends", "_key")

    def __init__(self, count: int, order: str) -> None:
        self._count = count if order not in ("", NEAR, TOGETHER) else 0
        self._key = key_of(order)
        self._ends: dict[int, tuple[object, ...]] = {}  # the best so far, with their sort keys

    def cut(self, found: list[FoundResource]) -> list[FoundResource]:
        """Those that have to be passed on."""
        if not self._count:
            return found
        ends = {**self._ends, **{each.id: self._key(each) for each in found}}
        if len(ends) > self._count:
            best_ids = sorted(ends, key=lambda id: ends[id])[: self._count]
            ends = {id: ends[id] for id in best_ids}
        self._ends = ends
        return [each for each in found if each.id in ends]


def _together(found: Sequence[FoundResource], count: int, cost: Cost) -> list[FoundResource]:
    def apart(one: FoundResource, other: FoundResource) -> int:
        return 0 if one.host == other.host else cost(one.host) + cost(other.host)

    chosen: list[FoundResource] = []
    least = None
    for first in sorted(found, key=lambda each: (cost(each.host), each.id))[:FIRST_TRIED_MAX]:
        group = sorted(found, key=lambda each: (each is not first, apart(first, each), each.id))[:count]
        spread = sum(apart(first, each) for each in group)
        if least is None or spread < least:
            chosen, least = group, spread
    return chosen
