"""Requests: carries frames for services from a client to a service's pipe and back.

In:    SERVICE frames from clients and from pipes.
Out:   SERVICE frames to pipes and back to the requester, answers and news; orders to the broker itself; a call when a
       requester is gone.
State: the services, the requests under way, and which link has sent requests to which service.
Not here: what a service does (services/), access rights (access.py), frames between neighbours (service_hops.py).

A service is a machine at the other end of a pipe. The broker puts the requester's link into the frame's origin and its
identity into the headers; the service copies the origin into its answer. On a pipe, and only there, the name "broker"
means the broker itself. A service may ask the node's other services too.

News of a watch come from the service alone, and reach only a link that has asked that service. They wait with all else
that the link has not read, in at most half of its queue. Beyond that the news are refused, and the service begins the
watch anew when there is room: a client that does not read keeps its link, and no memory grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.broker.links import Link, Links
from heliograph.broker.shares import source_of
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox
from heliograph.notes import ActionDenied, ServiceLost
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, ServiceFlag, service
from heliograph.wire.hearing import Hearing
from heliograph.wire.requests import Asker
from heliograph.wire.stores import STORES

REQUESTS_PER_LINK_MAX = 64  # requests without an answer so far
BROKER_NAME = b"broker"

_encode = msgspec.json.Encoder().encode
Order = Callable[[Link, int, bytes, Instant], None]


class ServiceAnswers:
    """Sends the answers that come from the broker itself."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def answer_order(self, pipe: Link, number: int, answer: Any) -> None:
        """Answer an order to the broker itself."""
        self._links.put(pipe, service(BROKER_NAME, _encode(answer), number, flags=ServiceFlag.ANSWER))

    def refuse(self, link: Link, name: bytes, number: int, reason: Reason, text: str) -> None:
        """Refuse a request."""
        self._links.count(reason)
        flags = ServiceFlag.ANSWER | ServiceFlag.REFUSAL
        self._links.put(link, service(name, bodies.refusal(reason, text), number, flags=flags))


class ServicePipes:
    """The services of this node, by name."""

    def __init__(self) -> None:
        self._pipes: dict[bytes, Link] = {}
        self.get = self._pipes.get

    def join(self, pipe: Link) -> None:
        """A service was attached."""
        self._pipes[pipe.service.encode()] = pipe

    def leave(self, pipe: Link) -> None:
        """A service is gone."""
        self._pipes.pop(pipe.service.encode(), None)


