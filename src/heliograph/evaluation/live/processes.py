"""The processes of an experiment: brokers and a directory, each as `heliograph broker run` and `heliograph bdn run`.

In:    settings as TOML.
Out:   where each one listens, once it is ready; an error that names a process that did not start, or ended.
State: the processes, and a folder for their settings and logs.
Not here: the content of the settings (stage.py).
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from heliograph.errors import HeliographError
from heliograph.evaluation.live.relays import LOCAL
from heliograph.live.runtime import node_environment
from heliograph.machine import Address

START_S_MAX = 60.0  # a busy computer may take long to start Python several times
STOP_S_MAX = 5.0
POLL_S = 0.05
KEY = "network.key"

_LINKS = re.compile(r"open on 127\.0\.0\.1:(\d+)")  # a directory's UDP port has the same number
_DATAGRAMS = re.compile(r"found by UDP 127\.0\.0\.1:(\d+)")
_READY = re.compile(r" node ready\b")


@dataclass(frozen=True, slots=True)
class Opened:
    """Where a process listens."""

    links: Address
    datagrams: Address


class Processes:
    """Everything that was started in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        key = folder / KEY
        key.touch(mode=0o600)
        key.write_text(f"{os.urandom(32).hex()}\n")

    def start(self, name: str, what: str, settings: str) -> None:
        """Start a broker or a bdn."""
        file = self._folder / f"{name}.toml"
        file.write_text(settings)
        with self._log(name).open("wb") as log:
            # In its own session: we handle Ctrl-C.
            self._running[name] = subprocess.Popen(  # noqa: S603 our own program with our own arguments
                [sys.executable, "-m", "heliograph.cli.main", what, "run", "--config", str(file)],
                cwd=self._folder,
                env=node_environment(self._folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def ready(self, name: str) -> Opened:
        """Wait until it runs."""
        deadline = monotonic() + START_S_MAX
        while monotonic() < deadline:
            self.check()
            text = self._log(name).read_text(errors="replace")
            links, datagrams = _LINKS.search(text), _DATAGRAMS.search(text)
            if links is not None and _READY.search(text):
                return Opened((LOCAL, int(links[1])), (LOCAL, int((datagrams or links)[1])))
            await asyncio.sleep(POLL_S)
        raise HeliographError(f"{name} was not ready within {START_S_MAX:.0f} s; is this computer very busy?")

    def check(self) -> None:
        """HeliographError if one has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                last = self._log(name).read_text(errors="replace").strip().rpartition("\n")[2]
                raise HeliographError(f"{name} ended with code {process.returncode}: {last or 'it said nothing'}")

    def stop(self) -> None:
        """End all processes; one that does not end is killed."""
        for process in self._running.values():
            process.terminate()
        deadline = monotonic() + STOP_S_MAX
        for process in self._running.values():
            try:
                process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"
