"""`heliograph network`: keys, mistakes, and processes that are not ours."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from heliograph.cli import network_state as state
from heliograph.cli.network_state import LocalBroker, LocalNetwork
from heliograph.config.load import load_settings
from heliograph.maps.trace import as_text
from heliograph.model.identity import network_is_valid
from heliograph.topology.process_network import generated

from .conftest import Run

pytestmark = pytest.mark.req("O2", "N4")


def test_a_network_key_is_random_private_and_good_for_settings(run: Run, tmp_path: Path) -> None:
    assert run("network", "key", "network.key").code == 0
    assert run("network", "key", "other.key").code == 0
    key = tmp_path / "network.key"

    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes() != (tmp_path / "other.key").read_bytes()
    settings = load_settings(None, {"HELIOGRAPH_NETWORK__KEY_FILE": "network.key"}, tmp_path)
    assert settings.broker.network.key == key.read_bytes().strip()


def test_a_network_key_is_not_overwritten_by_accident(run: Run, tmp_path: Path) -> None:
    run("network", "key", "network.key")
    before = (tmp_path / "network.key").read_bytes()

    ran = run("network", "key", "network.key")

    assert ran.code == 1
    assert "--force" in ran.err
    assert (tmp_path / "network.key").read_bytes() == before
    assert run("network", "key", "network.key", "--force").code == 0
    assert (tmp_path / "network.key").read_bytes() != before


@pytest.mark.req("O5")
def test_config_show_names_the_key_file_and_never_shows_the_key(run: Run, tmp_path: Path) -> None:
    run("network", "key", "network.key")
    (tmp_path / "heliograph.toml").write_text('[network]\nkey_file = "network.key"\n')
    key = (tmp_path / "network.key").read_text().strip()

    for ran in (run("config", "show"), run("config", "show", "--json"), run("config", "check")):
        assert ran.code == 0
        assert key not in ran.out + ran.err
    assert "network.key_file" in run("config", "show").out


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("up",), 2, "give a number of brokers"),
        (("up", "3", "--topology", "t.toml"), 2, "a topology file (t.toml), not both"),
        (("up", "2", "--clusters", "3"), 2, "2 brokers cannot make 3 clusters"),
        (("up", "100"), 1, "64 at most"),
        (("up", "70000", "--clusters", "9"), 1, "64 at most"),
        (("up", "3", "--port-base", "65534"), 1, "between 0 and 65535"),
        (("up", "--topology", "gone.toml"), 2, "gone.toml cannot be read"),
        (("up", "--topology", "t.toml", "--clusters", "2"), 2, "names the clusters itself"),
        (("up", "--topology", "t.toml"), 1, "t.toml: links[0]: there is no broker 'b'"),
        (("down",), 1, "no network was started"),
        (("map", "--dir", "."), 1, "no network was started"),
        (("map", "--url", "heliograph://127.0.0.1:1"), 1, "`heliograph broker run` starts one"),
        (("trace", "a", "--url", "heliograph://127.0.0.1:1"), 1, "`heliograph broker run` starts one"),
        (("trace", "a", "--dir", "."), 1, "no network was started"),
        (("trace", "a", "--at", "b", "--url", "heliograph://127.0.0.1:1"), 2, "give --url instead"),
    ],
)
def test_a_mistake_is_told_in_words(run: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, told: str) -> None:
    (tmp_path / "t.toml").write_text('brokers = [{name = "a"}]\nlinks = [["a", "b"]]\n')

    ran = run("network", *arguments)

    assert ran.code == code
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("address", ["host:many", "a b", "http://b.example.org"])
def test_a_link_needs_an_address(run: Run, address: str) -> None:
    for command in (("broker", "run", "--link"), ("broker", "link", "add"), ("broker", "link", "remove")):
        ran = run(*command, address)
        assert ran.code == 2
        assert "write HOST:PORT" in ran.err


def test_a_broker_with_links_needs_a_proof(run: Run) -> None:
    ran = run("broker", "run", "--link", "127.0.0.1:4800")

    assert ran.code == 1
    assert "set network.key_file" in ran.err


@pytest.mark.req("O6")
def test_a_process_that_only_has_the_number_of_a_broker_is_left_alone(run: Run, tmp_path: Path) -> None:
    broker = LocalBroker(name="a1", cluster="a", slot=0, port=4800, pid=os.getpid())
    state.save(tmp_path, LocalNetwork(brokers=(broker,), links=()))

    ran = run("network", "down", "--dir", tmp_path)

    assert ran.code == 0
    assert "0 of 1 brokers were running" in ran.err
    assert psutil.pid_exists(os.getpid())
    assert not (tmp_path / state.STATE).exists()


@pytest.mark.req("O6")
@pytest.mark.parametrize("content", ["", "[]", '{"brokers": 1}', '{"brokers": [], "links": [], "more": 1}'])
def test_a_state_that_is_none_is_refused(run: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / state.STATE).write_text(content)

    ran = run("network", "down", "--dir", tmp_path)

    assert ran.code == 1
    assert "is not what `heliograph network up` wrote" in ran.err


def test_files_of_others_are_not_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a2.toml").write_text("mine")

    ran = run("network", "up", "3", "--dir", tmp_path)

    assert ran.code == 1
    assert "a2.toml exists" in ran.err
    assert (tmp_path / "a2.toml").read_text() == "mine"
    assert not (tmp_path / "a1.toml").exists()


def test_settings_of_a_local_broker_are_what_the_topology_says(tmp_path: Path) -> None:
    broker = generated(3).brokers[1]
    (tmp_path / state.KEY).write_text("k" * 32)
    (tmp_path / state.KEY).chmod(0o600)
    state.write_settings(tmp_path, "plant", broker, [4801, 4802])

    settings = load_settings(state.settings_of(tmp_path, "a2"), {}, tmp_path).broker

    assert (settings.name, settings.network.cluster, settings.network.slot) == ("a2", "a", 1)
    assert settings.network.name == "plant"
    assert [(link.host, link.port) for link in settings.network.links] == [("127.0.0.1", 4801), ("127.0.0.1", 4802)]
    assert all(listener.is_local for listener in settings.listeners)


def test_a_network_is_named_after_its_folder_and_unlike_that_of_another() -> None:
    names = [state.default_name(Path(folder)) for folder in ("/a/plant", "/b/plant", "/a/my plant ä", "/", "/.._")]
    assert len(set(names)) == len(names)
    assert [name.rpartition("-")[0] for name in names] == ["plant", "plant", "myplant", "network", "network"]
    assert all(map(network_is_valid, [*names, state.default_name(Path("/" + "x" * 200))]))


def test_what_is_no_name_of_a_network_is_refused_before_anything_starts(run: Run, tmp_path: Path) -> None:
    ran = run("network", "up", "2", "--name", "my plant", "--dir", tmp_path / "net")
    assert ran.code == 2
    assert "--name 'my plant' is not the name of a network" in ran.err
    assert not (tmp_path / "net").exists()


def test_a_trace_is_told_way_by_way() -> None:
    links = [{"link": 3, "entity": "sensor-7", "name": "x\x1b", "numbers": [1, 2], "shared": False}]
    answer = {
        "topic": "a/b",
        "entry": "a1",
        "complete": False,
        "brokers": [{"broker": "b2", "cluster": "b", "path": ["a1", "b1", "b2"], "links": links, "groups": 1}],
    }

    assert list(as_text(answer)) == [
        "a/b enters at a1",
        "  a1 → b1 → b2  (cluster b)",
        "    to sensor-7 (x\\x1b) on link 3, subscriptions 1, 2",
        "    1 shared: each publication goes to one member of each group, the nearest first",
        "not every broker that may be concerned has answered",
    ]
    nobody = list(as_text({**answer, "complete": True, "brokers": []}))
    assert nobody == ["a/b enters at a1", "no client would get it"]


@pytest.mark.req("O6")
def test_a_network_that_was_taken_down_leaves_no_key_and_no_folder(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    broker = LocalBroker(name="a1", cluster="a", slot=0, port=4800, pid=os.getpid())
    state.save(folder, LocalNetwork(brokers=(broker,), links=()))
    for name in (state.KEY, "a1.toml", "a1.log"):
        (folder / name).write_text("secret")

    assert run("network", "down", "--dir", folder).code == 0

    assert not folder.exists()
