"""Flows: publishers that keep a window of frames on the way, and the loop that drives them.

In:    links that have shaken hands, batches to publish, sinks that know what must arrive.
Out:   messages, seconds and broker CPU over the measured interval; MismatchError if anything is lost or altered.
State: per flow, what is being written; per reader, bytes that are not settled yet.
Not here: protocols (peers/), which flows make up a case (cases.py).

The window is counted at the sinks, so it is the whole way that is bounded: nothing overflows, nothing may be lost.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from benchmarks.batches import Batches
from benchmarks.links import READ_BYTES, Link
from benchmarks.sinks import MismatchError, Sink

WARM_S_MAX = 20.0  # a broker that has not passed every topic once by then is measured as it is
STALL_S = 10.0  # so long without any arrival, and what is missing counts as lost
AFTER_S = 0.03  # and then nothing more may come
HEARD_BYTES = 512


class Actor(Protocol):
    """Someone else on a link of the same loop, such as one that changes subscriptions."""

    link: Link
    acts: int  # what it has done so far, with the broker's consent

    def readable(self) -> None:
        """There is something to read."""

    def act(self, now: float) -> None:
        """Do what is due."""


class Reader:
    """A sink on its link."""

    def __init__(self, link: Link, sink: Sink) -> None:
        self.link = link
        self.sink = sink
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._kept = 0  # unsettled bytes at the start of the buffer

    @property
    def unsettled(self) -> bytes:
        """The beginning of something that has not come in full."""
        return bytes(self._buffer[: self._kept])

    def readable(self) -> None:
        """Read once, or until a TLS link has no more (epoll does not see what TLS has buffered)."""
        buffer = self._buffer
        while True:
            count = self.link.receive_into(buffer[self._kept :])
            if count is None:
                return
            end = self._kept + count
            settled = self.sink.feed(buffer[:end])
            self._kept = end - settled
            if self._kept:
                buffer[: self._kept] = bytes(buffer[settled:end])
            if self.sink.replies:
                self.link.send(memoryview(self.sink.replies))
                self.sink.replies = b""
            if not self.link.secure:
                return


class Flow:
    """One publisher and those who read it. Every sink sees one frame in ``stride``."""

    def __init__(
        self,
        link: Link,
        batches: Batches,
        readers: Sequence[Reader],
        *,
        window: int,
        stride: int,
        frames_per_write: int,
    ) -> None:
        assert batches.frames % frames_per_write == 0
        assert frames_per_write <= window
        self.link = link
        self.readers = readers
        self.blocked = False  # the kernel takes no more for now
        self.stopped = False
        self.published = 0
        self.outstanding_max = 0
        self.heard = b""
        self._batches = batches
        self.warm = max(window, batches.round)  # once so much has come out, the pipe is full and every topic known
        self._window = window
        self._stride = stride
        self._frames_per_write = frames_per_write
        self._write_bytes = frames_per_write * batches.frame_bytes
        self._batch = memoryview(b"")
        self._piece = memoryview(b"")

    @property
    def completed(self) -> int:
        """Messages that have arrived wherever they should."""
        return min(reader.sink.frames for reader in self.readers) * self._stride

    def push(self) -> None:
        """Write as much as window and kernel allow."""
        while self._piece or self._begin():
            sent = self.link.send(self._piece)
            if sent is None:
                self.blocked = True
                return
            self._piece = self._piece[sent:]
        self.blocked = False

    def listen(self) -> None:
        """Nothing need be said to a publisher here; what is said is kept, in case something goes wrong."""
        buffer = memoryview(bytearray(READ_BYTES))
        count = self.link.receive_into(buffer)
        self.heard = (self.heard + bytes(buffer[: count or 0]))[:HEARD_BYTES]

    def _begin(self) -> bool:
        """The next write becomes the current piece, if the window has room for it."""
        outstanding = self.published + self._frames_per_write - self.completed
        if self.stopped or outstanding > self._window:
            return False
        if not self._batch:
            batch, groups = self._batches.next()
            self._batch = memoryview(batch)
            for number, reader in enumerate(self.readers):
                reader.sink.expect(groups[number % len(groups)])
        self._piece, self._batch = self._batch[: self._write_bytes], self._batch[self._write_bytes :]
        self.published += self._frames_per_write
        self.outstanding_max = max(self.outstanding_max, outstanding)
        return True


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds, up to a moment or over an interval."""

    broker_s: float  # CPU time of the broker's processes
    generator_s: float  # CPU time of this process
    waited_s: float  # the broker was ready, but others had its core

    def since(self, before: Usage) -> Usage:
        """What was used from then to now."""
        return Usage(
            self.broker_s - before.broker_s, self.generator_s - before.generator_s, self.waited_s - before.waited_s
        )


