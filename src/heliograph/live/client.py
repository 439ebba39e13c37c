"""The asyncio interface of a client: publish, subscribe, request, flush, drain, close.

In:    calls of a program, on its event loop.
Out:   commands for the session machine; futures settled by its outcomes.
State: what was published in this turn of the loop, and callers that wait for room to publish.
Not here: making a client (live/connect.py), all decisions (client/session.py), sockets (live/network.py), futures
          (live/calls.py), iterating (live/subscription.py).

``publish`` makes no task and no write of its own: everything published in one turn of the loop is written at once at
the end of the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any

from heliograph.client import commands
from heliograph.client.refusals import RefusedPublication
from heliograph.client.session import Session
from heliograph.errors import ClosedError, UsageError
from heliograph.live.calls import Calls
from heliograph.live.loop import Driver
from heliograph.live.options import AcknowledgeName, LanguageName, PolicyName, StartName
from heliograph.live.publisher_file import PublisherFile
from heliograph.live.resources import ClientTasks, ResourceCalls, Welcomes
from heliograph.live.stored import FOREVER_MS, READ_WINDOW, StoreFace, milliseconds
from heliograph.live.subscription import Callback, Incoming, OpenSubscriptions, Subscribing, Subscription
from heliograph.live.tls import TlsContexts
from heliograph.live.topic_desk import Files, TopicDesk
from heliograph.live.topics import TopicCalls
from heliograph.live.watches import OpenWatches
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.model.topics import INBOX_ROOT
from heliograph.notes import Note

if TYPE_CHECKING:  # loaded only if the broker is found by discovery
    from heliograph.live.relocator import Relocator

TURN_BYTES = 1 << 16  # published without a pause; then other tasks of the loop get a turn
BATCH_BYTES = 1 << 18  # of a batch handed over at once
OVERHEAD_BYTES = 128  # the approximate cost of a publication beside its payload
MACHINE = "client"

Payload = bytes | bytearray | memoryview | str
Headers = dict[str, Any]
Follow = Callable[[Driver, str, Session], "Relocator"]
"""Makes the relocator of a client, for the session of this name on this driver."""


class Client(StoreFace, TopicCalls, ResourceCalls):
    """A connection to the network that heals itself. Made by ``heliograph.connect``; used on one event loop.

    It has 31 methods because it is the whole face of a session: each is short, and decides nothing.
    """

    def __init__(
        self,
        session: Session,
        tls: TlsContexts | None = None,
        on_refused: Callable[[RefusedPublication], None] | None = None,
        on_note: Callable[[Note], None] | None = None,
        follow: Follow | None = None,
        numbers: PublisherFile | None = None,
        files: Files | None = None,
    ) -> None:
        self._desk = TopicDesk(self, files or {})
        self._session = session
        self._numbers = numbers
        self._publisher = session.publisher
        self._loop = asyncio.get_running_loop()
        self._driver = Driver(
            {MACHINE: session}, tls=tls, heard=self._heard, carried=self._carried, crashed=self._crashed
        )
        self._runner = self._driver.runners[MACHINE]
        self._calls = Calls(self._runner)
        self._subscriptions = OpenSubscriptions(session, self._calls)
        self._watches = OpenWatches(session, self._calls)
        self._following = None if follow is None else follow(self._driver, MACHINE, session)
        self._on_refused = on_refused
        self._on_note = on_note
        self._room: list[asyncio.Future[None]] = []  # callers that wait to publish
        self._sending = False  # a send is scheduled at the end of this turn
        self._turn_bytes = 0
        self._stopping: asyncio.Task[None] | None = None
        self._tasks = ClientTasks()
        self._welcomes = Welcomes()

    # -- properties -----------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """True while there is a broker; without one, publications wait."""
        return self._session.is_connected

    @property
    def is_closed(self) -> bool:
        """True if it was closed, or ended because no broker accepts it."""
        return self._session.ended

    @property
    def broker(self) -> str:
        """The name of the broker that welcomed us last."""
        return self._session.welcome.broker if self._session.welcome is not None else ""

    @property
    def address(self) -> str:
        """The address of that broker, or the one being dialled: heliograph://host:port."""
        return str(self._session.target)

    @property
    def network(self) -> str:
        """The name of the network to which that broker belongs; empty if it has none."""
        return self._session.welcome.network if self._session.welcome is not None else ""

    @property
    def entity(self) -> str:
        """The entity under which the broker knows us."""
        return self._session.welcome.entity if self._session.welcome is not None else ""

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that the broker grants us."""
        return tuple(self._session.welcome.roles) if self._session.welcome is not None else ()

    @property
    def inbox(self) -> str:
        """The topic to which directed publications and answers for this client go; empty without a broker.

        It belongs to the present broker: after a reconnect or a move to another broker, the topic is a different one.
        """
        return self._session.inbox_topic

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "connected" if self.is_connected else "not connected"
        return f"<Client of broker {self.broker!r} at {self.address}, {state}>"

    def report(self, question: str = "overview") -> Any:
        """The session's report as plain values: "overview", "subscriptions", "time" or "discovery".

        The last tells how the broker was found; None if the program named it.
        """
        if question == "discovery":
            return None if self._following is None else self._following.report()
        return self._session.report(question)

    # -- publishing -----------------------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        payload: Payload,
        *,
        headers: Headers | None = None,
        expires_in: float | None = None,
        content_type: str | None = None,
        to: Sequence[str] | None = None,
        reliable: bool = False,
        wait: bool = True,
    ) -> None:
        """Publish. Text is sent as UTF-8; ``expires_in`` is in seconds. Waits only while there is no room.

        It returns before the broker has the publication; ``flush`` waits for that, and reports refusals. With ``to``,
        a list of at most 64 clients' inboxes, it goes to these clients only, whether they subscribe or not.

        ``reliable`` waits until the store that serves the topic has it on disk, and repeats it until then, if need be
        through another broker. NotConnectedError with reason ``time_out`` if that takes longer than
        ``request_timeout``: what was sent is still repeated, and may be stored; what waited for a store that is away,
        or has no room, is not stored. With ``wait=False`` it waits only for room in the store's window, and ``flush``
        waits until everything is stored, or tells what was not.
        """
        if reliable:
            if to is not None:
                raise UsageError("a publication to named clients cannot be reliable")
            await self._publish_reliably(topic, [_bytes_of(payload)], headers, expires_in, content_type, wait)
            return
        publisher = self._publisher
        if not publisher.has_room or self._session.ended:
            await self._wait_for_room()
        if type(payload) is not bytes:
            payload = _bytes_of(payload)
        expires_in_ms = None if expires_in is None else milliseconds(expires_in)
        publisher.publish(topic, payload, monotonic_ns(), headers, expires_in_ms, content_type, to)
        if not self._sending:
            self._sending = True
            self._loop.call_soon(self._send)
        self._turn_bytes += OVERHEAD_BYTES + len(payload)
        if self._turn_bytes >= TURN_BYTES:
            await self._end_turn()

    async def publish_batch(
        self,
        topic: str,
        payloads: Iterable[Payload],
        *,
        headers: Headers | None = None,
        expires_in: float | None = None,
        content_type: str | None = None,
        reliable: bool = False,
        wait: bool = True,
    ) -> None:
        """Publish many payloads on one topic, which is far cheaper than one by one. All have the same headers.

        ``reliable`` and ``wait`` work as in ``publish``, for all of them together.
        """
        if reliable:
            await self._publish_all_reliably(topic, _pieces(payloads), headers, expires_in, content_type, wait)
            return
        expires_in_ms = None if expires_in is None else milliseconds(expires_in)
        for piece in _pieces(payloads):
            await self._wait_for_room()
            self._publisher.publish_batch(topic, piece, monotonic_ns(), headers, expires_in_ms, content_type)
            await self._end_turn()

    async def flush(self) -> None:
        """Wait until the broker has routed everything published so far.

        RefusedError if it refused a publication since the last flush; NotConnectedError if there is no broker for too
        long. What is not confirmed is kept and sent when a broker is there.
        """
        await self._calls.request(commands.Flush)

    # -- requests and answers -------------------------------------------------------------------------------------

    async def request(
        self,
        topic: str,
        payload: Payload,
        *,
        headers: Headers | None = None,
        content_type: str | None = None,
        timeout: float | None = None,
    ) -> Publication:
        """Publish a request to the subscribers of ``topic``, and wait for the first answer.

        NoRespondersError, at once, if there is no subscriber; NotConnectedError with reason ``time_out`` if none
        answers within ``timeout`` seconds (None: the client's ``request_timeout``). If the link to the broker is lost
        before the answer comes, NotConnectedError with another reason: the request may or may not have been carried
        out, and it is never repeated. A planned move to another broker (drain) waits for the answers instead.
        """
        await self._wait_for_room()
        data = _bytes_of(payload)
        wait_ms = None if timeout is None else milliseconds(timeout)
        answer: Publication = await self._calls.request(
            lambda request: commands.Inquire(request, topic, data, headers, content_type, wait_ms)
        )
        return answer

    async def reply(
        self,
        request: Publication,
        payload: Payload,
        *,
        headers: Headers | None = None,
        content_type: str | None = None,
    ) -> None:
        """Answer a request. UsageError if it expects no answer, or one outside of a client's inbox.

        The requester chooses the topic of the answer; without this check it could make this client publish anywhere.
        """
        topic = request.reply_to
        if topic is None or not topic.startswith(f"{INBOX_ROOT.decode()}/"):
            raise UsageError(f"{request!r} awaits no answer in an inbox: its reply topic is {topic!r}")
        await self.publish(topic, payload, headers=headers, content_type=content_type)

    def directed(self) -> Incoming:
        """Publications that name this client's inbox as a destination: ``async for publication in client.directed()``.

        At most 4,096 (16 MiB) wait to be read; beyond that the oldest are dropped, and counted in ``lost``.
        """
        return self._subscriptions.directed()

    # -- subscribing, asking --------------------------------------------------------------------------------------

    def subscribe(
        self,
        filter: str = "#",
        *,
        where: str = "",
        language: LanguageName = "",
        group: str = "",
        wide: bool = False,
        policy: Policy | PolicyName | None = None,
        echo: bool = True,
        callback: Callback | None = None,
        inbox_frames_max: int = 65_536,
        inbox_bytes_max: int = 64 << 20,
        listens: bool = False,
        durable: str = "",
        start: StartName = "",
        position: Mapping[str, int] | None = None,
        acknowledge: AcknowledgeName = "auto",
        secret: bytes | None = None,
    ) -> Subscribing:
        """Subscribe to a topic filter: ``await`` it for a Subscription, or use it with ``async with``.

        ``where`` is a condition beyond the topic: ``where="disk > 120 and system = 'linux'"`` tests headers of the
        publication. Its language is "predicates" unless ``language`` names another: "sql", "regex", "xpath", "tags" or
        "integer".

        When this returns, it is in force at this client's broker; with ``wide`` at every broker in reach, so that
        nothing published anywhere from now on is missed. Clients that name the same ``group`` share the filter: each
        publication goes to one of them, to one at the publisher's own broker if there is one, else to the nearest.

        ``policy`` says what happens when this program does not keep up: "drop_oldest" (the default), "disconnect" or
        "hold". ``echo=False`` leaves out what this client publishes itself. ``listens=True`` is for a program that only
        watches and never answers: requests do not count it as a responder. With a ``callback``, plain or async, each
        publication is handed to it, one after the other.

        A ``durable`` subscription has a name under which stores remember how far this entity has read: after an absence
        it resumes there, at any broker. It begins with what is stored from now on, or with the oldest if
        ``start="first"``; ``position``, the earlier ``position`` of a subscription, resumes exactly there. What the
        program took is acknowledged when it asks for the next publication; with ``acknowledge="manual"`` by
        ``subscription.acknowledge``. It takes neither ``group`` nor ``policy``, ``echo`` and ``wide``. RefusedError
        with reason ``store_missing`` if no store serves the filter, and ``name_differs`` if the name was made for
        another filter or condition: drop it first (``drop_subscription``).

        Without credentials, the name belongs to this user on this machine: the client proves it with a secret, in a
        file of its state folder. ``secret``, 16 bytes or more, takes its place where several machines share a name.
        With credentials the name belongs to the entity, and no secret is needed.
        """
        if durable or position is not None or start:
            _check_durable(group=group, policy=policy, echo=echo, wide=wide)
            window = min(inbox_frames_max, READ_WINDOW)
            bounds = (window, inbox_bytes_max)
            return self._read_durably(
                filter, durable, where, language, start, position, acknowledge, bounds, callback, secret
            )
        if secret is not None:
            raise UsageError("secret is for durable subscriptions: give it a name")
        try:
            chosen = Policy.DROP_OLDEST if policy is None else Policy(policy)
        except ValueError:
            raise UsageError(f"{policy!r} is not a policy: one of {', '.join(Policy)}") from None

        async def subscribe() -> Subscription:
            bounds = (inbox_frames_max, inbox_bytes_max)
            spoken = language or ("predicates" if where else "topic")
            request = self._calls.number()
            command = commands.Subscribe(request, filter, chosen, echo, *bounds, group, wide, where, spoken, listens)
            return await self._subscriptions.subscribe(command, callback)

        return Subscribing(subscribe)

    async def ask(self, service: str, body: dict[str, Any], *, longer: float = 0.0) -> dict[str, Any]:
        """Ask a service of the broker, such as "admin"; RefusedError if it refuses.

        NotConnectedError with reason ``time_out`` if no answer comes within ``request_timeout`` and ``longer`` seconds.
        """
        more_ms = milliseconds(longer)
        answer: dict[str, Any] = await self._calls.request(
            lambda request: commands.Ask(request, service, body, more_ms=more_ms)
        )
        return answer

    # -- ending -------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Unsubscribe, flush, let callbacks finish, and close. Raises what ``flush`` raises, and closes anyway."""
        try:
            if not self._session.ended:
                await self._calls.request(commands.Drain)
            await self._subscriptions.finish_callbacks()
        finally:
            await self.close()

    async def close(self) -> None:
        """Say goodbye and end now. What was not flushed may be lost; iterations end."""
        if not self._session.ended:
            await self._calls.request(commands.Close)
        self._subscriptions.cancel_callbacks()
        self._tasks.cancel()
        self._desk.stop()
        if self._following is not None:
            await self._following.stop()
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._driver.stop())
        await asyncio.shield(self._stopping)
        await self._subscriptions.finish_callbacks()
        if self._numbers is not None:
            self._numbers.close(self._publisher.outgoing.assigned)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain; after an error only close, so that the error is not replaced."""
        if kind is None and not self._session.ended:
            await self.drain()
        else:
            await self.close()

    # -- between the program and its session --------------------------------------------------------------------

    async def _connect(self, timeout: float | None) -> None:
        self._driver.start()
        wait_ms = FOREVER_MS if timeout is None else milliseconds(timeout)
        try:
            await self._calls.request(lambda request: commands.Connect(request, wait_ms))
        except BaseException:
            await self.close()
            raise
        if self._following is not None:
            self._following.start()

    def _send(self) -> None:
        """The turn ends: write everything published in it at once."""
        self._sending = False
        self._turn_bytes = 0
        if self._numbers is not None:
            self._numbers.keep_ahead(self._publisher.outgoing.assigned)
        self._runner.settle()

    async def _end_turn(self) -> None:
        self._send()
        await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        session = self._session
        while not self._publisher.has_room and not session.ended:
            waiter = self._loop.create_future()
            self._room.append(waiter)
            self._send()
            await waiter
        if session.ended:
            raise session.error or ClosedError("the client was closed")

    def _heard(self, name: str, note: Note) -> None:
        if self._on_note is not None:
            self._loop.call_soon(self._on_note, note)  # later, so that errors of the program stay outside the driver

    def _carried(self, name: str) -> None:
        """The driver has carried out the session's effects: inform callers and readers."""
        session = self._session
        for outcome in session.collect():
            self._calls.settle(self._subscriptions.begin(outcome))
        self._calls.has_changed()
        for inbox in session.collect_news():
            self._subscriptions.wake(inbox)
        self._watches.hear()
        self._welcomes.hear(session.welcome)
        if self._numbers is not None:
            self._numbers.keep_ahead(self._publisher.outgoing.assigned)
        if self._room and (self._publisher.has_room or session.ended):
            self._let_publish()
        for refused in session.collect_refusals():
            if self._on_refused is not None:
                self._loop.call_soon(self._on_refused, refused)

    def _crashed(self, name: str, error: BaseException) -> None:
        """The session failed, which is a bug of ours: no caller may wait for ever."""
        self._calls.fail(error)
        self._subscriptions.fail(error)
        self._session.abandon()
        self._watches.fail()
        self._let_publish()

    def _let_publish(self) -> None:
        waiters, self._room = self._room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _check_durable(*, group: str, policy: str | None, echo: bool, wide: bool) -> None:
    """UsageError for what a durable subscription cannot do, with what does it instead."""
    if group:
        raise UsageError(
            f"a durable subscription has no group: leave out durable to share work in the group {group!r}, or give "
            "each worker a durable name and a filter of its own"
        )
    if policy is not None:
        raise UsageError("a durable subscription has no policy: what is not read waits in the store; leave out policy")
    if not echo:
        raise UsageError(
            "a durable subscription has no echo=False: stores keep what this client publishes too; leave out echo, and "
            "mark what you publish with a header that where= tests"
        )
    if wide:
        raise UsageError("a durable subscription has no wide: it misses nothing that is stored; leave out wide")


def _bytes_of(payload: Payload) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise UsageError(f"a payload is bytes or text, not {type(payload).__name__}; encode it first, for example as JSON")


def _pieces(payloads: Iterable[Payload]) -> Iterable[list[bytes]]:
    """The payloads as bytes, in lists that are each about one write in size."""
    if isinstance(payloads, str | bytes | bytearray | memoryview):
        raise UsageError("publish_batch takes many payloads; publish takes one")
    piece: list[bytes] = []
    size = 0
    for payload in payloads:
        data = payload if type(payload) is bytes else _bytes_of(payload)
        piece.append(data)
        size += OVERHEAD_BYTES + len(data)
        if size >= BATCH_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
