"""A new service is one file of its own and one line in the list; settings, drivers and log take it from there."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph import connect, node
from heliograph.broker.config import DEFAULT_PORT, BrokerConfig, LinkConfig, NetworkConfig
from heliograph.sim.host import Host
from heliograph.sim.world import World
from tests.live.processes import Process
from tests.services.greeter import GREETER_SERVICE, GreeterConfig, ReloadGreeter
from tests.sim.machines import run

ADDED = "from heliograph import node; from tests.services.greeter import GREETER_SERVICE as IT; import sys; "
ADDED += "node.SERVICES = (*node.SERVICES, IT); "  # the one line
ADDED += "from heliograph.cli.main import main; "
BROKER = ADDED + "main(['broker', 'run', *sys.argv[1:]])"


def command(*words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", f"{ADDED} main(sys.argv[1:])", *words], check=False, capture_output=True, text=True
    )
    return ran.stdout + ran.stderr


def test_it_runs_in_the_simulated_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "SERVICES", (*node.SERVICES, GREETER_SERVICE))
    world = World(1)

    def add(name: str, *links: str) -> Host:
        network = NetworkConfig(key=b"k" * 32, links=tuple(LinkConfig(host=other) for other in links))
        config = BrokerConfig(name=name, network=network)
        services = [GreeterConfig(greeting="good day")]
        host = world.add(name, lambda _: node.build(config, seed=1, incarnation=1, services=services))
        world.listen(host, (name, DEFAULT_PORT), "main", node.BROKER)
        world.start(host)
        return host

    one, other = add("one"), add("other", "one")
    run(world, 5)
    other.tell(other.seat("greeter"), ReloadGreeter(GreeterConfig()))
    run(world, 5)

    assert one.seat("greeter").machine.report("overview") == {"greeting": "good day", "heard": ["greetings/all"]}
    assert other.seat("greeter").machine.report("overview") == {"greeting": "hello", "heard": []}


@pytest.mark.live
def test_it_runs_in_a_process_with_its_section_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "heliograph.toml"
    text = "[discovery]\nenabled = false\n[greeter]\n"
    file.write_text(text + 'greeting = "good day"\n')
    options = ("--listen", "127.0.0.1:0", "--log-format", "json", "--config", str(file))
    with Process(tmp_path, *options, program=BROKER) as broker:
        broker.line("ready in")
        assert any("greets with 'good day'" in str(line.get("text")) for line in broker.lines)

        async def greeted() -> str:
            async with await connect(f"127.0.0.1:{broker.port}") as client:
                return str((await client.ask("greeter", {"name": "Ada"}))["text"])

        assert asyncio.run(greeted()) == "good day, Ada"
        file.write_text(text)
        broker.send(signal.SIGHUP)
        broker.line("settings_reloaded")
        assert asyncio.run(greeted()) == "hello, Ada"


def test_its_setting_is_known_to_every_command_and_checked() -> None:
    said = command("config", "explain", "greeter.greeting")
    assert "how clients are greeted" in said
    assert "HELIOGRAPH_GREETER__GREETING" in said
    assert "hello or good day" in said
    assert "by a reload" in said


def test_a_bad_value_is_refused_with_its_key_and_where_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text('[greeter]\ngreeting = "hey"\n')
    assert f"{file}: greeter.greeting = 'hey': must be one of hello, good day" in command("config", "check", str(file))
