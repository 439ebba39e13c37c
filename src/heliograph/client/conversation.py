"""The conversation: reads the frames of brokers and hands each one to the part that handles its kind.

In:    the bytes of each link; the ends of links.
Out:   calls to the parts that handle each kind of frame; a hangup for a broker that breaks the rules.
State: none; the lines are in client/lines.py.
Not here: WELCOME and GOODBYE (client/handshake.py), answers (client/responses.py), deliveries (client/deliveries.py).

Everything a broker sends is checked. A broker that breaks the rules loses the link; the session looks for another.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.client.deliveries import Deliveries
from heliograph.client.graceful_leave import GracefulLeave
from heliograph.client.handshake import Handshake
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.responses import Responses
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId
from heliograph.wire.frames import Frame, Kind, control


class Conversation:
    """Reads the frames of a session's links."""

    def __init__(
        self, lines: Lines, deliveries: Deliveries, handshake: Handshake, responses: Responses, leave: GracefulLeave
    ) -> None:
        self._lines = lines
        self._by_link = lines.by_link
        self._deliveries = deliveries
        self._leave = leave
        self._handlers: dict[int, Callable[[Line, bytes, Instant], None]] = {
            Kind.DELIVERY: deliveries.deliver,
            Kind.PONG: responses.pong,
            Kind.PING: self._ping,
            Kind.CONFIRMED: responses.confirmed,
            Kind.REFUSED: responses.refused,
            Kind.SERVICE: responses.service,
            Kind.STORED: responses.stored,
            Kind.WELCOME: handshake.welcome,
            Kind.GOODBYE: handshake.goodbye,
        }

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Read bytes of a broker, split anywhere."""
        line = self._by_link.get(link)
        if line is None or line.gone:
            return
        self._hear(line, data, now)
        if line.leaving:
            self._leave.leave_if_done(line)
        self._deliveries.review_hold(now)

    def _hear(self, line: Line, data: bytes, now: Instant) -> None:
        handlers = self._handlers
        try:
            for frame in line.read(data, now):
                kind = frame[4]
                if line.welcomed_at is None and kind not in (Kind.WELCOME, Kind.GOODBYE):
                    raise ProtocolError(Reason.KIND_UNEXPECTED, "the first frame of a broker is a WELCOME")
                handlers[kind](line, frame, now)
                if line.gone:
                    return
            if line.splitter.fault is not None:
                raise ProtocolError(line.splitter.fault, "not a frame of this protocol")
        except ProtocolError as error:
            self._lines.refuse(line, error)

    def _ping(self, line: Line, raw: bytes, now: Instant) -> None:
        line.out.append(control(Kind.PONG, Frame(raw).sequence))
