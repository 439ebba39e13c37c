"""Batches: pre-encoded frames, up to 64 KiB in one write, with the bytes that each group of subscribers must read.

In:    topics, a payload size and an encoder of one frame.
Out:   endless batches: what to write, and what is expected per group.
State: the number of batches made so far.
Not here: the frames of a system (peers/), who belongs to which group (cases.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

FRAMES = 220  # per batch: below 64 KiB at 256 B in every protocol here, and a multiple of ten topics
VARIANTS = 8  # batches with different payloads that take turns, so that a batch cannot pass for its neighbour

_PATTERN = bytes(range(256)) * 4


@dataclass(frozen=True, slots=True)
class Load:
    """What one publisher sends. Frame ``i`` goes to topic ``i % len(topics)`` and to group ``i % groups``."""

    topics: tuple[str, ...]  # all of the same length
    groups: int = 1
    payload_bytes: int = 256
    frames: int = FRAMES

    def __post_init__(self) -> None:
        assert len({len(topic) for topic in self.topics}) == 1
        assert self.frames % self.groups == 0
        assert self.payload_bytes >= 8

    @property
    def round(self) -> int:
        """How many frames of whole batches it takes to use every topic."""
        return -(-len(self.topics) // self.frames) * self.frames

    @property
    def variants(self) -> int:
        """How many different batches there are."""
        return max(VARIANTS, self.round // self.frames)

    def items(self, variant: int) -> list[tuple[str, bytes]]:
        """Topic and payload of each frame of a batch."""
        first = variant * self.frames
        return [
            (self.topics[index % len(self.topics)], payload(index, self.payload_bytes))
            for index in range(first, first + self.frames)
        ]


class Batches(Protocol):
    """Where a publisher's bytes come from."""

    frames: int  # in each batch
    frame_bytes: int  # of a frame as it is published; all are equal
    round: int  # frames after which every topic has been used

    def next(self) -> tuple[bytes, Sequence[bytes]]:
        """What to write, and what each group must read of it."""
        ...


class FixedBatches:
    """For protocols whose frames carry no number: a few batches that take turns."""

    def __init__(
        self, load: Load, publish: Callable[[str, bytes], bytes], deliver: Callable[[str, bytes], bytes]
    ) -> None:
        self.frames = load.frames
        self.round = load.round
        self._turns: list[tuple[bytes, list[bytes]]] = []
        self._turn = 0
        for variant in range(load.variants):
            items = load.items(variant)
            read = [deliver(topic, content) for topic, content in items]
            groups = [b"".join(read[group :: load.groups]) for group in range(load.groups)]
            self._turns.append((b"".join(publish(topic, content) for topic, content in items), groups))
        self.frame_bytes = len(self._turns[0][0]) // load.frames

    def next(self) -> tuple[bytes, Sequence[bytes]]:
        """The next batch in turn."""
        batch = self._turns[self._turn]
        self._turn = (self._turn + 1) % len(self._turns)
        return batch


def payload(index: int, size: int) -> bytes:
    """Bytes that show which frame of the load they belong to."""
    start = index % 251
    body = _PATTERN[start : start + min(size, 512)]
    return (index.to_bytes(8, "little") + body * (size // len(body) + 1))[:size]
