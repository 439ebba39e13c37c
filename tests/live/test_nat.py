"""A client behind a translated address: it finds a broker through a directory outside, connects, and is delivered to.

In:    two network namespaces of the test's own and a translator between them (nat.py); installed commands in both.
Out:   claims that answers find the client by the address that is seen of it, directly or through the directory.
State: processes and namespaces, which end with the test.
Not here: a search whose datagrams are blocked (tests/discovery), a broker behind a translator (advertise_host).

The namespaces outside have no route to the client's own address: whatever reaches it was translated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.live.nat import OUTSIDE, translated, why_not

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.req("B20")]

COMMAND = str(Path(sys.executable).with_name("heliograph"))
SECONDS = 60.0
DIRECTORY, *HOSTS = OUTSIDE
BDN = f"{DIRECTORY}:4719"
SETTINGS = """
[broker]
name = "b{number}"
[[listener]]
host = "{host}"
allow_open = true
[discovery]
host = "{host}"
directories = ["{bdn}"]
multicast = false
[network]
key_file = "network.key"
"""
LINK = """
[[network.links]]
host = "{host}"
"""


class Place:
    """Runs commands in a namespace, with files in a folder."""

    def __init__(self, namespace: str, folder: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
        self._folder = folder
        self._prefix = ["ip", "netns", "exec", namespace, COMMAND]
        self._environment = {
            **kept,
            "HELIOGRAPH_RUNTIME_DIR": str(folder / "run"),
            "HELIOGRAPH_BDNS": BDN,
            "HELIOGRAPH_SEARCH__REMEMBER": "false",
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._prefix, *words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    @contextmanager
    def running(self, name: str, *words: str, until: str) -> Iterator[Path]:
        """A command that has said ``until``, and the file with everything it says."""
        said = self._folder / f"{name}.log"
        with said.open("wb") as file:
            process = subprocess.Popen(
                [*self._prefix, *words],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        try:
            wait_for(said, until)
            yield said
        finally:
            process.terminate()
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(said: Path, text: str) -> None:
    deadline = time.monotonic() + SECONDS
    while text not in said.read_text():
        assert time.monotonic() < deadline, f"no {text!r} in {said.read_text()}"
        time.sleep(0.02)


def search(home: Place) -> Any:
    """Look for a broker until the directory has heard of both."""
    deadline = time.monotonic() + SECONDS
    while True:
        ran = home.run("discover", "broker", "--no-multicast", "--json")
        found = json.loads(ran.stdout) if ran.stdout else {"findings": []}
        if len(found["findings"]) == len(HOSTS):
            return found
        assert time.monotonic() < deadline, ran


@contextmanager
def a_network(world: Place, folder: Path) -> Iterator[None]:
    """A directory and two linked brokers."""
    assert world.run("network", "key", "network.key").returncode == 0
    for number, host in enumerate(HOSTS):
        link = LINK.format(host=HOSTS[0]) if number else ""
        (folder / f"b{number}.toml").write_text(SETTINGS.format(number=number, host=host, bdn=BDN) + link)
    with (
        world.running("bdn", "bdn", "run", "--listen", BDN, until="node ready"),
        world.running("b0", "broker", "run", "--config", "b0.toml", until="node ready"),
        world.running("b1", "broker", "run", "--config", "b1.toml", until="neighbour_linked"),
    ):
        yield


@pytest.mark.parametrize(
    "symmetric",
    [pytest.param(True, id="symmetric"), pytest.param(False, id="cone", marks=pytest.mark.sweep)],
)
def test_a_client_behind_a_translated_address_finds_a_broker_and_is_delivered_to(
    symmetric: bool, tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with translated(symmetric=symmetric) as (inside, outside, translator):
        home, world = Place(inside, tmp_path), Place(outside, tmp_path)
        with a_network(world, tmp_path):
            found = search(home)
            assert found["urls"][0] in [f"heliograph://{host}:4717" for host in HOSTS]
            if symmetric:  # no broker can answer before it was spoken to, so the directory passes its answer on
                assert any(one["relayed"] for one in found["findings"]), found
                assert translator.seen["udp refused"] > 0
            else:
                assert translator.seen["udp refused"] == 0
            assert translator.seen["udp in"] > 0
            with home.running("subscriber", "subscribe", "nat/#", "--discover", until="subscribed to") as heard:
                ran = world.run("publish", "nat/door", "knock", "--url", f"heliograph://{HOSTS[1]}:4717")
                assert ran.returncode == 0, ran.stderr
                wait_for(heard, "nat/door knock")
            assert min(translator.seen["tcp out"], translator.seen["tcp in"]) > 0
