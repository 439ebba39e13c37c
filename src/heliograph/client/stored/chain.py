"""A chain: the reliable publications of a session for one store that the store has not acknowledged yet.

In:    runs of EVENT frames, each linked to the one before; acknowledgements; the store's end of the chain.
Out:   what to repeat, with the flag REPEAT.
State: the unacknowledged runs, in order, and the predecessor of the first.
Not here: which store (whereabouts.py), when to repeat and which requests to settle (reliable.py).

Each publication names its predecessor in the header ``$q``, so the store notices what is missing. The chain is relinked
where the store's end of it is not the one that we know: after a crash of this publisher, or when a store was restored
from a copy. Parts of batches are directed to the store's inbox, and directed anew when a restart gave it another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from heliograph.wire.frames import BODY_BYTES, HEAD, Flag
from heliograph.wire.limits import HEAD_BYTES

FLAGS_AT = 5  # in a frame

_decode = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.Encoder().encode


class ChainRun:
    """Frames with consecutive sequences."""

    __slots__ = ("data", "first", "last", "topics")

    def __init__(self, topics: frozenset[str], first: int, last: int, data: bytes) -> None:
        self.topics = topics
        self.first = first
        self.last = last
        self.data = data

    @property
    def count(self) -> int:
        """How many publications."""
        return self.last - self.first + 1

    def relink(self, previous: int) -> None:
        """Make the first publication name another predecessor."""
        end = 4 + HEAD.unpack_from(self.data)[0]
        self.data = relinked(self.data[:end], previous) + self.data[end:]

    def readdress(self, inbox: str) -> None:
        """Direct what is directed to this inbox. The frames of a run are all directed, or none of them is."""
        if self.data[FLAGS_AT] & Flag.DIRECTED:
            self.data = b"".join(_with_header(frame, "$d", [inbox]) for frame in frames_in(self.data))

    def cut(self, sequence: int) -> None:
        """Forget the publications up to this one."""
        self.data = self.data[position_behind(self.data, sequence) :]
        self.first = sequence + 1


class OutgoingChain:
    """The part of one store's chain that this session still holds."""

    __slots__ = ("_base", "_runs", "acknowledged", "bytes", "frames", "last")

    def __init__(self) -> None:
        self._runs: deque[ChainRun] = deque()
        self._base = 0  # the predecessor of the first unacknowledged publication
        self.acknowledged = 0  # the store has everything up to here
        self.last = 0  # the predecessor of the next publication
        self.frames = 0
        self.bytes = 0

    @property
    def oldest(self) -> int | None:
        """The first unacknowledged sequence."""
        return self._runs[0].first if self._runs else None

    def add(self, run: ChainRun) -> None:
        """Keep a run whose first publication is linked to ``last``."""
        self._runs.append(run)
        self.last = run.last
        self.frames += run.count
        self.bytes += len(run.data)

    def acknowledge(self, sequence: int) -> bool:
        """The store has everything up to this sequence. False if that was known."""
        if sequence <= self.acknowledged:
            return False
        self.acknowledged = sequence
        while self._runs and self._runs[0].first <= sequence:
            run = self._runs[0]
            self.frames -= run.count
            self.bytes -= len(run.data)
            if run.last > sequence:
                run.cut(sequence)
                self._base = sequence
                self.frames += run.count
                self.bytes += len(run.data)
                return True
            self._base = run.last
            self._runs.popleft()
        if not self._runs:
            self._base = self.last = max(self.last, sequence)
        return True

    def follow(self, have: int) -> None:
        """The store's end of the chain is ``have``: link the unacknowledged publications to it."""
        self.acknowledge(have)
        self.acknowledged = have  # lower if the store has lost records
        if self._runs:
            if self._base != have:
                run = self._runs[0]
                self.bytes -= len(run.data)
                run.relink(have)
                self.bytes += len(run.data)
        else:
            self.last = have
        self._base = have

    def restart(self) -> None:
        """The store has records of ours that we do not know: begin a new chain with what is unacknowledged."""
        if self._runs:
            self.bytes -= len(self._runs[0].data)
            self._runs[0].relink(0)
            self.bytes += len(self._runs[0].data)
            self._base = 0

    def readdress(self, inbox: str) -> None:
        """Send what is unacknowledged and directed, parts of batches, to this inbox: the store has another one now."""
        for run in self._runs:
            self.bytes -= len(run.data)
            run.readdress(inbox)
            self.bytes += len(run.data)

    def drop(self, topic: str) -> list[ChainRun]:
        """The broker accepts nothing on this topic: remove the runs that have it and link the rest."""
        dropped = [run for run in self._runs if topic in run.topics]
        kept = [run for run in self._runs if topic not in run.topics]
        if not dropped:
            return []
        self._runs.clear()
        self.frames = self.bytes = 0
        self.last = self._base
        for run in kept:
            run.relink(self.last)
            self.add(run)
        return dropped

    def repeats(self, upto: int, bytes_max: int) -> list[bytes]:
        """Unacknowledged runs up to this sequence, flagged: the oldest ``bytes_max`` of them, at least one run."""
        out: list[bytes] = []
        size = 0
        for run in self._runs:
            if run.first > upto or (out and size + len(run.data) > bytes_max):
                break
            data = run.data if run.last <= upto else run.data[: position_behind(run.data, upto)]
            out.append(flagged(data))
            size += len(data)
        return out


def position_behind(run: bytes, sequence: int) -> int:
    """Where the frames above this sequence begin."""
    start = 0
    while start < len(run):
        length, _, _, _, _, number, _ = HEAD.unpack_from(run, start)
        if number > sequence:
            break
        start += 4 + length
    return start


def flagged(run: bytes) -> bytes:
    """The same frames with the flag REPEAT."""
    data = bytearray(run)
    start = 0
    while start < len(data):
        data[start + FLAGS_AT] |= Flag.REPEAT
        start += 4 + HEAD.unpack_from(data, start)[0]
    return bytes(data)


def frames_in(run: bytes) -> Iterator[bytes]:
    """The frames of a run, one by one."""
    start = 0
    while start < len(run):
        end = start + 4 + HEAD.unpack_from(run, start)[0]
        yield run[start:end]
        start = end


def relinked(frame: bytes, previous: int) -> bytes:
    """The same publication, linked to another one."""
    _, _, _, topic_length, _, _, header_length = HEAD.unpack_from(frame)
    top = HEAD_BYTES + topic_length
    quality = _decode(frame[top : top + header_length])["$q"]
    assert isinstance(quality, list)
    return _with_header(frame, "$q", [quality[0], previous, *quality[2:]])


def _with_header(frame: bytes, name: str, value: object) -> bytes:
    """The same publication with another value of one header."""
    _, kind, flags, topic_length, origin, sequence, header_length = HEAD.unpack_from(frame)
    top = HEAD_BYTES + topic_length
    body = top + header_length
    block = _encode({**_decode(frame[top:body]), name: value})
    length = BODY_BYTES + topic_length + len(block) + len(frame) - body
    head = HEAD.pack(length, kind, flags, topic_length, origin, sequence, len(block))
    return b"".join((head, frame[HEAD_BYTES:top], block, frame[body:]))
