"""The asyncio face of a client: ``await heliograph.connect(…)``, publish, subscribe, flush, drain, close.

In:    calls of a program, on its event loop; addresses, files and environment variables.
Out:   commands for the session machine; futures settled by its outcomes.
State: open requests, subscriptions, and who waits for room to publish.
Not here: every decision (client/session.py), sockets (live/network.py), iterating (live/subscription.py).

``publish`` makes no task and no write of its own: what is published in one turn of the loop leaves in one write at the
end of the turn.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from pathlib import Path
from time import monotonic_ns
from types import TracebackType
from typing import Any

from heliograph.client import commands
from heliograph.client.config import ClientConfig, Target, parse_target
from heliograph.client.refusals import RefusedPublication
from heliograph.client.session import Session
from heliograph.errors import ClosedError, HeliographError, UsageError
from heliograph.live.loop import Driver
from heliograph.live.subscription import Callback, Subscribing, Subscription
from heliograph.live.tls import TlsContexts, TlsFiles, client_context
from heliograph.model.subscription import Policy
from heliograph.notes import Note

DEFAULT_ADDRESS = "heliograph://127.0.0.1:4717"
URL_VARIABLE = "HELIOGRAPH_URL"
ENTITY_VARIABLE = "HELIOGRAPH_ENTITY"
TOKEN_FILE_VARIABLE = "HELIOGRAPH_TOKEN_FILE"  # noqa: S105 a variable's name, not a token
FILE_VARIABLES = {
    "authority": "HELIOGRAPH_AUTHORITY",
    "certificate": "HELIOGRAPH_CERTIFICATE",
    "key": "HELIOGRAPH_KEY",
}

SECRET_BYTES = 32
TURN_BYTES = 1 << 16  # published without a pause; then the loop gets a turn, so that others are served too
BATCH_BYTES = 1 << 18  # of a batch handed over at once
OVERHEAD_BYTES = 128  # what a publication costs beside its payload, roughly
MACHINE = "client"
FOREVER_MS = 1 << 50

Payload = bytes | bytearray | memoryview | str
Headers = dict[str, Any]


class Client:
    """A connection to the network that heals itself. Made by ``heliograph.connect``; used on one event loop."""

    def __init__(
        self,
        session: Session,
        tls: TlsContexts | None = None,
        on_refused: Callable[[RefusedPublication], None] | None = None,
        on_note: Callable[[Note], None] | None = None,
    ) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._driver = Driver(
            {MACHINE: session}, tls=tls, heard=self._heard, carried=self._carried, crashed=self._crashed
        )
        self._on_refused = on_refused
        self._on_note = on_note
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._subscribing: dict[int, commands.Subscribe] = {}
        self._next_request = 1
        self._subscriptions: dict[int, Subscription] = {}
        self._callbacks: set[asyncio.Task[None]] = set()  # subscriptions with a callback, while they last
        self._room: list[asyncio.Future[None]] = []  # who waits to publish
        self._sending = False  # a send at the end of this turn is arranged
        self._turn_bytes = 0
        self._crash: BaseException | None = None
        self._stopping: asyncio.Task[None] | None = None

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """True while there is a broker; without one, publications wait."""
        return self._session.is_connected

    @property
    def is_closed(self) -> bool:
        """True if it was closed, or ended because no broker will have it."""
        return self._session.ended

    @property
    def broker(self) -> str:
        """The name of the broker that welcomed us last."""
        return self._session.welcome.broker if self._session.welcome is not None else ""

    @property
    def entity(self) -> str:
        """Who we are, as the broker sees it."""
        return self._session.welcome.entity if self._session.welcome is not None else ""

    @property
    def roles(self) -> tuple[str, ...]:
        """What we may be."""
        return tuple(self._session.welcome.roles) if self._session.welcome is not None else ()

    def report(self, question: str = "overview") -> Any:
        """The session about itself, as plain values: "overview" or "subscriptions"."""
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
    ) -> None:
        """Publish. Text is sent as UTF-8; ``expires_in`` is in seconds. Waits only while there is no room.

        It returns before the broker has the publication; ``flush`` waits for that, and tells of refusals.
        """
        session = self._session
        if not session.has_room or session.ended:
            await self._wait_for_room()
        if type(payload) is not bytes:
            payload = _bytes_of(payload)
        expires_in_ms = None if expires_in is None else _milliseconds(expires_in)
        session.publish(topic, payload, monotonic_ns(), headers, expires_in_ms, content_type)
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
    ) -> None:
        """Publish many payloads on one topic, which is far cheaper than one by one. All get the same headers."""
        expires_in_ms = None if expires_in is None else _milliseconds(expires_in)
        for piece in _pieces(payloads):
            await self._wait_for_room()
            self._session.publish_batch(topic, piece, monotonic_ns(), headers, expires_in_ms, content_type)
            await self._end_turn()

    async def flush(self) -> None:
        """Wait until the broker has routed everything published so far.

        RefusedError if it refused a publication since the last flush; NotConnectedError if there is no broker for
        too long. What is not flushed stays and is sent when a broker is there.
        """
        await self._request(commands.Flush)

    # -- subscribing, asking --------------------------------------------------------------------------------------

    def subscribe(
        self,
        filter: str,
        *,
        policy: Policy | str = Policy.DROP_OLDEST,
        echo: bool = True,
        callback: Callback | None = None,
        inbox_frames_max: int = 65_536,
        inbox_bytes_max: int = 64 << 20,
    ) -> Subscribing:
        """Subscribe to a topic filter: ``await`` it for a Subscription, or use it with ``async with``.

        ``policy`` says what happens when this program does not keep up: "drop_oldest", "disconnect" or "hold".
        ``echo=False`` leaves out what this client publishes itself. With a ``callback``, plain or async, each
        publication is handed to it, one after the other.
        """
        try:
            chosen = Policy(policy)
        except ValueError:
            raise UsageError(f"{policy!r} is not a policy: one of {', '.join(Policy)}") from None

        async def subscribe() -> Subscription:
            request = self._number()
            command = commands.Subscribe(request, filter, chosen, echo, inbox_frames_max, inbox_bytes_max)
            self._subscribing[request] = command  # stays if we are cancelled: see _settle_subscribe
            subscription: Subscription = await self._await(command, request)
            if callback is not None:
                task = subscription._start(callback)
                self._callbacks.add(task)
                task.add_done_callback(self._callbacks.discard)
            return subscription

        return Subscribing(subscribe)

    async def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask a service of the broker, such as "admin"; RefusedError if it says no."""
        answer: dict[str, Any] = await self._request(lambda request: commands.Ask(request, service, body))
        return answer

    # -- ending -------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Unsubscribe, flush, let callbacks finish, and close. Errors are those of ``flush``; it is closed anyway."""
        try:
            if not self._session.ended:
                await self._request(commands.Drain)
            await self._finish_callbacks()
        finally:
            await self.close()

    async def close(self) -> None:
        """Say goodbye and end, now. What was not flushed may be lost; iterations end."""
        if not self._session.ended:
            await self._request(commands.Close)
        for task in self._other_callbacks():
            task.cancel()
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._driver.stop())
        await asyncio.shield(self._stopping)
        await self._finish_callbacks()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain; after an error just close, so that the error is what one hears of."""
        if kind is None and not self._session.ended:
            await self.drain()
        else:
            await self.close()

    async def _finish_callbacks(self) -> None:
        tasks = self._other_callbacks()
        if tasks:
            await asyncio.wait(tasks)

    def _other_callbacks(self) -> list[asyncio.Task[None]]:
        """Without the one that closes the client, which must not wait for itself."""
        current = asyncio.current_task()
        return [task for task in self._callbacks if task is not current]

    # -- between the program and its session --------------------------------------------------------------------

    async def _connect(self, timeout: float | None) -> None:
        self._driver.start()
        wait_ms = FOREVER_MS if timeout is None else _milliseconds(timeout)
        try:
            await self._request(lambda request: commands.Connect(request, wait_ms))
        except BaseException:
            await self.close()
            raise

    async def _unsubscribe(self, subscription: Subscription) -> None:
        await self._request(lambda request: commands.Unsubscribe(request, subscription.number))

    def _tell(self, command: Any) -> None:
        self._driver.tell(MACHINE, command)

    def _number(self) -> int:
        request = self._next_request
        self._next_request += 1
        return request

    async def _request(self, command: Callable[[int], Any]) -> Any:
        request = self._number()
        return await self._await(command(request), request)

    async def _await(self, command: Any, request: int) -> Any:
        if self._crash is not None:
            raise ClosedError("the client failed") from self._crash
        self._requests[request] = future = self._loop.create_future()
        try:
            self._tell(command)
            return await future
        finally:
            del self._requests[request]

    def _send(self) -> None:
        """The end of a turn: everything published in it leaves in one write."""
        self._sending = False
        self._turn_bytes = 0
        self._tell(commands.Send())

    async def _end_turn(self) -> None:
        self._send()
        await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        session = self._session
        while not session.has_room and not session.ended:
            waiter = self._loop.create_future()
            self._room.append(waiter)
            self._send()
            await waiter
        if session.ended:
            raise session.error or ClosedError("the client was closed")

    def _heard(self, name: str, note: Note) -> None:
        if self._on_note is not None:
            self._loop.call_soon(self._on_note, note)  # later: the program's mistakes are not the driver's

    def _carried(self, name: str) -> None:
        """The driver has done what the session wanted: see what that means for those who wait."""
        session = self._session
        for outcome in session.collect():
            self._settle(outcome)
        for inbox in session.collect_news():
            subscription = self._subscriptions.get(inbox.number)
            if subscription is not None:
                subscription._wake()
                if inbox.ended:
                    del self._subscriptions[inbox.number]
        if self._room and (session.has_room or session.ended):
            self._let_publish()
        for refused in session.collect_refusals():
            if self._on_refused is not None:
                self._loop.call_soon(self._on_refused, refused)

    def _crashed(self, name: str, error: BaseException) -> None:
        """The session failed, which is our own fault: nobody may wait for ever."""
        self._crash = error
        for future in self._requests.values():
            if not future.done():
                future.set_exception(ClosedError(f"the client failed: {error!r}"))
        for subscription in self._subscriptions.values():
            subscription._inbox.end(ClosedError(f"the client failed: {error!r}"))
            subscription._wake()
        self._session.ended = True
        self._let_publish()

    def _let_publish(self) -> None:
        waiters, self._room = self._room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _settle(self, outcome: commands.Outcome) -> None:
        future = self._requests.get(outcome.request)
        value = outcome.value
        command = self._subscribing.pop(outcome.request, None)
        if command is not None and outcome.error is None:
            if future is None or future.done():  # cancelled while it waited: nobody will ever read it
                self._tell(commands.Unsubscribe(0, value))
                return
            value = self._begin_subscription(command, value)
        if future is None or future.done():
            return
        error = value if isinstance(value, HeliographError) else outcome.error
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _begin_subscription(self, command: commands.Subscribe, number: int) -> Subscription | HeliographError:
        try:
            inbox = self._session.inbox(number)
        except UsageError:  # confirmed and ended in the same read
            return self._session.error or ClosedError("the subscription was closed")
        subscription = self._subscriptions[number] = Subscription(self, command, inbox)
        return subscription


class Connecting:
    """What ``heliograph.connect(…)`` returns: await it, or use it with ``async with``."""

    def __init__(self, connect: Callable[[], Awaitable[Client]]) -> None:
        self._connect = connect
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.__aexit__(kind, error, trace)


def connect(
    address: str | Sequence[str] | None = None,
    *,
    name: str = "",
    entity: str | None = None,
    token: str | None = None,
    token_file: str | Path | None = None,
    authority: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    server_name: str | None = None,
    hold: bool = False,
    timeout: float | None = 5.0,
    request_timeout: float = 10.0,
    keep_alive: float = 20.0,
    give_up: float | None = None,
    outgoing_bytes_max: int = 8 << 20,
    on_refused: Callable[[RefusedPublication], None] | None = None,
    on_note: Callable[[Note], None] | None = None,
) -> Connecting:
    """Connect to a broker: ``client = await connect(…)``, or ``async with connect(…) as client``.

    ``address`` is one, or several to choose from; else $HELIOGRAPH_URL, else heliograph://127.0.0.1:4717. ``entity``
    with ``token`` or ``token_file``, or ``certificate`` with ``key``, prove who one is; ``authority`` is whom to trust
    (heliographs:// only). Each of these has a variable too: $HELIOGRAPH_ENTITY, $HELIOGRAPH_TOKEN_FILE and so on.
    ``hold`` lets this publisher wait for slow consumers that ask for it.

    Times are in seconds. Each address is tried at least once, and again until ``timeout`` is over. Later, a lost link
    is restored by itself, for ever or until ``give_up`` is over. ``on_refused`` hears of publications that the broker
    refused, ``on_note`` of what the session observes (lost and restored links, losses).
    """
    config = ClientConfig(
        targets=_targets(address, server_name),
        name=name,
        entity=os.environ.get(ENTITY_VARIABLE, "") if entity is None else entity,
        token=_token(token, token_file),
        hold=hold,
        keep_alive_ms=_milliseconds(keep_alive),
        request_ms_max=_milliseconds(request_timeout),
        give_up_ms=None if give_up is None else _milliseconds(give_up),
        outgoing_bytes_max=outgoing_bytes_max,
    )
    session = Session(config, secret=secrets.token_bytes(SECRET_BYTES), seed=secrets.randbits(64))
    given = {"authority": authority, "certificate": certificate, "key": key}
    files = {what: _path(path, FILE_VARIABLES[what]) for what, path in given.items()}

    async def open_client() -> Client:
        if session.ended or session.welcome is not None:
            raise UsageError("this connection was used before: call connect() again")
        tls = _tls(files) if any(target.secure for target in config.targets) else None
        client = Client(session, tls, on_refused, on_note)
        await client._connect(timeout)
        return client

    return Connecting(open_client)


def _targets(address: str | Sequence[str] | None, server_name: str | None) -> tuple[Target, ...]:
    if address is None:
        address = os.environ.get(URL_VARIABLE) or DEFAULT_ADDRESS
    addresses = [address] if isinstance(address, str) else list(address)
    return tuple(parse_target(one, server_name) for one in addresses)


def _token(token: str | None, token_file: str | Path | None) -> str:
    if token is not None and token_file is not None:
        raise UsageError("give either token or token_file")
    if token is not None:
        return token
    path = _path(token_file, TOKEN_FILE_VARIABLE)
    if path is None:
        return ""
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"token file {path}: others can read this token; run: chmod 600 {path}")
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"token file {path} cannot be read: {error}") from None
    if not text:
        raise UsageError(f"token file {path} is empty")
    return text


def _path(path: str | Path | None, variable: str) -> Path | None:
    chosen = os.environ.get(variable) if path is None else path
    return Path(chosen) if chosen else None


def _tls(files: dict[str, Path | None]) -> TlsContexts:
    return TlsContexts(client=client_context(TlsFiles(**files)))


def _milliseconds(seconds: float) -> int:
    if not 0 <= seconds < FOREVER_MS / 1_000:
        raise UsageError(f"{seconds} is not a time in seconds")
    return round(seconds * 1_000)


def _bytes_of(payload: Payload) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise UsageError(f"a payload is bytes or text, not {type(payload).__name__}; encode it first, for example as JSON")


def _pieces(payloads: Iterable[Payload]) -> Iterable[list[bytes]]:
    """The payloads as bytes, in lists that are worth a write each and not much larger."""
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
