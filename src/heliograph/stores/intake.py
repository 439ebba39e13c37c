"""Intake: writes publications to the log in runs, and acknowledges them once they are durable.

In:    deliveries of whole EVENT frames; answers of the vault.
Out:   commits; acknowledgements to publishers; runs for readers.
State: chains of publishers (bounded; the vault has the rest), publications gathered and those being committed.
Not here: one publisher's order (chain.py), room for what waits (waiting.py) and for publishers (places.py), asking for
          what is missing (asking.py), the content of a commit (gathering.py), readers (channels.py), batches
          (batches.py).

Arriving publications are gathered while commits are in progress, so that a store under load writes few large runs.
Nothing is acknowledged before ``done``, unless the settings say ``unsafe_ack``. When the vault falls behind, the store
holds its broker's link (``is_behind``); what comes in spite of that is dropped at the limit, and asked for later. When
a commit fails, everything that is not durable is forgotten and publishers are asked to repeat it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from heliograph.broker.hot import frames_of
from heliograph.errors import ProtocolError, Reason
from heliograph.guard import Guard
from heliograph.machine import Instant, Timers
from heliograph.model.identity import ANONYMOUS
from heliograph.stores.asking import Asking
from heliograph.stores.chain import ASK_NS, Chain, Verdict
from heliograph.stores.gathering import RUN_BYTES, CommitGroup, CommitTimes, Gathering
from heliograph.stores.names import Holder
from heliograph.stores.places import PublisherPlaces
from heliograph.stores.staging import Staging
from heliograph.stores.vault_calls import VaultCalls
from heliograph.stores.waiting import EarlyShares
from heliograph.vault import Append, Change, Committed, KeysRead, Put, ReadKeys, Run
from heliograph.wire import stores as wire
from heliograph.wire.frames import SCAN, Flag
from heliograph.wire.limits import HEAD_BYTES
from heliograph.wire.stores import MAIN, STORED_EVENT_BYTES_MAX, Acknowledged, Quality, StoredFlag, stored

NS_PER_MS = 1_000_000
CHAINS_MAX = 65_536
COMMITS_MAX = 2  # in progress: meanwhile the next one grows
COMMIT_BYTES = 8 << 20
EARLY_BYTES_MAX = 64 << 20  # of all chains together; beyond it, whoever has most gives way
FULL_PAUSE_MS = 1_000
STAYS_OPEN = (Reason.VAULT_FULL, Reason.REQUESTS_OVER_LIMIT)  # after these the vault is not opened anew
FLAGS = 5  # the offset of the flags in an EVENT
DIRECTED, REPEAT = int(Flag.DIRECTED), int(Flag.REPEAT)
LOOKED_AT = (DIRECTED | REPEAT) << 8  # flags, in the word of kind, flags and topic length
ORIGINS = "o/"
UNKNOWN: Holder = ("", "")  # of publishers that have not attached


class QualityMark(msgspec.Struct, array_like=True, gc=False):
    """The header `$q`, decoded quickly: the store's id is compared here, and names are checked where they are used."""

    store: str
    previous: int
    publisher: str = ""
    batch: int = 0
    part: str = ""


class _Marks(msgspec.Struct, gc=False):
    """The headers of a publication that a store uses."""

    quality: QualityMark | None = msgspec.field(name="$q", default=None)


class _Named(msgspec.Struct, gc=False):
    """The same headers, with the mark as it came."""

    quality: msgspec.Raw = msgspec.field(name="$q", default=msgspec.Raw())


_decode = msgspec.json.Decoder(_Marks).decode
_decode_named = msgspec.json.Decoder(_Named).decode
_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass(slots=True)
class IntakeCounts:
    """For reports."""

    taken: int = 0
    plain: int = 0
    staged: int = 0
    repeated: int = 0
    early: int = 0
    broken: int = 0
    dropped: int = 0  # there was no room for them
    foreign: int = 0  # for another store
    malformed: int = 0  # the header `$q` makes no sense
    acknowledgements: int = 0
    commits: int = 0
    failures: int = 0


LogOf = Callable[[Holder, str, Quality, bytes, int], str | None]
Grown = Callable[[list[Run], Instant], None]


