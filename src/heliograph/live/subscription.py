"""What comes to an asyncio program: an async iterator over an inbox; and a subscription, which can have a callback.

In:    news of the session's inbox, by way of the client.
Out:   publications; Taken commands when a full inbox has room again.
State: who waits for the next publication; the task of a callback.
Not here: the queue itself (client/inbox.py), subscribing at the broker (client/session.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from heliograph.client import commands
from heliograph.client.inbox import Inbox
from heliograph.errors import ClosedError
from heliograph.model.publication import Publication

if TYPE_CHECKING:
    from heliograph.live.client import Client

Callback = Callable[[Publication], Awaitable[Any] | Any]


class Incoming:
    """What comes: ``async for publication in incoming``. It ends when nothing will come any more."""

    def __init__(self, client: Client, inbox: Inbox) -> None:
        self._client = client
        self._inbox = inbox
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> int:
        """How many publications have come and were not read yet."""
        return len(self._inbox)

    @property
    def lost(self) -> int:
        """How many were dropped here because nobody read them in time."""
        return self._inbox.lost

    @property
    def is_closed(self) -> bool:
        """True if nothing will come any more; what has come can still be read."""
        return self._inbox.ended

    async def next(self, timeout: float | None = None) -> Publication:
        """The next publication. TimeoutError if none comes in time (seconds), ClosedError if none ever will."""
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except StopAsyncIteration:
            raise ClosedError("the subscription was closed") from None

    async def batches(self) -> AsyncIterator[list[Publication]]:
        """Whatever has come, as lists, for programs that work on many at once."""
        inbox = self._inbox
        while True:
            publications = inbox.take_all()
            if publications:
                self._took()
                yield publications
            elif inbox.ended:
                if inbox.error is not None:
                    raise inbox.error
                return
            else:
                await self._wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Publication:
        inbox = self._inbox
        while True:
            publication = inbox.take()
            if publication is not None:
                if inbox.pressing:
                    self._took()
                return publication
            if inbox.ended:
                if inbox.error is not None:
                    raise inbox.error
                raise StopAsyncIteration
            await self._wait()

    def _took(self) -> None:
        if self._inbox.pressing:
            self._client._tell(commands.Taken(self._inbox.number))

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:  # cancelled
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        """Something came, or it ended."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Subscription(Incoming):
    """What comes for one topic filter. It ends when the subscription or its client is closed."""

    def __init__(self, client: Client, command: commands.Subscribe, inbox: Inbox) -> None:
        super().__init__(client, inbox)
        self.filter = command.filter
        self.policy = command.policy
        self.group = command.group
        self.number = inbox.number
        self._task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Unsubscribe. What has come can still be read; then the iteration ends."""
        if not self._inbox.ended:
            await self._client._unsubscribe(self)
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _start(self, callback: Callback) -> asyncio.Task[None]:
        self._task = asyncio.get_running_loop().create_task(self._call(callback), name=f"subscription {self.filter}")
        return self._task

    async def _call(self, callback: Callback) -> None:
        """Hand each publication to the callback, one after the other. Its mistakes do not end the subscription."""
        loop = asyncio.get_running_loop()
        try:
            async for publication in self:
                try:
                    result = callback(publication)
                    if isawaitable(result):
                        await result
                except Exception as error:
                    message = f"the callback of subscription {self.filter!r} failed on {publication!r}"
                    loop.call_exception_handler({"message": message, "exception": error})
        except Exception as error:  # the subscription itself ended badly, and nobody else would hear of it
            loop.call_exception_handler({"message": f"subscription {self.filter!r} ended", "exception": error})


class Subscribing:
    """What ``client.subscribe(…)`` returns: await it, or use it with ``async with``."""

    def __init__(self, subscribe: Callable[[], Awaitable[Subscription]]) -> None:
        self._subscribe = subscribe
        self._subscription: Subscription | None = None

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self._subscribe().__await__()

    async def __aenter__(self) -> Subscription:
        self._subscription = await self._subscribe()
        return self._subscription

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._subscription is not None
        await self._subscription.close()
