"""Responses: handles the answers of brokers to requests and publications.

In:    CONFIRMED, REFUSED, SERVICE, STORED and PONG frames.
Out:   each handed to the part that asked; confirmed publications; the network time.
State: none.
Not here: which answer belongs to which request (client/requests.py), what each part makes of its answers.
"""

from __future__ import annotations

from heliograph.client.flushes import Flushes
from heliograph.client.inquiries import Inquiries
from heliograph.client.line import Line
from heliograph.client.refusals import Refusals
from heliograph.client.requests import Expected, OpenRequests
from heliograph.client.roaming import Roaming
from heliograph.client.service_requests import ServiceRequests
from heliograph.client.stored.parts import StoreParts
from heliograph.client.subscription_requests import SubscriptionRequests
from heliograph.client.timing import SessionTime
from heliograph.client.watches import ServiceWatches
from heliograph.errors import ProtocolError, Reason, RefusedError
from heliograph.machine import Instant
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, ServiceFlag

RIGHT_ENDED = (Reason.GRANT_REVOKED, Reason.GRANT_EXPIRED, Reason.TOPIC_WITHDRAWN)  # why a subscription may end later


class Responses:
    """Hands the answers of brokers to the parts that asked."""

    def __init__(
        self,
        requests: OpenRequests,
        subscription_requests: SubscriptionRequests,
        service_requests: ServiceRequests,
        inquiries: Inquiries,
        refusals: Refusals,
        flushes: Flushes,
        time: SessionTime,
        roaming: Roaming,
        store_parts: StoreParts,
        watches: ServiceWatches,
    ) -> None:
        self._requests = requests
        self._subscription_requests = subscription_requests
        self._service_requests = service_requests
        self._inquiries = inquiries
        self._refusals = refusals
        self._flushes = flushes
        self._time = time
        self._roaming = roaming
        self._store_parts = store_parts
        self._watches = watches

    def pong(self, line: Line, raw: bytes, now: Instant) -> None:
        """PONG: everything up to its sequence was routed."""
        frame = Frame(raw)
        number = frame.sequence
        self._time.heard(frame, line.pings.pong(number), now)
        self._flushes.confirmed(number, now)
        self._store_parts.pump(now)

    def confirmed(self, line: Line, raw: bytes, now: Instant) -> None:
        """CONFIRMED: a subscription is in force, or has ended."""
        number = Frame(raw).sequence
        expected = self._requests.answered(line.id, number)
        if expected.service:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a service answers with a SERVICE frame")
        if expected.verb == "unsubscribe":
            self._subscription_requests.ended(expected)
        elif expected.verb == "mark":
            self._roaming.passed(line, number, now)
        elif expected.verb == "subscribe":
            self._subscription_requests.confirmed(line, expected.number)
        self._flushes.progressed(now)

    def refused(self, line: Line, raw: bytes, now: Instant) -> None:
        """REFUSED: for a request if it has a number, else for a publication."""
        frame = Frame(raw)
        refusal = bodies.decode(bodies.Refusal, frame.payload)
        if frame.sequence:
            expected = self._requests.answered(line.id, frame.sequence)
            self._request_refused(line, expected, frame.sequence, refusal, now)
            self._flushes.progressed(now)
        elif refusal.code in RIGHT_ENDED:
            error = RefusedError(bodies.reason_of(refusal.code), refusal.text)
            self._subscription_requests.revoked(line, refusal.subject, error)
        elif refusal.code == Reason.RESPONDERS_MISSING:
            self._inquiries.unanswerable(refusal.subject, refusal.text)
        else:
            refused = self._refusals.add(refusal)
            self._inquiries.refused(refusal.subject, refused.error(1))
            self._store_parts.denied(refusal.subject, refused.error(1), now)

    def _request_refused(
        self, line: Line, expected: Expected, number: int, refusal: bodies.Refusal, now: Instant
    ) -> None:
        error = RefusedError(bodies.reason_of(refusal.code), refusal.text)
        if expected.service:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a service refuses with a SERVICE frame")
        if expected.verb == "unsubscribe":  # the broker does not have it, which is what was wanted
            self._subscription_requests.ended(expected)
        elif expected.verb == "part":
            pass
        elif line.rising:
            self._roaming.refused(line, error, now)
        elif expected.verb == "mark":
            self._roaming.passed(line, number, now)
        else:
            self._subscription_requests.refused(line, expected.number, error)

    def service(self, line: Line, raw: bytes, now: Instant) -> None:
        """SERVICE: a service has answered, or sends news of a watch."""
        frame = Frame(raw)
        if frame.flags & ServiceFlag.NEWS:
            self._watches.hear(line, frame)
            return
        expected = self._requests.answered(line.id, frame.sequence)
        if not expected.service:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "an answer without a request")
        self._service_requests.answered(expected, frame, now)
        if expected.told is not None:
            self._flushes.progressed(now)

    def stored(self, line: Line, raw: bytes, now: Instant) -> None:
        """STORED: a store has sent something."""
        if self._store_parts.receive(raw, now):
            self._flushes.progressed(now)

    def lost(self, line: Line, now: Instant) -> None:
        """The link is gone, and with it the answers that were due on it, and watches."""
        self._watches.lost(line)
        for expected in self._requests.forget_link(line.id):
            if expected.service:
                self._service_requests.lost(expected, now)
            elif expected.verb == "unsubscribe":
                self._subscription_requests.ended(expected)
        if line.inbox:
            self._inquiries.lost(line.inbox)
