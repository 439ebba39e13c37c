"""Brokers as processes of their own, started as a user would start them.

In:    command-line options, or a small program.
Out:   the process, its port and its log lines.
State: one process, ended with the test.
Not here: a client (tests/wire/stdlib_client.py).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

SECONDS = 60.0


class Process:
    """A broker process whose log is JSON on standard error."""

    def __init__(self, folder: Path, *arguments: str, program: str | None = None) -> None:
        start = ["-c", program] if program is not None else ["-m", "heliograph.cli.main", "broker", "run"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
        environment["HELIOGRAPH_RUNTIME_DIR"] = str(folder / "run")
        root = Path(__file__).parents[2]
        environment["PYTHONPATH"] = f"{root}:{root / 'src'}"  # this checkout, whichever one is installed
        self.process = subprocess.Popen(
            [sys.executable, *start, *arguments], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[Any] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def port(self) -> int:
        """Of its first listener, as its first line says; waits until it is ready."""
        self.line("ready in")
        return int(self.lines[0]["text"].split(" ")[2].rpartition(":")[2])

    def line(self, text: str) -> Any:
        """The first line with this text, waiting for it."""
        for line in self.lines:
            if text in json.dumps(line):
                return line
        while (raw := self._queue.get(timeout=SECONDS)) is not None:
            line = json.loads(raw) if raw.startswith("{") else raw
            self.lines.append(line)
            if text in raw:
                return line
        raise AssertionError(f"no line with {text!r} in {self.lines}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code; all its lines are read then."""
        code = self.process.wait(SECONDS)
        while (raw := self._queue.get(timeout=SECONDS)) is not None:
            self.lines.append(json.loads(raw) if raw.startswith("{") else raw)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            self._queue.put(raw)
        self._queue.put(None)


def broker(folder: Path, *options: str) -> Process:
    """A broker on a free port of this machine."""
    listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
    return Process(folder, *listen, "--log-format", "json", *options)
