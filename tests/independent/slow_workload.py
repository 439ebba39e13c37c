"""What is published for slow subscribers: payloads that say whose they are, by publishers that wait when they are held.

In:    a name, topics, how many publications, at which rate.
Out:   publications on the wire; the label of a payload; what a subscriber that keeps up got.
State: one link for each.
Not here: slow subscribers (slow_reader.py, programs/slow_subscriber.py), what is right (slow_oracle.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random

from tests.independent.client import Client, frame_ends
from tests.independent.workload import Draft
from tests.wire.stdlib_client import unpack

Label = tuple[str, int, bool]


def label_of(payload: bytes) -> Label:
    """The publisher, its number, and whether it is the last one."""
    publisher, number, last, _ = bytes(payload).split(b" ", 3)
    return publisher.decode(), int(number), last == b"last"


def payload_of(publisher: str, number: int, size: int, *, is_last: bool) -> bytes:
    return f"{publisher} {number} {'last' if is_last else 'more'} ".encode().ljust(size, b".")


class PacedPublisher(Client):
    """Publishes at a rate, and waits while its broker does not read."""

    def __init__(self, name: str, topics: Sequence[str], count: int, rate: float, seed: str) -> None:
        draw = Random(f"publisher {name} {seed}")
        super().__init__(name, draw.randbytes(32))
        self._topics = topics
        self.count = count
        self._pause_s = 1 / rate
        self._draw = draw
        self._has_room = asyncio.Event()
        self._has_room.set()

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    async def publish(self, sizes: Sequence[int]) -> None:
        """Everything but the last one; return when the broker has routed it."""
        clock = asyncio.get_running_loop().time
        at = clock()
        for number in range(1, self.count):
            await self._has_room.wait()
            self._publish(number, self._draw.choice(sizes))
            at = max(at + self._pause_s, clock() - 0.1)  # what was missed while it was held is not made up for
            await asyncio.sleep(at - clock())
        await self.flush()

    async def finish(self) -> None:
        """The last one, which is short."""
        self._publish(self.count, 0)
        await self.flush()

    def _publish(self, number: int, size: int) -> None:
        payload = payload_of(self.name, number, size, is_last=number == self.count)
        self.send(self.make(Draft(self._draw.choice(self._topics), {}, payload)).raw)


class FastReader(Client):
    """A subscriber that keeps up; it keeps labels, not payloads."""

    def __init__(self, name: str, seed: str) -> None:
        super().__init__(name, Random(f"reader {name} {seed}").randbytes(32))
        self.got: list[tuple[str, int]] = []
        self.ends: dict[str, None] = {}

    def _deliver(self, numbers: tuple[int, ...], frames: bytes) -> None:
        for publisher, number, is_last in labels_in(frames):
            self.got.append((publisher, number))
            if is_last:
                self.ends[publisher] = None


def labels_in(frames: bytes) -> Iterator[Label]:
    begin = 0
    for end in frame_ends(frames):
        yield label_of(unpack(frames[begin:end]).payload)
        begin = end
