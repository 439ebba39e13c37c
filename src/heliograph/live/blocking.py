"""The blocking interface of a client, for programs without an event loop: ``heliograph.connect_blocking(…)``.

In:    calls of a program, from any of its threads.
Out:   the same calls of the asyncio client, made in the background loop; their results and errors.
State: per subscription, publications that were fetched and not read yet, and the thread of its callback.
Not here: the asyncio client (client.py, subscription.py), the loop and its thread (background.py).

Every method is made from the method of the same name of the asyncio client, so options and errors are the same. Each
callback gets its own thread; of the program, only ``on_note`` and ``on_refused`` run in the loop's thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from inspect import iscoroutinefunction, signature
from time import monotonic
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from heliograph.discovery.resources.watching import ResourceChange
from heliograph.errors import ClosedError, UsageError
from heliograph.live.background import BackgroundLoop, background_loop
from heliograph.live.client import Client
from heliograph.live.connect import Connecting, connect
from heliograph.live.resources import ResourceRegistration, ResourceWatch
from heliograph.live.stored import Batch
from heliograph.live.subscription import Callback, Incoming, Subscription
from heliograph.model.publication import Publication, StoredRun

FETCHED_MAX = 256  # publications that are fetched for the reading thread at a time
CALLBACK_S = 1.0  # how long closing a client waits for a running callback

P = ParamSpec("P")
T = TypeVar("T")
I = TypeVar("I", bound=Incoming)  # noqa: E741
Method = Callable[Concatenate[Any, P], T]


def _blocking(method: Method[P, Coroutine[Any, Any, T]]) -> Method[P, T]:
    """The method of the wrapped object, run in the background loop."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        self._background.check(f"this {type(self).__name__}")
        result: T = self._background.run(method(self._asyncio, *arguments, **options))
        return result

    return call


def _iterating(method: Method[P, AsyncIterator[T]]) -> Method[P, Iterator[T]]:
    """The same for a method that yields: the loop runs it while the caller waits for the next result."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        self._background.check(f"this {type(self).__name__}")
        source = cast(AsyncGenerator[T, None], method(self._asyncio, *arguments, **options))
        try:
            while (found := self._background.run(_step(source))) is not None:
                yield found[0]
        finally:
            self._background.run(_await(source.aclose()))

    return call


def _in_loop(method: Method[P, T]) -> Method[P, T]:
    """The same for a method that does not wait; it runs in the loop, as the client requires."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        self._background.check(f"this {type(self).__name__}")

        async def work() -> T:
            return method(self._asyncio, *arguments, **options)

        result: T = self._background.run(work())
        return result

    return call


