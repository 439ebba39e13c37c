"""Real `heliograph` processes for tests: started, read line by line, and always ended."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-m", "heliograph.cli.main"]
PATIENCE_S = 60


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of the user's own settings, and a runtime folder of the test's own.

    Output is buffered as a user's is: a command that forgets to write out its lines must not pass here.
    """
    ours = ("HELIOGRAPH_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **kept,
        "HELIOGRAPH_RUNTIME_DIR": str(folder / "run"),
        "HELIOGRAPH_STATE_DIR": str(folder / "state"),
        **more,
    }


def piped(folder: Path, *arguments: str | Path, data: bytes, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, with this standard input."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=data,
        capture_output=True,
        cwd=folder,
        env=environment(folder, **more),
        timeout=PATIENCE_S,
        check=False,
    )


class Process:
    """A command that runs beside the test."""

    def __init__(self, folder: Path, *arguments: str | Path, **more: str) -> None:
        self.popen = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=folder,
            env=environment(folder, **more),
        )
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        self.out, self.err = self.popen.stdout, self.popen.stderr
        self.said: list[str] = []  # lines of standard error that were read

    def line(self) -> str:
        """The next line of standard output."""
        return self._line(self.out.fileno())

    def remark(self) -> str:
        """The next line of standard error."""
        self.said.append(self._line(self.err.fileno()))
        return self.said[-1]

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.popen.send_signal(signal.SIGINT)
        return self.popen.wait(PATIENCE_S)

    def end(self) -> str:
        """Make sure that it is gone; everything it said on standard error."""
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            _, rest = self.popen.communicate(timeout=PATIENCE_S)
        except (subprocess.TimeoutExpired, ValueError):  # ValueError: the test closed its standard output
            self.popen.kill()
            self.popen.wait(PATIENCE_S)
            rest = b""
        self.said += rest.decode().splitlines()
        return "\n".join(self.said)

    def _line(self, descriptor: int) -> str:
        data = b""
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
            assert ready, f"{self.popen.args!r} says nothing after {data!r}"
            byte = os.read(descriptor, 1)
            assert byte, f"{self.popen.args!r} ended after {data!r}; {self.said}"
            data += byte
        return data[:-1].decode()


@contextmanager
def started(folder: Path, *arguments: str | Path, **more: str) -> Iterator[Process]:
    """A process that is ended with the block."""
    process = Process(folder, *arguments, **more)
    try:
        yield process
    finally:
        process.end()


@contextmanager
def broker(
    folder: Path, *arguments: str | Path, scheme: str = "heliograph", **more: str
) -> Iterator[tuple[Process, str]]:
    """A broker on a free port, and its address."""
    if "--listen" not in arguments:
        arguments = (*arguments, "--listen", "127.0.0.1:0")
    with started(folder, "broker", "run", "--log-format", "json", *arguments, **more) as process:
        found = re.search(r"127\.0\.0\.1:(\d+)", json.loads(process.remark())["text"])
        assert found is not None, process.said
        while "ready" not in process.remark():
            pass
        yield process, f"{scheme}://localhost:{found[1]}"


@contextmanager
def subscriber(folder: Path, *arguments: str | Path, **more: str) -> Iterator[Process]:
    """A subscriber whose subscriptions are in force."""
    with started(folder, "subscribe", *arguments, **more) as process:
        assert process.remark().startswith("subscribed to ")
        yield process
