"""Where to connect, with real processes: two unrelated brokers on a machine, and programs and commands that are told
nothing, a network, or an address.

The default port, its directory's and the multicast group are the test's own: others may run on this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from tests.cli.processes import COMMAND, PATIENCE_S, broker, environment

pytestmark = [pytest.mark.live, pytest.mark.req("B11", "B14", "O1")]

PROGRAM = """
import asyncio, sys
import heliograph

async def main():
    network = sys.argv[1] if len(sys.argv) > 1 else None
    async with heliograph.connect(network=network, timeout=20) as client:
        await client.publish("a", "1")
        await client.flush()
        print(client.broker, client.network)

try:
    asyncio.run(main())
except heliograph.NotConnectedError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
"""


class Machine:
    """Ports of its own, and brokers that its programs could take."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.default_port, self.group_port = free_port(), free_port()
        (folder / "heliograph.toml").write_text(
            f"[discovery]\nmulticast_port = {self.group_port}\n[search]\nmulticast_port = {self.group_port}\n"
        )
        self.variables = {
            "HELIOGRAPH_DEFAULT_PORT": str(self.default_port),
            "HELIOGRAPH_CONFIG": str(folder / "heliograph.toml"),
        }

    def start(self, *arguments: list[str] | str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            list(map(str, arguments)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment(self.folder, **self.variables),
        )

    def five_programs_and_five_commands(self, *network: str) -> list[tuple[int, str, str]]:
        """Each one's exit code, standard output and standard error; two at a time, for machines that are busy."""
        chosen = ["--network", *network] if network else []
        programs, commands = [], []
        for _ in range(5):
            program = self.start(sys.executable, "-c", PROGRAM, *network)
            command = self.start(*COMMAND, "broker", "status", "--json", *chosen)
            for process, ended in ((program, programs), (command, commands)):
                out, err = process.communicate(timeout=2 * PATIENCE_S)
                ended.append((process.returncode, out, err))
        return programs + commands

    def reached(self, *network: str) -> list[str]:
        """The brokers that ten of them have reached."""
        ended = self.five_programs_and_five_commands(*network)
        assert [code for code, _, _ in ended] == [0] * 10, ended
        programs = [out.split()[0] for _, out, _ in ended[:5]]
        return programs + [json.loads(out)["broker"] for _, out, _ in ended[5:]]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@contextmanager
def brokers(machine: Machine, *each: tuple[str, ...]) -> Iterator[list[str]]:
    """Unrelated brokers, and their addresses."""
    with ExitStack() as stack:
        started = [stack.enter_context(broker(machine.folder, *arguments)) for arguments in each]
        yield [url for _, url in started]


def test_of_two_networks_ten_of_ten_reach_the_one_that_they_choose(machine: Machine) -> None:
    with brokers(machine, ("--name", "a", "--network", "plant"), ("--name", "b", "--network", "office")):
        assert machine.reached("plant") == ["a"] * 10
        assert machine.reached("office") == ["b"] * 10


def test_who_chose_none_of_two_is_told_which_there_are(machine: Machine) -> None:
    """Both have the usual name, and no network's name: nothing but their addresses tells them apart.

    A broker that a busy machine lets wait for longer than a search lasts is not heard; then the ten try again.
    """
    with brokers(machine, (), ()) as urls:
        ended = machine.five_programs_and_five_commands()
        for _ in range(4):
            if all(code for code, _, _ in ended):
                break
            ended = machine.five_programs_and_five_commands()
        for code, out, err in ended:
            assert code in (1, 3), (out, err)
            assert out == ""
            assert "networks_several: brokers of 2 networks answered" in err
            assert all(url.replace("localhost", "127.0.0.1") in err for url in urls), err
            assert "--network" in err


def test_ten_of_ten_take_the_broker_on_the_default_port_and_leave_the_other_alone(machine: Machine) -> None:
    here = ("--name", "here", "--listen", f"127.0.0.1:{machine.default_port}")
    with brokers(machine, here, ("--name", "else", "--network", "plant")):
        assert machine.reached() == ["here"] * 10
        assert machine.reached("plant") == ["else"] * 10  # the one on the default port is of no network


def test_a_broker_elsewhere_is_found_where_nothing_is_on_the_default_port(machine: Machine) -> None:
    with brokers(machine, ("--name", "else", "--network", "plant")):
        assert machine.reached() == ["else"] * 10


def test_a_given_address_of_another_network_is_an_error_that_names_both(machine: Machine) -> None:
    with brokers(machine, ("--name", "a", "--network", "plant")) as (url,):
        process = machine.start(*COMMAND, "publish", "x", "1", "--url", url, "--network", "office")
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
        assert "network_other" in err
        assert "belongs to network 'plant'; network 'office' was asked for" in err
        found = machine.start(*COMMAND, "discover", "broker", "--json", "--network", "plant")
        told = json.loads(found.communicate(timeout=PATIENCE_S)[0])
        assert (told["network"], told["findings"][0]["network"]) == ("plant", "plant")
        missing = machine.start(*COMMAND, "publish", "x", "1", "--network", "office")
        _, err = missing.communicate(timeout=PATIENCE_S)
        assert "no broker of network 'office' answered, but of others: 'plant' (a at heliograph://" in err
