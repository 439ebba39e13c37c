"""Tells stores how far a reader is: credit and acknowledgements.

In:    readers whose program took something, or that miss something.
Out:   requests to stores.
State: none; what a store was told is in the reading.
Not here: what stores send (readings.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.client.stored.calls import StoreCalls
from heliograph.client.stored.reader import StoreReader
from heliograph.client.stored.reading import LogReading
from heliograph.errors import HeliographError, Reason, RefusedError
from heliograph.machine import Instant, Timers
from heliograph.wire.bodies import Body
from heliograph.wire.stores import AckPositions, CloseChannel, GiveCredit, RequestDone

QUIET_NS = 1_000_000_000  # silence after which a store is asked whether it has more


class Telling:
    """Tells stores the progress of readers. ``told``: an acknowledgement was answered; ``failed``: it never will be."""

    def __init__(
        self,
        calls: StoreCalls,
        timers: Timers,
        told: Callable[[StoreReader], None],
        failed: Callable[[StoreReader, HeliographError], None],
    ) -> None:
        self._calls = calls
        self._timers = timers
        self._told = told
        self._failed = failed

    def listen(self, reader: StoreReader, now: Instant) -> None:
        """Check the reader's stores now and then."""
        self._timers.set(("quiet", reader.number), now + QUIET_NS, lambda now: self._quiet(reader, now))

    def _quiet(self, reader: StoreReader, now: Instant) -> None:
        """Ask silent stores whether they have more: the last frame may have been lost."""
        for reading in reader.readings.values():
            if reading.is_open and now >= reading.heard_at + QUIET_NS:
                self.ask_again(reader, reading, now)
            self.acknowledge(reader, reading, now)
        self.listen(reader, now)

    def ask_again(self, reader: StoreReader, reading: LogReading, now: Instant) -> None:
        """Ask the store to send again, from the expected position on, as much as there is room for."""
        queued = reader.inbox.queued.get(reading.store.store, 0)
        window = reader.window_for(reading) - queued
        if not reading.is_open or window <= 0 or not reading.may_ask_again(now):
            return
        assert reading.expected is not None
        store = reading.store.store
        self._tell(GiveCredit(store, reading.channel, reading.expected, window, again=True))

    def give_credit(self, reader: StoreReader, reading: LogReading) -> None:
        """Give the store credit, counted from the first position that the program has not taken.

        With too many gaps between acknowledged publications it gets less, or none until some are closed.
        """
        if not reading.is_open or reading.expected is None:
            return
        window = reader.window_for(reading)
        reading.leave_room(window)
        if not window:
            return
        inbox, store = reader.inbox, reading.store.store
        queued = inbox.queued.get(store, 0)
        at = inbox.taken[store] if queued else reading.expected
        self._tell(GiveCredit(store, reading.channel, at, window))

    def widen(self, reader: StoreReader, reading: LogReading) -> None:
        """Give credit that was held back, if acknowledgements have closed gaps."""
        window = reader.window_for(reading)
        if window > reading.room_left and window >= min(reader.window(), 2 * reading.room_left):
            self.give_credit(reader, reading)

    def acknowledge(self, reader: StoreReader, reading: LogReading, now: Instant) -> None:
        """Tell the store what is done; one request at a time, so that many acknowledgements become one."""
        done = reader.done_at(reading)
        if not reader.is_durable or reading.acknowledging or not reading.is_open or not reading.owes(done):
            return
        spans, changes = reading.acknowledge_begun()
        store = reading.store.store

        def answered(answer: Any, now: Instant) -> None:
            reading.acknowledge_ended(max(done, answer.before), changes)
            self.acknowledge(reader, reading, now)
            self._told(reader)

        def failed(error: HeliographError, now: Instant) -> None:
            reading.acknowledge_failed()
            reason = error.reason if isinstance(error, RefusedError) else None
            if reason in (Reason.NAME_UNKNOWN, Reason.NAME_FOREIGN):
                self._failed(reader, error)  # the durable subscription was dropped or released
            elif reason is Reason.SPANS_OVER_LIMIT and spans:
                reading.acknowledge_refused()
                self.acknowledge(reader, reading, now)
            self._told(reader)

        body = AckPositions(store, reader.command.name, done, spans, reader.proof(store))
        if not self._calls.ask(body, RequestDone, answered, failed):
            reading.acknowledge_failed()

    def leave(self, reading: LogReading) -> None:
        """Nobody reads it any more. A store that was asked to open it, and has not answered, may do so later."""
        reading.leave()
        if reading.asked and not reading.ended:
            self._tell(CloseChannel(reading.store.store, reading.channel))

    def _tell(self, body: Body) -> None:
        """Send a request whose answer does not matter."""
        self._calls.ask(body, RequestDone, _nothing, _nothing)


def _nothing(answer: Any, now: Instant) -> None:
    pass
