"""A reader: a durable subscription or a replay of the program, over one or several stores.

In:    the program's command; the progress of its readings.
Out:   requests to open channels; whether it is open, or has reached its end.
State: its readings and its inbox.
Not here: positions of one log (reading.py), asking stores (readings.py).
"""

from __future__ import annotations

from heliograph.client.commands import EndReading, ReadStores, Request
from heliograph.client.stored.inbox import ReaderInbox
from heliograph.client.stored.reading import LogReading
from heliograph.machine import Instant
from heliograph.wire.name_proofs import proof_of
from heliograph.wire.stores import WINDOW_MAX, OpenChannel


class StoreReader:
    """A durable subscription or a replay of the program."""

    def __init__(self, number: int, command: ReadStores) -> None:
        self.number = number
        self.command = command
        self.inbox = ReaderInbox(number, command.window, command.bytes_max)
        self.readings: dict[str, LogReading] = {}
        self.request: Request = command.request  # settled when the reader is open
        self.began_at: Instant | None = None
        self.found = False  # the stores are known
        self.taken_back = False  # it never began: stores that did not know its name forget it again
        self.ending: EndReading | None = None

    @property
    def is_durable(self) -> bool:
        """True for a durable subscription."""
        return bool(self.command.name)

    @property
    def is_open(self) -> bool:
        """True once all its stores are being read."""
        return self.found and all(reading.expected is not None for reading in self.readings.values())

    @property
    def is_old(self) -> bool:
        """True if some store knew its name before."""
        return any(reading.expected is not None and not reading.created for reading in self.readings.values())

    @property
    def is_read(self) -> bool:
        """True if every reading has reached its end."""
        return self.found and all(reading.ended for reading in self.readings.values())

    def lacks_end(self, reading: LogReading) -> bool:
        """True if this store has to say first where its log ends, as nothing else would end the replay there."""
        command = self.command
        return reading.end_at is None and command.until_us is None and not (self.is_durable or command.follow)

    def begin(self, now: Instant) -> None:
        """The search for stores begins now."""
        if self.began_at is None:
            self.began_at = now

    def have_found(self) -> None:
        """The stores are known."""
        self.found = True

    def take_request(self) -> Request:
        """The request that waits for the reader; 0 from the second call on."""
        request, self.request = self.request, 0
        return request

    def take_back(self) -> None:
        """A store knows its name for another filter, so it never begins."""
        self.taken_back = True

    def end(self, command: EndReading) -> None:
        """The program ends it."""
        self.ending = command

    def window(self) -> int:
        """How many publications may be under way: fewer if they are large."""
        inbox = self.inbox
        mean = inbox.bytes // len(inbox) if len(inbox) else 0
        return max(1, min(self.command.window, self.command.bytes_max // mean if mean else WINDOW_MAX))

    def window_for(self, reading: LogReading) -> int:
        """The same for one store: none while the program has left too many gaps."""
        return min(self.window(), reading.pending.room) if self.command.manual else self.window()

    def younger(self) -> list[LogReading]:
        """Readings of stores that are younger than this durable subscription, as they did not know its name."""
        return [reading for reading in self.readings.values() if reading.late] if self.is_old else []

    def start_of(self, reading: LogReading) -> str:
        """Where to begin at a store that does not know the name: a store found later is read from its beginning."""
        return "first" if self.is_durable and (reading.whole or not self.request) else self.command.start

    def proof(self, store: str) -> str:
        """What shows a store that the name is this client's; empty for a client with credentials."""
        return proof_of(self.command.secret, store, self.command.name) if self.is_durable else ""

    def done_at(self, reading: LogReading) -> int:
        """The program has finished everything before this position of the store's log."""
        return reading.done if self.command.manual else self.inbox.done.get(reading.store.store, 0)


def open_channel(reader: StoreReader, reading: LogReading) -> OpenChannel:
    """The request to open a channel: the first time as the program asked, later where the reading stood."""
    command, store = reader.command, reading.store.store
    position = command.positions.get(store) if reading.expected is None else reading.expected
    return OpenChannel(
        store=store,
        channel=reading.channel,
        name=command.name,
        filter=command.filter,
        language=command.language,
        where=command.where,
        start=reader.start_of(reading) if position is None else "",
        position=position,
        since_us=command.since_us if reading.expected is None else None,
        end=reading.end_at,
        until_us=command.until_us,
        pace=command.pace,
        window=max(1, reader.window_for(reading)),
        times=command.times,
        whole=command.whole,
        proof=reader.proof(store),
        owner=proof_of(command.secret, store) if command.name else "",
    )
