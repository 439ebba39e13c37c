"""The map for people, from what real brokers report: put together, written and drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from heliograph.cli.network_processes import is_complete
from heliograph.maps.network_view import LOST, RUNNING, SILENT, NetworkView, SeenBroker, merged
from heliograph.maps.svg import draw
from heliograph.maps.text import as_text
from heliograph.topology.process_network import NetworkTopology, generated
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N4", "O2")

SVG = "{http://www.w3.org/2000/svg}"


def mesh_of(topology: NetworkTopology) -> Mesh:
    """The same graph of machines, without processes."""
    dials: dict[str, list[str]] = {broker.name: [] for broker in topology.brokers}
    for one, other in topology.links:
        dials[one].append(other)
    return Mesh(dials, {broker.name: broker.cluster for broker in topology.brokers})


def view_of(mesh: Mesh, *names: str, silent: tuple[SeenBroker, ...] = ()) -> NetworkView:
    return merged([mesh.report(name, "map") for name in names or mesh.nodes], silent)


def test_asked_of_all_the_map_has_every_broker_and_every_link() -> None:
    topology = generated(9, 3)
    view = view_of(mesh_of(topology))

    assert view.problems == []
    assert view.as_json()["complete"] is True
    assert {name: [broker.name for broker in members] for name, members in view.clusters.items()}.keys() == {
        "a",
        "b",
        "c",
    }
    assert set(view.brokers) == {broker.name for broker in topology.brokers}
    assert {broker.state for broker in view.brokers.values()} == {RUNNING}
    drawn_links = {frozenset(link) for link in topology.links}
    assert {frozenset((link.one, link.other)) for link in view.links} == drawn_links
    assert not any(link.way or link.suspected for link in view.links)
    assert sum(broker.leader for broker in view.brokers.values()) == 3


def test_asked_of_one_broker_other_clusters_show_their_gateways_and_ways() -> None:
    mesh = Mesh(
        {"a1": ["a2"], "b1": ["b2"], "b2": ["b3"], "a2": ["b1"], "b3": ["c1"]},
        {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b", "c1": "c"},
    )
    view = view_of(mesh, "a1")

    assert set(view.brokers) == {"a1", "a2", "b1", "b3", "c1"}
    assert [(link.one, link.other) for link in view.links if link.way] == [("b1", "b3")]
    assert {(link.one, link.other) for link in view.links if not link.way} == {
        ("a1", "a2"),
        ("a2", "b1"),
        ("b3", "c1"),
    }
    assert view.problems == []


def test_a_broker_that_ended_is_shown_with_what_it_was_linked_to() -> None:
    mesh = mesh_of(generated(9, 3))
    mesh.kill("b2")
    mesh.pass_time(100)

    view = view_of(mesh, silent=(SeenBroker("b2", "b", 1, state=SILENT),))
    assert [broker.name for broker in view.clusters["b"] if broker.leader] != ["b2"]
    told = "\n".join(as_text(view))

    assert view.problems == ["b2 does not answer"]
    assert {link.one for link in view.links if link.suspected and link.other == "b2"} == {"a2", "b1"}
    assert "not answering" in told
    assert told.splitlines()[-1] == "! b2 does not answer"
    assert view_of(mesh, "a1").brokers["b2"].state == LOST


def test_reports_of_before_do_not_make_a_broker_lead_that_does_not_answer() -> None:
    mesh = mesh_of(generated(3))
    leader = mesh.report("a1", "map")["leader"]
    reports = [mesh.report(name, "map") for name in mesh.nodes if name != leader]
    assert merged(reports).brokers[leader].leader

    view = merged(reports, [SeenBroker(leader, "a", state=SILENT)])
    assert [broker.name for broker in view.brokers.values() if broker.leader] == []


def test_of_its_own_links_a_broker_is_believed_rather_than_an_older_report_of_another() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["a"]})
    before = mesh.report("b", "map")
    mesh.kill("c")
    mesh.pass_time(100)

    view = merged([before, mesh.report("a", "map")])
    assert {(link.one, link.other): link.suspected for link in view.links} == {
        ("a", "b"): False,
        ("a", "c"): True,
        ("b", "c"): False,
    }


def test_a_partition_is_a_problem_on_both_sides() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"]})
    mesh.kill("b")
    mesh.pass_time(100)

    view = view_of(mesh, silent=(SeenBroker("b", "main", 0, state=SILENT),))

    assert "a does not reach c" in view.problems
    assert "c does not reach a" in view.problems


def test_a_suspected_neighbour_is_marked() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["a"]})
    mesh.stalled.add(frozenset(("a", "b")))
    mesh.pass_time(2_600)

    suspected = {(link.one, link.other) for link in view_of(mesh).links if link.suspected}

    assert suspected == {("a", "b")}


def test_a_map_is_complete_when_it_shows_all_that_the_graph_lets_a_broker_reach() -> None:
    topology = generated(6, 2)
    mesh = mesh_of(topology)

    assert all(is_complete(topology, name, mesh.report(name, "map")) for name in mesh.nodes)
    mesh.kill("a2")
    mesh.pass_time(100)
    assert not is_complete(topology, "a1", mesh.report("a1", "map"))
    alone = Mesh({"a1": []}, {"a1": "a"})
    assert not is_complete(topology, "a1", alone.report("a1", "map"))


def test_a_graph_in_two_parts_is_complete_where_each_sees_its_own() -> None:
    topology = NetworkTopology(brokers=generated(4, 2).brokers, links=(("a1", "a2"), ("b1", "b2")))
    mesh = mesh_of(topology)

    assert all(is_complete(topology, name, mesh.report(name, "map")) for name in mesh.nodes)


def test_the_tree_has_a_line_for_every_broker_and_the_table_one_for_every_link() -> None:
    topology = generated(5, 2)
    lines = list(as_text(view_of(mesh_of(topology))))
    end = lines.index("")

    assert lines[0] == f"5 brokers in 2 clusters, {len(topology.links)} links up"
    assert lines[1:3][0] == "├─ cluster a"
    assert end == 1 + 2 + 5
    assert lines[end + 1].split() == ["link", "cost", "where", "state"]
    assert len(lines) == end + 2 + len(topology.links)


def test_the_drawing_has_every_broker_every_link_and_every_cost() -> None:
    topology = generated(9, 3)
    mesh = mesh_of(topology)
    mesh.kill("c2")
    mesh.pass_time(100)
    view = view_of(mesh, silent=(SeenBroker("c2", "c", 1, state=SILENT),))

    root = ElementTree.fromstring(draw(view))

    texts = [element.text for element in root.iter(f"{SVG}text")]
    lines = [element.get("class", "") for element in root.iter(f"{SVG}line")]
    in_legend = 3
    assert {broker.name for broker in topology.brokers} <= set(texts)
    assert {"a", "b", "c"} <= set(texts)
    assert len(lines) == len(view.links) + in_legend
    assert sum("suspected" in line for line in lines) == sum(link.suspected for link in view.links) + 1
    assert sum(element.get("class") == "cost" for element in root.iter(f"{SVG}text")) == len(view.links)


def test_brokers_in_the_drawing_lie_apart_and_inside_it() -> None:
    view = view_of(mesh_of(generated(8, 2)))
    root = ElementTree.fromstring(draw(view))
    left, top, width, height = (float(part) for part in root.attrib["viewBox"].split())
    spots = [
        (float(circle.attrib["cx"]), float(circle.attrib["cy"]))
        for group in root.iter(f"{SVG}g")
        for circle in list(group.iter(f"{SVG}circle"))[:1]
    ]

    assert len(spots) == 8
    assert all(left < x < left + width and top < y < top + height for x, y in spots)
    assert all(abs(x - u) + abs(y - v) > 34 for place, (x, y) in enumerate(spots) for u, v in spots[place + 1 :])


@pytest.mark.req("O6")
def test_a_hostile_name_breaks_neither_the_drawing_nor_the_terminal() -> None:
    view = NetworkView({"x": SeenBroker("<script>\x1b[2J&", "<&>", 0)})

    assert "\x1b" not in "\n".join(as_text(view))
    assert ElementTree.fromstring(draw(view)).find(f".//{SVG}script") is None
