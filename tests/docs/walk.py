"""Walks through a page as a reader does: its commands in terminals, its programs and its files, in its order.

In:    a page, a folder, names that the reader fills in.
Out:   terminals with what they printed; an AssertionError for a command that fails, or a block that nobody ran.
State: a namespace in which every port is free, and the processes in it, detached ones too; all gone with the block.
Not here: which pages are walked, and what they must show (test_pages_walked.py).

A command that lasts (a broker, a subscriber) keeps its terminal until the walk ends; the others must end well. A
program runs as it stands; a fragment with ``await`` at its top level runs inside a function, after a prelude.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.architecture.house import ROOT

PATIENCE_S = 90
POLL_S = 0.05
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
LASTS = re.compile(
    r"heliograph (broker|bdn|tdn|store) run|heliograph reply |--watch|heliograph resource agent"
    r"|heliograph subscribe (?!.*--count)|heliograph network up (?!.*--detach)"
)
IN_FOLDER = ["sh", "-c", 'cd "$0" && exec "$@"']  # entered inside: outside, it would be another mount
APART = ["unshare", "-rnpfm", "--mount-proc", "--kill-child"]
READY = {"run": r"ready in|ready:|directory .* open|open on", "up": "Ctrl-C", "other": r"\S"}


def why_not() -> str:
    """Why there can be no namespace on this machine; empty if there can."""
    missing = [name for name in ("unshare", "nsenter", "ip", "bash") if shutil.which(name) is None]
    if missing:
        return f"the command {missing[0]} is missing"
    tried = subprocess.run([*APART, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass
class Terminal:
    """One command and everything that it printed."""

    line: str
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text("utf-8", "replace")

    def shows(self, pattern: str) -> re.Match[str]:
        """Wait until it printed this."""
        until = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.text)) is None:
            ended = self.process.poll()
            assert ended is None or re.search(pattern, self.text), f"$ {self.line}\nended ({ended}): {self.text}"
            assert time.monotonic() < until, f"$ {self.line}\nnever showed {pattern!r}: {self.text}"
            time.sleep(POLL_S)
        return found

    def interrupt(self) -> None:
        """Ctrl-C, as often as a reader would press it; it must end."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            self.process.wait(PATIENCE_S)
        assert "Traceback" not in self.text, f"$ {self.line}\n{self.text}"


@dataclass
class Walk:
    """One reader, with a folder and as many terminals as the page asks for."""

    folder: Path
    inside: list[str]  # the words that enter the namespace
    names: dict[str, str] = field(default_factory=dict)  # what the reader writes instead of the page's names
    terminals: list[Terminal] = field(default_factory=list)

    def page(self, name: str) -> Page:
        text = (ROOT / name).read_text("utf-8")
        return Page(self, name, [(found[1], found[2]) for found in BLOCK.finditer(text)])

    def start(self, line: str) -> Terminal:
        """Run a line in a terminal."""
        for name, written in self.names.items():
            line = line.replace(name, written)
        shell = f'heliograph() {{ "{sys.executable}" -m heliograph.cli.main "$@"; }}\n{line}\n'
        return self._start(line, ["bash", "-c", shell])

    def command(self, line: str) -> Terminal:
        """Run a line in a terminal: to its end, or until it is ready if it lasts."""
        terminal = self.start(line)
        if LASTS.search(line):
            kind = next((kind for kind in ("run", "up") if re.search(rf"heliograph \w+ {kind}\b", line)), "other")
            terminal.shows(READY[kind])
            return terminal
        self.ended(terminal)
        return terminal

    def ended(self, terminal: Terminal) -> None:
        """It ends by itself, and well."""
        code = terminal.process.wait(PATIENCE_S)
        assert code == 0, f"$ {terminal.line}\nexit {code}: {terminal.text}"
        assert "Traceback" not in terminal.text, f"$ {terminal.line}\n{terminal.text}"

    def program(self, text: str, prelude: str = "") -> Terminal:
        """Start a program, or a fragment of one after its prelude."""
        for name, written in self.names.items():
            text = text.replace(name, written)
        if re.search(r"^(await|async|\w+ = await|    await)", text, re.MULTILINE) and "asyncio.run(" not in text:
            body = textwrap.indent(f"{prelude}\n{text}", "    ")
            text = f"import asyncio\nimport heliograph\n\n\nasync def main():\n{body}\n\nasyncio.run(main())\n"
        file = self.folder / f"program-{len(self.terminals)}.py"
        file.write_text(text, "utf-8")
        return self._start(file.name, [sys.executable, "-u", file.name])

    def close(self) -> None:
        """Ctrl-C in every terminal that is left, the last one first."""
        for terminal in reversed(self.terminals):
            terminal.interrupt()

    def kill(self) -> None:
        """What a failed walk leaves; detached processes end with the namespace."""
        for terminal in self.terminals:
            if terminal.process.poll() is None:
                os.killpg(terminal.process.pid, signal.SIGKILL)
                terminal.process.wait(PATIENCE_S)

    def _start(self, line: str, words: list[str]) -> Terminal:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELIOGRAPH_", "XDG_"))}
        environment = kept | {"HOME": str(self.folder), "PYTHONUNBUFFERED": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        output = self.folder / f"terminal-{len(self.terminals)}.txt"
        with output.open("wb") as writes:
            process = subprocess.Popen(
                [*self.inside, *words],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writes,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.terminals.append(Terminal(line, process, output))
        return self.terminals[-1]


@dataclass
class Page:
    """The blocks of a page that nobody ran yet."""

    walk: Walk
    name: str
    blocks: list[tuple[str, str]]

    def next(self, prelude: str = "") -> list[Terminal]:
        """Run the next block; its terminals, one for each command or program."""
        kind, text = self.blocks.pop(0)
        if kind == "python":
            return [self.walk.program(text, prelude)]
        assert kind in ("console", "sh"), f"{self.name}: a block of {kind} here; take() it"
        joined = text.replace("\\\n", " ")
        lines = [line for line in joined.splitlines() if kind == "sh" or line.startswith("$ ")]
        return [self.walk.command(line.removeprefix("$ ")) for line in lines if line.strip()]

    def take(self, kind: str) -> str:
        """The next block as text: a file that the reader writes."""
        found, text = self.blocks.pop(0)
        assert found == kind, f"{self.name}: {found} where {kind} was due"
        return text

    def done(self) -> None:
        """No block was left out."""
        assert not self.blocks, f"{self.name}: nobody ran {self.blocks}"


@contextmanager
def walking(folder: Path, **names: str) -> Iterator[Walk]:
    """A reader with a machine of their own: no other process uses its ports."""
    holder = subprocess.Popen(
        [*APART, "sh", "-c", "ip link set lo up && echo up && exec sleep 1000"], stdout=subprocess.PIPE
    )
    walk = Walk(folder, [], dict(names))
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        first = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().strip()
        walk.inside = [
            "nsenter",
            "--preserve-credentials",
            "-U",
            "-n",
            "-p",
            "-m",
            "-t",
            first,
            *IN_FOLDER,
            str(folder),
        ]
        yield walk
        walk.close()
    finally:
        walk.kill()
        holder.kill()
        holder.communicate()
