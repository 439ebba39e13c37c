"""Outgoing: what was published and no broker has confirmed yet, in order.

In:    numbered runs of EVENT frames; confirmations (PONG, or ``seen`` in a WELCOME).
Out:   what to write next, with a PING now and then; after a new WELCOME, what to repeat.
State: runs that wait for a link, runs that were sent; bounded in bytes by whoever asks ``has_room`` first.
Not here: writing frames (client/writer.py), deciding when a link may be written to (client/session.py).

A PING carries the highest sequence sent before it, so its PONG says by itself what the broker has routed.
"""

from __future__ import annotations

from collections import deque

from heliograph.errors import ProtocolError, Reason
from heliograph.wire.frames import HEAD, Kind, control

PING_BYTES = 1 << 18  # published between two confirmations
Run = tuple[int, bytes]
"""Whole frames and the sequence of the last; sequences within and between runs leave no gaps."""


class Outgoing:
    """Unconfirmed publications of one session."""

    __slots__ = (
        "_ping_bytes",
        "_pinged",
        "_pings",
        "_unpinged_bytes",
        "assigned",
        "bytes",
        "bytes_max",
        "confirmed",
        "sent",
        "sent_to",
        "waiting",
    )

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.waiting: deque[Run] = deque()  # not given to the present link
        self.sent: deque[Run] = deque()  # given to it
        self.assigned = 0  # the last sequence that a publication got
        self.sent_to = 0  # the last that any link was given
        self.confirmed = 0  # a broker has routed everything up to here
        self._ping_bytes = min(PING_BYTES, max(1, bytes_max // 4))
        self._unpinged_bytes = 0
        self._pings = 0  # without an answer on the present link
        self._pinged = 0  # the highest number among them

    @property
    def has_room(self) -> bool:
        """False: wait until the broker confirms."""
        return self.bytes < self.bytes_max

    def add(self, run: bytes, count: int = 1) -> None:
        """Keep publications that were given the next ``count`` sequences."""
        self.assigned += count
        self.bytes += len(run)
        self.waiting.append((self.assigned, run))

    def send(self) -> list[bytes]:
        """Everything that waits, as sent from now on."""
        out: list[bytes] = []
        for last, run in self.waiting:
            out.append(run)
            self.sent_to = max(self.sent_to, last)
            self._unpinged_bytes += len(run)
            if self._unpinged_bytes >= self._ping_bytes:
                out.append(self._ping(last))
        self.sent += self.waiting
        self.waiting.clear()
        return out

    def ping(self) -> bytes:
        """Ask the broker to confirm everything that was sent."""
        return self._ping(self.sent[-1][0] if self.sent else self.confirmed)

    def _ping(self, number: int) -> bytes:
        self._unpinged_bytes = 0
        self._pings += 1
        self._pinged = max(self._pinged, number)
        return control(Kind.PING, number)

    def pong(self, number: int) -> None:
        """The broker has routed everything up to this sequence."""
        if not self._pings or number > self._pinged:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a PONG that nobody asked for")
        self._pings -= 1
        self.confirm(number)

    def confirm(self, number: int) -> None:
        """Forget what the broker has."""
        self.confirmed = max(self.confirmed, number)
        while self.sent and self.sent[0][0] <= number:
            self.bytes -= len(self.sent.popleft()[1])

    def rewind(self, seen: int) -> int:
        """A new link: everything above ``seen`` has to be sent again. Returns how many publications that repeats."""
        self._pings = self._pinged = self._unpinged_bytes = 0
        self.confirm(seen)
        repeated = max(0, self.sent_to - max(seen, self.confirmed))
        self.waiting.extendleft(reversed(self.sent))
        self.sent.clear()
        if self.waiting:
            last, run = self.waiting[0]
            rest = _above(run, seen)
            self.bytes -= len(run) - len(rest)
            self.waiting[0] = (last, rest)
        return repeated


def _above(run: bytes, seen: int) -> bytes:
    """A run without the frames up to ``seen``."""
    start = 0
    while start < len(run):
        length, _, _, _, _, sequence, _ = HEAD.unpack_from(run, start)
        if sequence > seen:
            break
        start += 4 + length
    return run[start:] if start else run
