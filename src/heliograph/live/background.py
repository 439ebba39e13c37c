"""The background loop: one event loop in its own thread, for the blocking clients of a process.

In:    coroutines of blocking callers, from any thread.
Out:   their results, in the caller's thread.
State: per process one loop, its thread, and what must be ended before the interpreter exits.
Not here: the blocking client (blocking.py), how machines run on a loop (loop.py).

A forked child has none of its parent's threads: it starts its own loop when it first needs one, and objects of the
parent's loop raise an error. The thread is a daemon. At exit, what is still open gets a moment to end cleanly; then the
loop is stopped and the thread ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Lock, Thread, get_ident
from typing import Any, TypeVar

from heliograph.errors import ClosedError, UsageError
from heliograph.live.loop import new_loop

EXIT_S = 5.0  # time for open clients to flush and say goodbye when the interpreter exits

Ending = Callable[[], Coroutine[Any, Any, None]]
_T = TypeVar("_T")


class BackgroundLoop:
    """An event loop in a thread. It belongs to the process that made it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = new_loop()
        self._endings: dict[object, Ending] = {}
        self._thread = Thread(target=self._loop.run_forever, name="heliograph", daemon=True)
        self._thread.start()

    def check(self, what: str) -> None:
        """UsageError if ``what`` must not block here: in another process, or in the loop's own thread."""
        if self._process != os.getpid():
            raise UsageError(
                f"{what} belongs to process {self._process}, which forked this one; "
                "call connect_blocking() again in this process"
            )
        if self._thread.ident == get_ident():
            raise UsageError(f"{what} was called from on_note or on_refused, whose thread must not wait for it")

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and wait for its result. An interrupt (Ctrl-C) cancels it."""
        if self._loop.is_closed():
            work.close()
            raise ClosedError("the interpreter is exiting")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end_at_exit(self, what: object, ending: Ending) -> None:
        """Run this before the interpreter exits, unless ``what`` has ended by then."""
        self._endings[what] = ending

    def has_ended(self, what: object) -> None:
        """``what`` has ended: it needs nothing at exit."""
        self._endings.pop(what, None)

    def stop(self) -> None:
        """End what is open, the loop and its thread."""
        if self._process != os.getpid() or self._loop.is_closed():
            return
        with suppress(Exception):  # no caller is left to report it to
            self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(EXIT_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        endings = [ending() for ending in self._endings.values()]
        self._endings.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_S):
                await asyncio.gather(*endings, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class _OfThisProcess:
    """The loop of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: BackgroundLoop | None = None
        self._parents: list[BackgroundLoop] = []  # never ended, as that could affect what the parent still uses

    def loop(self) -> BackgroundLoop:
        with self._lock:
            if self._loop is None:
                self._loop = BackgroundLoop()
            return self._loop

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.stop()

    def after_fork(self) -> None:
        """In the child: start afresh. The lock may be held by a thread that does not exist here."""
        self._lock = Lock()
        if self._loop is not None:
            self._parents.append(self._loop)
            self._loop = None


_here = _OfThisProcess()
atexit.register(_here.stop)
os.register_at_fork(after_in_child=_here.after_fork)


def background_loop() -> BackgroundLoop:
    """The loop of this process; started when it is first needed."""
    return _here.loop()