class Intake:
    """Accepts publications."""

    def __init__(
        self,
        vault: VaultCalls,
        timers: Timers,
        *,
        keeps_plain: Callable[[bytes, Instant], bool],
        log_of: LogOf,
        staging: Staging,
        unsafe_ack: bool,
        bytes_max: int,
        send: Callable[[bytes], None],
        grown: Grown,
        failed: Callable[[Reason, Instant], None],
        wall: Callable[[Instant], int],
        guard: Guard,
    ) -> None:
        self._vault = vault
        self._timers = timers
        self._keeps_plain = keeps_plain
        self._log_of = log_of
        self._staging = staging
        self._unsafe_ack = unsafe_ack
        self._bytes_max = bytes_max  # waiting and being committed; anything beyond is asked for again
        self._send = send
        self._grown = grown
        self._failed = failed
        self._wall = wall
        self._guard = guard
        self.id = 0  # of the store; 0: not known yet, and nothing is accepted
        self._id_text = ""
        self.state = "open"
        self._chains: dict[int, Chain] = {}
        self._places = PublisherPlaces(self._chains)
        self._gathering = Gathering()
        self._under_way: deque[CommitGroup] = deque()
        self._under_way_bytes = 0
        self._owed: dict[int, None] = {}  # origins to be acknowledged or asked at the next flush
        self._attaching: list[tuple[int, Callable[[int], None]]] = []

        def owe(origin: int) -> None:
            self._owed[origin] = None

        self._waiting = EarlyShares(EARLY_BYTES_MAX, self._chains, owe)
        self._asking = Asking(timers, self._chains, owe, self._give_up)
        self.counts = IntakeCounts()
        self.times = CommitTimes()

    def open(self, id: int) -> None:
        """The vault is open: the state of publishers is read again."""
        self.id = id
        self._id_text = f"{id:016x}"
        self.state = "open"
        self._gathering.clear()
        self._waiting.clear()
        for origin, chain in list(self._chains.items()):
            if chain.inbox:
                new = self._chains[origin] = Chain(chain.inbox)  # which keeps only the publisher's address
                new.attach(chain.inbox, chain.entity, chain.source)
                self._places.put(origin, new.holder)
                self._read(origin, new)
            else:
                self._forget(origin)

    def close(self, reason: Reason) -> None:
        """The vault is lost: nothing is accepted until it is open again."""
        self.state = reason.word
        self.id = 0

    # -- accepting ----------------------------------------------------------------------------------------------

    def take(self, frames: bytes, now: Instant) -> None:
        """A delivery: whole EVENT frames. Usually they are consecutive in one chain, and are added as one piece."""
        start = piece_at = count = 0
        expected = 0  # what the next publication of the piece must name as its predecessor
        piece: Chain | None = None
        piece_origin = 0
        for end in frames_of(frames, 0):
            if end - start < HEAD_BYTES:
                self.counts.broken += 1
                break
            _, word, origin, sequence, header_length = SCAN.unpack_from(frames, start)
            top = start + HEAD_BYTES + (word >> 16)
            try:
                quality = _decode(frames[top : top + header_length]).quality if header_length else None
            except _ERRORS:
                quality = None
                if _has_mark(frames[top : top + header_length]):
                    if piece is not None:
                        self._add_piece(piece, piece_origin, frames[piece_at:start], count, expected)
                        piece = None
                    self._refuse_malformed(origin, sequence)
                    start = end
                    continue
            if (
                piece is not None
                and origin == piece_origin
                and not word & LOOKED_AT
                and quality is not None
                and quality.previous == expected < sequence
                and quality.store == self._id_text
                and end - piece_at <= RUN_BYTES
            ):
                count += 1
                expected = sequence
                start = end
                continue
            if piece is not None:
                self._add_piece(piece, piece_origin, frames[piece_at:start], count, expected)
                piece = None
            if quality is not None and quality.store == self._id_text and not word & LOOKED_AT:
                chain = self._chains.get(origin)
                if chain is not None and chain.is_next(sequence, quality.previous) and self._takes(end - start):
                    piece, piece_origin, piece_at, count, expected = chain, origin, start, 1, sequence
                    start = end
                    continue
            try:
                self._take_one(frames[start:end], word, origin, sequence, quality, now)
            except Exception as error:  # this publication is dropped alone; its publisher will repeat it
                self.counts.dropped += 1
                self._guard.caught("publication for a store", error, now)
            start = end
        if piece is not None:
            self._add_piece(piece, piece_origin, frames[piece_at:start], count, expected)

    def _takes(self, size: int) -> bool:
        """True if there is room, and nothing else prevents it."""
        return self.state == "open" and size <= STORED_EVENT_BYTES_MAX and self._has_room

    def _add_piece(self, chain: Chain, origin: int, frames: bytes, count: int, sequence: int) -> None:
        """Consecutive publications."""
        chain.advance(sequence)
        self.counts.taken += count
        self._gathering.add(frames, MAIN, count)
        self._gathering.mark(origin, sequence)

    def _take_one(
        self, raw: bytes, word: int, origin: int, sequence: int, quality: QualityMark | None, now: Instant
    ) -> None:
        """A publication that is not simply the next of its publisher."""
        if word >> 8 & REPEAT:
            raw = b"%b%c%b" % (raw[:FLAGS], raw[FLAGS] & ~REPEAT, raw[FLAGS + 1 :])
        if quality is None:
            self._take_plain(raw, raw[HEAD_BYTES : HEAD_BYTES + (word >> 16)], now)
        elif quality.store != self._id_text:
            self.counts.foreign += 1
        else:
            self._take_reliable(origin, sequence, quality, raw, now)

    def _refuse_malformed(self, origin: int, sequence: int) -> None:
        """A publication whose header `$q` makes no sense. It wanted an acknowledgement, so it is not kept as a plain
        one; its publisher is told if it has attached."""
        self.counts.malformed += 1
        chain = self._chains.get(origin)
        if chain is not None:
            chain.refuse(sequence, Reason.BODY_MALFORMED)
            self._owed[origin] = None

    def _take_plain(self, raw: bytes, topic: bytes, now: Instant) -> None:
        """A publication that needs no acknowledgement."""
        if raw[FLAGS] & DIRECTED or not self.id or self.state != "open" or len(raw) > STORED_EVENT_BYTES_MAX:
            return
        if self._has_room and self._keeps_plain(topic, now):
            self.counts.plain += 1
            self._gathering.add(raw)

    @property
    def _has_room(self) -> bool:
        return self._gathering.bytes + self._under_way_bytes < self._bytes_max

    def _take_reliable(self, origin: int, sequence: int, quality: QualityMark, raw: bytes, now: Instant) -> None:
        chain = self._chain(origin)
        is_nobody = bool(quality.publisher) and chain is not None and chain.is_read and not chain.entity
        waits = 0 if chain is None else chain.would_wait(sequence, quality.previous, raw)
        is_shut = is_nobody or not self._has_room or self.state != "open"
        if chain is None or is_shut or not self._waiting.make_room(origin, chain, waits):
            self.counts.dropped += 1
            if chain is not None:
                self._owed[origin] = None
            return
        taken: list[tuple[int, bytes]] = []
        before = chain.early_bytes
        verdict = chain.offer(sequence, quality.previous, raw, taken)
        if chain.early_bytes != before:
            self._waiting.count(origin, chain)
        if verdict is Verdict.TAKEN:
            for number, frame in taken:
                self._keep(origin, chain, number, frame)
            if chain.missing:
                self._asking.later(origin, now + ASK_NS)
            else:
                chain.closed()
        elif verdict is Verdict.REPEATED:
            self.counts.repeated += 1
            self._owed[origin] = None
        elif verdict is Verdict.EARLY:
            self.counts.early += 1
            self._asking.ask(origin, chain, now)
        elif verdict is Verdict.BROKEN:
            self.counts.broken += 1
            chain.refuse(sequence, Reason.CHAIN_BROKEN)
            self._owed[origin] = None

    def _keep(self, origin: int, chain: Chain, number: int, frame: bytes) -> None:
        if len(frame) > STORED_EVENT_BYTES_MAX:
            chain.refuse(number, Reason.FRAME_OVER_LIMIT)
        elif frame[FLAGS] & DIRECTED:
            self._stage(chain, number, frame)
        else:
            self.counts.taken += 1
            self._gathering.add(frame)
        self._gathering.mark(origin, number)

    def _stage(self, chain: Chain, number: int, frame: bytes) -> None:
        """A part of a batch; nothing else is sent to the store alone."""
        _, word, _, _, header_length = SCAN.unpack_from(frame)
        top = HEAD_BYTES + (word >> 16)
        quality = _decode(frame[top : top + header_length]).quality
        assert quality is not None
        try:
            asked = Quality(quality.store, quality.previous, quality.publisher, quality.batch, quality.part)
            log = self._log_of(chain.holder, chain.entity, asked, frame[HEAD_BYTES:top], len(frame))
        except ProtocolError as error:
            chain.refuse(number, error.reason)
            return
        if log is not None:
            self.counts.staged += 1
            undirected = b"%b%c%b" % (frame[:FLAGS], frame[FLAGS] & ~DIRECTED, frame[FLAGS + 1 :])
            self._gathering.add(undirected, log)

    def _chain(self, origin: int, holder: Holder = UNKNOWN) -> Chain | None:
        """The chain of a publisher; None if there is no room for it."""
        chain = self._chains.get(origin)
        if chain is not None or not self.id:
            return chain
        if len(self._chains) >= CHAINS_MAX:
            leaves = self._places.who_leaves(holder)
            if leaves is None:
                return None
            self._forget(leaves)
        chain = self._chains[origin] = Chain()
        self._places.put(origin, holder)
        self._read(origin, chain)
        return chain

    def _forget(self, origin: int) -> None:
        """Forget a publisher, and what waits in its chain."""
        chain = self._chains.pop(origin, None)
        if chain is not None:
            self._waiting.set(origin, chain.holder, 0)
            self._places.remove(origin)

    def forget_publisher(self, origin: int) -> bool:
        """Forget a publisher whose vault entry is to be deleted. Returns False if something of it is being committed,
        which would recreate the entry."""
        chain = self._chains.get(origin)
        if chain is not None and not chain.is_idle:
            return False
        self._forget(origin)
        return True

    def _read(self, origin: int, chain: Chain) -> None:
        key = f"{ORIGINS}{origin:016x}"

        def answered(found: KeysRead, now: Instant) -> None:
            if self._chains.get(origin) is not chain:
                return
            unread = chain.read(dict(found.pairs).get(key))
            self._waiting.set(origin, chain.holder, 0)
            self._places.put(origin, chain.holder)
            for sequence, previous, raw in unread:
                quality = QualityMark(self._id_text, previous, "?" if raw[FLAGS] & DIRECTED else "")
                self._take_reliable(origin, sequence, quality, raw, now)
            self._owed[origin] = None
            self._answer_attached()

        def unanswered(reason: Reason, now: Instant) -> None:
            if self._chains.get(origin) is chain:
                self._forget(origin)
            self._answer_attached()

        self._vault.read(ReadKeys(key), answered, unanswered)

    # -- publishers ---------------------------------------------------------------------------------------------

    def attach(self, origin: int, inbox: str, entity: str, source: str, answer: Callable[[int], None]) -> bool:
        """A publisher attached. ``answer`` gets the number that we have, once everything accepted is durable."""
        holder = entity, source if entity == ANONYMOUS.entity else ""
        chain = self._chain(origin, holder)
        if chain is None:
            return False
        chain.attach(inbox, entity, source)
        self._places.put(origin, holder)
        self._waiting.count(origin, chain)
        self._attaching.append((origin, answer))
        self._answer_attached()
        return True

    def _answer_attached(self) -> None:
        left = []
        for origin, answer in self._attaching:
            chain = self._chains.get(origin)
            if chain is None:
                continue  # the vault failed; the requester will time out
            if chain.is_read and chain.taken == chain.have:
                answer(chain.have)
            else:
                left.append((origin, answer))
        self._attaching = left[-4_096:]

    def _give_up(self, origin: int, chain: Chain) -> None:
        """What is missing does not come: forget what waits for it, and tell the publisher."""
        self.counts.broken += chain.give_up(Reason.CHAIN_BROKEN)
        self._waiting.count(origin, chain)
        self._owed[origin] = None

    def _acknowledge(self, chain: Chain, durable: int) -> None:
        """Tell a publisher up to where everything is durable, and what is missing or refused."""
        if not chain.inbox or not self.id:
            return
        missing = chain.missing
        if not missing and chain.highest > chain.taken:
            missing = chain.highest  # it was dropped here
        body = b""
        if missing or chain.refused or self.state != "open":
            body = wire.encode(Acknowledged(missing, chain.refused, self.state))
            chain.told()
        self.counts.acknowledgements += 1
        self._send(stored(chain.inbox.encode(), self.id, durable, body, flags=StoredFlag.ACK))

    # -- committing -----------------------------------------------------------------------------------------------

    def flush(self, now: Instant) -> None:
        """Commit what was gathered, if the vault is free; send publishers their acknowledgements."""
        while not self._gathering.is_empty and len(self._under_way) < COMMITS_MAX and self.id and self.state == "open":
            self._commit(now)
        if self._owed:
            owed, self._owed = self._owed, {}
            for origin in owed:
                chain = self._chains.get(origin)
                if chain is not None and chain.is_read:
                    self._acknowledge(chain, chain.have)

    def _commit(self, now: Instant) -> None:
        wall = self._wall(now)
        group = self._gathering.take(COMMIT_BYTES, now, wall)
        group.leave_out(self._staging.is_gone)
        changes: list[Change] = [Append(log, data, count, wall, wall) for log, data, count in group.runs]
        for origin, sequence in group.marks.items():
            changes.append(Put(f"{ORIGINS}{origin:016x}", self._chains[origin].state(sequence, wall)))
        self._under_way.append(group)
        self._under_way_bytes += group.size
        self.counts.commits += 1
        self._vault.commit(changes, self._durable, self._lost)
        if self._unsafe_ack:
            for origin, sequence in group.marks.items():
                self._acknowledge(self._chains[origin], sequence)

    def _durable(self, committed: Committed, now: Instant) -> None:
        group = self._under_way.popleft()
        self._under_way_bytes -= group.size
        self.times.add(now - group.at)
        for origin, sequence in group.marks.items():
            chain = self._chains.get(origin)
            if chain is not None:
                chain.made_durable(sequence)
                if not self._unsafe_ack:
                    self._acknowledge(chain, chain.have)
        if self._attaching:
            self._answer_attached()
        grown = [
            Run(position, count, group.wall, group.wall, data)
            for position, (log, data, count) in zip(committed.positions, group.runs, strict=True)
            if log == MAIN
        ]
        for log, data, count in group.runs:
            if log != MAIN:
                self._staging.stored(log, len(data), count)
        if grown:
            self._grown(grown, now)

    def _lost(self, reason: Reason, now: Instant) -> None:
        """A commit failed, and those after it fail too: publications that are not durable must be sent again."""
        group = self._under_way.popleft()
        self._under_way_bytes -= group.size
        self.counts.failures += 1
        self.state = reason.word
        self._gathering.clear()
        self._waiting.clear()
        self._staging.lost()
        for origin, chain in self._chains.items():
            chain.reset()
            self._owed[origin] = None
        if reason in STAYS_OPEN:
            self._timers.set("full", now + FULL_PAUSE_MS * NS_PER_MS, self._resume)
        self._failed(reason, now)

    def _resume(self, now: Instant) -> None:
        """Try again: there may be space now, or less that waits."""
        if self._under_way:  # failures that have not been reported yet
            self._timers.set("full", now + FULL_PAUSE_MS * NS_PER_MS, self._resume)
            return
        if self.state in [reason.word for reason in STAYS_OPEN]:
            self.state = "open"
            for origin in self._chains:
                self._owed[origin] = None

    def is_behind(self, was: bool) -> bool:
        """True if the vault is so slow that nothing more should come: from half of the limit on, and if it ``was``
        behind, down to a quarter. The other half is for what is under way. Publications that wait for an earlier one
        do not count, as that one has to come."""
        mark = self._bytes_max // (4 if was else 2)
        return self.waiting_bytes >= mark and self.id != 0 and self.state == "open"

    @property
    def gave_way(self) -> int:
        """How many chains were made to forget what waited in them, as others needed the room."""
        return self._waiting.gave_way

    @property
    def chains(self) -> int:
        """How many publishers are known."""
        return len(self._chains)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that are not durable yet."""
        return self._gathering.bytes + self._under_way_bytes


def _has_mark(headers: bytes) -> bool:
    """True if these headers are JSON and name `$q`, whatever is in it."""
    try:
        return bool(bytes(_decode_named(headers).quality))
    except _ERRORS:
        return False
