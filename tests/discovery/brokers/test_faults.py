"""Searches while things go wrong, over many seeds: a broker is found if one can be reached, or a reason is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest

from heliograph.discovery.brokers.config import DirectoryConfig, DiscoveryConfig, ResponderConfig
from heliograph.discovery.brokers.remembered import Remembered
from heliograph.discovery.brokers.result import SearchResult
from heliograph.errors import Reason
from tests.discovery.brokers.stage import NO_MULTICAST, Plan, Stage

MS = 1_000_000
FEW, MORE = range(1, 21), range(21, 61)  # those of many seeds go on where the others end
AT_BDN = ResponderConfig(directories=("bdn:4719", "bdn2:4719"), multicast=NO_MULTICAST)
SHAPES = ("alone", "unlinked", "star", "line", "group")


@dataclass
class Case:
    """A world with chosen distances, and how somebody there searches."""

    shape: str
    seed: int

    def plans(self) -> list[Plan]:
        random = Random(f"{self.shape}/{self.seed}")
        count = 1 if self.shape == "alone" else random.randrange(2, 9)
        near = [round(random.uniform(1, 80), 2) for _ in range(count)]
        responder = ResponderConfig() if self.shape == "group" else AT_BDN
        plans = [Plan(f"b{number}", near[number], (), responder) for number in range(count)]
        if self.shape in ("star", "group"):
            plans[1:] = [replace(plan, links=("b0",)) for plan in plans[1:]]
        if self.shape == "line":
            quiet = ResponderConfig(public=False, multicast=NO_MULTICAST)
            plans[1:] = [replace(plan, links=(f"b{number}",), responder=quiet) for number, plan in enumerate(plans[1:])]
        return plans

    @property
    def config(self) -> DiscoveryConfig:
        if self.shape == "group":
            return DiscoveryConfig()
        return DiscoveryConfig(directories=("bdn:4719", "bdn2:4719"), multicast=NO_MULTICAST)

    def stage(self, **faults: float) -> Stage:
        directories = [DirectoryConfig(), DirectoryConfig(name="bdn2")]
        settle_s = 3.0 + 0.5 * len(self.plans())
        return Stage(self.plans(), seed=self.seed, directories=directories, settle_s=settle_s, **faults)

    def least_ms(self) -> float:
        return 2 * min(plan.near_ms for plan in self.plans())


def in_time(result: SearchResult, config: DiscoveryConfig) -> bool:
    return result.times_ms["total"] <= 2 * config.timeout_ms


def check_calm(seeds: range) -> None:
    good = 0
    for seed in seeds:
        case = Case(SHAPES[seed % len(SHAPES)], seed)
        result = case.stage().find(case.config)
        assert result.proven, case
        assert sum(finding.round_trip_ms is not None for finding in result.findings) <= case.config.targets_max
        round_trip_ms = result.findings[0].round_trip_ms
        assert round_trip_ms is not None
        good += round_trip_ms <= 1.1 * case.least_ms() + 0.3  # jitter
    assert good >= 0.95 * len(seeds)


def check_lossy(seeds: range) -> None:
    for seed in seeds:
        case = Case(SHAPES[seed % len(SHAPES)], seed)
        stage = case.stage(loss=0.3, duplicate=0.2, reorder=0.3, skew_ms=5_000)
        result = stage.find(case.config)
        assert result.found, (case, result.tried)
        assert in_time(result, case.config)


@pytest.mark.req("B12")
@pytest.mark.req("B11")
def test_without_faults_the_choice_is_as_near_as_the_nearest() -> None:
    check_calm(FEW)


@pytest.mark.sweep
@pytest.mark.req("B12")
def test_without_faults_the_choice_is_as_near_as_the_nearest_over_many_seeds() -> None:
    check_calm(MORE)


@pytest.mark.req("B13")
def test_with_a_third_of_all_datagrams_lost_and_clocks_off_a_broker_is_found() -> None:
    check_lossy(FEW)


@pytest.mark.sweep
@pytest.mark.req("B13")
def test_with_a_third_of_all_datagrams_lost_and_clocks_off_a_broker_is_found_over_many_seeds() -> None:
    check_lossy(MORE)


def check_deaths(seeds: range) -> None:
    """Any of directories and brokers die at any moment of the search."""
    for seed in seeds:
        random = Random(seed)
        case = Case(random.choice(("unlinked", "star", "group")), seed)
        plans = case.plans()
        stage = case.stage(loss=0.1)
        remembered = tuple(Remembered(plan.name, f"{plan.name}:4717", 0) for plan in plans)
        search = stage.search(case.config, remembered=remembered, wait=False)
        doomed = ["bdn", "bdn2", *(plan.name for plan in plans)]
        spared = random.choice(plans).name
        doomed.remove(spared)
        while search.result is None:
            stage.run(random.uniform(0.001, 0.08))
            if doomed and random.random() < 0.5:
                stage.world.crash(stage.world.hosts[doomed.pop(random.randrange(len(doomed)))])
        result = search.result
        assert result.found, (seed, spared, result.tried)
        assert in_time(result, case.config)


@pytest.mark.slow
@pytest.mark.req("B13")
@pytest.mark.req("B15")
def test_while_all_but_one_broker_die_one_by_one_a_broker_is_found() -> None:
    check_deaths(FEW)


@pytest.mark.sweep
@pytest.mark.req("B13")
def test_while_all_but_one_broker_die_one_by_one_a_broker_is_found_over_many_seeds() -> None:
    check_deaths(MORE)


@pytest.mark.slow
def test_a_partition_ends_in_a_reason_in_time_or_in_what_is_on_this_side() -> None:
    for seed in FEW:
        case = Case("star", seed)
        stage = case.stage()
        search = stage.search(replace(case.config, timeout_ms=1_000), wait=False)
        cut = Random(seed).choice(["*", "b0", "bdn*"])
        stage.block(cut, "client*")
        stage.block("client*", cut)
        while search.result is None:
            stage.run(0.05)
        result = search.result
        assert result.times_ms["total"] <= 2_000
        if cut == "*":
            assert result.reason is Reason.BROKER_NOT_FOUND
        elif cut == "b0":
            assert result.broker != "b0"


def test_a_storm_of_requests_costs_each_broker_one_answer_per_request() -> None:
    """A hundred requesters that repeat every datagram five times."""
    case = Case("star", 3)
    stage = case.stage(duplicate=0.9)
    count = len(case.plans())
    searches = [stage.search(case.config, wait=False) for _ in range(100)]
    stage.run(4)
    assert all(search.result is not None and search.result.found for search in searches)
    for plan in case.plans():
        counts = stage.responder(plan.name)["counts"]
        assert counts["answered"] <= 100 * 3  # the first attempt, seldom another
    assert count > 1
