"""The field: the systems that take part in a run, and what is known about those that cannot.

In:    names of systems, or none for all that are able.
Out:   which are present, which are absent and why; running servers with everything around them.
State: none.
Not here: measuring (route.py, latency.py, start.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.certificates import TlsFiles
from benchmarks.generator import Generator
from benchmarks.peers import OURS, SYSTEMS
from benchmarks.peers.server import Server
from benchmarks.peers.system import Startable


class Field:
    """Who takes part."""

    def __init__(self, chosen: Sequence[str] | None = None, able: Mapping[str, Startable] = SYSTEMS) -> None:
        names = [name for name in able if chosen is None or name in chosen]
        reasons = {name: able[name].absent() for name in names}
        self._able = able
        self.present = [name for name in names if reasons[name] is None]
        self.absent = {name: reason for name, reason in reasons.items() if reason is not None}
        self.absent |= {name: "left out of this run" for name in able if name not in names}

    @property
    def peers(self) -> list[str]:
        """Those present that are not ours."""
        return [name for name in self.present if name != OURS]

    def describe(self, figures: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields ``ours`` and ``peers`` of a result: an absent peer is named with its reason, never guessed."""
        ours: dict[str, Any] = {"absent": self.absent[OURS]} if OURS in self.absent else self._one(OURS, figures)
        peers = {name: self._one(name, figures) for name in self.peers}
        peers |= {name: {"absent": reason} for name, reason in self.absent.items() if name != OURS}
        return ours, peers

    def turn(self, names: Sequence[str], number: int) -> list[str]:
        """The order of a round; each round another one begins, so that nobody is always first."""
        shift = number % len(names) if names else 0
        return [*names[shift:], *names[:shift]]

    def _one(self, name: str, figures: dict[str, Any]) -> dict[str, Any]:
        return {"version": self._able[name].version(), **figures.get(name, {})}


def serve(stack: ExitStack, generator: Generator, name: str, cores: Iterable[int], tls: TlsFiles | None) -> Server:
    """Start a server for the rest of the run; ours gets the subscribers that a busy broker has."""
    say(f"starting {name}{' with TLS' if tls else ''}")
    server = stack.enter_context(Server(SYSTEMS[name], cores, tls))
    if name == OURS:
        generator.ask("crowd", port=server.port, ca_file=server.ca_file)
    return server


def say(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)
