"""Both faces of the client as one: the same live test runs against the asyncio client and the blocking one.

In:    ``face.connect(…)``, with the arguments of ``heliograph.connect``.
Out:   a client for asyncio: the real one, or the blocking one with each of its calls in a thread.
State: none.
Not here: what only one of them has (test_blocking.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import heliograph


class InThreads:
    """An object of the blocking client. Its methods are awaited, as those of the asyncio client are."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._blocking, name)
        if not callable(value) or name == "report":
            return value
        if name in ("subscribe", "replay"):
            return lambda *arguments, **options: Pending(lambda: value(*arguments, **options))
        return lambda *arguments, **options: asyncio.to_thread(value, *arguments, **options)

    async def batches(self, most: int | None = None) -> AsyncIterator[Any]:
        batches = self._blocking.batches(most)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield batch

    def __aiter__(self) -> InThreads:
        return self

    async def __anext__(self) -> Any:
        publication = await asyncio.to_thread(next, self._blocking, None)
        if publication is None:
            raise StopAsyncIteration
        return publication

    async def __aenter__(self) -> InThreads:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self._blocking.__exit__, *error)


class Pending:
    """What is awaited, or entered with ``async with``."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._made: InThreads | None = None

    def __await__(self) -> Generator[Any, None, InThreads]:
        return self._make().__await__()

    async def _make(self) -> InThreads:
        return InThreads(await asyncio.to_thread(self._call))

    async def __aenter__(self) -> InThreads:
        self._made = await self._make()
        return self._made

    async def __aexit__(self, *error: Any) -> None:
        assert self._made is not None
        await self._made.__aexit__(*error)


class Face:
    """One of the two."""

    def __init__(self, name: str) -> None:
        self.name = name

    def connect(self, *arguments: Any, **options: Any) -> Any:
        if self.name == "asyncio":
            return heliograph.connect(*arguments, **options)
        return Pending(lambda: heliograph.connect_blocking(*arguments, **options))


FACES = [Face("asyncio"), Face("blocking")]
