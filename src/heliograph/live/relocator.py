"""The relocator: searches again while a client is connected, and moves it to a better broker.

In:    the session's health, checked every second; searches.
Out:   orders to the session to move.
State: the result of the last search; one task.
Not here: when to search and whether to move (client/relocation_policy.py), moving (client/session.py).
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Any

from heliograph.client.commands import Move
from heliograph.client.relocation_policy import RelocationPolicy
from heliograph.client.session import Session
from heliograph.errors import HeliographError
from heliograph.live.client_search import ClientSearch, SearchOutcome
from heliograph.live.clock import now_ns
from heliograph.live.loop import Driver

LOOK_S = 1.0


class Relocator:
    """Relocates one session."""

    def __init__(
        self, driver: Driver, machine: str, session: Session, search: ClientSearch, found: SearchOutcome
    ) -> None:
        self._driver = driver
        self._machine = machine
        self._session = session
        self._search = search
        self._found = found
        self._policy = RelocationPolicy(search.options.look_s, secrets.randbits(64), now_ns())
        self._searches = 1
        self._moves = 0
        self._task: asyncio.Task[None] | None = None

    def report(self) -> dict[str, Any]:
        """How the broker was found, as plain values."""
        more = {"searches": self._searches, "moves": self._moves, "why": self._policy.why or "to connect"}
        return self._found.result.as_dict() | more

    def start(self) -> None:
        """Begin, unless the program switched relocation off."""
        if self._search.options.follow:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while not self._session.ended:
            await asyncio.sleep(LOOK_S)
            if self._policy.observe(self._session.health, now_ns()):
                with suppress(HeliographError, OSError):  # no broker found, or no socket available: try again later
                    await self.look()

    async def look(self) -> bool:
        """Search once; True if the session was told to move."""
        self._searches += 1
        found = await self._search.run()
        if self._session.ended or not self._policy.choose(found.result, self._session.health, now_ns()):
            return False
        self._found = found
        self._moves += 1
        best = found.result.findings[0].urls if found.result.findings else ()
        nearest = tuple(target for target in found.targets if str(target) in best)
        self._driver.tell(self._machine, Move(nearest, found.targets))
        return True
