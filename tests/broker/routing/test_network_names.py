"""Network names: brokers of different networks do not link, and both sides say why."""

from __future__ import annotations

import pytest

from heliograph.broker.config import BrokerConfig, NetworkConfig
from heliograph.errors import Reason
from heliograph.notes import DialFailed, PeerRefused
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N18")


def test_brokers_of_one_name_link() -> None:
    mesh = Mesh({"a": ["b"]}, name="plant")
    assert [row["broker"] for row in mesh.report("a", "map")["neighbours"]] == ["b"]
    assert mesh.report("a", "usage")["network"] == mesh.report("a", "overview")["network"] == "plant"


@pytest.mark.parametrize(
    ("ours", "theirs"), [("plant", "office"), ("plant", ""), ("", "plant")], ids=["other", "theirs unnamed", "unnamed"]
)
def test_brokers_of_different_networks_do_not_link_and_both_say_which_they_are(ours: str, theirs: str) -> None:
    mesh = Mesh({"a": []}, name=ours)
    mesh.network = {"name": theirs}
    mesh.add("z", ["a"])
    mesh.pass_time(300)
    assert not mesh.report("a", "map")["neighbours"]
    (aim,) = mesh.report("z", "map")["aims"]
    assert (aim["state"], aim["broker"]) == ("dialling", "")
    refused = next(note for note in mesh["a"].notes if isinstance(note, PeerRefused))
    failed = next(note for note in mesh["z"].notes if isinstance(note, DialFailed))
    assert refused.reason is failed.reason is Reason.NETWORK_OTHER
    for text in (refused.detail, failed.detail, aim["reason"]):
        for name in (ours, theirs):
            assert (f"network {name!r}" if name else "a network without a name") in text
        assert "set the same network.name" in text
    assert mesh.report("a", "overview")["refused"]["network_other"] >= 1


def test_another_name_needs_a_restart() -> None:
    started = BrokerConfig(network=NetworkConfig(name="plant"))
    assert BrokerConfig(network=NetworkConfig(name="office")).restart_needed(started) == ["network.name"]


@pytest.mark.parametrize("name", ["a b", "-a", "a/b", "ä", "a" * 65])
def test_a_name_that_could_not_travel_is_a_problem_of_the_settings(name: str) -> None:
    (problem,) = NetworkConfig(name=name).problems()
    assert str(problem).startswith(f"network.name = {name!r}: at most 64 letters")
