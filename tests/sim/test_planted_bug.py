"""A planted bug is found by a checker, and the printed command replays it to the same step."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from heliograph.broker.routing.changeover import Changeover
from heliograph.broker.routing.ports import Port, Waiting
from heliograph.cli.simulate import simulate
from heliograph.sim.run import play
from heliograph.sim.scenario_files import load, parse

SCENARIO = Path(__file__).with_name("dropped-frame.toml")
TWO = """
[scenario]
name = "two"
duration_s = 12
settle_s = 3
[topology]
links = [["a", "b"]]
[topology.brokers.a]
[topology.brokers.b]
[topology.clients.feed]
broker = "a"
[topology.clients.reader]
broker = "b"
[[workload]]
client = "feed"
publish = ["x"]
rate_per_s = 20
flush_every = 2
from_s = 1
[[workload]]
client = "reader"
subscribe = ["x"]
"""


@pytest.mark.req("O7")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_silently_dropped_frame_is_caught(seed: int) -> None:
    result = play(load(str(SCENARIO)), seed)

    assert result.faults == {"drop_frame": 1}
    assert {violation.checker for violation in result.violations} == {"delivery"}


@pytest.mark.parametrize("target", ["sensor > a", "a > console"])
def test_a_dropped_publication_and_a_dropped_delivery_are_both_caught(target: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO.read_text().replace("sensor > a", target))
    result = play(load(str(file)), 5)

    assert [violation.checker for violation in result.violations] == ["delivery"]


@pytest.mark.parametrize("target", ["a > b", "b > reader"])
def test_a_loss_is_found_even_if_the_subscriber_is_cut_off_long_after_it(target: str) -> None:
    fault = f"""
[[fault]]
kind = "drop_frame"
target = "{target}"
at_s = 3
[[fault]]
kind = "crash"
target = "b"
at_s = 9
for_s = 1
"""
    result = play(parse(TWO + fault), 1)
    assert [violation.checker for violation in result.violations] == ["delivery"]
    assert result.violations[0].instant < 4e9


@pytest.mark.req("O7")
def test_the_printed_command_replays_it_to_the_same_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(str(SCENARIO), seeds="4..5") == 1
    printed = capsys.readouterr().out
    replay = next(line.removeprefix("replay: ") for line in printed.splitlines() if line.startswith("replay: "))
    command = shlex.split(replay)
    assert command[:2] == ["heliograph", "simulate"]
    assert command[3] == "--seed"

    found = []
    for _ in range(2):
        assert simulate(command[2], int(command[4]), json=True) == 1
        found.append(json.loads(capsys.readouterr().out))

    for one in found:
        one.pop("real_s")
        one.pop("inputs_per_s")
    assert found[0] == found[1]
    step = found[0]["violations"][0]["step"]
    assert f"delivery at step {step}," in printed
    assert found[0]["digest"] in printed


def test_a_path_that_changes_without_a_marker_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Changeover, "_change", lambda *_: None)
    assert "order" in {violation.checker for violation in play(load("network-triangles"), 1).violations}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_queue_of_a_slow_reader_that_is_read_from_the_wrong_end_is_caught(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Port.unqueue

    def unqueue(port: Port) -> Waiting | None:
        if port.is_client:
            port.backlog.rotate(1)
        return right(port)

    monkeypatch.setattr(Port, "unqueue", unqueue)
    assert "order" in {violation.checker for violation in play(load("hold-across"), seed).violations}
