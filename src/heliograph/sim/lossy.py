"""A machine whose publications about topics are sometimes lost, by kind: a fault that links themselves never have.

In:    a machine, and the probability of loss for each kind of message.
Out:   the same machine without the lost publications.
State: a seeded random source, and what was lost.
Not here: loss of datagrams (datagrams.py), of links (network_faults.py).

A link delivers all bytes or breaks. A publication can still be lost: at a broker that crashes, at one that drops for a
slow consumer, or because no interest was known yet. This fault stands for all of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from heliograph.discovery.topics.messages import MAGIC, TopicKind
from heliograph.machine import Effects, Machine
from heliograph.wire.frames import Frame, Kind

_KIND_AT = 4  # in a message: after magic and version


class Lossy:
    """Behaves like the machine, except for losses."""

    def __init__(self, machine: Machine, losses: Mapping[TopicKind, float], draw: Callable[[], float]) -> None:
        self._machine = machine
        self._losses = losses
        self._draw = draw
        self.lost: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def take(self) -> Effects:
        """The machine's effects, without what is lost."""
        effects = self._machine.take()
        for _, frames in effects.writes:
            frames[:] = [raw for raw in frames if self._arrives(raw)]
        return effects

    def _arrives(self, raw: bytes) -> bool:
        frame = Frame(raw)
        if frame.kind != Kind.EVENT or frame.payload[: len(MAGIC)] != MAGIC:
            return True
        kind = TopicKind(frame.payload[_KIND_AT])
        if self._draw() >= self._losses.get(kind, 0.0):
            return True
        self.lost[kind.name.lower()] += 1
        return False
