"""Results: what is absent is called absent, a ratio needs both sides, and a missed budget is a result.

In:    measurements made up for the purpose; the command line.
Out:   claims about figures.py, field.py, the results of each benchmark and the command.
State: none.
Not here: measuring (test_flow.py).
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import pytest

from benchmarks import latency, route, start
from benchmarks.__main__ import NAMES, main
from benchmarks.field import Field
from benchmarks.figures import budget, medians, ratios, spread
from benchmarks.generator import RunError
from benchmarks.machine import cores
from benchmarks.peers import SYSTEMS
from benchmarks.peers.ours import Heliograph
from benchmarks.peers.server import Server, ServerError
from benchmarks.route import FIGURES


def entry(number: int, system: str, cpu_us: float, case: str = "1to1") -> dict[str, Any]:
    return dict.fromkeys(FIGURES, 1.0) | {"round": number, "system": system, "case": case, "cpu_us": cpu_us}


def nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)


def test_a_peer_that_is_not_installed_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_is_installed(monkeypatch)
    field = Field()
    assert field.present == ["ours"]
    _, peers = field.describe({})
    assert set(peers) == {"nats", "mosquitto", "redis"}
    assert peers["nats"] == {"absent": "nats-server is not installed (make bench-peers)"}


def test_without_peers_there_are_figures_of_ours_and_no_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_is_installed(monkeypatch)
    churn = entry(1, "ours", 3.0, "churn") | {"changes_s": 100.0}
    result = route._result(Field(), ["1to1", "churn"], [entry(1, "ours", 2.0), churn])
    assert result["ours"]["cases"]["1to1"]["cpu_us"] == 2.0
    assert result["ratios"] == {"churn": {"ours_quiet_1to1": 1.5}}
    met = {item["what"]: item["met"] for item in result["budget"]}
    assert met["1to1, ours by nats"] is None
    assert met["churn, ours by our quiet 1to1"] is True


def test_churn_is_not_met_by_a_broker_that_makes_too_few_changes() -> None:
    churn = entry(1, "ours", 2.0, "churn") | {"changes_s": 17.0}
    result = route._result(Field(["ours"]), ["1to1", "churn"], [entry(1, "ours", 2.0), churn])
    missed = result["budget"][-1]
    assert missed["met"] is False
    assert "17 of 100" in missed["why"]


def test_a_ratio_is_of_medians_and_its_spread_of_single_rounds() -> None:
    mine = [entry(number, "ours", value) for number, value in ((1, 2.0), (2, 4.0), (3, 9.0))]
    theirs = [entry(number, "nats", value) for number, value in ((1, 4.0), (2, 4.0), (3, 3.0))]
    assert ratios(mine + theirs, "1to1", "ours", ["nats", "redis"], "cpu_us") == {
        "nats": {"ratio": 1.0, "spread": [0.5, 3.0]}
    }
    assert medians(mine, "ours", "1to1", ["cpu_us"]) == {"cpu_us": 4.0}
    assert spread([3.0, 1.0, 2.0]) == [1.0, 3.0]


def test_a_round_in_which_the_peer_did_not_run_does_not_count() -> None:
    rounds = [entry(1, "ours", 2.0), entry(2, "ours", 8.0), entry(2, "nats", 4.0)]
    assert ratios(rounds, "1to1", "ours", ["nats"], "cpu_us")["nats"]["spread"] == [2.0, 2.0]


@pytest.mark.parametrize(("value", "met"), [(0.5, True), (1.2, True), (1.21, False), (None, None)])
def test_a_budget_says_whether_it_was_met(value: float | None, met: bool | None) -> None:
    assert budget("something", value, 1.2)["met"] is met


def test_every_round_another_system_begins() -> None:
    field = Field()
    orders = [field.turn(["a", "b", "c"], number) for number in range(3)]
    assert sorted(order[0] for order in orders) == ["a", "b", "c"]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


@pytest.mark.parametrize("module", [route, latency, start])
def test_every_result_has_the_promised_fields_and_a_table(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_is_installed(monkeypatch)
    figures = {"p50_us": 30.0, "p99_us": 80.0, "cpu_us": 20.0, "help_ms": 150.0}
    figures |= dict.fromkeys(start.FIGURES, 10.0) | dict.fromkeys(FIGURES, 1.0)
    cases = {route: "1to1", latency: latency.CASE, start: start.CASE}
    rounds = [{"round": 1, "system": "ours", "case": case, **figures} for case in (cases[module], start.HELP)]
    result = module._result(Field(), ["1to1"], rounds) if module is route else module._result(Field(), rounds)
    assert {"name", "ours", "peers", "ratios", "rounds", "spread", "budget"} <= set(result)
    assert "nats-server is not installed" in module.show(result | {"machine": {"pinned": "not at all"}})
    json.dumps(result)


def test_the_command_lists_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)


def test_a_missed_budget_exits_with_0_and_json_is_the_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missed = {"name": "start", "budget": [budget("ready", 900, 500, "ms")]}
    monkeypatch.setattr(start, "run", lambda quick: missed)
    assert main(["start", "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == missed


@pytest.mark.parametrize("error", [RunError("frame 7 was lost"), ServerError("ours was not ready")])
def test_a_wrong_run_exits_with_1_and_says_why(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(quick: bool) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(start, "run", wrong)
    assert main(["start", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1]) == {"name": "start", "error": str(error)}
    assert str(error) in said.err


@pytest.mark.parametrize("arguments", [["nothing"], ["route", "--systems", "ours,natz"], ["route", "--cases", "2to2"]])
def test_an_unknown_name_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert arguments[-1].split(",")[-1] in capsys.readouterr().err


@pytest.mark.live
def test_a_server_that_does_not_start_is_reported_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    last_words = [sys.executable, "-c", "raise SystemExit('no such setting')"]
    monkeypatch.setattr(Heliograph, "command", lambda *_: last_words)
    with pytest.raises(ServerError, match="no such setting"), Server(SYSTEMS["ours"], cores()):
        pass
