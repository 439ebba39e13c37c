"""The demo's broker: a separate process, started by the same command that a user types.

In:    a folder for its settings.
Out:   its address and its log lines.
State: the process; it ends with the demo, whatever happens.
Not here: how it is used (scenes.py).
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heliograph.errors import HeliographError
from heliograph.live.runtime import node_environment

START_S_MAX = 20.0  # a loaded machine may take seconds to start Python
STOP_S_MAX = 10.0

SETTINGS = """\
[[access.rules]]
effect = "deny"
verbs = ["publish"]
topics = ["plant/commands/#"]
"""


@dataclass(slots=True)
class BrokerProcess:
    """A running broker."""

    process: asyncio.subprocess.Process
    port: int = 0
    ready: str = ""  # "ready in 180 ms"
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"heliograph://127.0.0.1:{self.port}"

    async def wait_until_ready(self) -> None:
        """Read its log until it reports that it is ready."""
        try:
            async with asyncio.timeout(START_S_MAX):
                while not self.ready:
                    await self._read_line()
        except TimeoutError:
            raise HeliographError(f"the broker was not ready within {START_S_MAX:.0f} s") from None

    async def follow_log(self) -> None:
        """Keep reading, so that a full pipe never stops the broker."""
        assert self.process.stderr is not None
        while not self.process.stderr.at_eof():
            await self._read_line()

    async def _read_line(self) -> None:
        assert self.process.stderr is not None
        line = await self.process.stderr.readline()
        if not line:
            if not self.ready:
                raise HeliographError("the broker ended before it was ready; `heliograph broker run` shows why")
            return
        try:
            entry = json.loads(line)
        except ValueError:
            raise HeliographError(f"the broker said: {line.decode(errors='replace').strip()}") from None
        self.lines.append(entry)
        text = str(entry.get("text", ""))
        if opened := re.match(r"open on 127\.0\.0\.1:(\d+)", text):
            self.port = int(opened[1])
        elif text.startswith("ready"):
            self.ready = text


@asynccontextmanager
async def broker_process(folder: Path) -> AsyncIterator[BrokerProcess]:
    """A broker on a free port of this machine. It is isolated from the user's own settings."""
    settings = folder / "heliograph.toml"
    settings.write_text(SETTINGS)
    environment = node_environment(folder)
    arguments = ["broker", "run", "--config", str(settings), "--listen", "127.0.0.1:0", "--log-format", "json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "heliograph.cli.main", *arguments, env=environment, stderr=asyncio.subprocess.PIPE
    )
    broker = BrokerProcess(process)
    following: asyncio.Task[None] | None = None
    try:
        await broker.wait_until_ready()
        following = asyncio.create_task(broker.follow_log())
        yield broker
    finally:
        await _end(process)
        if following is not None:
            await following


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