@dataclass(frozen=True, slots=True)
class Interval:
    """What was measured between two moments under steady load."""

    messages: int
    seconds: float
    usage: Usage
    acts: int  # of the actors


class Pump:
    """The loop: warms up, measures, stops publishing, and waits until everything has arrived."""

    def __init__(self, flows: Sequence[Flow], actors: Sequence[Actor] = ()) -> None:
        self._flows = flows
        self._actors = actors
        self._epoll = select.epoll()
        self._readers = {reader.link.fileno(): (reader, flow) for flow in flows for reader in flow.readers}
        self._writers = {flow.link.fileno(): flow for flow in flows}
        self._others = {actor.link.fileno(): actor for actor in actors}
        for number in (*self._readers, *self._writers, *self._others):
            self._epoll.register(number, select.EPOLLIN)

    @property
    def completed(self) -> int:
        """Messages that have arrived, over all flows."""
        return sum(flow.completed for flow in self._flows)

    def measure(self, warm_s: float, measure_s: float, usage: Callable[[], Usage]) -> Interval:
        """Run the load and check all of it. ``usage`` gives what has been used so far."""
        warm = sum(flow.warm for flow in self._flows)
        self._run(lambda now, start: now >= start + (warm_s if self.completed >= warm else WARM_S_MAX))
        before = self._moment(usage)
        self._run(lambda now, start: now >= start + (measure_s if self.completed > before.messages else STALL_S))
        after = self._moment(usage)
        self._finish()
        found = Interval(
            messages=after.messages - before.messages,
            seconds=after.seconds - before.seconds,
            usage=after.usage.since(before.usage),
            acts=after.acts - before.acts,
        )
        if not found.messages:
            raise MismatchError(f"nothing arrived within {measure_s} s{self._heard()}")
        return found

    def _moment(self, usage: Callable[[], Usage]) -> Interval:
        return Interval(self.completed, perf_counter(), usage(), sum(actor.acts for actor in self._actors))

    def close(self) -> None:
        """End every link."""
        self._epoll.close()
        links = [flow.link for flow in self._flows] + [actor.link for actor in self._actors]
        for link in links + [reader.link for reader, _ in self._readers.values()]:
            link.close()

    def _finish(self) -> None:
        for flow in self._flows:
            flow.stopped = True
        while missing := self._missing():
            self._wait_for_fewer(missing)
            if self._missing() == missing:
                raise MismatchError(f"{missing} messages never arrived{self._heard()}")
        self._run(lambda now, start: now >= start + AFTER_S)
        for reader, _ in self._readers.values():
            if reader.unsettled:
                raise MismatchError(f"after the last frame there came {reader.unsettled!r}")

    def _wait_for_fewer(self, missing: int) -> None:
        self._run(lambda now, start: self._missing() < missing or now >= start + STALL_S)

    def _missing(self) -> int:
        return sum(flow.published - flow.completed for flow in self._flows)

    def _heard(self) -> str:
        """What the broker said to publishers; it may explain why something is missing."""
        heard = [flow.heard for flow in self._flows if flow.heard]
        return f"; the publisher was told {heard[0]!r}" if heard else ""

    def _run(self, until: Callable[[float, float], bool]) -> None:
        start = now = perf_counter()
        for flow in self._flows:
            self._push(flow)
        while not until(now, start):
            for actor in self._actors:
                actor.act(now)
            self._turn()
            now = perf_counter()

    def _turn(self) -> None:
        for number, event in self._epoll.poll(0.005):
            if number in self._readers:
                reader, flow = self._readers[number]
                reader.readable()
                self._push(flow)
            elif number in self._writers:
                self._push(self._writers[number])
                if event & select.EPOLLIN:
                    self._writers[number].listen()
            else:
                self._others[number].readable()

    def _push(self, flow: Flow) -> None:
        was_blocked = flow.blocked
        flow.push()
        if flow.blocked != was_blocked:
            self._epoll.modify(flow.link.fileno(), select.EPOLLIN | (select.EPOLLOUT if flow.blocked else 0))
