"""Servers: real processes on loopback, each in a folder of its own, ended by their id.

In:    a broker that can be started, the core it may use, TLS files where it is to be secure.
Out:   a running server with its port; how long it took to start and to stop.
State: the process and its folder.
Not here: what to run (the systems' own files).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from benchmarks.certificates import TlsFiles
from benchmarks.links import LinkEndedError
from benchmarks.machine import confined, family
from benchmarks.peers.system import Startable
from benchmarks.ports import free_port

READY_S = 15.0
STOP_S = 10.0
RELOAD_S = 0.5


class ServerError(Exception):
    """A server did not start, or ended on its own."""


def plain_environment() -> dict[str, str]:
    """The environment of an ordinary user: Python may keep its compiled modules, as it does by default."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def relay(stack: ExitStack, way: str, host: str, listen: int, to: int, delay_ms: float) -> subprocess.Popen[bytes]:
    """Run a relay (benchmarks/relay.py) for as long as the stack lasts."""
    command = [sys.executable, "-m", "benchmarks.relay", way, host, str(listen), str(to), str(delay_ms)]
    process = subprocess.Popen(command, env=plain_environment(), stdout=subprocess.PIPE)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


class Server:
    """One running broker. A context manager: it ends with the block, whatever happens."""

    def __init__(
        self, system: Startable, on_cores: Iterable[int], tls: TlsFiles | None = None, port: int | None = None
    ) -> None:
        self.system = system
        self.tls = tls
        self.port = free_port() if port is None else port
        self._cores = set(on_cores)
        self._folder = tempfile.TemporaryDirectory(prefix=f"bench-{system.name}-")
        self._process: subprocess.Popen[bytes] | None = None
        self.port_open_s = 0.0  # from exec until the port accepts
        self.ready_s = 0.0  # from exec until the first handshake is done
        self.stop_s = 0.0  # from SIGTERM until the process is gone
        self.stop_code: int | None = None

    @property
    def ca_file(self) -> str | None:
        """What clients check the server against."""
        return str(self.tls.ca) if self.tls else None

    @property
    def pids(self) -> list[int]:
        """Its processes."""
        assert self._process is not None
        return family(self._process.pid)

    def __enter__(self) -> Server:
        folder = Path(self._folder.name)
        command = self.system.command(folder, self.port, self.tls)
        with (folder / "output").open("wb") as output, confined(self._cores):
            begin = time.perf_counter()
            self._process = subprocess.Popen(
                command, cwd=folder, env=plain_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            self._await_ready(begin)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        begin = time.perf_counter()
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a paused one must wake up to end
        try:
            self.stop_code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.stop_s = time.perf_counter() - begin
        self._folder.cleanup()

    def signal(self, number: signal.Signals) -> None:
        """Pause it, wake it up, or kill it."""
        assert self._process is not None
        self._process.send_signal(number)

    def reload(self, system: Startable) -> None:
        """Give it the settings of this system while it runs, and a moment to read them."""
        system.command(Path(self._folder.name), self.port, self.tls)
        self.signal(signal.SIGHUP)
        time.sleep(RELOAD_S)
        self.check_running()

    def check_running(self) -> None:
        """Raise if it has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise ServerError(f"{self.system.name} ended with {self._process.returncode}: {self._said()}")

    def _await_ready(self, begin: float) -> None:
        while True:
            self.check_running()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.0005)
            self._check_time(begin)
        self.port_open_s = time.perf_counter() - begin
        while True:
            self.check_running()
            try:
                self.system.connect(self.port, self.ca_file).close()
                break
            except (OSError, LinkEndedError):
                time.sleep(0.0005)
            self._check_time(begin)
        self.ready_s = time.perf_counter() - begin

    def _check_time(self, begin: float) -> None:
        if time.perf_counter() - begin > READY_S:
            raise ServerError(f"{self.system.name} was not ready within {READY_S:.0f} s: {self._said()}")

    def _said(self) -> str:
        output = (Path(self._folder.name) / "output").read_text(errors="replace").strip()
        return output[-2000:] or "it printed nothing"
