"""Serving: the requests of clients to a store, as their brokers pass them on.

In:    Asked bodies: a request with the requester's identity.
Out:   answers; openings, acknowledgements and drops for the other parts of the store.
State: none of its own.
Not here: those parts (intake.py, channels.py, names.py, batches.py, measuring.py), what a client may do (hearer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from msgspec.structs import replace

from heliograph.errors import ProtocolError, Reason
from heliograph.guard import Guard
from heliograph.machine import Instant
from heliograph.matching.condition import Condition
from heliograph.model.identity import ANONYMOUS, Role
from heliograph.stores.batches import Batches
from heliograph.stores.channels import Channels, check_condition
from heliograph.stores.hearer import Hearer
from heliograph.stores.intake import Intake
from heliograph.stores.measuring import Measurements
from heliograph.stores.names import NameKey, Names, NameState, acknowledged, lister_of
from heliograph.stores.tail import Tail
from heliograph.stores.vault_calls import BUG, VaultCalls
from heliograph.vault import Read, RunsRead
from heliograph.wire import bodies
from heliograph.wire import stores as wire
from heliograph.wire.bodies import Body
from heliograph.wire.pages import one_page
from heliograph.wire.stores import MAIN, Asked, StoredFlag, stored

NAMES_PER_PAGE = 100
USED_NS = 3_600_000_000_000  # an acknowledgement of nothing new keeps a name in use: noted once in an hour
SHOWN_MAX = 256  # characters of a filter or condition in a refusal
BATCHES_PER_PAGE = 100


class Serving:
    """Answers requests."""

    def __init__(
        self,
        vault: VaultCalls,
        tail: Tail,
        intake: Intake,
        channels: Channels,
        names: Names,
        batches: Batches,
        send: Callable[[bytes], None],
        wall: Callable[[Instant], int],
        counts: Callable[[], dict[str, int]],
        guard: Guard,
    ) -> None:
        self._vault = vault
        self._measurements = Measurements(vault)
        self._tail = tail
        self._intake = intake
        self._channels = channels
        self._names = names
        self._batches = batches
        self._send = send
        self._wall = wall
        self._counts = counts
        self._guard = guard
        self._store = 0
        self._inbox = ""  # of the store's session
        self.refused: dict[str, int] = {}

    def use(self, store: int) -> None:
        """Set the id of the store."""
        self._store = store

    def welcomed(self, inbox: str) -> None:
        """The broker has given the store this inbox."""
        self._inbox = inbox

    def receive(self, payload: bytes, now: Instant) -> None:
        """A request. Errors in it are reported to the requester."""
        try:
            asked = wire.decode(Asked, payload)
        except ProtocolError as error:
            self._count(error.reason)
            return
        try:
            inbox = wire.inbox_of(asked.inbox)
            if inbox is None:
                raise ProtocolError(Reason.BODY_MALFORMED, "the asker has no inbox")
            self._handle(asked, wire.REQUESTS.decode(bytes(asked.body)), inbox, now)
        except ProtocolError as error:
            self._refuse(asked, error.reason, error.detail)
        except Exception as error:
            self._guard.caught("request to a store", error, now, entity=asked.entity)
            self._fail(asked)

    def _handle(self, asked: Asked, request: wire.StoreRequest, inbox: bytes, now: Instant) -> None:
        match request:
            case wire.GiveCredit():
                self._channels.credit(
                    (inbox, request.channel), request.at, request.window, request.again, now, _hearer(asked)
                )
            case wire.AttachPublisher():
                self._attach(asked, inbox)
            case wire.OpenChannel():
                self._open(asked, request, inbox, now)
            case wire.AckPositions():
                self._acknowledge(asked, request, now)
            case wire.CloseChannel():
                if request.opened:
                    self._channels.close_left((inbox, request.channel), (asked.to, request.opened))
                else:
                    self._channels.close((inbox, request.channel))
                self._answer(asked, wire.RequestDone())
            case wire.DropName():
                self._drop(asked, request)
            case wire.ReleaseName():
                self._release(asked, request)
            case wire.ListLogs():
                self._answer(asked, wire.LogsFound([self._entry()], self._counts()))
            case wire.MeasureLog():
                self._measurements.ask(
                    (asked.entity, asked.source),
                    request,
                    lambda found: self._answer(asked, found),
                    lambda reason, text: self._refuse(asked, reason, text),
                )
            case wire.CommitBatch():
                self._batches.commit(
                    asked.entity,
                    asked.source,
                    request,
                    lambda done: self._answer(asked, done),
                    lambda reason, text: self._refuse(asked, reason, text),
                    _check_hearer(asked).may_publish,
                )
            case wire.ListNames():
                self._list(asked, request)
            case wire.ListBatches():
                self._list_batches(asked, request)
            case wire.DropBatch():
                self._drop_batch(asked, request)
            case _:
                raise ProtocolError(Reason.QUESTION_UNKNOWN, "a store does not know this request")

    # -- publishers ---------------------------------------------------------------------------------------------

    def _attach(self, asked: Asked, inbox: bytes) -> None:
        origin = int(inbox.rsplit(b"/", 1)[1], 16)

        def answer(have: int) -> None:
            self._answer(asked, wire.Attached(have, self._inbox))

        if not self._intake.attach(origin, asked.inbox, asked.entity, asked.source, answer):
            raise ProtocolError(Reason.STORES_OVER_LIMIT, "the store knows as many publishers as it may")

    # -- readers ------------------------------------------------------------------------------------------------

    def _open(self, asked: Asked, request: wire.OpenChannel, inbox: bytes, now: Instant) -> None:
        hearer = _check_hearer(asked)
        check_condition(request.filter, request.language, request.where)
        if not hearer.may_open(request.filter.encode()):
            raise ProtocolError(Reason.SUBSCRIBE_DENIED, f"{asked.entity} may not subscribe to {request.filter[:256]}")
        if request.name:
            wire.check_name(request.name)
        if request.start not in ("", "first", "next"):
            raise ProtocolError(Reason.BODY_MALFORMED, 'start must be "first" or "next"')
        if request.position is not None and request.position > self._tail.log.next:
            text = f"the log ends at {self._tail.log.next}"
            raise ProtocolError(Reason.POSITION_UNKNOWN, text)
        if request.since_us is not None:
            self._find_time(asked, request, inbox)
            return
        self._begin(asked, request, inbox, request.position, now)

    def _find_time(self, asked: Asked, request: wire.OpenChannel, inbox: bytes) -> None:
        """Find the position at which the log reached a time, not before the position that is asked for."""
        assert request.since_us is not None
        since_ns = max(-(1 << 61), min(request.since_us * 1_000, 1 << 61))
        start = request.position or 0

        def answered(found: RunsRead, now: Instant) -> None:
            position = max(start, found.runs[0].position if found.runs else found.log.next)
            try:
                self._begin(asked, request, inbox, position, now)
            except ProtocolError as error:
                self._refuse(asked, error.reason, error.detail)

        self._vault.read(
            Read(MAIN, start, since_ns, 1),
            answered,
            lambda reason, _: self._refuse(asked, reason, ""),
            lambda _: self._fail(asked),
        )

    def _begin(self, asked: Asked, request: wire.OpenChannel, inbox: bytes, position: int | None, now: Instant) -> None:
        hearer = _check_hearer(asked)
        key: NameKey | None = (asked.entity, request.name) if request.name else None
        state = self._names.of_asker(key, request.proof, claims=True) if key is not None else None
        if state is not None:
            _check_same(request, state)
        done = [] if state is None or position is not None else state.also
        if position is None:
            position = self._default_start(request, state)
        if key is None:
            self._channels.open(inbox, None, request, position, [], now, hearer, (asked.to, asked.number))
            self._opened(asked, request, position, False)
            return
        owner = self._names.owner_for(key, request.proof, request.owner, asked.source)
        self._names.make_room(key, owner)
        self._channels.open(inbox, key, request, position, done, now, hearer, (asked.to, asked.number))
        before = position if state is None else state.before
        also = [] if state is None else state.also
        new = NameState(request.filter, before, also, request.language, request.where, self._wall(now), owner)
        self._vault.commit(
            [self._names.put(key, new)],
            lambda _, now: self._opened(asked, request, position, state is None),
            lambda reason, _: self._refuse(asked, reason, "the name could not be kept"),
            lambda _: self._fail(asked),
        )

    def _default_start(self, request: wire.OpenChannel, state: NameState | None) -> int:
        log = self._tail.log
        if state is not None:
            return state.before
        start = request.start or ("next" if request.name else "first")
        return log.first if start == "first" else log.next

    def _opened(self, asked: Asked, request: wire.OpenChannel, position: int, created: bool) -> None:
        log = self._tail.log
        self._answer(asked, wire.ChannelOpened(request.channel, position, log.first, log.next, MAIN, created))

    def _acknowledge(self, asked: Asked, request: wire.AckPositions, now: Instant) -> None:
        key = (asked.entity, request.name)
        state = self._names.of_asker(key, request.proof)
        if state is None:
            raise _unknown(key)
        highest = max([request.before, *(end for _, end in request.also)])
        if highest > self._tail.log.next:
            raise ProtocolError(Reason.POSITION_UNKNOWN, f"the log ends at {self._tail.log.next}")
        new = acknowledged(state, request.before, request.also, self._wall(now))
        if (new.before, new.also) == (state.before, state.also) and new.used_ns - state.used_ns < USED_NS:
            self._answer(asked, wire.RequestDone(before=new.before))  # nothing new: not worth a commit
            return
        self._vault.commit(
            [self._names.put(key, new)],
            lambda _, now: self._answer(asked, wire.RequestDone(before=new.before)),
            lambda reason, _: self._refuse(asked, reason, "the acknowledgement could not be kept"),
            lambda _: self._fail(asked),
        )

    def _drop(self, asked: Asked, request: wire.DropName) -> None:
        key = (request.entity or asked.entity, request.name)
        if key[0] == asked.entity:
            self._names.of_asker(key, request.proof, claims=True)
        else:
            _check_admin(asked, "drop the names of others")
        change = self._names.drop(key)
        if change is None:
            raise _unknown(key)
        self._channels.close_name(key, Reason.NAME_UNKNOWN, "the durable subscription was dropped")
        self._vault.commit(
            [change],
            lambda _, now: self._answer(asked, wire.RequestDone()),
            lambda reason, _: self._refuse(asked, reason, "the name could not be dropped"),
            lambda _: self._fail(asked),
        )

    def _release(self, asked: Asked, request: wire.ReleaseName) -> None:
        """Take a name from its owner. Its reading ends, or the owner's next request would get it back."""
        _check_admin(asked, "release names")
        key = (ANONYMOUS.entity, request.name)
        state = self._names.get(key)
        if state is None:
            raise _unknown(key)
        self._channels.close_name(key, Reason.NAME_FOREIGN, "an administrator has released this name")
        self._vault.commit(
            [self._names.put(key, replace(state, owner=None))],
            lambda _, now: self._answer(asked, wire.RequestDone()),
            lambda reason, _: self._refuse(asked, reason, "the release could not be kept"),
        )

    # -- listings -----------------------------------------------------------------------------------------------

    def _entry(self) -> wire.LogEntry:
        log = self._tail.log
        return wire.LogEntry(MAIN, log.first, log.next, log.bytes, log.first_ns // 1_000, log.last_ns // 1_000)

    def _list(self, asked: Asked, request: wire.ListNames) -> None:
        lister = None if Role.ADMIN.value in asked.roles else lister_of(asked.entity, request.owner)
        entity, _, name = request.after.partition("/")
        chosen, is_more = self._names.page((entity, name), NAMES_PER_PAGE, lister)
        log = self._tail.log
        entries = [
            wire.NameEntry(
                key[0],
                key[1],
                state.filter,
                state.before,
                max(0, log.next - max(state.before, log.first)),
                self._channels.is_open(key),
                state.language,
                state.where,
            )
            for key, state in chosen
        ]
        count = len(one_page(iter(entries))[0])
        self._answer(asked, wire.NamesFound(entries[:count], is_more or len(chosen) > count))

    def _list_batches(self, asked: Asked, request: wire.ListBatches) -> None:
        is_admin = Role.ADMIN.value in asked.roles
        if not is_admin and asked.entity == ANONYMOUS.entity:
            _check_admin(asked, "list what clients without credentials have staged")
        entries = self._batches.staging.entries(request.after, "" if is_admin else asked.entity)
        chosen = [*islice(entries, BATCHES_PER_PAGE + 1)]
        count = len(one_page(iter(chosen[:BATCHES_PER_PAGE]))[0])
        self._answer(asked, wire.BatchesFound(chosen[:count], len(chosen) > count))

    def _drop_batch(self, asked: Asked, request: wire.DropBatch) -> None:
        entity = request.entity or asked.entity
        if entity != asked.entity or entity == ANONYMOUS.entity:
            _check_admin(asked, "drop what others have staged")
        if not self._batches.drop(entity, request.publisher, request.batch):
            text = (
                f"nothing is staged for batch {request.batch} of {entity} {request.publisher}, or it is being committed"
            )
            raise ProtocolError(Reason.BATCH_INCOMPLETE, text)
        self._answer(asked, wire.RequestDone())

    # -- answering ----------------------------------------------------------------------------------------------

    def _answer(self, asked: Asked, body: Body) -> None:
        self._say(asked, wire.encode(body), StoredFlag.ANSWER)

    def _refuse(self, asked: Asked, reason: Reason, text: str) -> None:
        self._count(reason)
        self._say(asked, bodies.refusal(reason, text), StoredFlag.ANSWER | StoredFlag.REFUSAL)

    def _fail(self, asked: Asked) -> None:
        """It raised, now or when the vault answered: a bug of ours, which costs only this request."""
        self._refuse(asked, Reason.INTERNAL_ERROR, BUG)

    def _count(self, reason: Reason) -> None:
        self.refused[reason.word] = self.refused.get(reason.word, 0) + 1

    def _say(self, asked: Asked, payload: bytes, flags: int) -> None:
        to = wire.inbox_of(asked.to)
        if asked.number and to is not None:
            self._send(stored(to, self._store, asked.number, payload, flags=flags))


def _hearer(asked: Asked) -> Hearer | None:
    return None if asked.hears is None else Hearer(asked.entity, asked.roles, asked.hears, asked.source)


def _check_hearer(asked: Asked) -> Hearer:
    hearer = _hearer(asked)
    if hearer is None:
        raise ProtocolError(Reason.BODY_MALFORMED, "the client's broker does not say what the client may do")
    return hearer


def _check_same(request: wire.OpenChannel, state: NameState) -> None:
    """ProtocolError if a name was made for another filter or condition: its position says nothing about this one."""
    if _wanted(request) == _wanted(state):
        return
    kept = f"{state.filter[:SHOWN_MAX]!r}"
    if state.where:
        kept += f" where {state.where[:SHOWN_MAX]!r} ({state.language})"
    raise ProtocolError(
        Reason.NAME_DIFFERS,
        f"the durable subscription {request.name} is for {kept}, and keeps what that has not read: subscribe with "
        "this filter and condition, choose another name, or drop it first, with what it has not read (heliograph "
        f"subscription drop {request.name})",
    )


def _wanted(what: wire.OpenChannel | NameState) -> tuple[str, Condition | None]:
    return what.filter, check_condition(what.filter, what.language, what.where)


def _check_admin(asked: Asked, what: str) -> None:
    if Role.ADMIN.value not in asked.roles:
        raise ProtocolError(Reason.ASK_DENIED, f"only administrators {what}, and {asked.entity} is none")


def _unknown(key: NameKey) -> ProtocolError:
    return ProtocolError(Reason.NAME_UNKNOWN, f"{key[0]} has no durable subscription {key[1]}")
