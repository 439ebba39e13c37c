"""The choice of a broker: delays from timestamps, normalised weights, target set, ranking, reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.brokers import selection
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DiscoveryConfig, WeightsConfig
from heliograph.discovery.brokers.messages import DiscoveryResponse, Usage

MS = 1_000_000
GIB = 1 << 30
CONFIG = DiscoveryConfig()
IDLE, BUSY = Usage(0, 1, 50, 8 * GIB, GIB), Usage(900, 12, 800, 8 * GIB, 7 * GIB)


def answer(
    name: str,
    delay_ms: float,
    *,
    lead_ms: float = 0,  # of our clock over the network's
    wrong_ms: float = 0,  # of its clock
    error_ms: float = 1,
    elapsed_ms: float = 100,
    usage: Usage = IDLE,
) -> Candidate:
    response = DiscoveryResponse(bytes(16), 1, name, error_ns=int(error_ms * MS), usage=usage)
    raw_ns = int((delay_ms + lead_ms - wrong_ms) * MS)
    return Candidate(response, (name, 1), False, raw_ns, int(elapsed_ms * MS))


def names(candidates: list[Candidate]) -> list[str]:
    return [candidate.name for candidate in candidates]


def pinged(candidate: Candidate, *round_trips_ms: float) -> Candidate:
    candidate.target = True
    candidate.pings = len(round_trips_ms)
    candidate.round_trips_ns = [int(trip * MS) for trip in round_trips_ms]
    return candidate


@pytest.mark.req("B11")
@given(
    st.floats(-5_000, 5_000),
    st.lists(st.tuples(st.floats(0.1, 90), st.floats(0, 10)), min_size=1, max_size=8),
)
def test_the_true_delay_is_within_the_bound_however_wrong_our_own_clock_is(
    lead_ms: float, brokers: list[tuple[float, float]]
) -> None:
    candidates = [
        answer(f"b{number}", delay_ms, lead_ms=lead_ms, wrong_ms=wrong_ms, error_ms=10)
        for number, (delay_ms, wrong_ms) in enumerate(brokers)
    ]
    selection.estimate(candidates)
    for candidate, (delay_ms, _) in zip(candidates, brokers, strict=True):
        assert candidate.delay.by_clock
        assert candidate.delay.low_ns - MS <= delay_ms * MS <= candidate.delay.high_ns + MS


@pytest.mark.req("B11")
def test_the_ranking_needs_no_clock_of_ours() -> None:
    candidates = [answer("far", 80, lead_ms=4_000), answer("near", 5, lead_ms=4_000), answer("mid", 30, lead_ms=4_000)]
    selection.estimate(candidates)
    assert names(sorted(candidates, key=lambda one: one.delay.ns)) == ["near", "mid", "far"]


def test_a_broker_whose_clock_is_off_by_seconds_is_judged_by_its_arrival() -> None:
    candidates = [answer("a", 10), answer("b", 20), answer("liar", 5, wrong_ms=5_000), answer("c", 30)]
    selection.estimate(candidates)
    by_clock = {candidate.name: candidate.delay.by_clock for candidate in candidates}
    assert by_clock == {"a": True, "b": True, "liar": False, "c": True}
    liar = candidates[2]
    assert (liar.delay.low_ns, liar.delay.high_ns) == (0, 100 * MS)


@pytest.mark.req("B11")
def test_a_broker_that_is_not_synchronised_gets_a_place_among_the_pinged() -> None:
    candidates = [answer(f"b{number}", 1 + number) for number in range(20)]
    candidates.append(answer("unsynchronised", 0, error_ms=-1))
    selection.judge(candidates, CONFIG)
    assert "unsynchronised" in names(selection.targets(candidates, CONFIG))


def test_without_a_clock_of_our_own_arrival_is_all_there_is() -> None:
    candidate = answer("b", 10)
    candidate.raw_ns = None
    selection.estimate([candidate])
    assert not candidate.delay.by_clock
    assert candidate.delay.ns == 50 * MS


@given(
    st.builds(
        Usage,
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 40),
        st.integers(0, 1_000),
        st.integers(0, 1 << 50),
        st.integers(0, 1 << 50),
    )
)
def test_usage_is_a_number_from_0_to_1_whatever_a_broker_claims(usage: Usage) -> None:
    assert 0 <= selection.usage_of(usage, WeightsConfig()) <= 1


@pytest.mark.req("B11")
def test_gigabytes_do_not_outweigh_everything_else() -> None:
    """The paper adds megabytes to ratios: there a large busy computer always wins."""
    large = Usage(2_000, 40, 890, 1_024 * GIB, 1_000 * GIB)
    small = Usage(0, 1, 10, 4 * GIB, GIB)
    weights = WeightsConfig()
    assert selection.usage_of(small, weights) > selection.usage_of(large, weights)


@pytest.mark.parametrize("name", ["free_memory", "total_memory", "links", "cpu", "connections"])
def test_each_weight_counts(name: str) -> None:
    better = {
        "free_memory": Usage(memory_total=GIB, memory_used=0),
        "total_memory": Usage(memory_total=64 * GIB),
        "links": Usage(links=0),
        "cpu": Usage(cpu_permille=0),
        "connections": Usage(connections=0),
    }[name]
    worse = {
        "free_memory": Usage(memory_total=GIB, memory_used=GIB),
        "total_memory": Usage(memory_total=GIB),
        "links": Usage(links=100),
        "cpu": Usage(cpu_permille=900),
        "connections": Usage(connections=10_000),
    }[name]
    none = dict.fromkeys(WeightsConfig.__slots__, 0.0)
    only = WeightsConfig(**none | {name: 1.0})
    assert selection.usage_of(better, only) > selection.usage_of(worse, only)


@pytest.mark.req("B11")
def test_load_cannot_push_the_nearest_out_of_the_target_set() -> None:
    candidates = [answer("near", 2, usage=Usage(900, 12, 890, 8 * GIB, 7 * GIB))]
    candidates += [answer(f"far{number}", 60, usage=IDLE) for number in range(30)]
    selection.judge(candidates, CONFIG)
    chosen = selection.targets(candidates, CONFIG)
    assert "near" in names(chosen)
    assert len(chosen) == CONFIG.targets_max


def test_a_broker_over_the_load_limit_is_pinged_only_where_places_are_left() -> None:
    hot = Usage(0, 1, 950, 8 * GIB, GIB)
    candidates = [answer("hot", 1, usage=hot)] + [answer(f"b{number}", 5) for number in range(10)]
    selection.judge(candidates, CONFIG)
    assert "hot" not in names(selection.targets(candidates, CONFIG))
    assert "hot" in names(selection.targets(candidates[:5], CONFIG))


@pytest.mark.req("B12")
def test_the_lowest_mean_round_trip_wins_whatever_the_load() -> None:
    near, far = pinged(answer("near", 5, usage=BUSY), 10, 12, 11), pinged(answer("far", 6), 15, 15, 15)
    selection.judge([near, far], CONFIG)
    assert names(selection.rank([far, near], CONFIG)) == ["near", "far"]


@pytest.mark.req("B16")
def test_of_equally_near_brokers_the_newly_added_idle_one_is_taken() -> None:
    old = [pinged(answer(f"old{number}", 5, usage=BUSY), 10.0, 10.0) for number in range(3)]
    new = pinged(answer("new", 5, usage=IDLE), 10.3, 10.5)
    selection.judge([*old, new], CONFIG)
    ranked = selection.rank([*old, new], CONFIG)
    assert ranked[0].name == "new"
    assert (ranked[0].round_trip_ns or 0) <= 1.1 * 10 * MS


def test_a_hot_broker_is_taken_only_if_there_is_no_other() -> None:
    hot = pinged(answer("hot", 1, usage=Usage(0, 1, 990)), 2)
    cool = pinged(answer("cool", 9), 20)
    selection.judge([hot, cool], CONFIG)
    assert names(selection.rank([hot, cool], CONFIG)) == ["cool", "hot"]
    assert names(selection.rank([hot], CONFIG)) == ["hot"]


def test_where_all_are_over_the_load_limit_the_least_busy_of_the_nearest_is_taken() -> None:
    hot, hotter = (pinged(answer(f"at{cpu}", 1, usage=Usage(0, 1, cpu)), 2) for cpu in (910, 990))
    far = pinged(answer("far", 1, usage=Usage(0, 1, 905)), 9)
    selection.judge([hotter, hot, far], CONFIG)
    assert names(selection.rank([hotter, hot, far], CONFIG)) == ["at910", "at990", "far"]


def test_a_broker_behind_nat_is_reached_where_we_saw_it_too() -> None:
    response = DiscoveryResponse(bytes(16), 1, "b", host="10.0.0.5", ports={"tcp": 4717, "tls": 4718})
    candidate = Candidate(response, ("192.0.2.1", 9), False, 0, 1)
    assert candidate.urls(("tcp", "tls")) == [
        "heliographs://10.0.0.5:4718",
        "heliograph://10.0.0.5:4717",
        "heliographs://192.0.2.1:4718",
        "heliograph://192.0.2.1:4717",
    ]
    assert candidate.urls(("tls",)) == ["heliographs://10.0.0.5:4718", "heliographs://192.0.2.1:4718"]
