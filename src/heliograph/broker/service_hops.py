"""Service hops: frames from a service to the same service at a neighbour.

In:    SERVICE frames with the flag NEIGHBOUR, from pipes of services that attend and from neighbours.
Out:   the same frames on the neighbour's link or on the service's pipe; refusals, counted.
State: none: what waits is in the links' backlogs.
Not here: requests of clients (requests.py), which services attend (ways.py).

A frame makes one hop and stays in order with the others of its link. On a pipe its origin is the link to or from the
neighbour, so a service knows which neighbour sent it; on the wire the origin is 0. Only a little may wait for a slow
neighbour. Beyond that the frame is refused, and the sending service decides how to handle the gap.
"""

from __future__ import annotations

from heliograph.broker.links import Link, Links
from heliograph.broker.requests import ServicePipes
from heliograph.broker.routing.ports import READY, Port
from heliograph.broker.ways import ServiceWays
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, ServiceFlag, service
from heliograph.wire.limits import SERVICE_HOP_BYTES_MAX

WAITING_BYTES_MAX = 1 << 20  # for one slow link, with all else that waits there: far below the limit that ends it
WAITING_FRAMES_MAX = 4_096
REFUSED = ServiceFlag.ANSWER | ServiceFlag.REFUSAL | ServiceFlag.NEIGHBOUR


class ServiceHops:
    """Passes frames between services of neighbouring brokers."""

    def __init__(self, links: Links, pipes: ServicePipes, ways: ServiceWays) -> None:
        self._links = links
        self._pipes = pipes
        self._ways = ways

    def send(self, pipe: Link, frame: Frame) -> None:
        """Send a frame from a service to the same service at a neighbour."""
        link = self._links.by_id.get(frame.origin)
        if not self._ways.attends(pipe) or frame.topic != pipe.service.encode():
            self._refuse(pipe, frame, Reason.SERVICE_UNKNOWN, "a service sends to the same service, once it attends")
        elif link is None or link.neighbour is None or link.state != READY:
            self._refuse(pipe, frame, Reason.CLOSED, "this link to a neighbour has ended")
        elif len(frame.payload) > SERVICE_HOP_BYTES_MAX:
            self._refuse(pipe, frame, Reason.SERVICE_OVER_LIMIT, f"at most {SERVICE_HOP_BYTES_MAX} bytes at once")
        elif _is_slow(link):
            self._refuse(pipe, frame, Reason.SERVICE_OVER_LIMIT, "this neighbour does not read fast enough")
        else:
            self._links.put(link, service(frame.topic, frame.payload, frame.sequence, flags=ServiceFlag.NEIGHBOUR))

    def _refuse(self, pipe: Link, frame: Frame, reason: Reason, text: str) -> None:
        self._links.count(reason)
        body = bodies.refusal(reason, text)
        self._links.put(pipe, service(frame.topic, body, frame.sequence, frame.origin, flags=REFUSED))

    def receive(self, link: Port, frame: Frame, now: Instant) -> None:
        """Pass a frame from a neighbour's service to ours."""
        if frame.flags not in (ServiceFlag.NEIGHBOUR, REFUSED):
            raise ProtocolError(Reason.FLAGS_UNKNOWN, "between brokers, a SERVICE frame is for a neighbour")
        if len(frame.payload) > SERVICE_HOP_BYTES_MAX:
            raise ProtocolError(Reason.FRAME_OVER_LIMIT, "a service's frame that is too long")
        pipe = self._pipes.get(frame.topic)
        if pipe is None or not self._ways.attends(pipe):
            if frame.flags != REFUSED:
                self._links.count(Reason.SERVICE_UNKNOWN)
                body = bodies.refusal(Reason.SERVICE_UNKNOWN, "this broker has no such service")
                self._links.put(link, service(frame.topic[:256], body, frame.sequence, flags=REFUSED))
        elif _is_slow(pipe):
            self._links.count(Reason.SERVICE_OVER_LIMIT)
        else:
            self._links.put(pipe, service(frame.topic, frame.payload, frame.sequence, link.id, flags=frame.flags))


def _is_slow(link: Port) -> bool:
    return link.is_over(WAITING_BYTES_MAX, WAITING_FRAMES_MAX)
