"""Graceful leave: how a session leaves a broker that goes away, once nothing more is due on the line.

In:    the moment until which the broker stays.
Out:   a PING for what is unconfirmed; a goodbye.
State: none but the timers; whether a line is being left is with the line (client/line.py).
Not here: where to go instead (client/roaming.py, client/dialler.py).
"""

from __future__ import annotations

from heliograph.client.inquiries import Inquiries
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.outgoing import Outgoing
from heliograph.client.requests import OpenRequests
from heliograph.errors import Reason
from heliograph.machine import Instant, Timers


class GracefulLeave:
    """Leaves brokers without losing what they owe."""

    def __init__(
        self, lines: Lines, requests: OpenRequests, inquiries: Inquiries, outgoing: Outgoing, timers: Timers
    ) -> None:
        self._lines = lines
        self._requests = requests
        self._inquiries = inquiries
        self._outgoing = outgoing
        self._timers = timers

    def leave_soon(self, line: Line, until: Instant, now: Instant) -> None:
        """New publications wait for the next broker; this one should first confirm what it has."""
        line.leave(Reason.DRAINING, "the broker asked us to leave")
        self._lines.ping(line)
        self.leave_at(line, (now + until) // 2)

    def leave_at(self, line: Line, at: Instant) -> None:
        """Leave when nothing more is due on this line, and at this instant in any case."""
        line.leave()
        self._timers.set(("leave", line.id), at, lambda now: self._lines.hang_up(line, Reason.GOODBYE))
        self.leave_if_done(line)

    def leave_if_done(self, line: Line) -> None:
        """Leave, if that was intended, as soon as nothing more is due on this line."""
        if not line.leaving or self._requests.answers_due(line.id) or self._inquiries.due_at(line.inbox):
            return
        if line is not self._lines.current or not (self._outgoing.sent or self._lines.settles):
            self._lines.hang_up(line, Reason.GOODBYE)

    def forget(self, line: Line) -> None:
        """The link is gone."""
        self._timers.cancel(("leave", line.id))
