"""Content subscriptions in simulated worlds: scenarios ask by content, checkers judge by their own reading of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.errors import ConfigError
from heliograph.matching.condition import Event
from heliograph.matching.conditions import covers as real_covers
from heliograph.matching.conditions import matches as real_matches
from heliograph.matching.contents import Field
from heliograph.matching.covering import InterestSet
from heliograph.matching.languages import compile
from heliograph.matching.siblings import Siblings
from heliograph.sim.run import RunResult, play
from heliograph.sim.scenario import Scenario
from heliograph.sim.scenario_files import load, parse
from heliograph.sim.scenario_world import ScenarioWorld
from heliograph.sim.selections import LANGUAGES, comparisons_of, covers, fits, uncovered
from tests.sweep.seeds import seeds_of

MEASURED = re.compile(r"(\d+) subscriptions, (\d+) % covered: brokers told (\d+) interests, clusters (\d+)")

SMALL = """
[scenario]
name = "small"
duration_s = 5
settle_s = 3
[topology]
links = [["a", "b"]]
[topology.brokers.a]
[topology.brokers.b]
[topology.clients.feed]
broker = "a"
[topology.clients.reader]
broker = "?"
count = 2
[[workload]]
client = "feed"
publish = ["hosts/{k}"]
headers = { disk = [1, 500], load = [0.5, 1.5], system = ["linux", "plan9"] }
spread = 4
rate_per_s = 30
flush_every = 2
from_s = 2
[[workload]]
client = "reader"
subscribe = ["hosts/+"]
where = ["disk > 100", "disk > 30{k} and system = 'linux'", "load < 1.0 AND disk > 400"]
language = "sql"
spread = 9
[checks]
names = ["maps", "delivery", "duplicates", "order", "isolation", "bounded", "convergence", "covered"]
"""


def why(result: RunResult) -> str:
    replay = f"replay: heliograph simulate {result.scenario} --seed {result.seed}"
    return "\n".join([result.crash, *map(str, result.violations), replay])


def broken(scenario: Scenario) -> dict[str, str]:
    """The checkers that complain, each with what it says first."""
    found: dict[str, str] = {}
    for violation in play(scenario, 1).violations:
        found.setdefault(violation.checker, violation.text)
    return found


@pytest.mark.slow
@pytest.mark.req("N9", "R3", "O7")
@pytest.mark.parametrize("seed", seeds_of("contents"))
def test_covered_interests_cost_nothing_upstream_whatever_goes_wrong(seed: int) -> None:
    result = play(load("contents"), seed)

    assert result.ok, why(result)
    assert all(result.faults.values())
    assert result.delivered > 2_000
    (measured,) = filter(None, map(MEASURED.fullmatch, result.measured))
    subscriptions, share, told, wide = map(int, measured.groups())
    assert subscriptions >= 300
    assert share >= 90
    assert wide <= told <= subscriptions // 10


def test_the_network_of_contents_is_large_enough() -> None:
    brokers = ScenarioWorld(load("contents"), 1).scenario.topology.brokers
    assert len(brokers) >= 12
    assert len({plan.cluster for plan in brokers.values()}) >= 3


@pytest.mark.req("N9")
def test_publications_have_headers_and_go_to_those_whose_conditions_they_fit() -> None:
    result = play(parse(SMALL), 1, keep_journal=True)

    assert result.ok, why(result)
    published = [entry[4][3] for entry in result.journal.entries if entry[2] == "published"]
    received = [entry[4][6] for entry in result.journal.entries if entry[2] == "received"]
    assert {headers["system"] for headers in published} == {"linux", "plan9"}
    assert all(1 <= headers["disk"] <= 500 and 0.5 <= headers["load"] <= 1.5 for headers in published)
    assert sum(headers["disk"] <= 100 for headers in published) > 0
    assert received
    assert all(headers["disk"] > 100 for headers in received)
    assert result.measured == ["6 subscriptions, 66 % covered: brokers told 2 interests, clusters 0"]


# A planted fault makes each check fail.


@pytest.mark.req("O7")
def test_a_broker_that_ignores_conditions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Field, "match", lambda field, event: field.entries)
    found = broken(parse(SMALL))

    assert list(found) == ["isolation"]
    assert "it asked for " in found["isolation"]


@pytest.mark.req("O7")
def test_a_broker_that_overlooks_a_condition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Field.match
    monkeypatch.setattr(Field, "match", lambda field, event: whole(field, event)[:-1])

    assert "never got publication" in broken(parse(SMALL))["delivery"]


@pytest.mark.req("O7")
def test_a_broker_that_tells_what_is_covered_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Siblings, "coverer", lambda group, narrow, wanted: None)
    monkeypatch.setattr(Siblings, "covered", lambda group, wide, wanted: [])

    assert broken(parse(SMALL)) == {"covered": "a has told 3 interests, but 1 cover everything that is wanted there"}


@pytest.mark.req("O7")
def test_a_broker_that_forgets_what_a_departed_interest_covered_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    passing = """
[topology.clients.passing]
broker = "b"
stay_s = [2.5, 2.5]
[[workload]]
client = "passing"
subscribe = ["hosts/#"]
where = ["disk > 0"]
"""
    scenario = parse(SMALL + passing)
    assert not broken(scenario)
    whole = InterestSet.go_on
    monkeypatch.setattr(InterestSet, "go_on", lambda interests, steps: ([], whole(interests, steps)[1]))

    assert "never got publication" in broken(scenario)["delivery"]


# Reading.


@pytest.mark.parametrize(
    ("given", "instead", "said"),
    [
        ('"disk > 100"', '"disk > 100 or disk < 3"', "workload[1].where has 'disk > 100 or disk < 3': not readable"),
        ('"disk > 100"', '"disk >"', "not readable from character 1 on; a condition here is comparisons"),
        ('"disk > 100"', '"disk > 100 and"', "not readable from character 15 on"),
        ('"disk > 100"', '"between > 100"', "not readable from character 1 on"),
        ('"disk > 100"', '"disk != 3"', "not readable from character 1 on"),
        ('language = "sql"', 'language = "xpath"', "workload[1].language = 'xpath': must be one of predicates, sql"),
        ('subscribe = ["hosts/+"]', 'publish = ["hosts"]', "workload[1].where needs workload[1].subscribe"),
        ("disk = [1, 500]", "disk = [500, 1]", "workload[0].headers.disk = [500, 1]: must be [least, most]"),
        ("disk = [1, 500]", 'disk = [500, "x"]', "workload[0].headers.disk = [500, 'x']: must be [least, most]"),
        ("disk = [1, 500]", "disk = []", "workload[0].headers.disk = []: must be [least, most]"),
        ("disk = [1, 500]", "disk = [true, false]", "headers.disk[0] = true: must be a whole number or a number or"),
        ("disk = [1, 500]", '"$t" = [1, 500]', "workload[0].headers has '$t'"),
    ],
)
def test_a_scenario_says_what_it_cannot_judge(given: str, instead: str, said: str) -> None:
    assert given in SMALL
    with pytest.raises(ConfigError) as caught:
        parse(SMALL.replace(given, instead))
    assert any(said in problem for problem in caught.value.problems), caught.value.problems


# The checkers' reading agrees with the brokers'.

names = st.sampled_from(["a", "b"])
values = st.integers(-3, 3) | st.sampled_from([-0.5, 0.5, 1.0, 2.5]) | st.sampled_from(["", "x", "xy", "y"])
comparisons = st.tuples(names, st.sampled_from(["=", "<", "<=", ">", ">="]), values)
texts = st.lists(comparisons, min_size=1, max_size=4).map(
    lambda tests: " and ".join(f"{name} {op} {value!r}" for name, op, value in tests)
)


@given(texts, st.dictionaries(names, values), st.sampled_from(LANGUAGES))
def test_a_condition_means_the_same_to_checkers_and_brokers(text: str, headers: dict[str, Any], language: str) -> None:
    event = Event(b"t", json.dumps(headers).encode(), b"")
    assert fits(comparisons_of(text), headers) is real_matches(compile(language, text), event)


@given(texts, texts)
@example("a > 1", "a > 1 and a < 0")
@example("a >= 1", "a > 0.5 and a > 1")
def test_covering_means_the_same_to_checkers_and_brokers(wide: str, narrow: str) -> None:
    ours = covers(("t/#", wide), ("t/x", narrow))
    assert ours is real_covers(compile("predicates", wide), compile("predicates", narrow))
    assert not covers(("t/x", wide), ("t/#", narrow))


def test_of_wishes_that_say_the_same_one_is_needed() -> None:
    same = [("t", "a > 1 and b = 2"), ("t", "b = 2 and a > 1"), ("t", "a > 1 and b = 2")]
    assert uncovered(same) == same[:1]
    assert uncovered([*same, ("+", "b = 2")]) == [("+", "b = 2")]
    assert uncovered([("t", "a > 1"), ("t", "")]) == [("t", "")]
