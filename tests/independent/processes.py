"""Brokers and stores as processes of their own, and programs that use the public client, each in a process too.

In:    the words of their commands, in which `port:NAME` stands for the address of another node; a folder.
Out:   processes that are started, stopped, killed and started again; what a program wrote down.
State: the processes, which end with the block, and the folder.
Not here: which faults there are and when (the runs), networks that `heliograph network up` starts (network.py).
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.ports import free_ports
from tests.independent.network import COMMAND, environment

PROGRAMS = Path(__file__).parent / "programs"
READY_S = 60.0
END_S = 90.0  # of a program that has nothing to wait for
POLL_S = 0.1


@dataclass
class Node:
    """A process on a port of its own."""

    command: list[str]
    port: int
    process: subprocess.Popen[bytes] | None = None


def common_words(name: str, links: Sequence[str], cluster: str) -> list[str]:
    """What the commands of brokers and stores have in common."""
    words = ["--name", name, "--cluster", cluster, "--network-key-file", "key", "--listen", "port:"]
    return words + [word for other in links for word in ("--link", f"port:{other}")]


class Processes:
    """Nodes, by name."""

    def __init__(self, folder: Path, commands: Mapping[str, list[str]], *, suspect_ms: int = 0) -> None:
        """``suspect_ms``: how long a silent neighbour is trusted; the usual time is a fault on a busy machine."""
        self.folder = folder
        times = {"SUSPECT_MS": str(suspect_ms), "DEAD_MS": str(2 * suspect_ms), "FORGET_MS": str(4 * suspect_ms)}
        self._settings = {f"HELIOGRAPH_NETWORK__{key}": value for key, value in times.items() if suspect_ms}
        (folder / "key").write_text("ab" * 32)
        (folder / "key").chmod(0o600)
        ports = free_ports(len(commands))
        self.nodes = {name: Node(command, port) for (name, command), port in zip(commands.items(), ports, strict=True)}
        for node in self.nodes.values():
            node.command = [self._resolved(word, node) for word in node.command]
            self.start(node)

    def _resolved(self, word: str, node: Node) -> str:
        if not word.startswith("port:"):
            return word
        return f"127.0.0.1:{(self.nodes[word[5:]] if word[5:] else node).port}"

    def start(self, node: Node) -> None:
        with (self.folder / "log").open("ab") as log:
            settings = environment(self.folder) | self._settings
            node.process = subprocess.Popen(
                [COMMAND, *node.command], cwd=self.folder, env=settings, stdout=log, stderr=log
            )

    async def away(self, name: str, how: signal.Signals, seconds: float) -> None:
        """A node is stopped for so long, or ends, and is started again so much later."""
        node = self.nodes[name]
        assert node.process is not None
        node.process.send_signal(how)
        if how is not signal.SIGSTOP:
            await asyncio.to_thread(node.process.wait)
        await asyncio.sleep(seconds)
        if how is signal.SIGSTOP:
            node.process.send_signal(signal.SIGCONT)
        else:
            self.start(node)

    async def ready(self) -> None:
        """Wait until all of them accept links."""
        async with asyncio.timeout(READY_S):
            for node in self.nodes.values():
                while not await accepts(node.port):
                    await asyncio.sleep(POLL_S)

    def end(self) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                node.process.kill()
                node.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


class Program:
    """A program in a process of its own, which writes down what it is told, one JSON object per line."""

    def __init__(self, words: Sequence[str], folder: Path, name: str, **given: Any) -> None:
        self.name = name
        self._asked = 0
        self._notes = folder / f"{name}.jsonl"
        self._errors = folder / f"{name}.errors"
        command = [sys.executable, *words, json.dumps({"name": name, "notes": str(self._notes), **given})]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment(folder), stdout=errors, stderr=errors, stdin=subprocess.PIPE
            )

    async def do(self, what: str, **more: Any) -> None:
        """A line for its standard input; return when the program says that it has done it."""
        assert self.process.stdin is not None
        self._asked += 1
        self.process.stdin.write(json.dumps({"do": what, "number": self._asked, **more}).encode() + b"\n")
        self.process.stdin.flush()
        await self._wrote(lambda note: note["kind"] == "done" and note["number"] == self._asked)

    def notes(self) -> list[dict[str, Any]]:
        """Everything written so far, but for half a line."""
        if not self._notes.exists():
            return []
        whole, _, _ = self._notes.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    async def wrote(self, kind: str) -> None:
        """Return when the program has written down something of this kind."""
        await self._wrote(lambda note: note["kind"] == kind)

    async def _wrote(self, is_it: Callable[[dict[str, Any]], bool]) -> None:
        async with asyncio.timeout(END_S):
            while not any(is_it(note) for note in self.notes()):
                assert self.process.poll() is None, self.errors
                await asyncio.sleep(POLL_S)

    async def ended(self) -> list[str]:
        """Wait for its end; what is wrong with that."""
        try:
            async with asyncio.timeout(END_S):
                while self.process.poll() is None:
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return [f"{self.name} did not end"]
        return [f"{self.name} ended with {self.process.returncode}: {self.errors}"] if self.process.returncode else []

    @property
    def errors(self) -> str:
        return self._errors.read_text()[-2_000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()


def program(name: str) -> list[str]:
    """The words that run a program which uses the public client."""
    return [str(PROGRAMS / f"{name}.py")]
