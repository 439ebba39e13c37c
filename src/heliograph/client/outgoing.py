"""Outgoing: publications that no broker has confirmed yet, in order.

In:    numbered runs of EVENT frames; confirmations (PONG, or ``seen`` in a WELCOME).
Out:   what to write next, with a PING now and then; after a new WELCOME, what to repeat.
State: runs that wait for a link, runs that were sent; bounded in bytes by callers that ask ``has_room`` first.
Not here: making frames (client/writer.py), deciding when a link may be written to (client/lines.py), which PINGs a
          link has to answer (client/line.py).

A PING carries the highest sequence sent before it, so its PONG alone tells how much the broker has routed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from operator import itemgetter

from heliograph.errors import Reason, RefusedError
from heliograph.wire.frames import HEAD

PING_BYTES = 1 << 18  # published between two confirmations
Run = tuple[int, bytes]
"""Whole frames and the sequence of the last; a withdrawn run keeps its sequence and has no bytes."""


class Outgoing:
    """Unconfirmed publications of one session."""

    __slots__ = (
        "_ping_bytes",
        "_unpinged_bytes",
        "assigned",
        "bytes",
        "bytes_max",
        "confirmed",
        "sent",
        "sent_to",
        "waiting",
    )

    def __init__(self, bytes_max: int, used: int = 0) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.waiting: deque[Run] = deque()  # not yet given to the present link
        self.sent: deque[Run] = deque()  # given to it
        self.assigned = used  # the last sequence that a publication got
        self.sent_to = used  # the last that was given to any link
        self.confirmed = used  # a broker has routed everything up to here
        self._ping_bytes = min(PING_BYTES, max(1, bytes_max // 4))
        self._unpinged_bytes = 0

    @property
    def has_room(self) -> bool:
        """False: wait until the broker confirms something."""
        return self.bytes < self.bytes_max

    def add(self, run: bytes, count: int = 1) -> None:
        """Keep publications that were given the next ``count`` sequences."""
        self.assigned += count
        self.bytes += len(run)
        self.waiting.append((self.assigned, run))

    def send(self, ping: Callable[[int], bytes]) -> list[bytes]:
        """Everything that waits; it counts as sent from now on. ``ping`` makes the PINGs in between."""
        out: list[bytes] = []
        for last, run in self.waiting:
            if run:
                out.append(run)
            self.sent_to = max(self.sent_to, last)
            self._unpinged_bytes += len(run)
            if self._unpinged_bytes >= self._ping_bytes:
                self._unpinged_bytes = 0
                out.append(ping(last))
        self.sent += self.waiting
        self.waiting.clear()
        return out

    def ping(self, ping: Callable[[int], bytes]) -> bytes:
        """Ask the broker to confirm everything that was sent."""
        self._unpinged_bytes = 0
        return ping(self.sent[-1][0] if self.sent else self.confirmed)

    def confirm(self, number: int) -> None:
        """The broker has routed everything up to this sequence: forget it."""
        self.confirmed = max(self.confirmed, number)
        while self.sent and self.sent[0][0] <= number:
            self.bytes -= len(self.sent.popleft()[1])

    def withdraw(self, sequence: int) -> None:
        """Do not send this publication, a run of its own, to any further broker; its number stays used."""
        for runs in (self.sent, self.waiting):
            place = bisect_left(runs, sequence, key=itemgetter(0))
            if place < len(runs) and runs[place][0] == sequence:
                self.bytes -= len(runs[place][1])
                runs[place] = (sequence, b"")

    def rewind(self, seen: int) -> int:
        """There is a new link: send everything above ``seen`` again. Returns how many publications are repeated."""
        self._unpinged_bytes = 0
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


def too_much() -> RefusedError:
    """The error for publications for which there is no room."""
    return RefusedError(Reason.REQUESTS_OVER_LIMIT, "too many publications wait for a broker's confirmation")


def _above(run: bytes, seen: int) -> bytes:
    """A run without the frames up to ``seen``."""
    start = 0
    while start < len(run):
        length, _, _, _, _, sequence, _ = HEAD.unpack_from(run, start)
        if sequence > seen:
            break
        start += 4 + length
    return run[start:] if start else run
