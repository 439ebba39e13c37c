"""Graceful leave: leaves a broker that is going away once it owes nothing more on the line.

In:    until when the broker stays.
Out:   a PING if something is unconfirmed; a goodbye.
State: only the timers; whether a line is being left is in client/line.py.
Not here: which broker comes next (client/roaming.py, client/dialler.py).
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
    """Leaves brokers without losing what they still owe."""

    def __init__(
        self, lines: Lines, requests: OpenRequests, inquiries: Inquiries, outgoing: Outgoing, timers: Timers
    ) -> None:
        self._lines = lines
        self._requests = requests
        self._inquiries = inquiries
        self._outgoing = outgoing
        self._timers = timers

    def leave_soon(self, line: Line, until: Instant, now: Instant) -> None:
        """New publications wait for the next broker; this one first confirms what it has."""
        line.leave(Reason.DRAINING, "the broker asked us to leave")
        self._lines.ping(line)
        self.leave_at(line, (now + until) // 2)

    def leave_at(self, line: Line, at: Instant) -> None:
        """Leave when nothing more is due on this line, at this instant at the latest."""
        line.leave()
        self._timers.set(("leave", line.id), at, lambda now: self._lines.hang_up(line, Reason.GOODBYE))
        self.leave_if_done(line)

    def leave_if_done(self, line: Line) -> None:
        """If the line is being left, leave as soon as nothing more is due on it."""
        if not line.leaving or self._requests.answers_due(line.id) or self._inquiries.due_at(line.inbox):
            return
        if line is not self._lines.current or not (self._outgoing.sent or self._lines.settles):
            self._lines.hang_up(line, Reason.GOODBYE)

    def forget(self, line: Line) -> None:
        """The link is gone."""
        self._timers.cancel(("leave", line.id))
