"""Subscriptions of an asyncio program: async iterators over inboxes, some with a callback.

In:    Subscribe commands; outcomes and changed inboxes of the session, passed on by the client.
Out:   publications; Subscribe, Unsubscribe and Taken commands.
State: open subscriptions by number; per subscription its waiting readers and the task of its callback.
Not here: the queue itself (client/inbox.py), subscribing at the broker (client/session.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from heliograph.client import commands
from heliograph.client.commands import Outcome, Request
from heliograph.client.inbox import Inbox
from heliograph.client.session import Session
from heliograph.client.stored.inbox import ReaderInbox
from heliograph.client.subscriptions import DIRECTED
from heliograph.errors import ClosedError, UsageError
from heliograph.live.calls import Calls
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy

SubscribeCommand = commands.Subscribe | commands.ReadStores
"""The command of a subscription."""
Callback = Callable[[Publication], Awaitable[Any] | Any]


class Incoming:
    """Publications as they arrive: ``async for publication in incoming``. It ends when nothing more will come."""

    def __init__(self, calls: Calls, inbox: Inbox) -> None:
        self._calls = calls
        self._inbox = inbox
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> int:
        """How many publications have arrived and were not read yet."""
        return len(self._inbox)

    @property
    def lost(self) -> int:
        """How many were dropped here because the program did not read them in time."""
        return self._inbox.lost

    @property
    def is_closed(self) -> bool:
        """True if nothing more will come; what has arrived can still be read."""
        return self._inbox.ended

    async def next(self, timeout: float | None = None) -> Publication:
        """The next publication. TimeoutError if none comes in time (seconds), ClosedError if none ever will."""
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except StopAsyncIteration:
            raise ClosedError("the subscription was closed") from None

    async def next_batch(self, most: int | None = None, timeout: float | None = None) -> list[Publication]:
        """What has arrived: at least one publication, at most ``most``. Errors are those of ``next``."""
        try:
            async with asyncio.timeout(timeout):
                return await self._take_some(most)
        except StopAsyncIteration:
            raise ClosedError("the subscription was closed") from None

    async def batches(self, most: int | None = None) -> AsyncIterator[list[Publication]]:
        """Lists of what has arrived, each at most ``most`` long, for programs that work on many at once."""
        while True:
            try:
                publications = await self._take_some(most)
            except StopAsyncIteration:
                return
            yield publications

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Publication:
        inbox = self._inbox
        while True:
            publication = inbox.take()
            if inbox.pressing:
                self._took()
            if publication is not None:
                return publication
            await self._wait()

    async def _take_some(self, most: int | None) -> list[Publication]:
        if most is not None and most < 1:
            raise UsageError(f"a batch of at most {most} publications")
        while True:
            publications = self._inbox.take_some(most)
            self._took()
            if publications:
                return publications
            await self._wait()

    def _took(self) -> None:
        if self._inbox.pressing and not self._inbox.ended:
            stored = isinstance(self._inbox, ReaderInbox)
            number = self._inbox.number
            self._calls.tell(commands.TakenStored(number) if stored else commands.Taken(number))

    async def _wait(self) -> None:
        """Wait until something arrives; StopAsyncIteration, or the reason of the end, if nothing will."""
        if self._inbox.ended:
            raise self._inbox.error or StopAsyncIteration
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:  # cancelled
                self._waiters.remove(waiter)

    def _fail(self, error: ClosedError) -> None:
        self._inbox.end(error)
        self._wake()

    def _wake(self) -> None:
        """Something arrived, or it ended."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Subscription(Incoming):
    """The publications of one topic filter. It ends when the subscription or its client is closed."""

    def __init__(self, calls: Calls, command: SubscribeCommand, inbox: Inbox) -> None:
        super().__init__(calls, inbox)
        self.filter = command.filter
        self.policy = command.policy if isinstance(command, commands.Subscribe) else Policy.HOLD
        self.group = command.group if isinstance(command, commands.Subscribe) else ""
        self.durable = command.name if isinstance(command, commands.ReadStores) else ""
        self.number = inbox.number
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        more = f", durable {self.durable!r}" if self.durable else f", group {self.group!r}" if self.group else ""
        state = "closed" if self.is_closed else "open"
        return f"<Subscription {self.filter!r}{more}, {state}, {self.waiting} waiting, {self.lost} lost>"

    @property
    def position(self) -> dict[str, int]:
        """By store, the position after the last publication that the program has taken.

        Saved with the program's results, it lets the program resume exactly there: ``subscribe(…, position=…)``. Empty
        for a subscription that no store serves.
        """
        return dict(self._inbox.taken) if isinstance(self._inbox, ReaderInbox) else {}

    async def acknowledge(self, publication: Publication, *, cumulative: bool = False) -> None:
        """Acknowledge this publication of a durable subscription, or everything of its store up to it.

        Only with ``acknowledge="manual"``; otherwise what was taken is acknowledged when the program asks for more.
        """
        store, position = publication.store, publication.position
        if not self.durable or store is None or position is None:
            raise UsageError("only publications of a durable subscription are acknowledged")
        self._calls.tell(commands.Acknowledge(self.number, store, position, cumulative))

    async def close(self) -> None:
        """Unsubscribe. What has arrived can still be read; then the iteration ends.

        A durable subscription keeps its place in the stores, and what was taken is acknowledged.
        """
        await self._close(undone=False)

    async def _close(self, undone: bool) -> None:
        if not self._inbox.ended:
            if isinstance(self._inbox, ReaderInbox):
                await self._calls.request(lambda request: commands.EndReading(request, self.number, undone))
            else:
                await self._calls.request(lambda request: commands.Unsubscribe(request, self.number))
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error, what was taken last is not acknowledged."""
        await self._close(undone=kind is not None)

    def _start(self, callback: Callback) -> asyncio.Task[None]:
        self._task = asyncio.get_running_loop().create_task(self._call(callback), name=f"subscription {self.filter}")
        return self._task

    async def _call(self, callback: Callback) -> None:
        """Hand publications to the callback one by one. Errors of the callback do not end the subscription."""
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
        except Exception as error:  # the subscription itself failed, and nothing else would report that
            loop.call_exception_handler({"message": f"subscription {self.filter!r} ended", "exception": error})


def not_awaited(call: str, what: str, name: str) -> str:
    """What somebody should read who forgot to await."""
    return f"this is not a {what} yet, so it has no {name!r}: write `{what} = await {call}`, or use `async with`"


class Subscribing:
    """What ``client.subscribe(…)`` returns: await it, use it with ``async with``, or iterate over it."""

    def __init__(self, subscribe: Callable[[], Awaitable[Subscription]]) -> None:
        self._subscribe = subscribe
        self._subscription: Subscription | None = None

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self._subscribe().__await__()

    if not TYPE_CHECKING:  # for type checkers it has no such attributes, which is what they should say

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(not_awaited("client.subscribe(…)", "subscription", name))

    async def __aiter__(self) -> AsyncIterator[Publication]:
        """Subscribe, and iterate until the loop ends: ``async for publication in client.subscribe("sensors/#")``."""
        async with self as subscription:
            async for publication in subscription:
                yield publication

    async def __aenter__(self) -> Subscription:
        self._subscription = await self._subscribe()
        return self._subscription

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._subscription is not None
        await self._subscription.__aexit__(kind, error, trace)


class OpenSubscriptions:
    """The subscriptions of one client."""

    def __init__(self, session: Session, calls: Calls) -> None:
        self._session = session
        self._calls = calls
        self._subscribing: dict[Request, SubscribeCommand] = {}
        self._by_number: dict[int, Incoming] = {}
        self._callbacks: set[asyncio.Task[None]] = set()  # tasks of callbacks, while they run

    async def subscribe(self, command: SubscribeCommand, callback: Callback | None) -> Subscription:
        """Wait until a subscription is in force."""
        if callback is not None and not callable(callback):
            raise UsageError(f"callback = {callback!r}: give a function")
        self._subscribing[command.request] = command  # stays if we are cancelled: see ``begin``
        subscription: Subscription = await self._calls.wait(command, command.request)
        if callback is not None:
            task = subscription._start(callback)
            self._callbacks.add(task)
            task.add_done_callback(self._callbacks.discard)
        return subscription

    def begin(self, outcome: Outcome) -> Outcome:
        """The outcome for the program: if it awaited a subscription, a Subscription instead of the number."""
        command = self._subscribing.pop(outcome.request, None)
        if command is None or outcome.error is not None:
            return outcome
        if not self._calls.is_awaited(outcome.request):  # cancelled while it waited: nothing would ever read it
            end = commands.EndReading if isinstance(command, commands.ReadStores) else commands.Unsubscribe
            self._calls.tell(end(0, outcome.value))
            return outcome
        try:
            inbox = self._session.inbox(outcome.value)
        except UsageError:  # confirmed and ended in the same read
            error = self._session.error or ClosedError("the subscription was closed")
            return Outcome(outcome.request, error=error)
        subscription = self._by_number[inbox.number] = Subscription(self._calls, command, inbox)
        return Outcome(outcome.request, subscription)

    def directed(self) -> Incoming:
        """Publications that name the client's inbox as a destination."""
        incoming = self._by_number.get(DIRECTED)
        if incoming is None:
            incoming = Incoming(self._calls, self._session.directed)
            if not incoming.is_closed:
                self._by_number[DIRECTED] = incoming
        return incoming

    def wake(self, inbox: Inbox) -> None:
        """Something arrived in this inbox, or it ended."""
        incoming = self._by_number.get(inbox.number)
        if incoming is not None:
            incoming._wake()
            if inbox.ended:
                del self._by_number[inbox.number]

    def fail(self, error: BaseException) -> None:
        """The session has crashed: nothing more will come."""
        for incoming in self._by_number.values():
            incoming._fail(ClosedError(f"the client failed: {error!r}"))

    def cancel_callbacks(self) -> None:
        """End all callbacks now, except the one that is calling."""
        for task in self._other_callbacks():
            task.cancel()

    async def finish_callbacks(self) -> None:
        """Wait until every callback, except the one that is calling, has handled what has arrived."""
        tasks = self._other_callbacks()
        if tasks:
            await asyncio.wait(tasks)

    def _other_callbacks(self) -> list[asyncio.Task[None]]:
        current = asyncio.current_task()
        return [task for task in self._callbacks if task is not current]
