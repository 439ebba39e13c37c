"""zenoh: routers in processes of their own, made of PyPI's eclipse-zenoh.

In:    a place in a network.
Out:   a Zenoh that can be started and linked.
State: none; a router is a process.
Not here: the router's process (zenoh_router.py), its clients (probes.py). Only those processes import the package.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.certificates import TlsFiles
from benchmarks.links import Link
from benchmarks.peers.network import Place
from benchmarks.peers.system import written

PACKAGE = "eclipse-zenoh"
ROUTER = Path(__file__).with_name("zenoh_router.py")


class Zenoh:
    """A zenoh router."""

    name = "zenoh"

    def absent(self) -> str | None:
        """Why it cannot run here, or None."""
        return None if importlib.util.find_spec("zenoh") else f"{PACKAGE} is not installed (pip install {PACKAGE})"

    def version(self) -> str:
        """Of the package."""
        return importlib.metadata.version(PACKAGE)

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """A router on its own."""
        return run_router(folder, settings("router", port, ()))

    def linked(self, folder: Path, place: Place) -> list[str]:
        """A router that dials others."""
        return run_router(folder, settings("router", place.port, [port for port, _ in place.dials]))

    def connect(self, port: int, ca_file: str | None) -> Link:
        """That it takes calls is all that can be told without its library."""
        return Link(port)


def settings(mode: str, port: int | None, dials: Sequence[int]) -> str:
    """Only the links that are drawn: no scouting, no gossip."""
    chosen: dict[str, Any] = {
        "mode": mode,
        "connect": {"endpoints": [f"tcp/127.0.0.1:{dialled}" for dialled in dials]},
        "listen": {"endpoints": [] if port is None else [f"tcp/127.0.0.1:{port}"]},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
    }
    return json.dumps(chosen)


def run_router(folder: Path, chosen: str) -> list[str]:
    """The command of a router with these settings."""
    # -P: the folder of the script, where this file is another "zenoh", stays out of the search path.
    return [sys.executable, "-P", str(ROUTER), written(folder, "zenoh.json5", [chosen])]
