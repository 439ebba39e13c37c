"""Drops: what was dropped from the queues of slow links, counted and noted, so that none is lost silently.

In:    how many were dropped for which link; the end of a link.
Out:   counts for reports; notes, at most one per link and second, and those that are left when a link ends.
State: counters; per link what was not noted yet (routing/ports.py).
Not here: deciding what is dropped (links.py).
"""

from __future__ import annotations

from heliograph.broker.routing.ports import Port
from heliograph.errors import Reason
from heliograph.machine import Instant, Outbox, Timers
from heliograph.notes import PublicationsDropped


class Drops:
    """Counts and notes what is dropped from queues."""

    def __init__(self, outbox: Outbox, timers: Timers) -> None:
        self._outbox = outbox
        self._timers = timers
        self.frames = 0
        self.bytes = 0

    def count(self, frames: int, size: int) -> None:
        """So much was dropped."""
        self.frames += frames
        self.bytes += size

    def note(self, link: Port, now: Instant) -> None:
        """Note what was dropped for a link since the last note: at once, or a second after that note."""
        if not link.has_unnoted or link.notes_later:
            return
        at = link.note_later()
        if at <= now:
            self._note_now(link, now)
        else:
            self._timers.set(("dropped", link.id), at, lambda at: self._note_now(link, at))

    def note_soon(self, link: Port) -> None:
        """The same where the time is not known: at the next wake, or a second after the last note."""
        if link.has_unnoted and not link.notes_later:
            self._timers.set(("dropped", link.id), link.note_later(), lambda at: self._note_now(link, at))

    def end(self, link: Port, reason: Reason) -> None:
        """A link ends: what waits for it is lost. A client that left by itself has asked for that."""
        self._timers.cancel(("dropped", link.id))
        self._note(link, "queue_full")
        if reason is Reason.GOODBYE:
            link.clear_backlog()
            return
        self.count(*link.drop_all())
        self._note(link, reason.word)

    def _note_now(self, link: Port, now: Instant) -> None:
        link.note_drops(now)
        self._note(link, "queue_full")

    def _note(self, link: Port, why: str) -> None:
        frames, size = link.unnoted_drops()
        if frames:
            self._outbox.note(PublicationsDropped(link.id, link.identity.entity, frames, size, why))
