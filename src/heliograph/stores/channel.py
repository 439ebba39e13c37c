"""A channel: one reading of the log for one session, at the pace and within the credit of the reader.

In:    runs of the log; credit.
Out:   STORED frames with matching publications that the reader may hear; each says which positions it covers.
State: the position of the reading, what is in transit to the reader, runs read ahead.
Not here: reading the vault, the table of channels (channels.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import chain, pairwise

from heliograph.broker.hot import frames_of
from heliograph.machine import Instant
from heliograph.matching.condition import Condition, Event
from heliograph.matching.conditions import matches as meets
from heliograph.model.topics import matches
from heliograph.stores.hearer import Hearer
from heliograph.stores.names import NameKey, Span
from heliograph.stores.outlook import Outlook
from heliograph.stores.references import PartReference, reference_of, resolved
from heliograph.stores.repeats import Thrown
from heliograph.vault import Damage, Run
from heliograph.wire.events import select
from heliograph.wire.frames import LENGTH, SCAN
from heliograph.wire.limits import HEAD_BYTES
from heliograph.wire.stores import NUMBER_MAX, OFFSETS_MAX, STORED_BYTES, STORED_BYTES_BULK, TAKEN_MAX, span, stored

UNDER_WAY_BYTES_MAX = 2 << 20  # whatever the window is, because the reader's broker queues it
UNDER_WAY_BYTES_BULK = 3 << 20  # with a frame more, it is less than the broker drops frames at
BULK_WINDOW = 16_384  # a reader that may have so many under way reads much: larger frames cost less
TOPICS_MAX = 4_096
LOST_NS = 1_000_000_000  # what was sent and not received by then is sent again
LOOKED_MAX = 16_000  # publications examined for one frame: their offsets must fit it
# What examining costs, in units of about 50 ns
LOOK_WORK = 1  # a publication if only its topic decides
TOPIC_WORK = 32  # a topic that was not judged before
DONE_WORK = 16  # a publication if some are acknowledged out of order
CONDITION_WORK = 64  # a publication with a condition
RUN_WORK = 64
SUMMARY_WORK = 24
PRICE_MIN = 8  # what a publication is taken to need at least, as new topics may follow known ones
COPIED_PER_UNIT = 512  # bytes of publications that match
NS_PER_US = 1_000
LONG_NS = 1 << 60  # 36 years: with a pace next to zero a reading waits no longer than that
TIMES_APART_US = 1_000  # of two times of storing that are told apart


class Channel:
    """One reading."""

    def __init__(
        self,
        inbox: bytes,
        number: int,
        key: NameKey | None,
        pattern: str,
        condition: Condition | None,
        position: int,
        end: int | None,
        until_ns: int | None,
        pace: float,
        window: int,
        done: Sequence[Span],
        now: Instant,
        hearer: Hearer,
        with_times: bool = False,
        opened: tuple[str, int] = ("", 0),
        whole: bool = False,
    ) -> None:
        self.inbox = inbox
        self.number = number
        self.key = key
        self.end = end
        self.until_ns = until_ns
        self.pace = pace
        self.window = window
        self.cursor = position  # the next position to examine
        self.sent_to = position  # the end of what the frames so far cover
        self.at = position  # the end of what has arrived, as reported by the reader
        self.opened = opened  # by which `stores` service, and its number for that request
        self.is_reading = False  # a read is in progress
        self.is_over = False
        self.heard_at = now
        self.moved_at = now  # when the reader last made progress, or was sent something
        self.began_at: Instant | None = None  # with a pace: when the first was sent …
        self.base_ns = 0  # … and when it was stored
        self.due_at: Instant | None = None  # with a pace: when the next run is due
        self.pattern = pattern
        self._filter = pattern.encode()
        self.outlook = Outlook(self._filter)
        self._hearer = hearer
        self.holder = hearer.holder
        self._condition = condition
        self._done = [*done]  # positions acknowledged out of order
        self._with_times = with_times
        self._taken: list[tuple[int, int]] = []  # positions and times of storing in the last frame
        self._whole = whole
        self.withholds = False  # something that was asked for, if nothing may be left out
        self._topics: dict[bytes, bool] = {}
        self._judged = 0  # topics, for the last frame
        self.worked = 0  # in all
        self.thrown = Thrown(COPIED_PER_UNIT)
        self._price = self._look_work + TOPIC_WORK  # the work that a publication is expected to need
        self._place: tuple[Run, int, int] | None = None  # in a run: the position reached, and its offset in bytes
        self._ahead: deque[Run | Damage] = deque()
        self._under_way: deque[tuple[int, int, int]] = deque()  # end position, publications, bytes
        self.under_way = 0
        self.under_way_bytes = 0

    # -- credit -------------------------------------------------------------------------------------------------

    def credit(self, at: int, window: int, again: bool, now: Instant, hearer: Hearer | None = None) -> None:
        """The reader has everything before ``at``, and may hear this."""
        if hearer is not None and not hearer.is_same(self._hearer):
            again |= hearer.as_of != self._hearer.as_of  # its broker has dropped what was sent since
            self._hearer = hearer
            self._topics.clear()
        self.heard_at = now
        self.window = window
        if at > self.at:
            self.at = min(at, self.sent_to)
            self.moved_at = now
            self.thrown.got(self.worked)
        while self._under_way and self._under_way[0][0] <= self.at:
            _, count, size = self._under_way.popleft()
            self.under_way -= count
            self.under_way_bytes -= size
        is_lost = at <= self.at < self.sent_to and now - self.moved_at > LOST_NS
        if (again or is_lost) and at < self.sent_to:
            self.moved_at = now
            self._go_back(at)

    def _go_back(self, position: int) -> None:
        self.thrown.throw(self.under_way_bytes, self.worked)
        self.cursor = self.sent_to = self.at = position
        self._under_way.clear()
        self.under_way = self.under_way_bytes = 0
        self._ahead.clear()
        self.is_over = False
        self.began_at = None

    @property
    def as_of(self) -> int:
        """What the reader may hear, as of this number of its broker."""
        return self._hearer.as_of

    @property
    def has_credit(self) -> bool:
        """True if more may be sent."""
        bytes_max = UNDER_WAY_BYTES_BULK if self.is_bulk else UNDER_WAY_BYTES_MAX
        return self.under_way < self.window and self.under_way_bytes < bytes_max

    @property
    def is_bulk(self) -> bool:
        """True if the reader takes much at once."""
        return self.window >= BULK_WINDOW

    def finish(self) -> None:
        """The reading has reached its end."""
        self.is_over = True

    def reading(self, goes_on: bool) -> None:
        """A read begins, or was answered."""
        self.is_reading = goes_on

    # -- runs ---------------------------------------------------------------------------------------------------

    @property
    def has_ahead(self) -> bool:
        """True if there are runs that were read and not examined."""
        return bool(self._ahead)

    def feed(self, runs: Sequence[Run | Damage]) -> None:
        """Runs that were read. If they begin after the cursor, the reading went back meanwhile: it reads again."""
        wanted = [run for run in runs if run.next > self.cursor]
        if wanted and wanted[0].position <= self.cursor:
            self._ahead.extend(wanted)

    def skip(self, position: int) -> Span:
        """Nothing before this position can be read. Returns the positions that the reader misses."""
        gap = (self.cursor, position)
        self.cursor = self.sent_to = position
        while self._ahead and self._ahead[0].next <= position:
            self._ahead.popleft()
        return gap

    def pass_over(self, work_max: int) -> None:
        """Pass over what nothing matches in, as summaries say. With a pace each run has its time, so none is passed."""
        if self.pace:
            return
        wanted, steps = self.outlook.wanted_from(self.cursor, max(1, work_max // SUMMARY_WORK))
        self.worked += steps * SUMMARY_WORK
        self.cursor = wanted if self.end is None else max(self.cursor, min(wanted, self.end))
        while self._ahead and self._ahead[0].next <= self.cursor:
            self._ahead.popleft()

    def take_reference(self) -> tuple[Run, PartReference] | None:
        """The reference that the reading has reached, if any, and its target from the cursor on."""
        first = self._ahead[0] if self._ahead else None
        reference = None if first is None else reference_of(first)
        if reference is None:
            return None
        assert isinstance(first, Run)
        return first, PartReference(reference.log, reference.start + max(0, self.cursor - first.position))

    def resolve(self, run: Run, found: Sequence[Run | Damage]) -> Sequence[Run | Damage]:
        """The runs that a reference refers to; returns them as far as they are new."""
        if not self._ahead or self._ahead[0] is not run:
            return ()
        self._ahead.popleft()
        runs = [each for each in resolved(run, found) if each.next > self.cursor]
        self._ahead.extendleft(reversed(runs))
        return runs

    def take_damage(self) -> Damage | None:
        """The damage that the reading has reached, if any."""
        return self._ahead[0] if self._ahead and isinstance(self._ahead[0], Damage) else None

    def is_due(self, now: Instant) -> bool:
        """With a pace: True if the next run is due; otherwise ``due_at`` says when it will be."""
        if not self.pace or not self._ahead:
            return True
        first = self._ahead[0]
        if isinstance(first, Damage):
            return True
        if self.began_at is None:
            self.began_at, self.base_ns = now, first.first_ns
        self.due_at = self.began_at + int(max(0.0, min((first.first_ns - self.base_ns) / self.pace, LONG_NS)))
        return now >= self.due_at

    def next_frame(self, store: int, now: Instant, work_max: int) -> bytes | None:
        """A STORED frame with what matches in the runs ahead, as far as about so much work gets (``worked`` grows
        by what it was); None if nothing matches, or nothing is ahead."""
        frames: list[bytes] = []
        chosen: list[range] = []  # offsets from the base
        size = count = looked = runs = 0
        base = self.sent_to
        self._taken = []
        self._judged = work = 0
        worked = self.worked
        room = min(self.window - self.under_way, OFFSETS_MAX)
        full = STORED_BYTES_BULK if self.is_bulk else STORED_BYTES
        while (
            self._ahead
            and size < full
            and count < room
            and looked < LOOKED_MAX
            and work < work_max
            and not self.is_over
        ):
            run = self._ahead[0]
            if reference_of(run) is not None:
                break
            if isinstance(run, Damage) or (self.until_ns is not None and run.first_ns > self.until_ns):
                self.is_over = self.is_over or not isinstance(run, Damage)
                break
            if self.cursor - base > 0xFFFF_0000 or (self.end is not None and self.cursor >= self.end):
                break
            affordable = max(1, (work_max - work) // max(PRICE_MIN, self._price))
            room_here = min(room - count, LOOKED_MAX - looked, affordable)
            if self.end is not None:
                room_here = min(room_here, self.end - self.cursor)
            before, known = self.cursor, len(chosen)
            size += self._choose(run, base, room_here, full - size, frames, chosen)
            count += sum(map(len, chosen[known:]))
            looked += self.cursor - before
            work = self._reckon(looked, size, runs := runs + 1)
            self.worked = worked + work
            if self._with_times and len(chosen) > known:
                self._tell_time(before, run.last_ns // NS_PER_US)
            if self.cursor >= run.next:
                self._ahead.popleft()
            if self.pace:
                break
        if self.end is not None and self.cursor >= self.end:
            self.is_over = True
        if not frames:
            return None
        self.moved_at = now
        return self._frame(store, frames, _joined(chosen), size)

    def _reckon(self, looked: int, size: int, runs: int) -> int:
        """The work for the frame so far, and with it what the next publications are expected to need."""
        examining = looked * self._look_work + self._judged * TOPIC_WORK
        if looked:
            self._price = -(-examining // looked)
        return examining + size // COPIED_PER_UNIT + runs * RUN_WORK

    @property
    def _look_work(self) -> int:
        if self._condition is not None:
            return CONDITION_WORK
        return DONE_WORK if self._done else LOOK_WORK

    @property
    def _is_plain(self) -> bool:
        """True if only topics decide."""
        return self._condition is None and not self._done

    def _choose(
        self, run: Run, base: int, count_max: int, bytes_max: int, frames: list[bytes], chosen: list[range]
    ) -> int:
        """Examine publications of a run from the cursor on; adds those that match to ``frames``. Returns their size."""
        if self._is_plain:
            looked, size = self._choose_topics(run, base, count_max, bytes_max, frames, chosen)
            if looked:
                return size
        data, cursor = run.data, self.cursor
        start = piece_at = self._offset_of(run)
        first = cursor  # of the piece
        plain = self._is_plain
        last, wanted, size = b"", False, 0
        unpack = SCAN.unpack_from
        for _ in range(count_max):
            if start + HEAD_BYTES > len(data):
                break
            length, word, _, _, _ = unpack(data, start)
            end = start + LENGTH.size + length
            topic = data[start + HEAD_BYTES : start + HEAD_BYTES + (word >> 16)]
            if topic != last:
                last, wanted = topic, self._wants_topic(topic)
            if wanted and (plain or self._wants(data, start, end, topic, cursor)):
                size += end - start
            else:
                if piece_at < start:
                    frames.append(data[piece_at:start])
                    chosen.append(range(first - base, cursor - base))
                piece_at, first = end, cursor + 1
            start = end
            cursor += 1
            if size >= bytes_max:
                break
        if piece_at < start:
            frames.append(data[piece_at:start])
            chosen.append(range(first - base, cursor - base))
        self.cursor = cursor
        self._place = (run, cursor, start)
        return size

    def _offset_of(self, run: Run) -> int:
        """Where the publication at the cursor begins in a run."""
        if self._place is not None and self._place[0] is run and self._place[1] == self.cursor:
            return self._place[2]
        skipped = self.cursor - run.position
        return frames_of(run.data, 0)[skipped - 1] if skipped else 0

    def _choose_topics(
        self, run: Run, base: int, count_max: int, bytes_max: int, frames: list[bytes], chosen: list[range]
    ) -> tuple[int, int]:
        """The same if only topics decide; returns how many were examined, and the bytes of those that match."""
        data, cursor = run.data, self.cursor
        looked, size, pieces = select(
            data, cursor - run.position, count_max, bytes_max, self._topics, self._wants_topic
        )
        for start, end, first, count in pieces:
            frames.append(data if end - start == len(data) else data[start:end])
            offset = cursor - base + first
            chosen.append(range(offset, offset + count))
        self.cursor = cursor + looked
        return looked, size

    def _tell_time(self, position: int, taken_us: int) -> None:
        """Publications from this position on were stored then; times that are nearly equal count as one."""
        if not self._taken or abs(taken_us - self._taken[-1][1]) >= TIMES_APART_US:
            self._taken.append((position, taken_us))

    @property
    def taken(self) -> list[tuple[int, int]]:
        """When the publications of the last frame were stored, if the reader wants to know."""
        return self._taken

    def empty_frame(self, store: int) -> bytes | None:
        """A frame without publications that covers what did not match; None if there is nothing to cover."""
        return self._frame(store, [], (), 0) if self.cursor > self.sent_to else None

    def _frame(self, store: int, frames: list[bytes], offsets: Sequence[int], size: int) -> bytes:
        headers = span(self.number, self.sent_to, self.cursor, offsets)
        if frames:
            self.under_way += len(offsets)
            self.under_way_bytes += size
            self._under_way.append((self.cursor, len(offsets), size))
        self.sent_to = self.cursor
        return stored(self.inbox, store, self._hearer.as_of, frames, headers)

    def _wants_topic(self, topic: bytes) -> bool:
        wanted = self._topics.get(topic)
        if wanted is None:
            if len(self._topics) >= TOPICS_MAX:
                self._topics.clear()
            self._judged += 1
            is_asked = matches(self._filter, topic)
            wanted = self._topics[topic] = is_asked and self._hearer.may_hear(topic)
            self.withholds |= self._whole and is_asked and not wanted
        return wanted

    def _wants(self, data: bytes, start: int, end: int, topic: bytes, position: int) -> bool:
        if self._done and self._is_done(position):
            return False
        if self._condition is None:
            return True
        header_length = SCAN.unpack_from(data, start)[4]
        top = start + HEAD_BYTES + len(topic)
        event = Event(topic, data[top : top + header_length], data[top + header_length : end])
        return meets(self._condition, event)

    def _is_done(self, position: int) -> bool:
        """True if acknowledged. The spans are kept: a reader that lost something is sent it again."""
        place = bisect_right(self._done, (position, NUMBER_MAX))
        return place > 0 and position < self._done[place - 1][1]


def _joined(chosen: Sequence[range]) -> Sequence[int]:
    """All offsets; consecutive ones, the usual case, as one range."""
    if all(one.stop == other.start for one, other in pairwise(chosen)):
        return range(chosen[0].start, chosen[-1].stop)
    return [*chain.from_iterable(chosen)]


assert LOOKED_MAX <= TAKEN_MAX, "the times of a frame fit into one notice"
