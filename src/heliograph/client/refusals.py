"""Refusals and losses: counts and reports publications that were refused or dropped, so that none is lost silently.

In:    the broker's REFUSED for publications; drops in the session's own queues, and those that brokers tell.
Out:   counts, the error for the next flush, arguments for ``on_refused``, notes at most once a second.
State: counters; a bounded list for the program.
Not here: refused requests (client/requests.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from heliograph.errors import Reason, RefusedError
from heliograph.machine import Instant, Outbox, Timers
from heliograph.notes import PublicationsLost
from heliograph.wire.bodies import Refusal, reason_of

KEPT_MAX = 1_024  # in case the program never asks
NOTE_EVERY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RefusedPublication:
    """A publication on this topic that the broker did not accept."""

    topic: str
    reason: Reason
    text: str

    def error(self, count: int) -> RefusedError:
        """The error that the next flush raises."""
        more = f" (and {count - 1} more publications)" if count > 1 else ""
        return RefusedError(self.reason, f"publication on {self.topic!r}: {self.text or self.reason.word}{more}")


class Refusals:
    """Publications that the broker refused."""

    __slots__ = ("_kept", "_unflushed", "count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last: RefusedPublication | None = None
        self._kept: deque[RefusedPublication] = deque(maxlen=KEPT_MAX)
        self._unflushed = 0

    def add(self, body: Refusal) -> RefusedPublication:
        """The broker refused a publication."""
        refused = RefusedPublication(body.subject, reason_of(body.code), body.text)
        self.count += 1
        self._unflushed += 1
        self.last = refused
        self._kept.append(refused)
        return refused

    def flushed(self) -> RefusedError | None:
        """The error for a flush that ends now; the next flush starts afresh."""
        count, self._unflushed = self._unflushed, 0
        return self.last.error(count) if count and self.last is not None else None

    def collect(self) -> list[RefusedPublication]:
        """What was refused since the last call; only the newest if there are too many."""
        if not self._kept:
            return []
        kept = list(self._kept)
        self._kept.clear()
        return kept

    def report(self) -> dict[str, Any]:
        """For the session's report."""
        last = self.last
        shown = None if last is None else {"topic": last.topic, "reason": last.reason.word, "text": last.text}
        return {"refused": self.count, "last_refused": shown}


class Losses:
    """Publications that were dropped because a queue was full: of this session, or of its link at a broker."""

    __slots__ = ("_outbox", "_quiet_until", "_timers", "_unnoted", "counts")

    def __init__(self, outbox: Outbox, timers: Timers) -> None:
        self._outbox = outbox
        self._timers = timers
        self.counts = {"inbox": 0, "outgoing": 0, "broker": 0}
        self._unnoted = dict(self.counts)
        self._quiet_until: dict[str, Instant] = {}

    def add(self, where: str, frames: int, now: Instant) -> None:
        """Count the loss, and note it now or one second after the last note."""
        self.counts[where] += frames
        if not self._unnoted[where]:
            at = max(now, self._quiet_until.get(where, now))
            self._timers.set(("lost", where), at, lambda now: self._note(where, now))
        self._unnoted[where] += frames

    def end(self, now: Instant) -> None:
        """The session ends: note what was not noted yet."""
        for where, frames in self._unnoted.items():
            if frames:
                self._timers.cancel(("lost", where))
                self._note(where, now)

    def _note(self, where: str, now: Instant) -> None:
        self._outbox.note(PublicationsLost(self._unnoted[where], where))
        self._unnoted[where] = 0
        self._quiet_until[where] = now + NOTE_EVERY_NS
