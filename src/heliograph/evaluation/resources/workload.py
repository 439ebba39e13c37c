"""Workloads: resources with their values, and ten sets of requests whose similarity rises.

In:    a seed; how many resources and requests.
Out:   resources; requests with similarity 10 to 100 %; where resources are registered, where and when requests come.
State: none.
Not here: running them (network.py, live.py), what similarity is (matching/similarity.py).
Paper: [resources] §6.2. Attributes a to e, values 1 to 100, at least two attributes per resource; requests name ``a``.

A resource advertises a ceiling per attribute ("a <= 57") and has a value up to that. All requests but the widest draw
their attributes and lower bounds from the same distribution, and these alone decide which advertisements overlap; so
the number of hosting brokers per request stays the same while similarity rises. At first no request matches anything,
covers another or is covered. Then more and more of them are replaced by requests that match something and are covered
by another such request: by a wide one, which names ``a`` alone and is one in fifty, or by any that covers it by chance;
one in five is a copy of another request that is not wide. All of them are in one block. Their order is random: a
request may come before the one that covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from heliograph.discovery.resources.conditions import read_condition
from heliograph.matching.boxes.index import BoxIndex
from heliograph.model.predicates import Conjunction

ATTRIBUTES = ("a", "b", "c", "d", "e")
VALUE_MAX = 100
LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
WIDE = (((1, 5), (41, 45)), ((21, 25), (71, 75)))  # of the wide requests: minimum and maximum of ``a``, two kinds
WIDE_SHARE = 50  # one request in this many is wide, and at least …
WIDE_LEAST = 4
BEYOND = 75  # requests that reach above this are in no wide request
FLOOR_A_MAX = 40  # the greatest lower bound of ``a``
FLOOR_MAX = 60  # … of the others
COPIES = 0.2
GEOMETRIC_P = 1 / 3
TRIES_MAX = 200_000

BALANCED, GEOMETRIC = "balanced", "unbalanced"
UNIFORM, ZIPF, GAUSSIAN = "uniform", "Zipf", "Gaussian"
GAUSSIANS = {"Gaussian/4": 4, GAUSSIAN: 8, "Gaussian/16": 16, "Gaussian/32": 32}
"""Several Gaussians in time: their standard deviations are the whole time divided by these."""


@dataclass(frozen=True, slots=True)
class WorkloadResource:
    """A resource: per attribute its maximum and its value."""

    name: str
    ceilings: dict[str, int]
    values: dict[str, int]

    @property
    def where(self) -> str:
        """Its advertisement."""
        return " and ".join(f"{name} <= {most}" for name, most in self.ceilings.items())

    @property
    def fixed(self) -> str:
        """Its advertisement if its values never change."""
        return " and ".join(f"{name} = {value}" for name, value in self.values.items())


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """A request: per attribute the minimum and the maximum."""

    bounds: tuple[tuple[str, int, int], ...]

    @property
    def where(self) -> str:
        """The text of the request."""
        return " and ".join(f"{name} >= {least} and {name} <= {most}" for name, least, most in self.bounds)

    @property
    def conjunction(self) -> Conjunction:
        """The form in which requests are compared."""
        return read_condition(self.where).conjunction


class Offer:
    """All resources, searchable at once."""

    def __init__(self, resources: Sequence[WorkloadResource]) -> None:
        self._ceilings = _columns([each.ceilings for each in resources])
        self._values = _columns([each.values for each in resources])

    def overlapping(self, request: WorkloadRequest) -> list[int]:
        """The resources whose advertisements the request overlaps."""
        return _fits(self._ceilings, [(name, least, VALUE_MAX) for name, least, _ in request.bounds])

    def matching(self, request: WorkloadRequest) -> list[int]:
        """The resources whose values match."""
        return _fits(self._values, request.bounds)


def _columns(rows: list[dict[str, int]]) -> dict[str, np.ndarray]:
    return {name: np.array([row.get(name, 0) for row in rows]) for name in ATTRIBUTES}


def _fits(columns: dict[str, np.ndarray], bounds: Sequence[tuple[str, int, int]]) -> list[int]:
    kept = np.ones(len(columns["a"]), bool)
    for name, least, most in bounds:
        kept &= (columns[name] >= least) & (columns[name] <= most)
    return [int(place) for place in np.flatnonzero(kept)]


def make_resources(count: int, seed: int) -> list[WorkloadResource]:
    """Each with two to five attributes."""
    random = Random(f"{seed}/resources")
    made = []
    for number in range(count):
        chosen = sorted(random.sample(ATTRIBUTES, random.randint(2, len(ATTRIBUTES))))
        ceilings = {name: random.randint(1, VALUE_MAX) for name in chosen}
        values = {name: random.randint(1, most) for name, most in ceilings.items()}
        made.append(WorkloadResource(f"r{number}", ceilings, values))
    return made


# -- requests ---------------------------------------------------------------------------------------------------------


class _Drawing:
    """Requests that are drawn until they meet a condition."""

    def __init__(self, offer: Offer, seed: int) -> None:
        self.random = Random(f"{seed}/requests")
        self.offer = offer

    def _floors(self) -> list[tuple[str, int]]:
        """Attributes and lower bounds, from the same distribution for all requests."""
        others = sorted(self.random.sample(ATTRIBUTES[1:], self.random.choice((2, 3))))
        floors = [("a", self.random.randint(1, FLOOR_A_MAX))]
        return floors + [(name, self.random.randint(1, FLOOR_MAX)) for name in others]

    def matchless(self, index: BoxIndex) -> WorkloadRequest:
        """A request that matches nothing, and neither covers nor is covered by a request of the index."""
        for _ in range(TRIES_MAX):
            (_, floor), *others = self._floors()
            top = self.random.randint(BEYOND + 1, VALUE_MAX)
            request = WorkloadRequest(
                (("a", floor, top), *((name, least, least + self.random.randint(0, 3)) for name, least in others))
            )
            made = request.conjunction
            if not self.offer.matching(request) and not len(index.coverers(made)) and not len(index.covered(made)):
                return request
        raise AssertionError("no room for another matchless request")

    def covered(self) -> WorkloadRequest:
        """A request that matches something, and is covered by every wide one of one kind."""
        for _ in range(TRIES_MAX):
            (_, floor), *others = self._floors()
            top = WIDE[floor >= WIDE[1][0][1]][1][0]
            request = WorkloadRequest(
                (
                    ("a", floor, self.random.randint(floor, top)),
                    *((name, least, self.random.randint(least, VALUE_MAX)) for name, least in others),
                )
            )
            if self.offer.matching(request):
                return request
        raise AssertionError("nothing is left to be asked for")


def _wide(random: Random, count: int) -> list[WorkloadRequest]:
    """The requests that cover the others, alternating between both kinds; the last one is covered by all of them."""
    made = []
    for number in range(max(WIDE_LEAST, count // WIDE_SHARE)):
        least, most = (random.randint(*ends) for ends in WIDE[number % 2])
        made.append(WorkloadRequest((("a", least, most),)))
    inner = ("a", WIDE[1][0][1], WIDE[0][1][0])
    return [*made, WorkloadRequest((inner, ("b", 1, VALUE_MAX), ("c", 1, VALUE_MAX)))]


def make_requests(
    offer: Offer, count: int, seed: int, levels: Sequence[int] = LEVELS
) -> dict[int, list[WorkloadRequest]]:
    """The requests by their similarity in percent, in the order in which they are made."""
    drawing = _Drawing(offer, seed)
    index = BoxIndex()
    wide = _wide(drawing.random, count)
    for place, request in enumerate(wide):
        index.add(place, request.conjunction)
    requests = []
    for number in range(count):
        requests.append(drawing.matchless(index))
        index.add(len(wide) + number, requests[-1].conjunction)
    places = drawing.random.sample(range(count), count)
    block: list[WorkloadRequest] = []
    found: dict[int, list[WorkloadRequest]] = {}
    for level in sorted(levels):
        while len(block) < round(count * level / 100):
            request = _next(drawing, block, wide, index, len(wide) + places[len(block)])
            requests[places[len(block)]] = request
            block.append(request)
        found[level] = list(requests)
    return found


def _next(
    drawing: _Drawing, block: list[WorkloadRequest], wide: list[WorkloadRequest], index: BoxIndex, replaced: int
) -> WorkloadRequest:
    """The next request of the block, which replaces a matchless one. It overlaps no matchless request that stays."""
    index.remove(replaced)
    if len(block) < len(wide):
        return wide[len(block)]
    for _ in range(TRIES_MAX):
        is_copy = len(block) > len(wide) and drawing.random.random() < COPIES
        request = drawing.random.choice(block[len(wide) :]) if is_copy else drawing.covered()
        made = request.conjunction
        if all(other < len(wide) for other in [*index.covered(made), *index.coverers(made)]):
            return request
    raise AssertionError("no request keeps the others apart")


# -- places and times -------------------------------------------------------------------------------------------------


def place_resources(count: int, hosts: int, how: str, seed: int) -> list[int]:
    """At which of the hosts each resource is registered: evenly, or mostly at the first ones."""
    if how == BALANCED:
        return [number % hosts for number in range(count)]
    random = Random(f"{seed}/places")
    return random.choices(range(hosts), [(1 - GEOMETRIC_P) ** n * GEOMETRIC_P for n in range(hosts)], k=count)


def place_requests(count: int, hosts: int, how: str, seed: int) -> list[int]:
    """At which of the hosts each request is made: evenly, or by Zipf's law."""
    random = Random(f"{seed}/requesters")
    weights = [1 / (n + 1) if how == ZIPF else 1.0 for n in range(hosts)]
    return random.choices(random.sample(range(hosts), hosts), weights, k=count)


def times_of(count: int, span_s: float, how: str, seed: int) -> list[float]:
    """When each is made, in seconds from the beginning: evenly, or more or less all in the middle."""
    random = Random(f"{seed}/times")
    if how in GAUSSIANS:
        return sorted(_inside(random, span_s, span_s / GAUSSIANS[how]) for _ in range(count))
    return sorted(random.uniform(0, span_s) for _ in range(count))


def _inside(random: Random, span_s: float, deviation_s: float) -> float:
    """A time around the middle, drawn again while it is outside."""
    while not 0 <= (drawn := random.gauss(span_s / 2, deviation_s)) <= span_s:
        pass
    return drawn
