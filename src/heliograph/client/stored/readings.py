"""Readers: durable subscriptions and replays, over all stores that serve a part of their filter.

In:    commands about readers; STORED frames and answers of stores; lines that come into use; time.
Out:   requests to stores; publications in the readers' inboxes; settled requests.
State: readers, each with a reading per store.
Not here: one reader (reader.py), positions of one log (reading.py), credit and acknowledgements (telling.py).

After a change of brokers, a reader opens its readings at the position that it expects next: it gets what it missed, and
each position once. Stores send no more than the credit allows, which grows as the program takes publications. A frame
lost between brokers is noticed by the positions of the next frame, or after a second of silence.

A replay opens no log without an end: if the program gives none, the store is asked first where its log ends.

A durable subscription looks for new stores now and then. At a store that knows its name it resumes. A store that does
not know the name, while another store does, is younger than the subscription: it is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from heliograph.client.commands import Acknowledge, EndReading, ReadStores, TakenStored
from heliograph.client.lines import Lines
from heliograph.client.requests import OpenRequests
from heliograph.client.stored.calls import StoreCalls
from heliograph.client.stored.inbox import ReaderInbox
from heliograph.client.stored.reader import StoreReader, open_channel
from heliograph.client.stored.reading import Came, FrameReader, LogReading
from heliograph.client.stored.telling import Telling
from heliograph.client.stored.whereabouts import no_store
from heliograph.client.subscriptions import LocalSubscriptions
from heliograph.errors import HeliographError, NotConnectedError, ProtocolError, Reason, RefusedError, UsageError
from heliograph.machine import Instant, Outbox, Timers
from heliograph.model.publication import StoredPublication, StoredRun
from heliograph.model.topics import filter_fault, quoted
from heliograph.notes import AcknowledgementsLost, PositionsLost
from heliograph.wire import bodies
from heliograph.wire.frames import Frame
from heliograph.wire.stores import (
    MAIN,
    SELECTED_MAX,
    WINDOW_MAX,
    ChannelOpened,
    DropName,
    FindStores,
    ListLogs,
    LogsFound,
    Notice,
    RequestDone,
    StoreAdvertisement,
    StoredFlag,
    StoresFound,
    check_name,
    decode,
    span_of,
)

READERS_MAX = 1_024
FIRST_NUMBER = -2  # of a reader; they count down, as -1 is the session's inbox and those above 0 are subscriptions
LOOK_NS = 5_000_000_000  # between two searches for new stores
AGAIN_NS = 250_000_000  # wait after a store did not answer
DOUBT_NS = 2_000_000_000  # how long the answer "no store" is questioned
PASSING = (
    Reason.TIME_OUT,
    Reason.STORE_UNKNOWN,
    Reason.STORES_OVER_LIMIT,
    Reason.STOPPING,
    Reason.VAULT_FAILED,
    Reason.VAULT_FULL,
    Reason.CHANNEL_UNKNOWN,  # the store was restarted
)


class Readers:
    """All readers of a session."""

    def __init__(
        self,
        lines: Lines,
        requests: OpenRequests,
        subscriptions: LocalSubscriptions,
        calls: StoreCalls,
        outbox: Outbox,
        timers: Timers,
    ) -> None:
        self._lines = lines
        self._requests = requests
        self._subscriptions = subscriptions
        self._calls = calls
        self._outbox = outbox
        self._timers = timers
        self._frames = FrameReader()
        self._telling = Telling(calls, timers, self._end_if_done, self._fail)
        self._by_number: dict[int, StoreReader] = {}
        self._by_channel: dict[int, tuple[StoreReader, LogReading]] = {}
        self._untaken: dict[int, None] = {}  # open readers whose inbox the program has not taken yet
        self._finished: dict[int, ReaderInbox] = {}  # readers that reached their end before the program took the inbox
        self._next_number = FIRST_NUMBER
        self._next_channel = 1
        self.received = 0
        self.duplicates = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def inbox(self, number: int) -> ReaderInbox | None:
        """The inbox of a reader, even if it was opened and reached its end in the same read."""
        reader = self._by_number.get(number)
        self._untaken.pop(number, None)
        return self._finished.pop(number, None) if reader is None else reader.inbox

    # -- commands -----------------------------------------------------------------------------------------------

    def read(self, command: ReadStores, now: Instant) -> None:
        """Begin to read; the request is settled when every store that serves a part of the filter is being read."""
        fault = filter_fault(command.filter.encode("utf-8", "surrogatepass"))
        if fault is not None:
            raise UsageError(f"{quoted(command.filter)} is not a topic filter: {fault}")
        if command.name:
            _check_name(command.name)
        if not 0 < command.window <= WINDOW_MAX or command.bytes_max <= 0 or command.pace < 0:
            raise UsageError(f"a reader has a window of 1 to {WINDOW_MAX} publications, room and a pace")
        if len(self._by_number) >= READERS_MAX:
            raise UsageError(f"a session has at most {READERS_MAX} durable subscriptions and replays")
        reader = StoreReader(self._next_number, command)
        self._requests.open(command.request, now, lambda now: self._remove(reader))
        self._next_number -= 1
        self._by_number[reader.number] = reader
        self._look(reader, now)

    def taken(self, command: TakenStored, now: Instant) -> None:
        """The program took publications: give credit, and acknowledge."""
        reader = self._by_number.get(command.number)
        if reader is not None:
            reader.inbox.relax()
            for reading in reader.readings.values():
                self._telling.give_credit(reader, reading)
                self._telling.acknowledge(reader, reading, now)

    def acknowledge(self, command: Acknowledge, now: Instant) -> None:
        """The program has finished with some publications."""
        reader = self._by_number.get(command.number)
        reading = None if reader is None else reader.readings.get(command.store)
        if reader is None or reading is None:
            return
        if not reader.command.manual:
            raise UsageError("this subscription acknowledges by itself: subscribe with acknowledge='manual'")
        if reading.expected is None or not 0 <= command.position < reading.expected:
            raise UsageError(f"position {command.position} was not delivered")
        reading.pending.acknowledge(command.position, command.cumulative)
        self._telling.acknowledge(reader, reading, now)
        self._telling.widen(reader, reading)

    def end(self, command: EndReading, now: Instant) -> None:
        """End a reader once what is done has been acknowledged."""
        reader = self._by_number.get(command.number)
        if reader is None or reader.ending is not None:
            self._finished.pop(command.number, None)
            self._requests.accept(command.request)
            return
        if command.request:
            self._requests.open(command.request, now, lambda now: self._remove(reader))
        if not command.undone:
            reader.inbox.finish()
        if reader.is_durable:
            reader.inbox.forget()  # these will be delivered again, as nothing would acknowledge them now
        reader.end(command)
        for reading in reader.readings.values():
            self._telling.acknowledge(reader, reading, now)
        self._end_if_done(reader)

    def end_all(self, now: Instant) -> None:
        """End all readers: the session drains."""
        for reader in list(self._by_number.values()):
            self.end(EndReading(0, reader.number), now)

    def _end_if_done(self, reader: StoreReader) -> None:
        readings = reader.readings.values()
        if reader.ending is None or (reader.is_durable and any(one.owes(reader.done_at(one)) for one in readings)):
            return
        request, untold = reader.ending.request, sum(reading.untold for reading in readings)
        for reading in readings:
            if reading.untold:
                self._outbox.note(AcknowledgementsLost(reading.store.store, reader.command.name, reading.untold))
        self._remove(reader)
        self._requests.settle(request, error=_too_many_gaps(untold) if untold else None)

    def _remove(self, reader: StoreReader, error: HeliographError | None = None) -> None:
        if self._by_number.pop(reader.number, None) is None:
            return
        self._untaken.pop(reader.number, None)
        for reading in reader.readings.values():
            self._by_channel.pop(reading.channel, None)
            self._telling.leave(reading)
        for key in ("look", "open again", "quiet"):
            self._timers.cancel((key, reader.number))
        reader.inbox.end(error)
        self._subscriptions.news[reader.number] = reader.inbox

    def close(self, error: HeliographError | None) -> None:
        """End all readers: the session has ended."""
        for reader in list(self._by_number.values()):
            del self._by_number[reader.number]
            reader.inbox.end(error)
            self._subscriptions.news[reader.number] = reader.inbox
        self._by_channel.clear()

    # -- finding stores -------------------------------------------------------------------------------------------

    def resume(self, now: Instant) -> None:
        """A broker has welcomed us: open all readings there."""
        for reader in list(self._by_number.values()):
            for reading in reader.readings.values():
                reading.close()
                self._open(reader, reading, now)
            self._look(reader, now)

    def _look(self, reader: StoreReader, now: Instant) -> None:
        """Look for the stores of this reader."""
        if self._by_number.get(reader.number) is not reader:
            return
        reader.begin(now)
        found, lost = partial(self._found, reader), partial(self._lost, reader)
        asked = self._calls.ask(FindStores(filter=reader.command.filter), StoresFound, found, lost)
        if asked and reader.is_durable:
            self._timers.set(("look", reader.number), now + LOOK_NS, partial(self._look, reader))

    def _lost(self, reader: StoreReader, error: HeliographError, now: Instant) -> None:
        if self._by_number.get(reader.number) is not reader:
            return
        if isinstance(error, RefusedError) and error.reason not in PASSING:
            self._fail(reader, error)
        elif not isinstance(error, NotConnectedError):
            self._timers.set(("look", reader.number), now + AGAIN_NS, partial(self._look, reader))

    def _found(self, reader: StoreReader, answer: Any, now: Instant) -> None:
        if self._by_number.get(reader.number) is not reader:
            return
        wanted = reader.command.store
        found = {one.store: one for one in answer.stores if not wanted or wanted in (one.store, one.name)}
        if not found and not reader.found:
            assert reader.began_at is not None
            if now < reader.began_at + DOUBT_NS:
                self._timers.set(("look", reader.number), now + AGAIN_NS, partial(self._look, reader))
            else:
                self._fail(reader, _not_found(reader.command))
            return
        self._choose(reader, found, now)
        self._review(reader, now)

    def _choose(self, reader: StoreReader, found: dict[str, StoreAdvertisement], now: Instant) -> None:
        """Read all of these. A store that never answered and is gone by now is not waited for."""
        if reader.found and not reader.is_durable:
            return
        for gone in [one for one in reader.readings.values() if one.expected is None and one.store.store not in found]:
            del reader.readings[gone.store.store]
            self._by_channel.pop(gone.channel, None)
            self._telling.leave(gone)
        for store in found.values():
            if store.store not in reader.readings:
                reading = reader.readings[store.store] = LogReading(
                    store, self._next_channel, reader.command.ends.get(store.store)
                )
                self._by_channel[reading.channel] = (reader, reading)
                self._next_channel += 1
                self._open(reader, reading, now)
        reader.have_found()

    def _open(self, reader: StoreReader, reading: LogReading, now: Instant) -> None:
        if reading.ended or reading.opening or reading.is_open or reading.left:
            return
        failed = partial(self._not_opened, reader, reading)
        if reader.lacks_end(reading):

            def told(answer: Any, now: Instant) -> None:
                """Where its log ends: a replay ends there too."""
                if not reading.left:
                    reading.end_before(next((log.next for log in answer.logs if log.log == MAIN), 0))
                    self._open(reader, reading, now)

            asked = self._calls.ask(ListLogs(reading.store.store), LogsFound, told, failed)
        else:
            opened = partial(self._opened, reader, reading)
            asked = self._calls.ask(open_channel(reader, reading), ChannelOpened, opened, failed)
        if asked:
            reading.ask()

    def _opened(self, reader: StoreReader, reading: LogReading, answer: Any, now: Instant) -> None:
        if reading.left:
            self._telling.leave(reading)
            if answer.created and reader.taken_back:
                _take_back(self._calls, reader, reading)
            return
        first = reading.expected is None
        reading.opened(answer.position, self._lines.inbox, answer.created, now)
        if first and answer.created and answer.position > answer.first:
            reading.begins_late()
        assert reading.expected is not None
        reader.inbox.begin(reading.store.store, reading.expected)
        if not first and answer.position > reading.expected:
            self._pass_gap(reader, reading, reading.expected, answer.position, Reason.POSITION_UNKNOWN)
        for frame in reading.take_early():
            self.receive(frame, now)
        self._telling.listen(reader, now)
        self._review(reader, now)

    def _not_opened(self, reader: StoreReader, reading: LogReading, error: HeliographError, now: Instant) -> None:
        if reading.left:
            return
        if isinstance(error, RefusedError) and error.reason is Reason.TIME_OUT:
            reading.unanswered()
        else:
            reading.close()
        if isinstance(error, NotConnectedError):
            return
        if isinstance(error, RefusedError) and error.reason not in PASSING:
            self._fail(reader, error)
            return
        self._timers.set(("open again", reader.number), now + AGAIN_NS, partial(self._open_again, reader))

    def _open_again(self, reader: StoreReader, now: Instant) -> None:
        for reading in reader.readings.values():
            self._open(reader, reading, now)
        if not reader.is_open:
            self._look(reader, now)

    def _review(self, reader: StoreReader, now: Instant) -> None:
        if reader.is_open and reader.request and not self._begin_younger(reader, now):
            self._untaken[reader.number] = None
            self._requests.settle(reader.take_request(), reader.number)
        if reader.readings and reader.is_read:
            if reader.number in self._untaken:
                self._finished[reader.number] = reader.inbox
            self._remove(reader)

    def _begin_younger(self, reader: StoreReader, now: Instant) -> bool:
        """Read stores that are younger than a durable subscription from their beginning. False if there are none."""

        def dropped(reading: LogReading, answer: Any, now: Instant) -> None:
            reading.begin_again()
            self._open(reader, reading, now)

        younger = reader.younger()
        for reading in younger:
            drop = DropName(reading.store.store, reader.command.name, reader.proof(reading.store.store))
            self._calls.ask(drop, RequestDone, partial(dropped, reading), partial(self._not_opened, reader, reading))
        return bool(younger)

    def _fail(self, reader: StoreReader, error: HeliographError) -> None:
        request = reader.take_request()
        if request and isinstance(error, RefusedError) and error.reason is Reason.NAME_DIFFERS:
            reader.take_back()
            for reading in reader.readings.values():
                if reading.created:
                    _take_back(self._calls, reader, reading)
        self._requests.settle(request, error=error)
        self._remove(reader, error)

    # -- what stores send -----------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: Instant) -> None:
        """A STORED frame for a reader. ProtocolError if it makes no sense."""
        if frame.flags & StoredFlag.NOTICE:
            self._notice(frame, now)
        elif not frame.flags:
            self._deliver(frame, now)

    def _deliver(self, frame: Frame, now: Instant) -> None:
        """A STORED frame with publications. ProtocolError if it makes no sense."""
        channel, before, after, _ = span_of(frame)
        known = self._by_channel.get(channel)
        store = f"{frame.origin:016x}"
        if known is None or known[1].store.store != store:
            return
        reader, reading = known
        reading.heard(now)
        expected = reading.expected
        if expected is None:
            reading.keep(frame)
            return
        came = reading.advance(before, after)
        if came is Came.TOO_FAR:
            self._telling.ask_again(reader, reading, now)
        elif came is Came.KNOWN:
            self.duplicates += 1
        else:
            self._take_in(reader, reading, frame, expected)

    def _take_in(self, reader: StoreReader, reading: LogReading, frame: Frame, expected: int) -> None:
        inbox, store = reader.inbox, reading.store.store
        assert reading.expected is not None
        if reader.command.raw:
            run = self._frames.run(frame, store, expected, reading.take_times())
            items: list[Any] = [run] if len(run) else []
            count = len(run)
        else:
            items = list(self._frames.publications(frame, store, expected))
            count = len(items)
        self.received += count
        if reader.command.manual:
            reading.pending.deliver(chain.from_iterable(_positions(item) for item in items))
        if items:
            inbox.arrive(store, items, count)
            self._subscriptions.news[reader.number] = inbox
        else:
            inbox.pass_over(store, reading.expected)
            self._telling.give_credit(reader, reading)

    def _notice(self, frame: Frame, now: Instant) -> None:
        """Handle a STORED frame about a channel: times, a gap, its end, or that the store closed it."""
        told = decode(Notice, frame.payload)
        known = self._by_channel.get(told.channel)
        if known is None or known[1].store.store != f"{frame.origin:016x}":
            return
        reader, reading = known
        reading.heard(now)
        expected = reading.expected
        if expected is None:
            reading.keep(frame)
            return
        if told.taken:
            reading.tell_times(told.taken)
        elif (told.gap is not None and told.gap[0] > expected) or (not told.code and told.next > expected):
            self._telling.ask_again(reader, reading, now)
        elif told.gap is not None:
            self._pass_gap(reader, reading, expected, told.gap[1], bodies.reason_of(told.code))
        elif told.code and frame.topic.decode() == reading.inbox:
            self._closed(reader, reading, told, now)
        elif not told.code:
            reading.end()
            self._review(reader, now)

    def _pass_gap(self, reader: StoreReader, reading: LogReading, first: int, end: int, reason: Reason) -> None:
        if end <= first:
            return
        reading.advance(first, end)
        reader.inbox.lose(end - first)
        reader.inbox.pass_over(reading.store.store, end)
        self._outbox.note(PositionsLost(reading.store.store, first, end, reason))

    def _closed(self, reader: StoreReader, reading: LogReading, told: Notice, now: Instant) -> None:
        reason = bodies.reason_of(told.code)
        reading.close()
        if reason in PASSING:
            self._timers.set(("open again", reader.number), now + AGAIN_NS, partial(self._open_again, reader))
        else:
            self._fail(reader, RefusedError(reason, told.text or "the store ended this reading"))

    def report(self) -> list[dict[str, Any]]:
        """For the session's report."""
        return [
            {
                "number": reader.number,
                "name": reader.command.name,
                "filter": reader.command.filter,
                "waiting": len(reader.inbox),
                "stores": {
                    store: {
                        "position": reading.expected,
                        "acknowledged": reading.acknowledged,
                        "gaps": reading.pending.gaps,
                        "open": reading.is_open,
                    }
                    for store, reading in reader.readings.items()
                },
            }
            for reader in self._by_number.values()
        ]


def _check_name(name: str) -> None:
    try:
        check_name(name)
    except ProtocolError as error:
        raise UsageError(f"{quoted(name)} is not a name for a durable subscription: {error.detail}") from None


def _positions(item: StoredPublication | StoredRun) -> Sequence[int]:
    return item.positions if isinstance(item, StoredRun) else (item.position,)


def _take_back(calls: StoreCalls, reader: StoreReader, reading: LogReading) -> None:
    """Another store knows the name for another filter: forget it where this attempt made it, or it would stand in the
    way of the reader to which the name belongs."""
    drop = DropName(reading.store.store, reader.command.name, reader.proof(reading.store.store))
    calls.ask(drop, RequestDone, lambda _, now: None, lambda _, now: None)


def _too_many_gaps(count: int) -> RefusedError:
    text = (
        f"{count} acknowledged publications will be delivered again: between those that are acknowledged are more gaps "
        f"than a store keeps ({SELECTED_MAX})"
    )
    return RefusedError(Reason.SPANS_OVER_LIMIT, text)


def _not_found(command: ReadStores) -> RefusedError:
    if command.store:
        return RefusedError(Reason.STORE_UNKNOWN, f"no store {quoted(command.store)} serves {quoted(command.filter)}")
    return no_store(command.filter)