class Requests:
    """Passes requests to services and their answers back."""

    def __init__(
        self,
        links: Links,
        pipes: ServicePipes,
        outbox: Outbox,
        answers: ServiceAnswers,
        *,
        order: Order,
        send: Callable[[Link, Frame], None],
        ended: Callable[[Link, int], None],
        hearing: Callable[[Link], Hearing | None],
    ) -> None:
        self._links = links
        self._pipes = pipes
        self._answers = answers
        self._outbox = outbox
        self._order = order  # a request to the broker itself, from a pipe: (pipe, number, body, now)
        self._send = send  # a frame from a service to the same service at a neighbour
        self._ended = ended  # tells a service that the link of a requester has ended
        self._hearing = hearing  # what a link may hear, which stores have to know
        self._open: dict[Link, dict[tuple[bytes, int], None]] = {}
        self._asked: dict[Link, dict[bytes, None]] = {}  # the services to which a link has ever sent a request

    def receive(self, link: Link, frame: Frame, now: Instant) -> None:
        """A SERVICE frame. What raises here costs the request, on whichever side of the service."""
        try:
            self._receive(link, frame, now)
        except ProtocolError:
            raise
        except Exception as error:
            self._outbox.guard.caught("request", error, now, link.id, link.identity.entity)
            self._fail(link, frame)

    def _receive(self, link: Link, frame: Frame, now: Instant) -> None:
        if not link.is_pipe:
            self._ask(link, frame)
        elif frame.flags == ServiceFlag.NEIGHBOUR:
            self._send(link, frame)
        elif frame.flags == ServiceFlag.NEWS:
            self._tell(link, frame)
        elif frame.flags & ServiceFlag.ANSWER:
            self._answer(frame)
        elif frame.topic == BROKER_NAME:
            self._order(link, frame.sequence, frame.payload, now)
        else:
            self._ask(link, frame)

    def _ask(self, link: Link, frame: Frame) -> None:
        if frame.flags:
            raise ProtocolError(Reason.FLAGS_UNKNOWN, "a request has no flags")
        name, number = frame.topic, frame.sequence
        pipe = self._pipes.get(name)
        if not link.is_pipe and not _may_ask(link, name):
            subject = name.decode(errors="replace")[:256]
            self._outbox.note(ActionDenied(link.id, link.identity.entity, Reason.ASK_DENIED, subject))
            self._answers.refuse(
                link, name, number, Reason.ASK_DENIED, f"{link.identity.entity} may not ask this service"
            )
        elif pipe is None:
            self._answers.refuse(link, name, number, Reason.SERVICE_UNKNOWN, "this broker has no such service")
        elif len(self._open.get(link, ())) >= REQUESTS_PER_LINK_MAX:
            self._answers.refuse(
                link, name, number, Reason.REQUESTS_OVER_LIMIT, f"{REQUESTS_PER_LINK_MAX} are under way"
            )
        elif (name, number) in self._open.get(link, ()):
            self._answers.refuse(link, name, number, Reason.DUPLICATE, f"request {number} is still under way")
        else:
            self._open.setdefault(link, {})[(name, number)] = None
            self._asked.setdefault(link, {})[name] = None
            identity = link.identity
            asker = Asker(
                entity=identity.entity,
                roles=[role.value for role in identity.roles],
                proof=identity.proof,
                inbox=link.inbox.decode(),
                session=f"{link.origin:016x}",
                source=source_of(link.peer.address),
                hears=self._hearing(link) if name == STORES else None,
            )
            self._links.put(pipe, service(name, frame.payload, number, link.id, _encode(asker)))

    def _fail(self, link: Link, frame: Frame) -> None:
        """Refuse what could not be passed on: a client's request, the service's answer to one, or its order."""
        if not link.is_pipe:
            self._open.get(link, {}).pop((frame.topic, frame.sequence), None)
        elif frame.flags == ServiceFlag.NEIGHBOUR:
            return
        elif frame.flags & ServiceFlag.ANSWER:
            asker = self._links.by_id.get(frame.origin)
            if asker is None:
                return
            self._open.get(asker, {}).pop((frame.topic, frame.sequence), None)
            link = asker
        text = "a bug in this broker, which its log describes; only this request failed"
        self._answers.refuse(link, frame.topic, frame.sequence, Reason.INTERNAL_ERROR, text)

    def _answer(self, frame: Frame) -> None:
        link = self._links.by_id.get(frame.origin)
        if link is None or (frame.topic, frame.sequence) not in self._open.get(link, ()):
            return  # the requester has left in the meantime
        del self._open[link][(frame.topic, frame.sequence)]
        self._links.put(link, service(frame.topic, frame.payload, frame.sequence, flags=frame.flags))

    def _tell(self, pipe: Link, frame: Frame) -> None:
        name, limits = pipe.service.encode(), self._links.limits
        link = self._links.by_id.get(frame.origin)
        if link is None or frame.topic != name or name not in self._asked.get(link, ()):
            return  # the client has left in the meantime
        bytes_max, frames_max = limits.queue_bytes_max // 2 - len(frame.raw), limits.queue_frames_max // 2
        if (link.pressed or link.backlog) and link.is_over(bytes_max, frames_max):
            self._links.count(Reason.SERVICE_OVER_LIMIT)
            body = bodies.refusal(Reason.SERVICE_OVER_LIMIT, "this client does not read fast enough")
            flags = ServiceFlag.NEWS | ServiceFlag.REFUSAL
            self._links.put(pipe, service(name, body, frame.sequence, link.id, flags=flags))
            return
        self._links.put(link, service(name, frame.payload, frame.sequence, flags=ServiceFlag.NEWS))

    def leave(self, link: Link) -> None:
        """A link is gone: a requester needs no answers any more, and a lost service gives none."""
        self._open.pop(link, None)
        for name in self._asked.pop(link, ()):
            pipe = self._pipes.get(name)
            if pipe is not None:
                self._ended(pipe, link.id)
        if not link.is_pipe:
            return
        name = link.service.encode()
        self._pipes.leave(link)
        self._outbox.note(ServiceLost(link.service))
        for asker, requests in self._open.items():
            for request in [request for request in requests if request[0] == name]:
                del requests[request]
                self._answers.refuse(asker, name, request[1], Reason.SERVICE_GONE, "the service ended")


def _may_ask(link: Link, name: bytes) -> bool:
    assert link.table is not None
    return link.table.profile.may("ask", name)
