"""Patience: where all publishers agreed to wait, no broker drops anything, and no publisher waits for ever.

In:    "published", "flushed", "started", and notes of brokers.
Out:   a violation for each note that a broker dropped publications, and at the end for each publisher whose last
       publications its broker has not confirmed.
State: per publisher the newest number, and the newest that its broker has confirmed; how often one was held.
Not here: losses while a path breaks (delivery.py).
Paper: N15.
"""

from __future__ import annotations

from heliograph.notes import Note, PublicationsDropped, PublisherHeld
from heliograph.sim.checkers.base import Checker

SLOW = ("queue_full", "unprocessed", "slow_consumer")  # for other reasons a client is gone, with what waited for it


class Patience(Checker):
    """Publishers wait, and not for ever."""

    name = "patience"

    def prepare(self) -> None:
        """Nothing has happened yet."""
        self._published: dict[str, int] = {}
        self._flushed: dict[str, int] = {}
        self._holds = 0

    def on_published(self, who: str, number: int, *_: object) -> None:
        """A program published."""
        self._published[who] = number

    def on_flushed(self, who: str, number: int) -> None:
        """Its broker confirmed that."""
        self._flushed[who] = number

    def on_note(self, who: str, note: Note) -> None:
        """A broker dropped something, or holds a publisher."""
        if isinstance(note, PublicationsDropped) and note.why in SLOW:
            self.blame(f"{who} dropped publications, although all publishers wait: {note}")
        self._holds += isinstance(note, PublisherHeld) and note.held

    def end(self) -> None:
        """All faults are over, and the readers have read everything."""
        for who, number in self._published.items():
            if self._flushed.get(who, 0) < number:
                self.blame(f"{who} has published up to {number}, and is confirmed up to {self._flushed.get(who, 0)}")

    def tally(self) -> dict[str, int]:
        """How often a publisher was held."""
        return {"holds": self._holds}
