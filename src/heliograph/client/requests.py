"""Requests: who awaits what, and how long.

In:    requests of the program; answers of the broker, named by their number on the wire.
Out:   outcomes; what an answer belongs to.
State: open requests with their time-outs, and per link the answers that are expected. Both bounded.
Not here: what an answer means (client/session.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heliograph.client.commands import Outcome, Request
from heliograph.errors import HeliographError, NotConnectedError, ProtocolError, Reason, UsageError
from heliograph.machine import Instant, Timers

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Expected:
    """An answer that the broker owes on the present link."""

    verb: str  # "subscribe", "unsubscribe" or "ask"
    request: Request = 0
    number: int = 0  # of the subscription
    service: str = ""


class Requests:
    """Open requests, the outcomes of settled ones, and the answers that are on their way."""

    __slots__ = ("_count_max", "_expected", "_next_number", "_open", "_outcomes", "_timers", "_wait_ns")

    def __init__(self, timers: Timers, wait_ms: int, count_max: int) -> None:
        self._timers = timers
        self._wait_ns = wait_ms * NS_PER_MS
        self._count_max = count_max
        self._open: dict[Request, Callable[[Instant], None]] = {}  # and what to do when nobody answers in time
        self._outcomes: list[Outcome] = []
        self._expected: dict[int, Expected] = {}
        self._next_number = 1

    # -- the program's side -------------------------------------------------------------------------------------

    def open(self, request: Request, now: Instant, gave_up: Callable[[Instant], None] | None = None) -> None:
        """Await something; ``gave_up`` tidies up after a time-out."""
        if request in self._open:
            raise UsageError(f"request {request} is open already")
        if len(self._open) >= self._count_max or len(self._expected) >= 2 * self._count_max:
            raise UsageError(f"more than {self._count_max} requests wait for their answers")
        self._open[request] = gave_up if gave_up is not None else _nothing
        self.extend(request, now)

    def extend(self, request: Request, now: Instant) -> None:
        """It makes progress: wait as long again."""
        self._timers.set(("request", request), now + self._wait_ns, lambda now: self._time_out(request, now))

    def settle(self, request: Request, value: Any = None, error: HeliographError | None = None) -> None:
        """Say what became of it; one that is not open (0, or timed out) is left alone."""
        if self._open.pop(request, None) is not None:
            self._timers.cancel(("request", request))
            self._outcomes.append(Outcome(request, value, error))

    def refuse(self, request: Request, error: HeliographError) -> None:
        """Answer a request that was never opened."""
        if request:
            self._outcomes.append(Outcome(request, error=error))

    def accept(self, request: Request, value: Any = None) -> None:
        """Answer a request that need not wait."""
        if request:
            self._outcomes.append(Outcome(request, value))

    def settle_all(self, error: HeliographError) -> None:
        """Nothing more will come."""
        for request in list(self._open):
            self.settle(request, error=error)

    def collect(self) -> list[Outcome]:
        """Outcomes since this was last asked."""
        outcomes = self._outcomes
        if outcomes:
            self._outcomes = []
        return outcomes

    def _time_out(self, request: Request, now: Instant) -> None:
        gave_up = self._open.get(request)
        if gave_up is not None:
            wait_ms = self._wait_ns // NS_PER_MS
            self.settle(request, error=NotConnectedError(Reason.TIME_OUT, f"no answer within {wait_ms} ms"))
            gave_up(now)

    def __len__(self) -> int:
        return len(self._open)

    # -- the broker's side --------------------------------------------------------------------------------------

    def expect(self, expected: Expected) -> int:
        """The number under which to ask the broker."""
        number = self._next_number
        self._next_number += 1
        self._expected[number] = expected
        return number

    def answered(self, number: int) -> Expected:
        """What an answer belongs to; each comes once."""
        expected = self._expected.pop(number, None)
        if expected is None:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "an answer that nobody asked for")
        return expected

    def forget_link(self) -> list[Expected]:
        """The link is gone, and with it these answers."""
        lost = list(self._expected.values())
        self._expected.clear()
        return lost

    @property
    def answers_due(self) -> int:
        """How many answers are on their way."""
        return len(self._expected)


def _nothing(now: Instant) -> None:
    pass
