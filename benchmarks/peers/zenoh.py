"""zenoh: routers in processes of their own, from PyPI's eclipse-zenoh; ``python -m benchmarks.peers.zenoh CONFIG``.

In:    see system.py; a place in a network.
Out:   a Zenoh system that can be linked, without batches: it takes part in ``interest`` only.
State: none; a router is a process.
Not here: its clients (probes.py). The package is imported in processes of the peer only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks.batches import Batches, Load
from benchmarks.certificates import TlsFiles
from benchmarks.links import Link
from benchmarks.peers.network import Place
from benchmarks.peers.system import written
from benchmarks.sinks import Sink

PACKAGE = "eclipse-zenoh"


class Zenoh:
    """A zenoh router."""

    name = "zenoh"
    window = 1

    def absent(self) -> str | None:
        """Why it cannot run here, or None."""
        return None if importlib.util.find_spec("zenoh") else f"{PACKAGE} is not installed (pip install {PACKAGE})"

    def version(self) -> str:
        """Of the package."""
        return importlib.metadata.version(PACKAGE)

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """A router on its own."""
        return self.linked(folder, Place("a", port, port, (), folder))

    def linked(self, folder: Path, place: Place) -> list[str]:
        """A router that dials others."""
        settings = settings_of("router", [port for port, _ in place.dials], place.port)
        return [sys.executable, "-m", "benchmarks.peers.zenoh", written(folder, "zenoh.json", [settings])]

    def connect(self, port: int, ca_file: str | None) -> Link:
        """It listens: more cannot be told without its protocol."""
        return Link(port)

    def subscribe(self, link: Link, topic: str) -> None:
        """Clients use its own library."""
        raise NotImplementedError

    batches: Any
    sink: Any


def settings_of(mode: str, dials: list[int], port: int | None = None) -> str:
    """Only the links that are drawn: no scouting, no gossip."""
    settings: dict[str, Any] = {
        "mode": mode,
        "connect": {"endpoints": [f"tcp/127.0.0.1:{dialled}" for dialled in dials]},
        "listen": {"endpoints": [f"tcp/127.0.0.1:{port}"] if port else []},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
    }
    return json.dumps(settings)
