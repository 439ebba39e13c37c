"""Conversations of an entity with topic directories: their common part.

In:    the payloads of publications on Entity/<entity>; time.
Out:   publications to send, in ``outgoing``; when to be woken; at the end a result or an error.
State: retries and their time; nothing outlives the conversation.
Not here: creating (creation.py), searching (finder.py), sockets and sessions (live/topic_desk.py, sim).

A conversation has no socket and no clock, so programs and the simulator run the same one. It sends lost messages
again, each time as a new signed message, until it times out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from hashlib import sha256
from typing import Any

from heliograph.discovery.topics.statements import NS_PER_MS, Statement, Statements
from heliograph.errors import HeliographError, NotConnectedError, ProtocolError, Reason, RefusedError
from heliograph.machine import Instant

RETRY_MS = 400
RETRY_MS_MAX = 3_000
IDS_MAX = 256  # messages of one conversation


class TopicConversation(ABC):
    """One conversation. Call ``start``, then ``hear`` and ``wake`` until ``is_over``."""

    def __init__(self, statements: Statements, seed: bytes, timeout_ms: int) -> None:
        self._statements = statements
        self._seed = seed
        self._drawn = 0
        self._timeout_ms = timeout_ms
        self._ends_at: Instant = 0
        self._retry_ms = RETRY_MS
        self._wall_offset_ns = 0
        self.outgoing: list[tuple[str, bytes]] = []  # topic and payload, to be published in this order
        self.wake_at: Instant = 0
        self.is_over = False
        self.result: Any = None
        self.error: HeliographError | None = None
        self.refusals: list[str] = []  # what was wrong with answers, the last few
        self.refused: Counter[str] = Counter()  # the same, counted by reason
        self.steps: list[tuple[str, Instant]] = []  # when each step ended

    # -- the life of a conversation -------------------------------------------------------------------------------

    def start(self, wall_ns: int, now: Instant) -> None:
        """Begin."""
        self._wall_offset_ns = wall_ns - now
        self._ends_at = now + self._timeout_ms * NS_PER_MS
        self._say_again(now)

    def hear(self, payload: bytes, now: Instant) -> None:
        """A publication on our own topic. Messages that are invalid or not for us are ignored."""
        if self.is_over:
            return
        try:
            said = self._statements.read(payload, self.wall_ns(now))
        except ProtocolError as error:
            if error.reason is not Reason.SEAL_BROKEN:  # otherwise it is for another session of ours
                self.refuse(error)
            return
        self.take_statement(said, now)

    def take_statement(self, said: Statement, now: Instant) -> None:
        """The same, for a message that was read before."""
        if self.is_over:
            return
        try:
            self._hear(said, now)
        except ProtocolError as error:
            self.refuse(error)

    @property
    def has_news(self) -> bool:
        """True if there is something to send or to take."""
        return self.is_over or bool(self.outgoing)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        if self.is_over or now < self.wake_at:
            return
        if now >= self._ends_at:
            self._time_out(now)
        else:
            self._again(now)

    @abstractmethod
    def _say(self, now: Instant) -> None:
        """Send what the current step needs."""

    @abstractmethod
    def _hear(self, said: Statement, now: Instant) -> None:
        """A message whose signer is proven."""

    @abstractmethod
    def _time_out(self, now: Instant) -> None:
        """The conversation has run out of time."""

    def _again(self, now: Instant) -> None:
        """No answer came in time."""
        self._say_again(now)

    def _say_again(self, now: Instant) -> None:
        self._say(now)
        self.wake_at = min(self._ends_at, now + self._retry_ms * NS_PER_MS)
        self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)

    # -- for subclasses -------------------------------------------------------------------------------------------

    def wall_ns(self, now: Instant) -> int:
        """Wall time, from monotonic time."""
        return now + self._wall_offset_ns

    def wall_ms(self, now: Instant) -> int:
        """The same in milliseconds."""
        return self.wall_ns(now) // NS_PER_MS

    def draw(self) -> bytes:
        """16 bytes for an id."""
        self._drawn += 1
        return sha256(self._seed + self._drawn.to_bytes(8, "little")).digest()[:16]

    def next_step(self, name: str, now: Instant) -> None:
        """A step is over."""
        self.steps.append((name, now))
        self._retry_ms = RETRY_MS

    def refuse(self, error: ProtocolError) -> None:
        """Record that an answer was invalid."""
        self.refusals = [*self.refusals[-7:], str(error)]
        self.refused[error.reason.word] += 1

    def succeed(self, result: Any) -> None:
        """End with success."""
        self.result, self.is_over = result, True

    def give_up(self, error: HeliographError) -> None:
        """End: the broker does not let us publish."""
        self.error, self.is_over = error, True

    def fail(self, reason: Reason, text: str) -> None:
        """End with an error, which also says what was wrong with answers."""
        told = f"{text} ({'; '.join(self.refusals)})" if self.refusals else text
        missing = reason in (Reason.DIRECTORIES_MISSING, Reason.ADVERTISEMENT_UNSTORED)
        self.error = NotConnectedError(reason, told) if missing else RefusedError(reason, told)
        self.is_over = True
