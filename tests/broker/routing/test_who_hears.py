"""Who hears of a change of the map: every broker whose view it alters, and nobody else.

In:    meshes of three clusters, drawn from seeds; links inside a cluster that go and come back.
Out:   claims about the updates that each broker heard, beside what its map said before and after.
State: one mesh per test.
Not here: what a cold start costs (tests/sim/test_cold_start.py), costs of links (test_costs.py).
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from heliograph.broker.config import LinkConfig
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N4")

CLUSTERS = "abc"
MEMBERS = 6


def a_network(seed: int) -> tuple[Mesh, list[tuple[str, str]]]:
    """Three rings with a chord each, joined by two links each; and all links inside a cluster, dialler first."""
    draw = Random(seed)
    rings = {letter: [f"{letter}{number}" for number in range(MEMBERS)] for letter in CLUSTERS}
    inner = [(ring[place], ring[place - 1]) for ring in rings.values() for place in range(MEMBERS)]
    inner += [(ring[0], ring[draw.randrange(2, 5)]) for ring in rings.values()]
    outer = []
    for one, other in ("ab", "bc", "ca"):
        outer += zip(draw.sample(rings[one], 2), draw.sample(rings[other], 2), strict=True)
    links: dict[str, list[str]] = {name: [] for ring in rings.values() for name in ring}
    for dialler, other in [*inner, *outer]:
        links[dialler].append(other)
    mesh = Mesh(links, {name: name[0] for name in links})
    mesh.pass_time(3_000)
    return mesh, inner


def view(mesh: Mesh, name: str) -> Any:
    """What a broker knows by others' words. What it works out from that (costs, next hops) is not in it."""
    report = mesh.report(name, "map")
    gateways = [{key: row[key] for key in row.keys() - {"cost", "via"}} for row in report["gateways"]]
    members = [(row["broker"], row["links"]) for row in report["members"]]
    return sorted(gateways, key=lambda row: str(row["broker"])), sorted(members)


def heard(mesh: Mesh) -> dict[str, int]:
    return {name: mesh.report(name, "map")["updates_heard"] for name in mesh.nodes}


def change_of(mesh: Mesh, dialler: str, other: str, *, comes: bool) -> Counter[bool]:
    """A link goes or comes. How many brokers have another view since then, and how many the same one."""
    before, views = heard(mesh), {name: view(mesh, name) for name in mesh.nodes}
    peering = mesh[dialler].broker._peering
    if comes:
        peering.aim(LinkConfig(host=other), mesh.now)
    else:
        assert peering.drop(LinkConfig(host=other))
    mesh[dialler].take()
    mesh.run()
    mesh.pass_time(2_000, step_ms=100)
    found: Counter[bool] = Counter()
    for name, count in heard(mesh).items():
        altered = view(mesh, name) != views[name]
        assert altered or name[0] != dialler[0], f"{name} does not know of {dialler} and {other}"
        assert altered or count == before[name], f"{name} heard of {dialler} and {other} for nothing"
        found[altered] += 1
    return found


def test_a_link_inside_a_cluster_is_news_for_its_members_and_for_others_only_if_ways_through_it_change() -> None:
    found: Counter[bool] = Counter()
    for seed in (1, 2, 3):
        mesh, inner = a_network(seed)
        for dialler, other in inner[::3]:
            found += change_of(mesh, dialler, other, comes=False)
            found += change_of(mesh, dialler, other, comes=True)
    assert min(found[True], found[False]) > 20, "both kinds of brokers were met"


def test_a_link_between_members_that_are_no_gateways_is_heard_of_in_its_cluster_only() -> None:
    links = {"a1": ["a2", "b1"], "a2": ["a3", "b2"], "a3": ["a4"], "a4": ["a1"], "b1": ["b2"], "b2": ["c1"]}
    mesh = Mesh(links, {name: name[0] for name in [*links, "c1"]})
    mesh.pass_time(3_000)
    before = heard(mesh)

    assert mesh["a3"].broker._peering.drop(LinkConfig(host="a4"))
    mesh["a3"].take()
    mesh.run()
    mesh.pass_time(3_000)

    heard_it = [name for name, count in heard(mesh).items() if count > before[name]]
    assert heard_it == ["a1", "a2", "a3", "a4"]
    assert not any("a4" in row["links"] for row in mesh.report("a1", "map")["members"] if row["broker"] == "a3")
