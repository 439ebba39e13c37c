"""The evaluation of broker discovery, in a tiny form: what it computes, and that it tells the truth about the paper."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from heliograph.cli.evaluate import parse_sizes
from heliograph.cli.main import app
from heliograph.errors import UsageError
from heliograph.evaluation import scale, simulated, topologies
from heliograph.evaluation.places import SITES
from heliograph.evaluation.statistics import kept, summary


def test_a_summary_has_the_papers_five_figures() -> None:
    found = summary([1.0, 2.0, 3.0, 4.0])
    assert (found.count, found.mean, found.max, found.min) == (4, 2.5, 4.0, 1.0)
    assert found.sd == pytest.approx(1.29099, abs=1e-5)
    assert found.se == pytest.approx(found.sd / 2)
    assert summary([7.0]).sd == 0


def test_outliers_are_removed_and_the_first_of_the_rest_are_kept() -> None:
    assert kept([10, 11, 500, 10, 11, 10, 12]) == [0, 1, 3, 4, 5, 6]
    assert kept([10, 11, 500, 10, 11, 10, 12], most=3) == [0, 1, 3]
    assert kept([1, 900]) == [0, 1]


def test_distances_are_symmetric_and_the_atlantic_is_wide() -> None:
    cardiff, urbana = SITES["cardiff"], SITES["urbana"]
    assert cardiff.km(urbana) == pytest.approx(6_270, rel=0.02)
    assert cardiff.round_trip_ms(urbana) == urbana.round_trip_ms(cardiff) > 90


@pytest.mark.req("B19")
def test_every_topology_is_measured_beside_the_paper() -> None:
    rows = simulated.evaluate(runs=2, sites=("bloomington",))
    assert [row["topology"] for row in rows] == list(topologies.EXPERIMENTS)
    for row in rows:
        assert row["found"] == 2
        assert sum(row["share"].values()) == pytest.approx(1, abs=0.01)
    assert [row.get("nearest") for row in rows if row["topology"] != topologies.MULTICAST] == [2, 2, 2]
    assert rows[0]["paper"]["mean"] == 338.411


@pytest.mark.req("B19")
def test_the_papers_order_can_fail_and_that_is_told() -> None:
    def row(topology: str, waiting_ms: float) -> dict[str, object]:
        share = {"reach": 0.1, "first": 0.5, "others": 0.3, "ping": 0.1}
        return {"topology": topology, "client": "urbana", "waiting_ms": waiting_ms, "share": share}

    good = topologies.checks([row("unconnected", 3), row("star", 1), row("linear", 2)])
    bad = topologies.checks([row("unconnected", 1), row("star", 1), row("linear", 2)])
    assert [check["holds"] for check in good] == [True, True]
    assert [check["holds"] for check in bad] == [False, True]


@pytest.mark.req("B19")
def test_stand_ins_lead_to_choices_as_good_as_whole_brokers_do() -> None:
    for whole in (False, True):
        found = scale.evaluate(8, searches=3, whole=whole)
        assert (found["registered"], found["found"], found["answers"]) == (8, 3, 8)
        assert found["of_oracle"] <= 1.1


def test_the_command_prints_tables_or_json() -> None:
    plain = CliRunner().invoke(app, ["evaluate", "brokers", "--runs", "2", "--scale", "0"])
    assert plain.exit_code == 0
    assert "multicast only" in plain.output
    found = CliRunner().invoke(app, ["evaluate", "brokers", "--runs", "2", "--scale", "0", "--json"])
    assert set(json.loads(found.stdout)) >= {"topologies", "checks", "costs", "scale"}


def test_sizes_are_checked() -> None:
    assert parse_sizes("10,100") == (10, 100)
    assert parse_sizes("0") == ()
    for text in ("", "1", "10,x", "999999"):
        with pytest.raises(UsageError):
            parse_sizes(text)


def test_the_experiment_can_be_narrowed_to_topologies_and_sites() -> None:
    narrow = ["--topology", "star", "--topology", "multicast", "--site", "urbana", "--runs", "1", "--scale", "0"]
    found = CliRunner().invoke(app, ["evaluate", "brokers", *narrow, "--json"])
    rows = json.loads(found.stdout)["topologies"]
    assert [(row["topology"], row["client"]) for row in rows] == [
        ("star", "urbana"),
        (topologies.MULTICAST, topologies.LAB),
    ]
    assert topologies.checks(rows) == []  # what needs other topologies is not claimed


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--site", "atlantis"], "--site 'atlantis': one of tallahassee"),
        (["--topology", "ring"], "--topology 'ring': one of unconnected, star, linear, multicast"),
        (["--live", "--scale", "10"], "--scale is for simulated runs"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_words(options: list[str], problem: str) -> None:
    found = CliRunner().invoke(app, ["evaluate", "brokers", *options])
    assert isinstance(found.exception, UsageError)
    assert problem in str(found.exception)
