"""Open requests: what the program awaits and for how long, and which answers the broker still owes.

In:    requests of the program; answers of the broker, named by their number on the wire.
Out:   outcomes; the request to which an answer belongs.
State: open requests with their time-outs, and per link the answers that are expected. Both bounded.
Not here: what an answer means (client/responses.py), requests that other clients answer (client/inquiries.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heliograph.client.commands import Outcome, Request
from heliograph.client.config import NS_PER_MS
from heliograph.errors import HeliographError, NotConnectedError, ProtocolError, Reason, UsageError
from heliograph.machine import Instant, LinkId, Timers

Told = Callable[[bytes | None, HeliographError | None, Instant], None]
"""Called with the body of a service's answer, or with the error."""
DUE = ("ask", "unsubscribe")  # answers that no other broker could give


@dataclass(frozen=True, slots=True)
class Expected:
    """An answer that a broker owes on a link."""

    verb: str  # "subscribe", "unsubscribe", "ask"; the session's own: "part", "mark" (client/roaming.py), "call"
    request: Request = 0
    number: int = 0  # of the subscription
    service: str = ""
    told: Told | None = None  # called with the answer, if the session itself asked


class OpenRequests:
    """Open requests, the outcomes of settled ones, and the answers that are on their way."""

    __slots__ = (
        "_count_max",
        "_due",
        "_expected",
        "_expected_count",
        "_next_number",
        "_open",
        "_outcomes",
        "_timers",
        "_wait_ns",
    )

    def __init__(self, timers: Timers, wait_ms: int, count_max: int) -> None:
        self._timers = timers
        self._wait_ns = wait_ms * NS_PER_MS
        self._count_max = count_max
        self._open: dict[Request, Callable[[Instant], None]] = {}  # with what to do when no answer comes in time
        self._outcomes: list[Outcome] = []
        self._expected: dict[LinkId, dict[int, Expected]] = {}
        self._expected_count = 0
        self._due: dict[LinkId, int] = {}
        self._next_number = 1

    # -- the program's side -------------------------------------------------------------------------------------

    def open(
        self,
        request: Request,
        now: Instant,
        gave_up: Callable[[Instant], None] | None = None,
        wait_ms: int | None = None,
        more_ms: int = 0,
    ) -> None:
        """Wait for ``wait_ms`` or the usual time, and ``more_ms``; ``gave_up`` cleans up after a time-out."""
        if request in self._open:
            raise UsageError(f"request {request} is open already")
        if len(self._open) >= self._count_max or self._expected_count >= 2 * self._count_max:
            raise UsageError(f"more than {self._count_max} requests wait for their answers")
        self._open[request] = gave_up if gave_up is not None else _nothing
        usual_ns = self._wait_ns if wait_ms is None else wait_ms * NS_PER_MS
        self._wait(request, usual_ns + more_ms * NS_PER_MS, now)

    def until(self, now: Instant, wait_ms: int | None = None) -> Instant:
        """When what begins now has timed out, after ``wait_ms`` or the usual time."""
        return now + (self._wait_ns if wait_ms is None else wait_ms * NS_PER_MS)

    def extend(self, request: Request, now: Instant) -> None:
        """The request makes progress: start its usual time-out again."""
        self._wait(request, self._wait_ns, now)

    def _wait(self, request: Request, wait_ns: int, now: Instant) -> None:
        self._timers.set(("request", request), now + wait_ns, lambda now: self._time_out(request, wait_ns, now))

    def settle(self, request: Request, value: Any = None, error: HeliographError | None = None) -> None:
        """Set the outcome of a request; ignored if it is not open (0, or timed out)."""
        if self._open.pop(request, None) is not None:
            self._timers.cancel(("request", request))
            self._outcomes.append(Outcome(request, value, error))

    def refuse(self, request: Request, error: HeliographError) -> None:
        """Answer a request that was never opened."""
        if request:
            self._outcomes.append(Outcome(request, error=error))

    def accept(self, request: Request, value: Any = None) -> None:
        """Answer a request that does not have to wait."""
        if request:
            self._outcomes.append(Outcome(request, value))

    def settle_all(self, error: HeliographError) -> None:
        """Settle every open request: no more answers will come."""
        for request in list(self._open):
            self.settle(request, error=error)

    def collect(self) -> list[Outcome]:
        """Outcomes since the last call."""
        outcomes = self._outcomes
        if outcomes:
            self._outcomes = []
        return outcomes

    def _time_out(self, request: Request, wait_ns: int, now: Instant) -> None:
        gave_up = self._open.get(request)
        if gave_up is not None:
            wait_ms = wait_ns // NS_PER_MS
            self.settle(request, error=NotConnectedError(Reason.TIME_OUT, f"no answer within {wait_ms} ms"))
            gave_up(now)

    def __len__(self) -> int:
        return len(self._open)

    # -- the broker's side --------------------------------------------------------------------------------------

    def expect(self, link: LinkId, expected: Expected) -> int:
        """The number under which to ask the broker on this link."""
        number = self._next_number
        self._next_number += 1
        self._expected.setdefault(link, {})[number] = expected
        self._expected_count += 1
        self._due[link] = self._due.get(link, 0) + (expected.verb in DUE)
        return number

    def answered(self, link: LinkId, number: int) -> Expected:
        """The request to which an answer belongs; each is answered once."""
        expected = self._expected.get(link, {}).pop(number, None)
        if expected is None:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "an answer without a request")
        self._expected_count -= 1
        self._due[link] -= expected.verb in DUE
        return expected

    def forget_link(self, link: LinkId) -> list[Expected]:
        """The link is gone: forget and return the answers that were due on it."""
        lost = list(self._expected.pop(link, {}).values())
        self._expected_count -= len(lost)
        self._due.pop(link, None)
        return lost

    def answers_due(self, link: LinkId) -> int:
        """How many answers are due on this link that no other link could bring."""
        return self._due.get(link, 0)


def _nothing(now: Instant) -> None:
    pass
