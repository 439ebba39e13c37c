"""Scenario files: what is wrong is said at once, all of it, with the key as it was typed and what was perhaps meant."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConfigError
from heliograph.sim.scenario_files import load, parse, shipped
from tests.examples import examples

GOOD = """
[scenario]
name = "small"
duration_s = 5

[topology.brokers.a.limits]
queue_frames_max = 10

[[topology.brokers.a.access.rules]]
effect = "deny"
topics = ["secret/#"]

[topology.clients.sensor]
broker = "a"
count = 2

[[workload]]
client = "sensor"
publish = ["plant/{n}/{k}"]
subscribe = ["plant/#"]
size_bytes = [20, 30]

[[fault]]
kind = "stall"
target = "sensor-1 > a"
at_s = 1
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.problems


def test_a_scenario_is_read() -> None:
    scenario = parse(GOOD)

    assert scenario.topology.brokers["a"].limits.queue_frames_max == 10
    assert scenario.topology.brokers["a"].access.rules[0].topics == ("secret/#",)
    assert scenario.topology.clients["sensor"].count == 2
    assert scenario.workload[0].size_bytes == (20, 30)
    assert scenario.fault[0].target == "sensor-1 > a"
    assert scenario.network.delay_ms == 0.2
    assert scenario.scenario.duration_s == 5.0


@pytest.mark.parametrize(
    ("given", "instead", "said"),
    [
        ("duration_s = 5", "durations = 5", "scenario.durations: unknown key; did you mean 'duration_s'?"),
        ("duration_s = 5", 'duration_s = "5"', "scenario.duration_s = '5': must be a number"),
        ("duration_s = 5", "duration_s = -1", "scenario.duration_s = -1.0: must be above 0"),
        ("duration_s = 5", "duration_s = nan", "scenario.duration_s = nan: out of any sensible range"),
        ('name = "small"', "", "scenario.name is missing"),
        ("queue_frames_max = 10", "queue_frame_max = 10", "did you mean 'queue_frames_max'?"),
        ("queue_frames_max = 10", "queue_frames_max = 0", "topology.brokers.a.limits.queue_frames_max = 0"),
        ('effect = "deny"', 'effect = "refuse"', "topology.brokers.a.access.rules[0].effect = 'refuse'"),
        ('broker = "a"', 'broker = "b"', "topology.clients.sensor.broker = 'b': there is a"),
        ("count = 2", "count = true", "topology.clients.sensor.count = true: must be a whole number"),
        ('client = "sensor"', 'client = "sensors"', "workload[0].client = 'sensors': did you mean 'sensor'?"),
        ('publish = ["plant/{n}/{k}"]', 'publish = ["plant/#"]', "workload[0].publish has 'plant/#'"),
        ('subscribe = ["plant/#"]', 'subscribe = ["pl#nt"]', "workload[0].subscribe has 'pl#nt'"),
        ("size_bytes = [20, 30]", "size_bytes = [30, 20]", "workload[0].size_bytes: must be [least, most]"),
        ("size_bytes = [20, 30]", "size_bytes = 20", "workload[0].size_bytes = 20: must be a list of 2"),
        ('kind = "stall"', 'kind = "stal"', "fault[0].kind = 'stal': did you mean 'stall'?"),
        ('target = "sensor-1 > a"', 'target = "a"', 'a stall needs "from > to"'),
        ("at_s = 1", "at_s = 60", "fault[0].at_s = 60.0: must lie within scenario.duration_s"),
        ("at_s = 1", "at_s = 1\ntimes = 2", "fault[0].every_s = 0.0: is needed to strike 2 times"),
        ("[[fault]]", '[checks]\nnames = ["orders"]\n[[fault]]', "checks.names has 'orders': did you mean 'order'?"),
        ("[[fault]]", '[[faults]]\nkind = "x"\n[[fault]]', "faults: unknown key; did you mean 'fault'?"),
        ("[scenario]", "[topology]\nlinks = [['a', 'a']]\n[scenario]", "topology.links[0] links 'a' to itself"),
    ],
)
def test_what_is_wrong_is_said_with_the_key_as_typed(given: str, instead: str, said: str) -> None:
    assert given in GOOD
    found = problems(GOOD.replace(given, instead, 1))

    assert any(said in problem for problem in found), found


def test_all_problems_are_told_at_once() -> None:
    found = problems(GOOD.replace("duration_s = 5", "durations = 5").replace("count = 2", "count = 'two'"))

    assert len(found) == 2

    found = problems(
        GOOD.replace('name = "small"', 'name = "small"\ncolour = "red"')
        .replace("duration_s = 5", 'duration_s = "5"')
        .replace('kind = "stall"', 'kind = "stal"')
        .replace("at_s = 1", "at_s = 60")  # whether this is too late cannot be said
        .replace('publish = ["plant/{n}/{k}"]', 'publish = ["plant/#"]')
    )

    assert [problem.split()[0].rstrip(":") for problem in found] == [
        "scenario.colour", "scenario.duration_s", "workload[0].publish", "fault[0].kind",
    ]  # fmt: skip


def test_problems_of_a_file_name_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for text, said in (("a = [", "not TOML"), ("colour = 1", "colour: unknown key")):
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load(str(file))
        assert caught.value.problems[0].startswith(f"{file}: {said}")


@pytest.mark.parametrize("text", ["", "[scenario]", "not toml", "a = [" * 5_000, 'x = "\\ud800"', "[[topology]]"])
def test_what_is_no_scenario_is_refused_with_reasons(text: str) -> None:
    assert problems(text)


def test_a_scenario_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(ConfigError, match="did you mean 'quiet'"):
        load("quit")
    with pytest.raises(ConfigError, match="cannot be read"):
        load("missing.toml")


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_scenario_can_be_read_and_says_what_it_is_about(name: str) -> None:
    scenario = load(name)

    assert scenario.scenario.name == name
    assert scenario.scenario.about


scalars = st.one_of(
    st.booleans(), st.integers(), st.floats(), st.text(max_size=10), st.sampled_from(["a", "sensor", "*", "crash", "#"])
)
WORDS = """
scenario name about duration_s settle_s network delay_ms split hosts service_us topology brokers clients links a broker
count limits access rules effect join_s stay_s away_s workload client publish subscribe size_bytes spread policy
rate_per_s headers where language fault kind target at_s times every_s checks names
"""
keys = st.sampled_from(WORDS.split()) | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


def read_or_refuse(text: str) -> None:
    """Anything but a ConfigError with reasons fails the test."""
    try:
        parse(text)
        return
    except ConfigError as error:
        reasons = error.problems
    assert reasons
    assert all(isinstance(reason, str) and reason for reason in reasons)


@given(st.dictionaries(keys, values, max_size=6))
@examples(75)
def test_any_document_is_read_or_refused_with_reasons(document: dict[str, Any]) -> None:
    read_or_refuse(_toml(document))
    read_or_refuse(_toml({**tomllib.loads(GOOD), **document}))


@given(st.text(max_size=200))
@examples(75)
def test_any_text_is_read_or_refused_with_reasons(text: str) -> None:
    read_or_refuse(text)
    read_or_refuse(GOOD + text)


def _toml(document: dict[str, Any]) -> str:
    """Values as inline TOML; enough for tests."""
    return "\n".join(f"{_string(key)} = {_inline(value)}" for key, value in document.items())


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_string(key)} = {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return _string(value) if isinstance(value, str) else str(value)


def _string(text: str) -> str:
    return '"' + "".join(char if char.isalnum() and char.isascii() else f"\\U{ord(char):08X}" for char in text) + '"'
