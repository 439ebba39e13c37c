"""The store methods of a client: reliable publications, durable subscriptions, replays, listings and batches.

In:    calls of a program, on its event loop.
Out:   commands for the session machine; subscriptions whose publications have positions.
State: none; it is a part of the client (client.py).
Not here: all decisions (client/stored/), iterating (subscription.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from secrets import token_bytes
from typing import Any, NamedTuple, cast

from heliograph.client import commands
from heliograph.client.session import Session
from heliograph.errors import ClosedError, HeliographError, NotConnectedError, Reason, RefusedError, UsageError
from heliograph.live.calls import Calls
from heliograph.live.name_secret import own_secret
from heliograph.live.subscription import Callback, OpenSubscriptions, Subscribing, Subscription
from heliograph.model.identity import ANONYMOUS
from heliograph.model.publication import StoredRun
from heliograph.wire import stores as wire
from heliograph.wire.bodies import Body
from heliograph.wire.name_proofs import check_secret, proof_of

FOREVER_MS = 1 << 50
READ_WINDOW = 4_096  # publications of a durable subscription that are under way or unread
RUN_WINDOW = 65_536  # … of a replay
ACKNOWLEDGE = ("auto", "manual")
AWAY_S = 0.1  # between two questions whether a store is back
Row = tuple[str, dict[str, Any] | None]
Staged = tuple[str, bytes | str] | tuple[str, bytes | str, dict[str, Any] | None]
"""A publication of a batch: topic, payload, and perhaps headers."""
Moment = float | datetime
"""Seconds since 1970, or a datetime with a time zone."""


class StoreInfo(NamedTuple):
    """A store, as it advertises itself."""

    id: str
    name: str
    patterns: tuple[str, ...]
    broker: str
    address: str  # the address of that broker, for clients that read much; empty: unknown
    state: str  # "open", or why it accepts nothing now; "away"
    first: int  # the oldest position that is still kept
    next: int  # the position of the next publication


class LogInfo(NamedTuple):
    """A log of a store. Positions begin at ``first`` and end before ``next``; times are seconds since 1970."""

    store: str
    name: str
    log: str
    first: int
    next: int
    bytes: int
    first_time: float | None
    last_time: float | None


class DurableInfo(NamedTuple):
    """A durable subscription at a store."""

    store: str
    entity: str
    name: str
    filter: str
    position: int  # everything before it is acknowledged
    lag: int  # positions from there to the end of the log
    connected: bool
    where: str


class BatchCommitted(NamedTuple):
    """A batch is visible."""

    number: int
    position: int  # where it begins in the log
    repeated: bool  # it, or a later one, was committed before; nothing was changed


class Batch:
    """A batch of publications that becomes visible in a store all at once, or not at all. Made by ``client.batch``."""

    def __init__(
        self, face: StoreFace, store: str, publisher: str, number: int, query: str, once: bool, secret: bytes | None
    ) -> None:
        self._face = face
        self._store = store
        self._query = query
        self._once = once
        self._secret = token_bytes() if once and secret is None else secret
        self.publisher = publisher
        self.number = number

    async def stage(
        self,
        part: str,
        publications: Iterable[Staged],
        *,
        headers: dict[str, Any] | None = None,
        content_type: str | None = None,
    ) -> int:
        """Store a part of the batch, not visible yet. Returns how many publications it has.

        Each is (topic, payload), or (topic, payload, headers) with headers of its own, besides ``headers`` of all. If
        the store is away, it is waited for, as long as for the answer to a request.
        """
        store = await self._face._advertised(self._store, patiently=True)
        quality = (self.publisher, self.number, part)
        count = 0
        pending: list[asyncio.Future[Any]] = []
        for rows, payloads in _pieces(publications):
            count += len(payloads)
            command = commands.PublishReliably(
                rows[0][0], payloads, headers, None, content_type, 0, store, quality, rows=_differing(rows)
            )
            if await self._face._tell_when_room(command, pending):
                break
        await _all(pending)
        return count

    async def commit(self, parts: Iterable[tuple[str, int]]) -> BatchCommitted:
        """Make these parts visible in this order; each is named with its number of publications. May be repeated."""
        store = await self._face._advertised(self._store)
        proof = proof_of(self._face._name_secret(self._secret), store.store, self.publisher)
        named = [(name, count) for name, count in parts]
        body = wire.CommitBatch(store.store, self.publisher, self.number, named, self._query, self._once, proof)
        done = cast(wire.RequestDone, await self._face._ask_stores(body, wire.RequestDone))
        return BatchCommitted(done.batch, done.position, done.repeated)


class StoreFace:
    """The methods of a client that concern stores."""

    _session: Session
    _calls: Calls
    _subscriptions: OpenSubscriptions
    _loop: asyncio.AbstractEventLoop

    # -- reading --------------------------------------------------------------------------------------------------

    def replay(
        self,
        filter: str = "#",
        *,
        where: str = "",
        language: str = "",
        store: str = "",
        position: Mapping[str, int] | None = None,
        since: Moment | None = None,
        end: Mapping[str, int] | None = None,
        until: Moment | None = None,
        follow: bool = False,
        pace: float = 0.0,
        raw: bool = False,
        times: bool = False,
        whole: bool = False,
        window: int = RUN_WINDOW,
        inbox_bytes_max: int = 64 << 20,
    ) -> Subscribing:
        """Publications kept by stores: ``await`` it for a Subscription, or use it with ``async with``.

        It begins with the oldest, at ``position`` (by store, such as a subscription's ``position``), or with what was
        stored ``since`` a time; with both, at the later of them. It ends with what is stored when it begins, before
        ``end`` (by store), or with what was stored ``until`` a time; with ``follow`` it continues with what is stored
        later. ``pace`` is 0 for full speed, 1 for the speed at which publications were stored, 2 for twice that.
        ``store``, a name or id, reads only this one.

        With ``whole`` it fails if something that it should have is withheld; otherwise that is left out.

        With ``raw`` each item is a StoredRun: many publications as bytes, with their positions. ``runs`` iterates over
        them.
        """

        async def subscribe() -> Subscription:
            command = commands.ReadStores(
                self._calls.number(),
                filter,
                where=where,
                language=language or ("predicates" if where else "topic"),
                store=store,
                positions=dict(position or {}),
                since_us=_microseconds(since),
                ends=dict(end or {}),
                until_us=_microseconds(until),
                follow=follow,
                pace=pace,
                window=window,
                bytes_max=inbox_bytes_max,
                raw=raw,
                times=times,
                whole=whole,
            )
            return await self._subscriptions.subscribe(command, None)

        return Subscribing(subscribe)

    async def runs(
        self,
        filter: str = "#",
        *,
        where: str = "",
        language: str = "",
        store: str = "",
        position: Mapping[str, int] | None = None,
        since: Moment | None = None,
        end: Mapping[str, int] | None = None,
        until: Moment | None = None,
        follow: bool = False,
        times: bool = False,
        window: int = RUN_WINDOW,
    ) -> AsyncIterator[StoredRun]:
        """A replay as whole runs, for programs that read millions: EVENT frames as bytes, with their positions.

        With ``times`` each run also tells when its publications were stored.
        """
        reading = self.replay(
            filter,
            where=where,
            language=language,
            store=store,
            position=position,
            since=since,
            end=end,
            until=until,
            follow=follow,
            raw=True,
            times=times,
            window=window,
        )
        async with reading as subscription:
            async for run in subscription:
                yield cast(StoredRun, run)

    def _read_durably(
        self,
        filter: str,
        name: str,
        where: str,
        language: str,
        start: str,
        position: Mapping[str, int] | None,
        acknowledge: str,
        bounds: tuple[int, int],
        callback: Callback | None,
        secret: bytes | None,
    ) -> Subscribing:
        if not name:
            raise UsageError("start and position are for durable subscriptions: give it a name, or use replay()")
        if acknowledge not in ACKNOWLEDGE:
            raise UsageError(f"{acknowledge!r} is not a way to acknowledge: {' or '.join(ACKNOWLEDGE)}")
        if start not in ("", "first", "next"):
            raise UsageError(f"a subscription starts with the first or the next publication, not {start!r}")

        async def subscribe() -> Subscription:
            command = commands.ReadStores(
                self._calls.number(),
                filter,
                name,
                where,
                language or ("predicates" if where else "topic"),
                start=start,
                positions=dict(position or {}),
                window=bounds[0],
                bytes_max=bounds[1],
                manual=acknowledge == "manual",
                secret=self._name_secret(secret),
            )
            return await self._subscriptions.subscribe(command, callback)

        return Subscribing(subscribe)

    # -- listing --------------------------------------------------------------------------------------------------

    async def stores(self, filter: str = "", *, away: bool = False) -> list[StoreInfo]:
        """The stores that this client's broker knows: all, or those that serve a part of a topic filter.

        With ``away`` instead those that it knew within the last hour and that are not there now: their publishers wait.
        """
        found = cast(wire.StoresFound, await self._ask_stores(wire.FindStores(filter=filter), wire.StoresFound))
        return [
            StoreInfo(
                one.store,
                one.name,
                tuple(one.patterns),
                one.broker,
                one.address,
                "away" if away else one.state,
                one.first,
                one.next,
            )
            for one in (found.away if away else found.stores)
        ]

    async def forget_store(self, store: str) -> None:
        """A store (its name or id) that is away will not come back: publishers no longer wait for it.

        What they wait to publish there is refused with ``store_missing``. Only for administrators.
        """
        for one in await self.stores(away=True):
            if store in (one.id, one.name):
                await self._ask_stores(wire.ForgetStore(one.id), wire.RequestDone)
                return
        raise RefusedError(Reason.STORE_UNKNOWN, f"no store {store!r} is away; heliograph store list shows them")

    async def logs(self, filter: str = "") -> list[LogInfo]:
        """The logs of these stores, with positions and times. RefusedError if there is no such store."""
        listed = []
        for store in await self.stores(filter):
            found = cast(wire.LogsFound, await self._ask_stores(wire.ListLogs(store.id), wire.LogsFound))
            listed += [
                LogInfo(
                    store.id,
                    store.name,
                    log.log,
                    log.first,
                    log.next,
                    log.bytes,
                    log.first_us / 1e6 if log.next > log.first else None,
                    log.last_us / 1e6 if log.next > log.first else None,
                )
                for log in found.logs
            ]
        return listed

    async def measure(
        self, store: str, start: int, end: int, piece_bytes: int, *, most: int | None = None
    ) -> list[tuple[int, int]]:
        """Divide positions of a store (its id) into pieces of at most so many bytes: where each ends, and its bytes.

        A piece has more if the store wrote it at once. ``most``: only so many pieces.
        """
        found: list[tuple[int, int]] = []
        open_bytes: int | None = None  # of a piece that ends at ``start`` and may go on
        while start < end and (most is None or len(found) < most):
            room = piece_bytes - (open_bytes or 0)
            count = wire.PIECES_MAX if most is None else min(most - len(found), wire.PIECES_MAX)
            asked = wire.MeasureLog(store, start, end, max(1, room), 1 if open_bytes is not None else count)
            answer = cast(wire.LogMeasured, await self._ask_stores(asked, wire.LogMeasured))
            pieces = answer.pieces
            if open_bytes is not None:
                if pieces[0][1] > room:
                    found.append((start, open_bytes))
                    open_bytes = None
                    continue
                pieces = [(pieces[0][0], open_bytes + pieces[0][1])]
            *whole, (start, size) = pieces
            found += whole
            open_bytes = size if answer.more and start < end else None
            if open_bytes is None:
                found.append((start, size))
        return found

    async def durable_subscriptions(self, *, secret: bytes | None = None) -> list[DurableInfo]:
        """This entity's durable subscriptions, at all stores; an administrator sees those of all entities.

        Without credentials, those that were made with this user's secret on this machine, or with ``secret``.
        """
        shown = self._name_secret(secret)
        listed: list[DurableInfo] = []
        for store in await self.stores():
            after, more = "", True
            while more:
                body = wire.ListNames(store.id, after, proof_of(shown, store.id))
                found = cast(wire.NamesFound, await self._ask_stores(body, wire.NamesFound))
                listed += [
                    DurableInfo(store.id, n.entity, n.name, n.filter, n.before, n.lag, n.connected, n.where)
                    for n in found.names
                ]
                more = found.more and bool(found.names)
                after = f"{found.names[-1].entity}/{found.names[-1].name}" if found.names else ""
        return listed

    async def drop_subscription(self, name: str, *, entity: str = "", secret: bytes | None = None) -> int:
        """Forget a durable subscription of this entity at every store. Returns how many stores knew it.

        An administrator may drop one of another ``entity``. Without credentials, ``secret`` is as in ``subscribe``.
        """
        shown = self._name_secret(secret)
        return await self._at_stores(
            lambda store: wire.DropName(store, name, proof_of(shown, store, name), entity),
        )

    async def release_subscription(self, name: str) -> int:
        """Take a durable subscription from the client without credentials that has it, at every store.

        The next such client that subscribes with this name gets it, and resumes where it was left. Only for
        administrators. Returns how many stores knew it.
        """
        return await self._at_stores(lambda store: wire.ReleaseName(store, name))

    async def _at_stores(self, request: Callable[[str], Body]) -> int:
        """Ask all stores about a name. Returns how many knew it; raises the last refusal once all were asked."""
        known, refused = 0, None
        for store in await self.stores():
            try:
                await self._ask_stores(request(store.id), wire.RequestDone)
                known += 1
            except RefusedError as error:
                if error.reason is not Reason.NAME_UNKNOWN:
                    refused = error
        if refused is not None:
            raise refused
        return known

    def name_proof(self, store: str, name: str = "", *, secret: bytes | None = None) -> str:
        """The ``proof`` of a durable name in a request to the service `stores`; without a name, the ``owner``.

        For programs that make such requests themselves. Empty if this client has credentials, as it needs none then.
        """
        return proof_of(self._name_secret(secret), store, name)

    def _name_secret(self, given: bytes | None) -> bytes:
        """The secret that proves this client's names; empty if its entity does."""
        if given is not None:
            return check_secret(given)
        welcome = self._session.welcome
        is_proven = welcome is not None and welcome.entity != ANONYMOUS.entity
        return b"" if is_proven else own_secret()

    # -- publishing -----------------------------------------------------------------------------------------------

    def batch(
        self,
        store: str,
        publisher: str,
        number: int,
        *,
        query: str = "",
        once: bool = False,
        secret: bytes | None = None,
    ) -> Batch:
        """Batch ``number`` under a publisher's name, in a store (its name or id). Later batches have higher numbers.

        Any number of clients of one entity may stage parts; one commits. A batch that was committed before is not
        changed, so a program may safely repeat its work after a crash.

        ``query`` names what counts the batches: the store refuses to take a batch of another query for a repeat.
        ``once``: the name is used for this batch only, and the store does not remember it. Without credentials, the
        name belongs to this user's secret on this machine, or to ``secret``, as a durable name does.
        """
        if type(number) is not int:
            raise UsageError(f"{number!r} is no number of a batch: a date, for example, is date.toordinal()")
        return Batch(self, store, publisher, number, query, once, secret)

    async def _publish_reliably(
        self,
        topic: str,
        payloads: list[bytes],
        headers: dict[str, Any] | None,
        expires_in: float | None,
        content_type: str | None,
        wait: bool,
    ) -> None:
        expires_in_ms = None if expires_in is None else milliseconds(expires_in)
        command = commands.PublishReliably(topic, payloads, headers, expires_in_ms, content_type)
        if wait:
            await self._tell_reliably(command)
        else:
            await self._tell_when_room(command, None)

    async def _publish_all_reliably(
        self,
        topic: str,
        pieces: Iterable[list[bytes]],
        headers: dict[str, Any] | None,
        expires_in: float | None,
        content_type: str | None,
        wait: bool,
    ) -> None:
        expires_in_ms = None if expires_in is None else milliseconds(expires_in)
        pending: list[asyncio.Future[Any]] = []
        for piece in pieces:
            command = commands.PublishReliably(topic, piece, headers, expires_in_ms, content_type)
            if await self._tell_when_room(command, pending if wait else None):
                break
        await _all(pending)

    def _tell_reliably(self, command: commands.PublishReliably) -> asyncio.Future[Any]:
        """Publish now; the future ends when the store has it."""
        self._check_open()
        command.ask(self._calls.number())
        return self._calls.begin(command, command.request)

    async def _tell_when_room(
        self, command: commands.PublishReliably, pending: list[asyncio.Future[Any]] | None
    ) -> HeliographError | None:
        """Publish, and wait until its store has room in its window. Returns the error if it was not published.

        With ``pending`` the future of its acknowledgement is added there, and a failure is not told by ``flush``.
        """
        if pending is None:
            self._check_open()
            self._calls.tell(command)
        else:
            pending.append(self._tell_reliably(command))
        while self._session.reliable.is_waiting(command) and not self._session.ended:
            await self._calls.changed()
        await asyncio.sleep(0)
        return command.error

    def _check_open(self) -> None:
        if self._session.ended:
            raise self._session.error or ClosedError("the client was closed")

    # -- asking ---------------------------------------------------------------------------------------------------

    async def _advertised(self, store: str, *, patiently: bool = False) -> wire.StoreAdvertisement:
        """A store that is there. ``patiently``: one that is away may come back, until a request would time out."""
        until = self._loop.time() + self._session.config.request_ms_max / 1_000
        while True:
            found = cast(wire.StoresFound, await self._ask_stores(wire.FindStores(), wire.StoresFound))
            for one in found.stores:
                if store in (one.store, one.name):
                    return one
            is_away = any(store in (one.store, one.name) for one in found.away)
            if not patiently or not is_away:
                text = f"there is no store {store!r}; heliograph store list shows them"
                raise RefusedError(Reason.STORE_UNKNOWN, text)
            if self._loop.time() >= until:
                raise NotConnectedError(Reason.TIME_OUT, f"the store {store} was away for too long")
            await asyncio.sleep(AWAY_S)

    async def _ask_stores(self, body: Body, kind: type[Body]) -> Any:
        return await self._calls.request(lambda request: commands.AskStores(request, body, kind))


def milliseconds(seconds: float) -> int:
    """Seconds as the session's milliseconds."""
    try:
        is_time = 0 <= seconds < FOREVER_MS / 1_000
    except TypeError:  # a text, for example
        is_time = False
    if not is_time:
        raise UsageError(f"{seconds!r} is not a time in seconds")
    return round(seconds * 1_000)


def _microseconds(moment: Moment | None) -> int | None:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise UsageError(f"{moment} has no time zone")
        return round(moment.timestamp() * 1e6)
    if moment is not None and (isinstance(moment, bool) or not isinstance(moment, int | float)):
        raise UsageError(f"{moment!r} is no time: give seconds since 1970, or a datetime with a time zone")
    return None if moment is None else round(moment * 1e6)


async def _all(pending: Sequence[asyncio.Future[Any]]) -> None:
    """Wait for all, and raise the first error."""
    for result in await asyncio.gather(*pending, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _pieces(publications: Iterable[Staged]) -> Iterable[tuple[list[Row], list[bytes]]]:
    """Topics, headers and payloads of consecutive publications, in pieces of about one write in size."""
    rows: list[Row] = []
    payloads: list[bytes] = []
    size = 0
    for number, one in enumerate(publications):
        if not isinstance(one, tuple | list) or not 2 <= len(one) <= 3:
            raise UsageError(f"publication {number} of the part is {one!r:.80}: give (topic, payload), or also headers")
        topic, payload, *own = one
        data = payload.encode() if isinstance(payload, str) else bytes(payload)
        if size >= 1 << 17:
            yield rows, payloads
            rows, payloads, size = [], [], 0
        rows.append((topic, own[0] if own else None))
        payloads.append(data)
        size += 128 + len(data)
    if payloads:
        yield rows, payloads


def _differing(rows: list[Row]) -> list[Row] | None:
    """The same; None if all are on one topic and have no headers of their own, which is faster."""
    topic = rows[0][0]
    return None if all(name == topic and not own for name, own in rows) else rows
