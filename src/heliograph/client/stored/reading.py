"""A reading: a reader's progress through the log of one store, position by position.

In:    STORED frames with publications, and notices; they may come late, twice, or not at all.
Out:   each position once, in order; whether something was lost on the way; credit and acknowledgements to send.
State: the position that is expected next; what the store knows to be done.
Not here: asking the store (readings.py), the queue for the program (inbox.py), what is acknowledged by hand
       (pending.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum

from heliograph.client.stored.pending import PendingPublications, Span, sorted_out, tellable
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant
from heliograph.model.publication import StoredPublication, StoredRun
from heliograph.wire.frames import BODY_BYTES, SCAN, Frame
from heliograph.wire.limits import HEAD_BYTES
from heliograph.wire.stores import WINDOW_MAX, StoreAdvertisement, span_of

AGAIN_NS = 500_000_000  # between two requests to send the same frames again
TOPICS_MAX = 16_384
EARLY_MAX = 64  # frames

_unpack = SCAN.unpack_from


class Came(Enum):
    """What a frame contained."""

    NEW = 1
    KNOWN = 2
    TOO_FAR = 3  # a frame before it was lost


class LogReading:
    """One store, for one reader."""

    __slots__ = (
        "acknowledged",
        "acknowledging",
        "again_at",
        "asked",
        "channel",
        "created",
        "early",
        "end_at",
        "ended",
        "expected",
        "heard_at",
        "inbox",
        "is_refused",
        "late",
        "left",
        "opening",
        "pending",
        "room_left",
        "store",
        "taken",
        "told_changes",
        "told_spans",
        "whole",
    )

    def __init__(self, store: StoreAdvertisement, channel: int, end_at: int | None = None) -> None:
        self.store = store
        self.channel = channel
        self.end_at = end_at  # it ends before this position
        self.expected: int | None = None  # the next position; None: it was never open
        self.inbox = ""  # the topic to which the store sends; empty: not open
        self.opening = False  # the store was asked to open it
        self.asked = False  # … and may have done so, or may yet
        self.created = False  # the name was new at this store …
        self.late = False  # … and does not begin with the oldest record
        self.whole = False  # it must begin with the oldest record
        self.ended = False
        self.left = False  # by its reader; what the store answers comes too late
        self.early: list[Frame] = []  # frames that came before the store confirmed the opening
        self.taken: list[tuple[int, int]] = []  # positions and times of storing of the next frame
        self.heard_at: Instant = 0
        self.again_at: Instant = -AGAIN_NS
        self.acknowledged = 0  # the store knows that everything before this position is done
        self.acknowledging = False
        self.pending = PendingPublications()  # only if the program acknowledges by hand
        self.told_changes = 0  # the acknowledgements that the store was told of …
        self.told_spans: list[Span] = []  # … and the spans it may know
        self.is_refused = False  # it keeps no more spans
        self.room_left = WINDOW_MAX  # the last credit: how many publications may be under way

    @property
    def is_open(self) -> bool:
        """True while the store sends."""
        return bool(self.inbox) and not self.ended

    def ask(self) -> None:
        """The store is asked to open it."""
        self.opening = self.asked = True

    def end_before(self, position: int) -> None:
        """The store told where its log ends: it may be opened now."""
        self.opening = False
        self.end_at = position

    def opened(self, position: int, inbox: str, created: bool, now: Instant) -> None:
        """The store sends from this position on."""
        if self.expected is None:
            self.expected = self.acknowledged = position
            self.created = created
        self.opening = False
        self.inbox = inbox
        self.heard_at = now

    def keep(self, frame: Frame) -> None:
        """Keep a frame that came before the answer; it is read after the answer. If dropped, it comes again."""
        if self.opening and len(self.early) < EARLY_MAX:
            self.early.append(frame)

    def take_early(self) -> list[Frame]:
        """The frames that came before the answer."""
        early, self.early = self.early, []
        return early

    def tell_times(self, taken: list[tuple[int, int]]) -> None:
        """When the publications of the next frame were stored."""
        self.taken = taken

    def take_times(self) -> list[tuple[int, int]]:
        """The same, for the frame that has come."""
        taken, self.taken = self.taken, []
        return taken

    def begins_late(self) -> None:
        """The name was new at this store, and its older records are skipped."""
        self.late = True

    def begin_again(self) -> None:
        """The name was dropped: begin with the oldest record."""
        self.close()
        self.late = False
        self.expected = None
        self.whole = True

    def close(self) -> None:
        """The store does not send: it closed the channel, or we have changed brokers."""
        self.inbox = ""
        self.opening = self.asked = self.acknowledging = False
        self.early = []

    def unanswered(self) -> None:
        """The store did not answer in time. It may open it yet."""
        self.close()
        self.asked = True

    def end(self) -> None:
        """Nothing more will come."""
        self.ended = True

    def leave(self) -> None:
        """The reader has ended, or no longer reads this store."""
        self.left = True

    def heard(self, now: Instant) -> None:
        """The store has sent something."""
        self.heard_at = now

    def may_ask_again(self, now: Instant) -> bool:
        """False if the store was asked a moment ago to send again."""
        if now < self.again_at + AGAIN_NS:
            return False
        self.again_at = now
        return True

    def advance(self, before: int, after: int) -> Came:
        """Account for a frame that covers these positions."""
        assert self.expected is not None
        if before > self.expected:
            return Came.TOO_FAR
        if after <= self.expected:
            return Came.KNOWN
        self.expected = after
        return Came.NEW

    # -- acknowledging --------------------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """By hand, everything before this position is acknowledged, or was passed over."""
        first = self.pending.first
        return (self.expected or 0) if first is None else first

    def owes(self, done: int) -> bool:
        """True if the store has not been told that everything before ``done``, and what it can be told, is done."""
        return done > self.acknowledged or self.pending.changes > self.told_changes

    def leave_room(self, window: int) -> None:
        """So many publications may be under way."""
        self.room_left = window

    def acknowledge_begun(self) -> tuple[list[Span], int]:
        """The store is being told what is done: which spans to tell, and what to call ``acknowledge_ended`` with."""
        self.acknowledging = True
        spans = [] if self.is_refused else tellable(self.pending.spans(), self.told_spans)
        self.told_spans = spans
        return spans, self.pending.changes

    def acknowledge_ended(self, before: int, changes: int) -> None:
        """The store knows what was done after so many changes."""
        self.acknowledging = self.is_refused = False
        self.acknowledged = max(self.acknowledged, before)
        self.told_changes = changes

    def acknowledge_failed(self) -> None:
        """The store may not know what is done."""
        self.acknowledging = False

    def acknowledge_refused(self) -> None:
        """The store keeps no more spans, as it has others of this name: next it is told no spans."""
        self.acknowledging = False
        self.is_refused = True

    @property
    def untold(self) -> int:
        """How many acknowledged publications the store was not told of, because there are too many gaps."""
        return self.pending.count(sorted_out(self.pending.spans(), self.told_spans)[1])


class FrameReader:
    """Decodes the publications of STORED frames."""

    def __init__(self) -> None:
        self._topics: dict[bytes, str] = {}
        self.discarded = 0

    def run(self, frame: Frame, store: str, expected: int, taken: Sequence[tuple[int, int]] = ()) -> StoredRun:
        """The publications from ``expected`` on, as bytes."""
        _, before, after, offsets = span_of(frame)
        data = frame.payload
        skipped = bisect_left(offsets, expected - before)
        start = 0
        for _ in range(skipped):
            start = self._end(data, start)
        offsets = offsets[skipped:] if skipped else offsets
        data = data[start:] if start else data
        return StoredRun(store, max(before, expected), after, _later(offsets, before), data, taken)

    def publications(self, frame: Frame, store: str, expected: int) -> list[StoredPublication]:
        """The publications from ``expected`` on."""
        _, before, _, offsets = span_of(frame)
        data, start, found = frame.payload, 0, []
        for offset in offsets:
            end = self._end(data, start)
            if before + offset >= expected:
                publication = self._publication(data, start, end, store, before + offset)
                if publication is not None:
                    found.append(publication)
            start = end
        if start != len(data):
            raise ProtocolError(Reason.BODY_MALFORMED, "a stored frame with more publications than positions")
        return found

    def _publication(self, data: bytes, start: int, end: int, store: str, position: int) -> StoredPublication | None:
        _, word, origin, sequence, header_length = _unpack(data, start)
        top = start + HEAD_BYTES + (word >> 16)
        body = top + header_length
        topic = self._topic(data[start + HEAD_BYTES : top])
        if body > end or topic is None:
            self.discarded += 1
            return None
        flags = word >> 8 & 0xFF
        return StoredPublication(topic, data[body:end], origin, sequence, data[top:body], flags, store, position)

    @staticmethod
    def _end(data: bytes, start: int) -> int:
        if start + HEAD_BYTES > len(data):
            raise ProtocolError(Reason.FRAME_TOO_SHORT, "a stored frame with fewer publications than positions")
        length, word = _unpack(data, start)[:2]
        end: int = start + 4 + length
        if word & 0xFF != 1 or length < BODY_BYTES or end > len(data):
            raise ProtocolError(Reason.FRAME_TOO_SHORT, "a stored frame holds something else than whole publications")
        return end

    def _topic(self, name: bytes) -> str | None:
        topic = self._topics.get(name)
        if topic is None:
            try:
                topic = name.decode()
            except UnicodeDecodeError:
                return None
            if len(self._topics) >= TOPICS_MAX:
                self._topics.clear()
            self._topics[name] = topic
        return topic or None


def _later(offsets: Sequence[int], start: int) -> Sequence[int]:
    """Positions from offsets; consecutive ones remain a range, which costs nothing."""
    if isinstance(offsets, range):
        return range(start + offsets.start, start + offsets.stop)
    return [start + offset for offset in offsets]
