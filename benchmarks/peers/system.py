"""What every system under test must offer: a server to start, and a protocol to speak.

In:    a folder for its files, a port, TLS files if the server is to be secure.
Out:   a command to run; links that have shaken hands; batches of frames; sinks for what comes out.
State: none; systems are stateless, links and servers are not.
Not here: running the command (server.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.batches import Batches, Load
from benchmarks.certificates import TlsFiles
from benchmarks.links import Link
from benchmarks.sinks import Sink


class Startable(Protocol):
    """A broker that can be started."""

    name: str

    def absent(self) -> str | None:
        """Why it cannot run here, or None."""
        ...

    def version(self) -> str:
        """As it says itself."""
        ...

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """Write what it needs into the folder; returns how to run it in the foreground."""
        ...

    def connect(self, port: int, ca_file: str | None) -> Link:
        """A link with its handshake done."""
        ...


class System(Startable, Protocol):
    """A broker that can be put under load. Topics are given with "/" and become what the system uses."""

    window: int  # frames on the way in batched cases: as many as the system can use, at most 16,384

    def subscribe(self, link: Link, topic: str) -> None:
        """The subscription is in force when this returns. One per link."""
        ...

    def batches(self, load: Load, link: Link) -> Batches:
        """Frames to be published on this link."""
        ...

    def sink(self, topic: str, payload_bytes: int) -> Sink:
        """A check for a link that subscribed to ``topic`` (which may be wild if all topics have one length)."""
        ...


def find(program: str) -> str | None:
    """Where a server is installed; Debian keeps some where ordinary users do not look."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin:/usr/local/bin")


def not_installed(program: str) -> str | None:
    """Why a system made of one program cannot run here, or None."""
    return None if find(program) else f"{program} is not installed (make bench-peers)"


def written(folder: Path, name: str, lines: Sequence[str]) -> str:
    """A configuration file."""
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)
