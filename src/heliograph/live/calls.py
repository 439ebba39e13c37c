"""Calls: a program's requests to its session, as futures.

In:    commands; the session's outcomes.
Out:   commands told to the machine; values and errors for the callers that wait.
State: open requests.
Not here: what a command does (client/session.py), subscriptions as objects of the program (live/subscription.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from heliograph.client.commands import Outcome, Request
from heliograph.errors import ClosedError
from heliograph.live.loop import Runner


class Calls:
    """Open requests of one client."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._open: dict[Request, asyncio.Future[Any]] = {}
        self._watching: list[asyncio.Future[None]] = []
        self._next_request = 1
        self._crash: BaseException | None = None

    @property
    def failure(self) -> ClosedError | None:
        """Set if the session has crashed."""
        return None if self._crash is None else ClosedError(f"the client failed: {self._crash!r}")

    def tell(self, command: Any) -> None:
        """Give the session a command. UsageError if it makes no sense."""
        self._runner.tell(command)

    def number(self) -> Request:
        """A request number that was not used before."""
        request = self._next_request
        self._next_request += 1
        return request

    async def request(self, make: Callable[[Request], Any]) -> Any:
        """Give the session a command, made for a new request number, and wait for its outcome."""
        request = self.number()
        return await self.wait(make(request), request)

    async def wait(self, command: Any, request: Request) -> Any:
        """Give the session a command, and wait for the outcome of its request."""
        if self._crash is not None:
            raise ClosedError("the client failed") from self._crash
        self._open[request] = future = self._loop.create_future()
        try:
            self.tell(command)
            return await future
        finally:
            self._open.pop(request, None)

    def begin(self, command: Any, request: Request) -> asyncio.Future[Any]:
        """Give the session a command, and return a future for its outcome."""
        if self._crash is not None:
            raise ClosedError("the client failed") from self._crash
        self._open[request] = future = self._loop.create_future()
        future.add_done_callback(lambda _: self._open.pop(request, None))
        try:
            self.tell(command)
        except BaseException:
            future.cancel()
            raise
        return future

    async def changed(self) -> None:
        """Wait until the session has done something."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._watching.append(future)
        await future

    def has_changed(self) -> None:
        """The session has done something."""
        watching, self._watching = self._watching, []
        for future in watching:
            if not future.done():
                future.set_result(None)

    def is_awaited(self, request: Request) -> bool:
        """False if the caller was cancelled while it waited."""
        future = self._open.get(request)
        return future is not None and not future.done()

    def settle(self, outcome: Outcome) -> None:
        """Give an outcome to the caller that waits for it."""
        future = self._open.get(outcome.request)
        if future is None or future.done():
            return
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value)

    def fail(self, error: BaseException) -> None:
        """The session has crashed: no more outcomes will come."""
        self._crash = error
        self.has_changed()
        for future in self._open.values():
            if not future.done():
                future.set_exception(ClosedError(f"the client failed: {error!r}"))
