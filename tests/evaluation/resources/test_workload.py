"""The generator: similarity as ordered, and as many hosting brokers per request whatever the similarity."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from statistics import mean

import pytest

from heliograph.evaluation.resources import workload
from heliograph.evaluation.resources.workload import (
    BALANCED,
    GAUSSIAN,
    GEOMETRIC,
    LEVELS,
    UNIFORM,
    ZIPF,
    Offer,
    WorkloadRequest,
)
from heliograph.matching.similarity import similarity_of

COUNT, HOSTS = 1_000, 20


@cache
def made(seed: int) -> tuple[Offer, dict[int, list[WorkloadRequest]]]:
    offer = Offer(workload.make_resources(COUNT, seed))
    return offer, workload.make_requests(offer, COUNT, seed)


@pytest.mark.req("R11", "R14")
@pytest.mark.parametrize("seed", [1, 2])
def test_each_workload_has_its_similarity_within_a_point(seed: int) -> None:
    _, requests = made(seed)
    for level in LEVELS:
        assert abs(100 * similarity_of([each.conjunction for each in requests[level]]) - level) <= 1
        assert len(requests[level]) == COUNT


@pytest.mark.req("R14")
@pytest.mark.parametrize("how", [BALANCED, GEOMETRIC])
def test_hosting_brokers_per_request_are_the_same_within_a_tenth(how: str) -> None:
    offer, requests = made(1)
    hosts = workload.place_resources(COUNT, HOSTS, how, 1)
    means = [
        mean(len({hosts[place] for place in offer.overlapping(each)}) for each in requests[level]) for level in LEVELS
    ]
    assert max(means) <= 1.1 * min(means)


@pytest.mark.req("R14")
def test_matchless_requests_are_replaced_by_ones_that_match() -> None:
    offer, requests = made(1)
    for level in LEVELS:
        assert sum(bool(offer.matching(each)) for each in requests[level]) == COUNT * level // 100
    for before, after in pairwise(LEVELS):
        changed = [one for one, other in zip(requests[before], requests[after], strict=True) if one != other]
        assert not any(offer.matching(each) for each in changed)


@pytest.mark.req("R14")
def test_requests_name_a_and_resources_at_least_two_attributes() -> None:
    resources = workload.make_resources(200, 3)
    assert all(2 <= len(each.values) <= 5 and each.values.keys() == each.ceilings.keys() for each in resources)
    assert all(1 <= each.values[name] <= most <= 100 for each in resources for name, most in each.ceilings.items())
    _, requests = made(1)
    assert all(each.bounds[0][0] == "a" for level in LEVELS for each in requests[level])


@pytest.mark.req("R14")
def test_places_and_times_are_distributed_as_named() -> None:
    unbalanced = workload.place_resources(9_000, HOSTS, GEOMETRIC, 1)
    assert abs(unbalanced.count(0) / 9_000 - 1 / 3) < 0.03
    assert abs(unbalanced.count(1) / unbalanced.count(0) - 2 / 3) < 0.06
    assert set(workload.place_resources(100, HOSTS, BALANCED, 1)) == set(range(HOSTS))
    zipf = sorted((workload.place_requests(9_000, HOSTS, ZIPF, 1).count(n) for n in range(HOSTS)), reverse=True)
    assert abs(zipf[1] / zipf[0] - 1 / 2) < 0.08
    middle = [each for each in workload.times_of(2_000, 80.0, GAUSSIAN, 1) if 30 <= each <= 50]
    assert abs(len(middle) / 2_000 - 0.68) < 0.05
    for time, divisor in workload.GAUSSIANS.items():
        drawn = workload.times_of(2_000, 80.0, time, 1)
        assert abs(sum(abs(each - 40) <= 80 / divisor for each in drawn) / 2_000 - 0.69) < 0.06
        assert len(set(drawn)) == 2_000, "none is moved to the beginning or the end"
    even = workload.times_of(2_000, 80.0, UNIFORM, 1)
    assert abs(sum(each < 40 for each in even) / 2_000 - 0.5) < 0.05
