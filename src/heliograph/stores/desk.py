"""The service `stores` of every broker: it knows which store serves what, and passes clients' requests on to stores.

In:    SERVICE frames of clients; advertisements; answers of stores; which stores other services were told to forget.
Out:   answers to `find` and `forget`; requests to stores, with the requester's identity and what it may hear; the
       stores' answers to clients.
State: known stores, requests in progress.
Not here: stores (store.py), what requests mean (wire/stores.py), readings of clients that leave (leaving.py), what
          services of neighbours tell each other (hearsay.py).

It listens from its start, so that it knows the stores that are away; its first request asks all stores to advertise.
In a network without stores it says and hears nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec.structs import replace as replaced

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.model.chance import Seed, secret_of
from heliograph.model.identity import Role
from heliograph.model.publication import Publication
from heliograph.services.broker_session import BrokerSession
from heliograph.stores.hearsay import Hearsay
from heliograph.stores.known import KnownStores
from heliograph.stores.leaving import LeavingClients
from heliograph.wire import bodies
from heliograph.wire import stores as wire
from heliograph.wire.frames import Frame, ServiceFlag
from heliograph.wire.requests import Asker
from heliograph.wire.stores import StoreAdvertisement, StoredFlag

NAME = "stores"
NS_PER_MS = 1_000_000
WANTED_MS = (50, 150, 400, 1_000, 2_000)  # after the first request: when stores are asked to advertise again
PATIENCE_MS = 1_500  # how long to wait for an unknown store, counted from the first request
TIME_OUT_MS = 5_000
UNDER_WAY_MAX = 4_096
WAITING_MAX = 256
PASSED_BYTES_MAX = 1 << 19


@dataclass(frozen=True, slots=True)
class _Open:
    """A request that a store should answer."""

    frame: Frame
    request: wire.StoreRequest
    asker: Asker
    until: Instant
    store: str = ""  # once it was passed on


class StoresDesk:
    """A machine at the end of a pipe."""

    def __init__(self, seed: Seed) -> None:
        self._outbox = Outbox()
        self._timers = Timers()
        self._secret = secret_of(seed, "stores")
        self._session: BrokerSession | None = None
        self._known = KnownStores()
        self._awake_at: Instant | None = None
        self._inbox = ""
        self._next = 1
        self._open: dict[int, _Open] = {}
        self._waiting: list[_Open] = []  # requests that wait for a store to become known
        self._leaving = LeavingClients(self._close)
        self._hearsay = Hearsay(self._known, self._leaving, self._try_again)
        self._malformed = 0

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached."""
        self._session = BrokerSession(
            *(link, self._outbox, self._secret),
            requests=wire.REQUESTS,
            serve=self._serve,
            stored=self._answered,
            welcome=self._welcomed,
            attendant=self._hearsay,
        )
        self._session.hello(NAME)
        self._hearsay.begin(self._session.send)
        self._session.attend(NAME)
        self._session.subscribe(wire.ADVERTISEMENT, self._heard)
        self._session.subscribe(wire.FORGOTTEN, self._heard_forgotten)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The broker is detached, and with it all requesters."""
        self._session = None
        self._open.clear()
        self._waiting.clear()
        self._leaving.clear()
        self._hearsay.clear()

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes from the broker."""
        if self._session is None:
            return
        self._session.receive(data, now)
        if self._session.fault is not None:
            self._outbox.hang_up(link, self._session.fault)

    # -- known stores -------------------------------------------------------------------------------------------

    def _wake_up(self, now: Instant) -> None:
        if self._awake_at is not None or self._session is None:
            return
        self._awake_at = now
        self._session.publish(wire.WANTED, b"{}")
        for wait_ms in WANTED_MS:
            self._timers.set(("wanted", wait_ms), now + wait_ms * NS_PER_MS, self._want)

    def _want(self, now: Instant) -> None:
        if self._session is not None:
            self._session.publish(wire.WANTED, b"{}")

    def _welcomed(self, welcome: bodies.Welcome, now: Instant) -> None:
        self._inbox = welcome.inbox
        self._try_again(now)

    def _heard(self, publication: Publication, now: Instant) -> None:
        try:
            advertisement = wire.decode(StoreAdvertisement, publication.payload)
        except ProtocolError:
            self._malformed += 1
            return
        self._known.hear(advertisement, now)
        self._try_again(now)

    def _heard_forgotten(self, publication: Publication, now: Instant) -> None:
        try:
            self._known.forget(wire.decode(wire.StoreForgotten, publication.payload).store, now)
        except ProtocolError:
            self._malformed += 1

    # -- serving ------------------------------------------------------------------------------------------------

    def _serve(self, frame: Frame, request: wire.StoreRequest, asker: Asker, now: Instant) -> None:
        self._wake_up(now)
        waiting = _Open(frame, request, asker, now + PATIENCE_MS * NS_PER_MS)
        if len(self._waiting) >= WAITING_MAX:
            raise ProtocolError(Reason.STORES_OVER_LIMIT, "too many requests wait for a store to be heard of")
        if not self._handle(waiting, now):
            self._waiting.append(waiting)
            self._timers.set("waiting", self._waiting[0].until, self._try_again)

    def _try_again(self, now: Instant) -> None:
        """A store became known, or requests have waited long enough."""
        waiting, self._waiting = self._waiting, []
        self._waiting = [each for each in waiting if not self._handle_late(each, now)]
        if self._waiting:
            self._timers.set("waiting", max(now + 1, self._waiting[0].until), self._try_again)

    def _handle_late(self, asked: _Open, now: Instant) -> bool:
        """The same as when it came: what raises costs this request, and none of those that wait with it."""
        assert self._session is not None
        try:
            return self._handle(asked, now)
        except ProtocolError as error:
            self._session.refuse(asked.frame, error.reason, error.detail)
        except Exception as error:
            self._session.refuse_failed(asked.frame, "request to stores, later", error, now)
        return True

    def _handle(self, asked: _Open, now: Instant) -> bool:
        """Answer a request or pass it on. Returns False if it must wait for a store to become known."""
        request = asked.request
        assert self._awake_at is not None
        settled = now >= self._awake_at + PATIENCE_MS * NS_PER_MS or now >= asked.until
        if isinstance(request, wire.FindStores):
            return self._find(asked.frame, request, settled, now)
        if isinstance(request, wire.ForgetStore):
            return self._forget(asked, request, settled, now)
        if isinstance(request, wire.AttachPublisher) and self._known.is_forgotten(request.store, now):
            raise ProtocolError(Reason.STORE_MISSING, f"the store {request.store} was forgotten: it will not come back")
        known = self._known.get(request.store, now)
        is_close = isinstance(request, wire.CloseChannel)  # a store that is away may still get what was asked before
        if (known is None and not (is_close and settled)) or not self._inbox:
            if settled:
                raise ProtocolError(Reason.STORE_UNKNOWN, f"nobody has heard of the store {request.store}")
            return False
        self._pass_on(asked, request, now)
        return True

    def _find(self, frame: Frame, request: wire.FindStores, settled: bool, now: Instant) -> bool:
        found = self._matching(request, now)
        wait = not settled and (not found or not request.topic)  # a filter may have more; for a topic, any will do
        if not wait:
            assert self._session is not None
            away = [] if found and request.topic else self._matching(request, now, away=True)
            self._session.answer(frame, wire.encode(wire.StoresFound(found, away)))
        return not wait

    def _matching(self, request: wire.FindStores, now: Instant, away: bool = False) -> list[StoreAdvertisement]:
        if request.topic:
            return self._known.serving(request.topic, now, away)
        if request.filter:
            return self._known.overlapping(request.filter, now, away)
        return self._known.all(now, away)

    def _forget(self, asked: _Open, request: wire.ForgetStore, settled: bool, now: Instant) -> bool:
        """A store is gone for good: forget it here, and tell the other services."""
        if Role.ADMIN.value not in asked.asker.roles:
            raise ProtocolError(
                Reason.ASK_DENIED, f"only administrators forget stores, and {asked.asker.entity} is none"
            )
        if not settled:
            return False  # it may be there after all
        if not self._known.forget(request.store, now):
            raise ProtocolError(Reason.ASK_DENIED, f"the store {request.store} is there: stop it first")
        assert self._session is not None
        self._session.publish(wire.FORGOTTEN, wire.encode(wire.StoreForgotten(request.store)))
        self._session.answer(asked.frame, wire.encode(wire.RequestDone()))
        return True

    def _pass_on(self, asked: _Open, request: wire.RequestToStore, now: Instant) -> None:
        """Publish a request for its store. What goes on is the struct, encoded anew, never the client's bytes."""
        assert self._session is not None
        is_quiet = isinstance(request, wire.GiveCredit)
        if not is_quiet and len(self._open) >= UNDER_WAY_MAX:
            raise ProtocolError(Reason.STORES_OVER_LIMIT, "too many requests to stores are under way")
        number = 0 if is_quiet else self._next
        passed = self._passed(number, asked.asker, request)
        if len(passed) > PASSED_BYTES_MAX:
            raise ProtocolError(Reason.STORES_OVER_LIMIT, "the request, with the rules that apply to you, is too long")
        if is_quiet:
            self._session.answer(asked.frame, b"{}")
        else:
            self._next += 1
            self._open[number] = replace(asked, until=now + TIME_OUT_MS * NS_PER_MS, store=request.store)
            if len(self._open) == 1:
                self._timers.set("open", now + TIME_OUT_MS * NS_PER_MS, self._time_out)
        self._leaving.note(asked.frame.origin, asked.asker, request, number)
        self._session.publish(wire.REQUEST % int(request.store, 16), passed)

    def _passed(self, number: int, asker: Asker, request: wire.RequestToStore) -> bytes:
        body = msgspec.Raw(wire.encode(request))
        hears = asker.hears
        if hears is not None and isinstance(request, wire.OpenChannel | wire.GiveCredit):
            hears = replaced(hears, spoken=[], spoken_roots=[])
        elif hears is not None:
            is_told = isinstance(request, wire.CommitBatch)
            hears = replaced(hears, rules=[], roots=[]) if is_told else None
        return wire.encode(
            wire.Asked(number, self._inbox, asker.entity, asker.roles, asker.inbox, body, asker.source, hears)
        )

    def _close(self, asker: Asker, request: wire.CloseChannel) -> None:
        """A client has left: close one of its readings. Nobody waits for the answer."""
        if self._session is not None:
            self._session.publish(wire.REQUEST % int(request.store, 16), self._passed(0, asker, request))

    def _answered(self, frame: Frame, now: Instant) -> None:
        """An answer of a store. Only the one that was asked is heard."""
        opened = self._open.get(frame.sequence) if frame.flags & StoredFlag.ANSWER else None
        if opened is None or self._session is None or f"{frame.origin:016x}" != opened.store:
            return
        del self._open[frame.sequence]
        is_refusal = frame.flags & StoredFlag.REFUSAL
        self._session.answer(opened.frame, frame.payload, ServiceFlag.REFUSAL if is_refusal else 0)

    def _time_out(self, now: Instant) -> None:
        if self._session is None:
            return
        for number in [number for number, opened in self._open.items() if opened.until <= now]:
            self._session.refuse(self._open.pop(number).frame, Reason.TIME_OUT, "the store does not answer")
        if self._open:
            self._timers.set("open", next(iter(self._open.values())).until, self._time_out)

    # -- the rest of the contract ---------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Ignored: it has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: it sends little."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def tell(self, command: Any, now: Instant) -> None:
        """Ignored: it takes no commands."""
        raise UsageError(f"the service stores does not know the command {command!r}")

    def clock(self, wall_ns: int, now: Instant) -> None:
        """Ignored: it does not use the time."""

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """What it knows."""
        if question != "overview":
            raise UsageError("the service stores reports its overview only")
        return {
            "awake": self._awake_at is not None,
            "stores": len(self._known),
            "away": self._known.away,
            "under_way": len(self._open),
            "waiting": len(self._waiting),
            "malformed": self._malformed + self._hearsay.malformed,
        }