def _like(model: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function the parameters of the asyncio client's function, but its own docstring and result."""

    def dress(function: Callable[..., T]) -> Callable[P, T]:
        own = signature(function).return_annotation
        shown = signature(model).replace(return_annotation=own)
        setattr(function, "__signature__", shown)  # noqa: B010 what ``help`` and editors show
        return function

    return dress


def _with_options_of(model: Method[P, Any]) -> Callable[[Callable[..., T]], Method[P, T]]:
    """The same for a method."""
    return _like(model)


class BlockingIncoming(Generic[I]):
    """Publications as they arrive: ``for publication in incoming``. Several threads may share the work."""

    def __init__(self, background: BackgroundLoop, incoming: I) -> None:
        self._background = background
        self._asyncio = incoming
        self._fetched: deque[Publication] = deque()
        self._fetching = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many publications have arrived and were not read yet."""
        return len(self._fetched) + self._asyncio.waiting

    @property
    def lost(self) -> int:
        """How many were dropped here because the program did not read them in time."""
        return self._asyncio.lost

    @property
    def is_closed(self) -> bool:
        """True if nothing more will come; what has arrived can still be read."""
        return self._asyncio.is_closed

    @_with_options_of(Incoming.next)
    def next(self, timeout: float | None = None) -> Publication:
        """The next publication. TimeoutError if none comes in time (seconds), ClosedError if none ever will."""
        publication = self._take(timeout)
        if publication is None:
            raise ClosedError("the subscription was closed")
        return publication

    @_with_options_of(Incoming.next_batch)
    def next_batch(self, most: int | None = None, timeout: float | None = None) -> list[Publication]:
        """What has arrived: at least one publication, at most ``most``. Errors are those of ``next``."""
        batch = self._take_some(most, timeout)
        if not batch:
            raise ClosedError("the subscription was closed")
        return batch

    @_with_options_of(Incoming.batches)
    def batches(self, most: int | None = None) -> Iterator[list[Publication]]:
        """Lists of what has arrived, each at most ``most`` long, for programs that work on many at once."""
        while batch := self._take_some(most, None):
            yield batch

    def __repr__(self) -> str:
        return f"<blocking {self._asyncio!r}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Publication:
        publication = self._take(None)
        if publication is None:
            raise StopIteration
        return publication

    def _take_some(self, most: int | None, timeout: float | None) -> list[Publication]:
        """What has arrived; an empty list if it has ended."""
        if most is not None and most < 1:
            raise UsageError(f"a batch of at most {most} publications")
        publication = self._take(timeout, most)
        batch = [] if publication is None else [publication]
        while batch and self._fetched and (most is None or len(batch) < most):
            try:
                batch.append(self._fetched.popleft())
            except IndexError:  # another thread was faster
                break
        return batch

    def _take(self, timeout: float | None, most: int | None = FETCHED_MAX) -> Publication | None:
        """The next publication; None if it has ended."""
        self._background.check(f"this {type(self).__name__}")
        until = None if timeout is None else monotonic() + timeout
        while True:
            try:
                return self._fetched.popleft()
            except IndexError:
                if not self._fetch(until, most):
                    return None

    def _fetch(self, until: float | None, most: int | None) -> bool:
        """One thread fetches for all; the others wait for it and share the result. False if it has ended."""
        if not self._fetching.acquire(timeout=-1 if until is None else min(_left(until), threading.TIMEOUT_MAX)):
            raise TimeoutError
        try:
            return bool(self._fetched) or self._background.run(
                self._bring(most, None if until is None else _left(until))
            )
        finally:
            self._fetching.release()

    async def _bring(self, most: int | None, timeout: float | None) -> bool:
        """Runs in the loop, so that nothing is lost if the waiting thread is interrupted."""
        try:
            async with asyncio.timeout(timeout):
                self._fetched.extend(await self._asyncio._take_some(most))
        except StopAsyncIteration:
            return False
        return True


class BlockingSubscription(BlockingIncoming[Subscription]):
    """The publications of one topic filter. It ends when the subscription or its client is closed."""

    def __init__(self, background: BackgroundLoop, subscription: Subscription) -> None:
        super().__init__(background, subscription)
        self.filter = subscription.filter
        self.policy = subscription.policy
        self.group = subscription.group
        self.durable = subscription.durable
        self.number = subscription.number
        self._thread: threading.Thread | None = None
        self._cancelled = False

    @property
    def position(self) -> dict[str, int]:
        """By store, the position after the last publication that the program has taken."""
        return self._background.run(self._position())

    async def _position(self) -> dict[str, int]:
        """Without what was fetched and not taken."""
        position = self._asyncio.position
        for publication in reversed(self._fetched):
            at = publication.before if isinstance(publication, StoredRun) else publication.position
            if publication.store is not None and at is not None:
                position[publication.store] = at
        return position

    acknowledge = _blocking(Subscription.acknowledge)

    @_with_options_of(Subscription.close)
    def close(self) -> None:
        """Unsubscribe. What has arrived can still be read; then the iteration ends.

        A durable subscription keeps its place in the stores, and what was taken is acknowledged.
        """
        self._close(undone=False)

    def _close(self, undone: bool) -> None:
        """Close it. What a durable subscription fetched and the program did not take is not acknowledged."""
        self._background.check("this subscription")
        if self.durable:
            undone = undone or bool(self._fetched)
            self._fetched.clear()
        self._background.run(self._asyncio._close(undone))
        self._finish(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error, what was taken last is not acknowledged."""
        self._close(undone=kind is not None)

    def _start(self, callback: Callback) -> None:
        self._thread = threading.Thread(
            target=self._call, args=(callback,), name=f"subscription {self.filter}", daemon=True
        )
        self._thread.start()

    def _call(self, callback: Callback) -> None:
        """Hand publications to the callback one by one. Errors of the callback do not end the subscription."""
        try:
            for publication in self:
                if self._cancelled:
                    return
                try:
                    callback(publication)
                except Exception as error:
                    _complain(error)
        except Exception as error:  # the subscription itself failed, and nothing else would report that
            _complain(error)

    def _cancel(self) -> None:
        self._cancelled = True

    def _finish(self, timeout: float | None) -> None:
        """Wait until the callback has handled what has arrived, unless the callback itself is calling."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)


class BlockingBatch:
    """A batch of publications that becomes visible in a store all at once, or not at all. Made by ``client.batch``."""

    def __init__(self, background: BackgroundLoop, batch: Batch) -> None:
        self._background = background
        self._asyncio = batch
        self.publisher = batch.publisher
        self.number = batch.number

    stage = _blocking(Batch.stage)
    commit = _blocking(Batch.commit)


class BlockingResource:
    """A registered resource. It renews its lease until it is withdrawn."""

    def __init__(self, background: BackgroundLoop, registration: ResourceRegistration) -> None:
        self._background = background
        self._asyncio = registration

    @property
    def id(self) -> str:
        """Its id."""
        return self._asyncio.id

    @property
    def secret(self) -> str:
        """The secret that later proves that it is the same resource."""
        return self._asyncio.secret

    update = _blocking(ResourceRegistration.update)
    withdraw = _blocking(ResourceRegistration.withdraw)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.withdraw()


class BlockingResourceWatch:
    """Changes of matching resources: ``for change in watch``, inside its ``with`` block."""

    def __init__(self, background: BackgroundLoop, watch: ResourceWatch) -> None:
        self._background = background
        self._asyncio = watch

    saved = _in_loop(ResourceWatch.saved)
    next = _blocking(ResourceWatch.next)
    close = _blocking(ResourceWatch.close)

    def __iter__(self) -> Iterator[ResourceChange]:
        while (
            found := self._background.run(_step(cast(AsyncGenerator[ResourceChange, None], self._asyncio)))
        ) is not None:
            yield found[0]

    def __enter__(self) -> Self:
        self._background.check("this watch")
        self._background.run(self._asyncio.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlockingClient:
    """A connection to the network that heals itself. Made by ``heliograph.connect_blocking``; safe in all threads."""

    def __init__(self, background: BackgroundLoop, client: Client) -> None:
        self._background = background
        self._asyncio = client
        self._callbacks: dict[BlockingSubscription, None] = {}
        background.end_at_exit(self, self._end)

    def __repr__(self) -> str:
        return f"<blocking {self._asyncio!r}>"

    # -- properties -----------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """True while there is a broker; without one, publications wait."""
        return self._asyncio.is_connected

    @property
    def is_closed(self) -> bool:
        """True if it was closed, or ended because no broker accepts it."""
        return self._asyncio.is_closed

    @property
    def broker(self) -> str:
        """The name of the broker that welcomed us last."""
        return self._asyncio.broker

    @property
    def address(self) -> str:
        """The address of that broker, or the one being dialled: heliograph://host:port."""
        return self._asyncio.address

    @property
    def network(self) -> str:
        """The name of the network to which that broker belongs; empty if it has none."""
        return self._asyncio.network

    @property
    def entity(self) -> str:
        """The entity under which the broker knows us."""
        return self._asyncio.entity

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that the broker grants us."""
        return self._asyncio.roles

    @property
    def inbox(self) -> str:
        """The topic to which directed publications and answers for this client go; empty without a broker."""
        return self._asyncio.inbox

    @_with_options_of(Client.report)
    def report(self, question: str = "overview") -> Any:
        """The session's report as plain values: "overview", "subscriptions", "time" or "discovery"."""
        return self._here(self._asyncio.report, question)

    # -- methods --------------------------------------------------------------------------------------------------

    publish = _blocking(Client.publish)
    publish_batch = _blocking(Client.publish_batch)
    flush = _blocking(Client.flush)
    request = _blocking(Client.request)
    reply = _blocking(Client.reply)
    ask = _blocking(Client.ask)
    stores = _blocking(Client.stores)
    forget_store = _blocking(Client.forget_store)
    logs = _blocking(Client.logs)
    measure = _blocking(Client.measure)
    durable_subscriptions = _blocking(Client.durable_subscriptions)
    drop_subscription = _blocking(Client.drop_subscription)
    release_subscription = _blocking(Client.release_subscription)
    name_proof = _in_loop(Client.name_proof)
    create_topic = _blocking(Client.create_topic)
    renew_topic = _blocking(Client.renew_topic)
    withdraw_topic = _blocking(Client.withdraw_topic)
    discover_topics = _iterating(Client.discover_topics)
    watch_topics = _iterating(Client.watch_topics)
    topic_directories = _blocking(Client.topic_directories)
    verify_topic = _in_loop(Client.verify_topic)
    grant_topic = _in_loop(Client.grant_topic)
    use_topic = _blocking(Client.use_topic)
    revoke_grants = _blocking(Client.revoke_grants)
    topic_key = _in_loop(Client.topic_key)
    give_topic_key = _blocking(Client.give_topic_key)
    await_topic_key = _blocking(Client.await_topic_key)
    open_topic = _in_loop(Client.open_topic)
    new_topic_key = _in_loop(Client.new_topic_key)
    encrypt_event = _in_loop(Client.encrypt_event)
    decrypt_event = _in_loop(Client.decrypt_event)
    discover_resources = _blocking(Client.discover_resources)

    @_with_options_of(Client.register_resource)
    def register_resource(self, where: str = "", **options: Any) -> BlockingResource:
        """Register a resource, until it is withdrawn or its ``with`` block ends."""
        self._background.check("this client")
        registration = self._background.run(self._asyncio.register_resource(where, **options))
        return BlockingResource(self._background, registration)

    @_with_options_of(Client.watch_resources)
    def watch_resources(self, where: str = "true", **options: Any) -> BlockingResourceWatch:
        """Changes of matching resources: ``with client.watch_resources("load < 1") as watch``."""
        return BlockingResourceWatch(
            self._background, self._here(partial(self._asyncio.watch_resources, where, **options))
        )

    @_with_options_of(Client.replay)
    def replay(self, filter: str = "#", **options: Any) -> BlockingSubscription:
        """Publications kept by stores, as a subscription that ends. The options are those of the asyncio client."""
        self._background.check("this client")
        replaying = self._background.run(_await(self._asyncio.replay(filter, **options)))
        return BlockingSubscription(self._background, replaying)

    @_with_options_of(Client.runs)
    def runs(self, filter: str = "#", **options: Any) -> Iterator[StoredRun]:
        """A replay as whole runs, for programs that read millions: EVENT frames as bytes, with their positions."""
        with self.replay(filter, raw=True, **options) as subscription:
            for run in subscription:
                yield cast(StoredRun, run)

    @_with_options_of(Client.batch)
    def batch(self, store: str, publisher: str, number: int, **options: Any) -> BlockingBatch:
        """Batch ``number`` under a publisher's name, in a store (its name or id). Later batches have higher numbers."""
        return BlockingBatch(self._background, self._asyncio.batch(store, publisher, number, **options))

    @_with_options_of(Client.directed)
    def directed(self) -> BlockingIncoming[Incoming]:
        """Publications that name this client's inbox as a destination: ``for publication in client.directed()``."""
        return BlockingIncoming(self._background, self._here(self._asyncio.directed))

    @_with_options_of(Client.subscribe)
    def subscribe(self, filter: str = "#", *, callback: Callback | None = None, **options: Any) -> BlockingSubscription:
        """Subscribe to a topic filter, until it is closed or its ``with`` block ends.

        The options are those of the asyncio client. A ``callback`` is a plain function; it runs in its own thread and
        may use the client.
        """
        if iscoroutinefunction(callback):
            raise UsageError("a callback of a blocking client is a plain function, not a coroutine function")
        self._background.check("this client")
        subscription = BlockingSubscription(
            self._background, self._background.run(_await(self._asyncio.subscribe(filter, **options)))
        )
        if callback is not None:
            self._callbacks[subscription] = None
            subscription._start(callback)
        return subscription

    # -- ending ---------------------------------------------------------------------------------------------------

    @_with_options_of(Client.drain)
    def drain(self) -> None:
        """Unsubscribe, flush, let callbacks finish, and close. Raises what ``flush`` raises, and closes anyway."""
        self._background.check("this client")
        try:
            self._background.run(self._asyncio.drain())
        finally:
            self._background.has_ended(self)
        for subscription in self._callbacks:
            subscription._finish(None)

    @_with_options_of(Client.close)
    def close(self) -> None:
        """Say goodbye and end now. What was not flushed may be lost; iterations end."""
        self._background.check("this client")
        for subscription in self._callbacks:
            subscription._cancel()
        self._background.run(self._asyncio.close())
        self._background.has_ended(self)
        for subscription in self._callbacks:
            subscription._finish(CALLBACK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain; after an error only close, so that the error is not replaced."""
        if kind is None and not self.is_closed:
            self.drain()
        else:
            self.close()

    def _here(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call a plain function of the asyncio client in its loop."""
        self._background.check("this client")

        async def work() -> T:
            return call(*arguments)

        return self._background.run(work())

    async def _end(self) -> None:
        """The interpreter exits: send what was published."""
        await self._asyncio.drain()


@_like(connect)
def connect_blocking(*arguments: Any, **options: Any) -> BlockingClient:
    """Connect to a broker: ``client = connect_blocking(…)``, or ``with connect_blocking(…) as client``.

    Arguments, environment variables and errors are those of ``heliograph.connect``. The client may be used by several
    threads. One background thread serves all blocking clients of a process; ``on_note`` and ``on_refused`` are called
    in it, so they must not call the client. A forked process makes its own connections.
    """
    background = background_loop()
    background.check("connect_blocking")
    connecting: Connecting = connect(*arguments, **options)
    return BlockingClient(background, background.run(_await(connecting)))


def _left(until: float) -> float:
    return max(0.0, until - monotonic())


async def _step(source: AsyncIterator[T]) -> tuple[T] | None:
    """The next result; None after the last."""
    try:
        return (await anext(source),)
    except StopAsyncIteration:
        return None


async def _await(pending: Any) -> Any:
    return await pending


def _complain(error: Exception) -> None:
    """Report an error of a callback as threads do, and continue."""
    details = (type(error), error, error.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(details))
