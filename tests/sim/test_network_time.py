"""Network time in simulated worlds: stated errors hold over seeds, and a node that states too little is noticed."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from heliograph.sim.checkers import CHECKERS
from heliograph.sim.clock import EPOCH_NS
from heliograph.sim.journal import Journal
from heliograph.sim.loop import Loop
from heliograph.sim.run import RunResult, play
from heliograph.sim.scenario_files import load, parse
from heliograph.timekeeping import clock
from tests.sweep.seeds import seeds_of

pytestmark = pytest.mark.req("N13")

MS = 1_000_000

PAIR = parse("""
[scenario]
name = "pair"
duration_s = 10
settle_s = 5
[hosts]
clock_skew_ms = 3000
[network]
delay_ms = 2
[topology]
links = [["a", "b"]]
[topology.brokers.a]
[topology.brokers.b]
[topology.clients.p]
broker = "a"
[topology.clients.s]
broker = "b"
[[workload]]
client = "p"
publish = ["x"]
rate_per_s = 2
[[workload]]
client = "s"
subscribe = ["x"]
[checks]
names = ["time", "delivery"]
""")


def why(result: RunResult) -> str:
    replay = f"replay: heliograph simulate {result.scenario} --seed {result.seed}"
    return "\n".join([result.crash, *map(str, result.violations), replay])


class Errors(NamedTuple):
    """In milliseconds. The first two are what nodes state in the end, after the last fault."""

    median: float
    most: float
    apart: float  # two nodes that follow the same clock, at most, faults included
    stated: float  # by any node, at most, faults included


def errors_of(result: RunResult) -> Errors:
    (text,) = [text for text in result.measured if text.startswith("network time")]
    return Errors(*map(float, re.findall(r"([0-9.]+) ms", text)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_of("network-time"))
def test_network_time_is_as_exact_as_each_node_says_whatever_goes_wrong(seed: int) -> None:
    result = play(load("network-time"), seed)

    assert result.ok, why(result)
    assert all(result.faults.values())
    errors = errors_of(result)
    assert errors.median < 20
    assert errors.most < 45  # a client over two ways of 25 ms there and 5 ms back
    assert errors.stated < 200  # while clocks step by 90 ms
    assert errors.apart <= 2 * errors.stated  # one may be early and the other late


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_of("network-utc"))
def test_a_network_that_asks_ntp_servers_follows_utc_and_no_liar(seed: int) -> None:
    result = play(load("network-utc"), seed, keep_journal=True)

    assert result.ok, why(result)
    assert all(result.faults.values())
    references = {
        entry[4][0].reference
        for entry in result.journal.entries
        if entry[2] == "note" and type(entry[4][0]).__name__ == "ReferenceChanged"
    }
    assert "UTC" in references
    errors = errors_of(result)
    assert errors.most < 60
    assert errors.stated < 150


def test_two_brokers_and_their_clients_agree_within_milliseconds() -> None:
    result = play(PAIR, 1, keep_journal=True)
    assert result.ok, why(result)
    assert errors_of(result).most < 6


def test_a_node_that_states_too_small_an_error_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = clock.sample_of

    def boasting(told: Any, delay_ns: int, now: int) -> clock.Sample:
        return honest(told, delay_ns, now)._replace(error_ns=0, time_ns=told.time_ns)

    monkeypatch.setattr("heliograph.timekeeping.keeper.sample_of", boasting)
    result = play(PAIR, 1)
    assert {violation.checker for violation in result.violations} == {"time"}
    assert "ns apart" in result.violations[0].text


def judged(reports: dict[str, dict[str, Any]], *, end: bool = False) -> list[str]:
    """What the checker says of these reports."""
    checker = CHECKERS["time"](PAIR, Journal(Loop()), lambda host, _: reports.get(host))
    checker.look()
    if end:
        checker.end()
    return [violation.text for violation in checker.violations]


def said(time_ns: int, error_ns: int, reference: str = "x", era: int = 1, synchronised: bool = True) -> dict[str, Any]:
    return {
        "time_ns": time_ns,
        "error_ns": error_ns,
        "reference": reference,
        "era": era,
        "synchronised": synchronised,
    }


def test_the_checker_compares_those_who_follow_the_same_era_of_the_same_clock() -> None:
    assert judged({"a": said(100, 3), "b": said(105, 2)}) == []
    assert judged({"a": said(100, 3), "b": said(106, 2)}) == ["a and b are 6 ns apart, and say that it is at most 5 ns"]
    assert judged({"a": said(100, 3), "b": said(900, 2, era=2)}) == []
    assert judged({"a": said(100, 3), "b": said(900, 2, synchronised=False)}) == []
    assert judged({"a": said(EPOCH_NS + 9, 8, "UTC")}) == ["a is wrong by 9 ns, and says that it is at most 8 ns"]


def test_the_checker_wants_one_clock_and_everybody_synchronised_in_the_end() -> None:
    everybody = {name: said(100, 3) for name in ("a", "b", "p", "s")}
    assert judged(everybody, end=True) == []
    assert judged(everybody | {"s": said(100, 3, synchronised=False)}, end=True) == ["not synchronised: s"]
    assert judged(everybody | {"b": said(100, 3, "y")}, end=True) == ["a follows ('x', 1), b follows ('y', 1)"]
