"""Measuring: where ranges of the log end if they are to have so many bytes, for readers that bound what they read.

In:    a range of positions, and the bytes of a piece.
Out:   the pieces, from the sizes of runs; no publication is read.
State: requests that wait for their turn; of the one whose turn it is, how far it is.
Not here: reading (channels.py).

The publications of a batch are in the logs of its parts: there each of their runs counts with its size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant
from heliograph.stores.names import Holder
from heliograph.stores.references import reference_of
from heliograph.stores.vault_calls import BUG, VaultCalls
from heliograph.vault import SMALL_BYTES_MAX, Measure, Measured, RunSize
from heliograph.wire.stores import MAIN, LogMeasured, MeasureLog

READS_MAX = 8  # of the vault for one request, so that its share of the store is small
WAITING_OF_HOLDER_MAX = 64  # as many as a link may ask at once
WAITING_MAX = 1_024


Answered = Callable[[LogMeasured], None]
Refused = Callable[[Reason, str], None]


class Measurements:
    """Divides ranges into pieces: one request at a time, so that readers wait for one read of theirs at most."""

    def __init__(self, vault: VaultCalls) -> None:
        self._vault = vault
        self._waiting: dict[Holder, deque[tuple[MeasureLog, Answered, Refused]]] = {}  # the holders take turns
        self._count = 0
        self._is_busy = False  # one reads the vault
        self._is_beginning = False

    def ask(self, holder: Holder, request: MeasureLog, answered: Answered, refused: Refused) -> None:
        """Divide a range into pieces, when it is this holder's turn."""
        waiting = self._waiting.setdefault(holder, deque())
        if len(waiting) >= WAITING_OF_HOLDER_MAX or self._count >= WAITING_MAX:
            if not waiting:
                del self._waiting[holder]
            raise ProtocolError(Reason.REQUESTS_OVER_LIMIT, f"{len(waiting)} of your requests to measure wait already")
        waiting.append((request, answered, refused))
        self._count += 1
        self._go_on()

    def _go_on(self) -> None:
        """Begin the next one, and those after it that end at once."""
        if self._is_beginning:
            return
        self._is_beginning = True
        try:
            while self._waiting and not self._is_busy:
                self._is_busy = True
                self._begin(*self._next())
        finally:
            self._is_beginning = False

    def _next(self) -> tuple[MeasureLog, Answered, Refused]:
        holder = next(iter(self._waiting))
        waiting = self._waiting.pop(holder)
        if len(waiting) > 1:
            self._waiting[holder] = waiting  # behind the others
        self._count -= 1
        return waiting.popleft()

    def _begin(self, request: MeasureLog, answered: Answered, refused: Refused) -> None:
        def done(found: LogMeasured) -> None:
            self._is_busy = False
            answered(found)
            self._go_on()

        def failed(reason: Reason, text: str) -> None:
            self._is_busy = False
            refused(reason, text)
            self._go_on()

        _Measuring(self._vault, request, done, failed).go_on()


class _Measuring:
    """One request."""

    def __init__(
        self,
        vault: VaultCalls,
        request: MeasureLog,
        answered: Callable[[LogMeasured], None],
        refused: Callable[[Reason, str], None],
    ) -> None:
        self._vault = vault
        self._asked = request
        self._answered = answered
        self._refused = refused
        self._runs: deque[RunSize] = deque()  # of MAIN, from ``_at`` on
        self._reads = 0
        self._at = request.start
        self._whole: list[tuple[int, int]] = []  # pieces that nothing can be added to
        self._size: int | None = None  # of the piece that ends at ``_at``

    def go_on(self) -> None:
        """Take runs as long as their sizes are known; then ask for more, or answer."""
        while self._runs and not self._is_done:
            run = self._runs.popleft()
            reference = reference_of(run)
            if reference is None:
                self._take(run.next, run.size)
            elif self._reads < READS_MAX:
                begin = reference.start + max(0, self._at - run.position)
                self._read(reference.log, begin, partial(self._in_part, run, reference.start))
                return
            else:
                self._answer(more=True)
                return
        if self._is_done or self._reads == READS_MAX:
            self._answer(more=not self._is_done)
            return
        self._read(MAIN, self._at, self._in_main)

    @property
    def _is_done(self) -> bool:
        return self._at >= self._asked.end or len(self._whole) >= self._asked.most

    def _take(self, end: int, size: int) -> None:
        """Add what lies between here and ``end``."""
        if self._size is not None and self._size + size > self._asked.bytes:
            self._close()
            if self._is_done:
                return
        self._size = size + (self._size or 0)
        self._at = max(self._at, min(end, self._asked.end))

    def _close(self) -> None:
        assert self._size is not None
        self._whole.append((self._at, self._size))
        self._size = None

    def _in_main(self, found: Measured) -> None:
        self._runs.extend(found.runs)
        if not found.runs:
            self._take(self._asked.end, 0)  # the log ends before it

    def _in_part(self, run: RunSize, start: int, found: Measured) -> None:
        """Sizes of the publications that a run refers to."""
        shift, before = run.position - start, self._at
        for each in found.runs:
            if each.position + shift >= run.next or self._is_done:
                break
            self._take(min(each.next + shift, run.next), each.size)
        if self._at == before and not self._is_done:
            self._take(run.next, 0)  # the part is gone
        if self._at < run.next:
            self._runs.appendleft(run)

    def _read(self, log: str, start: int, take: Callable[[Measured], None]) -> None:
        self._reads += 1

        def answered(found: Measured, now: Instant) -> None:
            take(found)
            self.go_on()

        self._vault.read(
            Measure(log, start, SMALL_BYTES_MAX),
            answered,
            lambda reason, _: self._refused(reason, ""),
            lambda _: self._refused(Reason.INTERNAL_ERROR, BUG),
        )

    def _answer(self, more: bool) -> None:
        if self._size is not None and len(self._whole) < self._asked.most:
            self._close()
        self._answered(LogMeasured(self._whole, more))
