"""The experiments on resources, small: every answer is right, and the paper's statements are judged."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heliograph.cli.main import app
from heliograph.evaluation.measurements import of_resources
from heliograph.evaluation.resources import ages, architecture, claims, sharing
from heliograph.evaluation.resources.network import ResourceNetwork, backbone
from heliograph.evaluation.resources.sharing import SharingPlan, SharingStage, chosen
from heliograph.evaluation.resources.workload import UNIFORM, WorkloadRequest, WorkloadResource

PLAN = SharingPlan(
    resources=60, requests=50, edges=6, routers=2, levels=(20, 50, 80), distributions=((UNIFORM, UNIFORM),)
)
OTHER = architecture.ArchitecturePlan(
    resources=60, requests=20, watchers=4, updates=3, edges=6, routers=2, sizes=(5, 20)
)

pytestmark = pytest.mark.req("R14")


@cache
def report() -> dict[str, Any]:
    stage = SharingStage(PLAN, 1)
    found = sharing.evaluate_on(stage, lambda _: None) | {"ages": ages.evaluate(stage, lambda _: None)}
    found["architecture"] = architecture.evaluate(OTHER, 1, lambda _: None)
    return {"seed": 1, **found, "checks": claims.checks(found)}


def test_every_answer_is_complete_and_right() -> None:
    assert [row for row in report()["sharing"] if row["wrong"]] == []
    assert [row for row in report()["architecture"] if row["wrong"]] == []
    assert [row for row in [*report()["gaussians"], *report()["ages"]] if row["wrong"]] == []


def test_sharing_saves_messages_and_direct_answers_take_one_each() -> None:
    held = {check["claim"]: check["holds"] for check in report()["checks"]}
    wanted = [claim for claim in held if claim.startswith(("similarity forwarding: less", "direct", "publication"))]
    assert len(wanted) == 7
    assert [claim for claim in wanted if not held[claim]] == []


def test_a_check_can_say_no() -> None:
    rows = [dict(row) for row in report()["sharing"]]
    for row in chosen(rows, deliver="similarity"):
        row["subscriptions"] *= 10
    held = {check["claim"]: check["holds"] for check in claims.checks(report() | {"sharing": rows})}
    assert not held["similarity forwarding: less subscription messages than normal, in every workload"]


def test_the_same_seed_gives_the_same_report() -> None:
    again = sharing.evaluate(PLAN, 1, lambda _: None)
    assert again["sharing"] == report()["sharing"]


def test_a_message_is_a_frame_and_an_answer_one_package_per_sender() -> None:
    network = ResourceNetwork(3, [(0, 1), (1, 2)])
    for id in range(3):
        network.place(2, id, WorkloadResource(f"r{id}", {"a": 9, "b": 9}, {"a": 5, "b": 5}))
    network.join()
    answers: list[int] = []
    network.ask(0, WorkloadRequest((("a", 1, 9),)), "normal", lambda answer, ns: answers.append(len(answer.found)))
    network.run(1)
    traffic = network.traffic()
    assert answers == [3]
    assert (traffic.subscriptions, traffic.publications, traffic.completions) == (2, 2, 2)
    assert (traffic.results, traffic.matchings, traffic.frames) == (6, 3, 6)


def test_what_a_busy_broker_has_to_do_waits() -> None:
    network = ResourceNetwork(1, [])
    network.place(0, 0, WorkloadResource("r", {"a": 9, "b": 9}, {"a": 5, "b": 5}), True)
    network.join()
    took: list[int] = []
    for _ in range(3):
        network.ask_static(0, WorkloadRequest((("a", 1, 9),)), lambda count, ns: took.append(ns))
    network.run(1)
    alone = took[0]
    service = alone - 2 * network.times.link_us * 1_000
    assert took == [alone, alone + service, alone + 2 * service]


def test_the_backbone_is_twenty_edges_and_four_routers_in_one_tree() -> None:
    edges = backbone()
    assert len(edges) == 23
    assert all(sum(router in edge for edge in edges) >= 6 for router in range(20, 24))


def test_measurements_are_one_value_per_row() -> None:
    rows = of_resources(report(), "run", "1", 0)
    assert {row["experiment"] for row in rows} == {
        "resources workloads",
        "resources sharing",
        "resources gaussians",
        "resources ages",
        "resources architecture",
    }
    assert all(isinstance(row["value"], float) and row["parameters"] for row in rows)


def test_the_command_prints_json_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "QUICK", PLAN)
    monkeypatch.setattr(architecture, "QUICK", OTHER)
    done = CliRunner().invoke(
        app, ["evaluate", "resources", "--quick", "--json", "--save", str(tmp_path)], catch_exceptions=False
    )
    assert json.loads(done.stdout)["checks"] == report()["checks"]
    (file,) = tmp_path.glob("resources-*.jsonl")
    assert all(json.loads(line)["metric"] for line in file.read_text().splitlines())


@pytest.mark.req("R9")
def test_an_age_saves_messages_and_costs_truth_and_without_one_every_result_is_true_now() -> None:
    rows = {row["allowed_age_s"]: row for row in report()["ages"]}
    assert rows[0.0]["outdated"] == 0
    assert rows[10.0]["outdated"] > 0
    assert rows[10.0]["subscriptions"] < rows[0.0]["subscriptions"]
    assert rows[10.0]["mean_age_ms"] > rows[0.0]["mean_age_ms"]


def test_several_gaussians_are_judged_each() -> None:
    rows = report()["gaussians"]
    assert [(row["time"], row["deliver"]) for row in rows[:4]] == [
        ("Gaussian/4", "normal"),
        ("Gaussian/4", "similarity"),
        ("Gaussian", "normal"),
        ("Gaussian", "similarity"),
    ]
    changed = [dict(row) for row in rows]
    changed[-1]["matchings"] *= 10
    claim = "several Gaussians in time: similarity forwarding lowers every metric under each"
    held = [
        {check["claim"]: check["holds"] for check in claims.checks(one)}
        for one in (report(), report() | {"gaussians": changed})
    ]
    assert [each[claim] for each in held] == [True, False]
