"""Channels: open durable subscriptions and replays, fed from the log.

In:    requests to open, credit and close; the growth of the log; summaries; answers of the vault.
Out:   STORED frames to readers; reads.
State: the open channels, bounded in number, each with little in memory.
Not here: one reading (channel.py), durable names (names.py), which runs a reading need not read (outlook.py).

A reader whose link has ended loses its channel, as does one that is silent for a minute; a durable subscription keeps
its position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from heliograph.errors import ProtocolError, Reason
from heliograph.guard import Guard
from heliograph.machine import Instant, Timers
from heliograph.matching.condition import Condition
from heliograph.matching.languages import condition_of
from heliograph.model.topics import filter_fault
from heliograph.stores.channel import Channel
from heliograph.stores.hearer import Hearer
from heliograph.stores.names import NameKey, Span
from heliograph.stores.references import PartReference
from heliograph.stores.repeats import ThrownAway
from heliograph.stores.summaries import Summaries, end_of
from heliograph.stores.tail import Tail
from heliograph.stores.vault_calls import VaultCalls
from heliograph.vault import Damage, KeysRead, Read, Run, RunsRead
from heliograph.wire import stores as wire
from heliograph.wire.stores import MAIN, Notice, OpenChannel, StoredFlag, stored

NS_PER_MS = 1_000_000
SILENT_NS = 60_000 * NS_PER_MS
TEND_NS = 5_000 * NS_PER_MS
READ_BYTES = 1 << 18
READ_BYTES_BULK = 1 << 20
OF_SESSION_MIN = 64  # readings that one session may always have open; beyond it, a quarter of all …
# … and an entity, or a source of clients without credentials, as many as are still free for others
WORK_MAX = 20_000  # for all readings together, in one input: about a millisecond (see channel.py)
TURN_WORK = 400  # a turn of a reading, whatever it does
FAR = 1 << 31  # positions: no frame covers so many more that their offsets do not fit

ChannelKey = tuple[bytes, int]


class Channels:
    """All open readings."""

    def __init__(
        self,
        tail: Tail,
        summaries: Summaries,
        vault: VaultCalls,
        timers: Timers,
        send: Callable[[bytes], None],
        channels_max: int,
        guard: Guard,
    ) -> None:
        self._tail = tail
        self._summaries = summaries
        self._vault = vault
        self._timers = timers
        self._send = send
        self._max = channels_max
        self._guard = guard
        self._channels: dict[ChannelKey, Channel] = {}
        self._by_name: dict[NameKey, ChannelKey] = {}
        self._ready: dict[ChannelKey, None] = {}  # channels that may have something to do
        self._caught_up: dict[ChannelKey, None] = {}  # channels that wait for the log to grow
        self.is_continued = False  # True: there is more to do at the next wake, which comes at once
        self._store = 0
        self._is_pressed = False
        self.repeats = ThrownAway()
        self._now: Instant = 0  # of the last input that came to it
        self.delivered = 0  # frames
        self.gaps = 0  # positions that could not be read

    def use(self, store: int) -> None:
        """Set the id of the store."""
        self._store = store

    def reload(self, channels_max: int) -> None:
        """Set how many there may be."""
        self._max = channels_max

    def __len__(self) -> int:
        return len(self._channels)

    def is_open(self, key: NameKey) -> bool:
        """True if this name is being read."""
        return key in self._by_name

    # -- opening ------------------------------------------------------------------------------------------------

    def open(
        self,
        inbox: bytes,
        key: NameKey | None,
        asked: OpenChannel,
        position: int,
        done: list[Span],
        now: Instant,
        hearer: Hearer,
        opened: tuple[str, int] = ("", 0),
    ) -> None:
        """Begin a reading, replacing one under the same number or name. ProtocolError if there is no room."""
        condition = check_condition(asked.filter, asked.language, asked.where)
        here = (inbox, asked.channel)
        older = self._by_name.get(key) if key is not None else None
        if older is not None and older != here:
            self.close(older, Reason.TAKEN_OVER, "the same name was opened elsewhere")
        if here not in self._channels and len(self._channels) >= self._max:
            raise ProtocolError(Reason.CHANNELS_OVER_LIMIT, f"{self._max} readings are open")
        limit = max(OF_SESSION_MIN, self._max // 4)
        if here not in self._channels and sum(key[0] == inbox for key in self._channels) >= limit:
            raise ProtocolError(Reason.CHANNELS_OVER_LIMIT, f"this session has {limit} readings open")
        free = self._max - len(self._channels)
        has = sum(channel.holder == hearer.holder for channel in self._channels.values())
        if here not in self._channels and has >= max(OF_SESSION_MIN, free):
            who = " at ".join(filter(None, hearer.holder))
            text = f"{who} has {has} readings open, and {free} places are left of {self._max}: they are for others"
            raise ProtocolError(Reason.CHANNELS_OVER_LIMIT, text)
        self._remove(here)
        until_ns = None if asked.until_us is None else asked.until_us * 1_000
        self._channels[here] = Channel(
            inbox,
            asked.channel,
            key,
            asked.filter,
            condition,
            position,
            asked.end,
            until_ns,
            asked.pace,
            asked.window,
            done,
            now,
            hearer,
            asked.times,
            opened,
            asked.whole,
        )
        if key is not None:
            self._by_name[key] = here
        self._ready[here] = None
        self._timers.set("tend channels", now + TEND_NS, self._tend)

    def credit(
        self, here: ChannelKey, at: int, window: int, again: bool, now: Instant, hearer: Hearer | None = None
    ) -> None:
        """What a reader has, and how much it may be sent. A channel from before a restart must be opened again."""
        channel = self._channels.get(here)
        if channel is None:
            inbox, number = here
            text = "no such channel is open here: the store may have been restarted"
            notice = Notice(number, at, code=Reason.CHANNEL_UNKNOWN, text=text)
            self._tell(inbox, 0 if hearer is None else hearer.as_of, notice)
            return
        channel.credit(at, window, again, now, hearer)
        thrown = channel.thrown.take()
        if thrown:
            self.repeats.add(here, channel.holder, thrown, now)
        if here in self._caught_up and not channel.is_reading:
            frame = channel.empty_frame(self._store)
            if frame is not None:
                self._send(frame)
        if channel.is_over:
            self._end(channel)
        self._ready[here] = None

    def close(self, here: ChannelKey, reason: Reason | None = None, text: str = "") -> bool:
        """End a reading; with a reason, the reader is told. Returns False if there is none."""
        channel = self._channels.get(here)
        if channel is None:
            return False
        if reason is not None:
            self._notice(channel, Notice(channel.number, channel.sent_to, code=reason, text=text))
        self._remove(here)
        return True

    def close_left(self, here: ChannelKey, opened: tuple[str, int]) -> None:
        """The requester of this opening has left. Nothing happens if it has opened the channel anew meanwhile."""
        channel = self._channels.get(here)
        if channel is not None and channel.opened == opened:
            self._remove(here)

    def close_name(self, key: NameKey, reason: Reason, text: str) -> None:
        """End the reading of a durable subscription, and tell its reader why."""
        here = self._by_name.get(key)
        if here is not None:
            self.close(here, reason, text)

    def close_all(self, reason: Reason, text: str) -> None:
        """The store cannot read for now."""
        for here in list(self._channels):
            self.close(here, reason, text)

    def _remove(self, here: ChannelKey) -> None:
        channel = self._channels.pop(here, None)
        if channel is not None and not channel.is_over and channel.sent_to > channel.at:
            channel.thrown.throw(channel.under_way_bytes, channel.worked)
            self.repeats.add(here, channel.holder, channel.thrown.take(), self._now)
        self._ready.pop(here, None)
        self._caught_up.pop(here, None)
        self._timers.cancel(("pace", here))
        if channel is not None and channel.key is not None and self._by_name.get(channel.key) == here:
            del self._by_name[channel.key]

    def _tend(self, now: Instant) -> None:
        for here, channel in list(self._channels.items()):
            if now - channel.heard_at > SILENT_NS:
                self._remove(here)
        self.repeats.sweep(now)
        if self._channels or self.repeats:
            self._timers.set("tend channels", now + TEND_NS, self._tend)

    # -- reading ------------------------------------------------------------------------------------------------

    def grown(self) -> None:
        """The log has grown."""
        self._ready.update(self._caught_up)
        self._caught_up.clear()

    def press(self, pressed: bool) -> None:
        """The broker does not read, or reads again."""
        self._is_pressed = pressed

    def flush(self, now: Instant) -> None:
        """Send what can be sent, each channel in its turn, until it is enough for this input. The rest is left to the
        next wake: inputs that come before it do not add to that."""
        self._now = now
        if self._is_pressed or self.is_continued:
            return
        left = WORK_MAX
        turns = deque(self._ready)
        while turns and left > 0:
            here = turns.popleft()
            self._ready.pop(here, None)
            channel = self._channels.get(here)
            if channel is None:
                continue
            left -= TURN_WORK
            before = channel.worked
            if self._serve_guarded(here, channel, max(1, left), now):
                self._ready[here] = None
                turns.append(here)
            left -= channel.worked - before
        if self._ready:
            self.is_continued = True
            self._timers.set("channels", now, self._continue)

    def _continue(self, now: Instant) -> None:
        self.is_continued = False

    def _serve_guarded(self, here: ChannelKey, channel: Channel, work_max: int, now: Instant) -> bool:
        """The same; what raises ends this reading, and no other."""
        try:
            return self._serve(here, channel, work_max, now)
        except Exception as error:
            self._guard.caught("reading of a store", error, now, entity=channel.key[0] if channel.key else "")
            self._fail(here)
            return False

    def _fail(self, here: ChannelKey) -> None:
        self.close(here, Reason.INTERNAL_ERROR, "a bug in this store, which its log describes")

    def _serve(self, here: ChannelKey, channel: Channel, work_max: int, now: Instant) -> bool:
        """A turn: send a frame, or examine what so much work gets. Returns True if there is more to do at once."""
        if channel.is_reading or channel.is_over or not channel.has_credit:
            return False
        if self.repeats and (again_at := self.repeats.until(here, channel.holder)) > now:
            self._timers.set(("pace", here), again_at, lambda at: self._ready.update({here: None}))
            return False
        self._pass_over(channel, work_max)
        if not channel.has_ahead and not self._fetch(here, channel, now):
            return False
        damage = channel.take_damage()
        if damage is not None:
            self._gap(channel, damage.next, Reason.VAULT_DAMAGED, damage.problem)
            return True
        reference = channel.take_reference()
        if reference is not None:
            self._follow(here, channel, *reference)
            return False
        if not channel.is_due(now):
            assert channel.due_at is not None
            self._timers.set(("pace", here), channel.due_at, lambda at: self._ready.update({here: None}))
            return False
        frame = channel.next_frame(self._store, now, work_max)
        if channel.withholds:
            who, _ = channel.holder
            text = f"some publications of {channel.pattern[:256]} are withheld from {who}"
            self.close(here, Reason.SUBSCRIBE_DENIED, text)
            return False
        if frame is not None:
            self.delivered += 1
            if channel.taken:
                self._notice(channel, Notice(channel.number, channel.sent_to, taken=channel.taken))
            self._send(frame)
        if channel.is_over:
            self._end(channel)
            return False
        return True

    def _pass_over(self, channel: Channel, work_max: int) -> None:
        channel.pass_over(work_max)
        frame = channel.empty_frame(self._store) if channel.cursor - channel.sent_to > FAR else None
        if frame is not None:
            self._send(frame)

    def _look_ahead(self, here: ChannelKey, channel: Channel) -> None:
        """Read what summaries say of the log from the cursor on."""
        since, until = channel.cursor, self._tail.log.next
        channel.reading(True)

        def answered(found: KeysRead, now: Instant) -> None:
            if self._channels.get(here) is channel:
                channel.reading(False)
                ends = [since + 1, *(end_of(key) for key, _ in found.pairs)]
                channel.outlook.load(since, max(ends) if found.more else until, found.pairs)
                self._ready[here] = None

        def unanswered(reason: Reason, now: Instant) -> None:
            if self._channels.get(here) is channel:
                self.close(here, reason, "the store cannot read")

        self._summaries.read(since, answered, unanswered, lambda now: self._fail(here))

    def _fetch(self, here: ChannelKey, channel: Channel, now: Instant) -> bool:
        """Get the next runs. Returns False if they must be waited for."""
        log = self._tail.log
        if channel.end is not None and channel.cursor >= channel.end:
            self._end(channel)
            return False
        if channel.cursor >= log.next:
            if channel.until_ns is not None:
                self._end(channel)
            else:
                self._caught_up[here] = None
            return False
        if channel.cursor < log.first:
            self._gap(channel, log.first, None, "no longer kept")
        bytes_max = READ_BYTES_BULK if channel.is_bulk and not channel.outlook.has_skipped else READ_BYTES
        runs = self._tail.read(channel.cursor, bytes_max)
        if runs is not None:
            channel.feed(runs)
            return True
        if not channel.pace and not channel.outlook.knows(channel.cursor):
            self._look_ahead(here, channel)
            return False
        channel.reading(True)

        def answered(found: RunsRead, now: Instant) -> None:
            if self._channels.get(here) is channel:
                channel.reading(False)
                if channel.cursor < found.log.first:
                    self._gap(channel, found.log.first, None, "no longer kept")
                channel.feed(found.runs)
                self._learn(channel, found.runs, now)
                self._ready[here] = None

        def unanswered(reason: Reason, now: Instant) -> None:
            if self._channels.get(here) is channel:
                self.close(here, reason, "the store cannot read")

        self._vault.read(
            Read(MAIN, channel.cursor, None, bytes_max), answered, unanswered, lambda now: self._fail(here)
        )
        return False

    def _follow(self, here: ChannelKey, channel: Channel, run: Run, reference: PartReference) -> None:
        """Read what a reference refers to."""
        channel.reading(True)

        def answered(found: RunsRead, now: Instant) -> None:
            if self._channels.get(here) is channel:
                channel.reading(False)
                self._learn(channel, channel.resolve(run, found.runs), now)
                self._ready[here] = None

        def unanswered(reason: Reason, now: Instant) -> None:
            if self._channels.get(here) is channel:
                self.close(here, reason, "the store cannot read")

        self._vault.read(
            Read(reference.log or MAIN, reference.start, None, READ_BYTES),
            answered,
            unanswered,
            lambda now: self._fail(here),
        )

    def _learn(self, channel: Channel, runs: Sequence[Run | Damage], now: Instant) -> None:
        """What has no summary gets one as it is read."""
        self._summaries.write(channel.outlook.learn(runs), now)

    def _gap(self, channel: Channel, until: int, reason: Reason | None, text: str) -> None:
        frame = channel.empty_frame(self._store)
        if frame is not None:
            self._send(frame)
        gap = channel.skip(until)
        self.gaps += gap[1] - gap[0]
        self._notice(channel, Notice(channel.number, channel.sent_to, gap, reason or 0, text))

    def _end(self, channel: Channel) -> None:
        """The reading is over: cover what did not match, and tell the reader."""
        frame = channel.empty_frame(self._store)
        if frame is not None:
            self._send(frame)
        channel.finish()
        self._notice(channel, Notice(channel.number, channel.sent_to))

    def _notice(self, channel: Channel, notice: Notice) -> None:
        self._tell(channel.inbox, channel.as_of, notice)

    def _tell(self, inbox: bytes, as_of: int, notice: Notice) -> None:
        self._send(stored(inbox, self._store, as_of, wire.encode(notice), flags=StoredFlag.NOTICE))

    def report(self) -> list[dict[str, object]]:
        """Each channel, as a row."""
        return [
            {
                "inbox": channel.inbox.decode(),
                "channel": channel.number,
                "name": "" if channel.key is None else "/".join(channel.key),
                "cursor": channel.cursor,
                "under_way": channel.under_way,
                "lag": max(0, self._tail.log.next - channel.at),
            }
            for channel in self._channels.values()
        ]


def check_condition(pattern: str, language: str, where: str) -> Condition | None:
    """The condition of a reading; ProtocolError if it or the filter is invalid."""
    fault = filter_fault(pattern.encode())
    if fault is not None:
        raise ProtocolError(Reason.FILTER_INVALID, fault)
    if language == "topic":
        if where:
            raise ProtocolError(Reason.BODY_MALFORMED, "the language topic has no condition")
        return None
    return condition_of(language, where)
