"""A live network of broker processes, started by the installed command as a user would.

In:    a topology, a folder of the test's own.
Out:   where each broker listens; brokers that are killed, stopped, continued, unlinked.
State: the processes, which end with the block, and the folder.
Not here: clients (client.py), which faults there are and when (runs.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.independent.topologies import Topology

ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).with_name("heliograph"))
START_S_MAX = 120
NAME = "network"  # of its folder


@dataclass(frozen=True)
class Broker:
    name: str
    host: str
    port: int
    pid: int


@dataclass(frozen=True)
class Network:
    folder: Path
    brokers: Mapping[str, Broker]

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.brokers[name].pid, number)

    def unlink(self, dialler: str, other: str) -> None:
        """Have the broker that keeps a link end it."""
        here, there = self.brokers[dialler], self.brokers[other]
        run(
            self.folder,
            "broker",
            "link",
            "remove",
            f"{there.host}:{there.port}",
            "--url",
            f"heliograph://{here.host}:{here.port}",
        )


def environment(folder: Path) -> dict[str, str]:
    """This one, with folders for what commands and programs keep."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    kept["PYTHONPATH"] = os.pathsep.join([kept["PYTHONPATH"], str(ROOT)] if "PYTHONPATH" in kept else [str(ROOT)])
    return kept | {"HELIOGRAPH_RUNTIME_DIR": str(folder / "run"), "HELIOGRAPH_STATE_DIR": str(folder / "state")}


def run(folder: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_S_MAX,
        check=False,
    )
    assert ran.returncode == 0, f"{' '.join(arguments)}: {ran.stderr}"
    return ran.stdout


@contextmanager
def started(topology: Topology, folder: Path, *, suspect_ms: int) -> Iterator[Network]:
    """A network whose brokers all know each other, and suspect a silent neighbour after this time.

    The usual two seconds are a fault on a busy machine, and faults are for a run to choose.
    """
    (folder / "topology.toml").write_text(topology.text)
    rows = run(folder, "network", "up", "--topology", "topology.toml", "--dir", NAME, "--no-bdn", "--detach", "--json")
    brokers = {}
    for row in json.loads(rows):
        host, _, port = row["address"].partition(":")
        brokers[row["name"]] = Broker(row["name"], host, int(port), row["pid"])
    network = Network(folder, brokers)
    try:
        for name in brokers:
            settings = folder / NAME / f"{name}.toml"
            times = f"[network]\nsuspect_ms = {suspect_ms}\ndead_ms = {2 * suspect_ms}\n"
            settings.write_text(settings.read_text().replace("[network]\n", times))
            network.signal(name, signal.SIGHUP)
        yield network
    finally:
        run(folder, "network", "down", "--dir", NAME)
