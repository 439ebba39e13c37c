"""Inquiries: requests that other clients answer, and their answers.

In:    Inquire commands; lines that come and go; publications to the session's own inbox topic; refusals of the broker.
Out:   publications with a reply topic; outcomes.
State: requests that wait for a broker, and published requests without an answer, limited together.
Not here: asking a broker for the inbox topic (client/subscription_requests.py), time-outs (client/requests.py).

The last level of a reply topic is drawn from the session's secret: only a client that sees the request can answer it.
A request is published once. If the link is lost before the answer came, it fails, and is withdrawn unless a broker has
confirmed it. Only the program knows whether repeating it does harm, so only the program repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from hmac import new as hmac

from heliograph.client.commands import Inquire, Request
from heliograph.client.inbox import Inbox
from heliograph.client.lines import Lines
from heliograph.client.outgoing import too_much
from heliograph.client.publisher import Publisher
from heliograph.client.requests import OpenRequests
from heliograph.client.subscription_requests import SubscriptionRequests
from heliograph.client.subscriptions import ANSWERS, LocalSubscriptions
from heliograph.errors import HeliographError, NoRespondersError, NotConnectedError, Reason, UsageError
from heliograph.machine import Instant
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.model.topics import INBOX_ROOT

LEVEL_BYTES = 16  # what nobody can guess


class Inquiry:
    """A published request that has no answer yet."""

    __slots__ = ("inbox", "reply_to", "request", "sequence", "topic")

    def __init__(self, command: Inquire, inbox: str, reply_to: str, sequence: int) -> None:
        self.request = command.request
        self.topic = command.topic
        self.inbox = inbox
        self.reply_to = reply_to
        self.sequence = sequence


class AnswerBox(Inbox):
    """The inbox for the session's own inbox topic: it hands publications on at once."""

    __slots__ = ("_fail", "_hand_on")

    def __init__(self, hand_on: Callable[[Publication], None], fail: Callable[[HeliographError], None]) -> None:
        super().__init__(ANSWERS, Policy.DROP_OLDEST, 1, 1)
        self._hand_on = hand_on
        self._fail = fail

    def put(self, publications: list[Publication]) -> int:
        """Hand these on; nothing is queued."""
        for publication in publications:
            self._hand_on(publication)
        return 0

    def end(self, error: HeliographError | None = None) -> None:
        """No more answers will come; with an error, the open requests fail with it."""
        super().end(error)
        if error is not None:
            self._fail(error)


class Inquiries:
    """All requests of one session to other clients."""

    __slots__ = (
        "_by_request",
        "_by_topic",
        "_count",
        "_key",
        "_lines",
        "_publisher",
        "_requests",
        "_subscription_requests",
        "_subscriptions",
        "_waiting",
        "unexpected",
    )

    def __init__(
        self,
        secret: bytes,
        requests: OpenRequests,
        publisher: Publisher,
        lines: Lines,
        subscriptions: LocalSubscriptions,
        subscription_requests: SubscriptionRequests,
    ) -> None:
        self._key = sha256(b"heliograph reply " + secret).digest()
        self._requests = requests
        self._publisher = publisher
        self._lines = lines
        self._subscriptions = subscriptions
        self._subscription_requests = subscription_requests
        self._count = 0
        self._waiting: dict[Request, Inquire] = {}  # requests that wait for a broker
        self._by_request: dict[Request, Inquiry] = {}
        self._by_topic: dict[str, Inquiry] = {}
        self.unexpected = 0  # answers that were late, repeated, or without a request

    # -- asking -------------------------------------------------------------------------------------------------

    def inquire(self, command: Inquire, now: Instant) -> None:
        """Wait for an answer; publish the request when there is a broker. UsageError if no broker would accept it."""
        self._publisher.request_frame(command, INBOX_ROOT.decode(), now)
        self._requests.open(command.request, now, lambda now: self._forget(command.request), command.ms_max)
        self._waiting[command.request] = command
        self.publish_waiting(now)

    def publish_waiting(self, now: Instant) -> None:
        """Publish the waiting requests, if there is a broker at which their answers can reach us."""
        inbox = self._lines.inbox
        if inbox and self._waiting:
            self._listen(now)
            for command in self._take_waiting():
                self._publish(command, inbox, now)

    def _listen(self, now: Instant) -> None:
        """Subscribe to the session's own inbox topic, unless that was done before."""
        subscription = self._subscriptions.answers
        if subscription is None:
            subscription = self._subscriptions.listen(AnswerBox(self._answered, self.refuse_all))
        line = self._lines.current
        if line is not None and line.is_ready and not line.leaving and ANSWERS not in line.asked:
            self._subscription_requests.ask_for(line, subscription, now)

    def _publish(self, command: Inquire, inbox: str, now: Instant) -> None:
        reply_to = self._reply_topic(inbox)
        outgoing = self._publisher.outgoing
        try:
            frame = self._publisher.request_frame(command, reply_to, now)
        except UsageError as error:  # this broker's limits are lower than others'
            self._requests.settle(command.request, error=error)
            return
        if not outgoing.has_room:
            self._requests.settle(command.request, error=too_much())
            return
        outgoing.add(frame)
        inquiry = Inquiry(command, inbox, reply_to, outgoing.assigned)
        self._by_request[inquiry.request] = self._by_topic[reply_to] = inquiry

    def _take_waiting(self) -> list[Inquire]:
        waiting = list(self._waiting.values())
        self._waiting.clear()
        return waiting

    def _reply_topic(self, inbox: str) -> str:
        """A topic that is new and cannot be guessed."""
        self._count += 1
        level = hmac(self._key, self._count.to_bytes(8, "little"), sha256).digest()[:LEVEL_BYTES]
        return f"{inbox}/{level.hex()}"

    # -- answers, and why there is none -------------------------------------------------------------------------

    def _answered(self, publication: Publication) -> None:
        """A publication came to the session's inbox topic."""
        inquiry = self._by_topic.get(publication.topic)
        if inquiry is None:
            self.unexpected += 1
            return
        self._drop(inquiry)
        self._requests.settle(inquiry.request, publication)

    def unanswerable(self, reply_to: str, text: str) -> None:
        """The broker reports that no client subscribes to the request's topic."""
        inquiry = self._by_topic.get(reply_to)
        if inquiry is not None:
            self._fail(inquiry, NoRespondersError(Reason.RESPONDERS_MISSING, text))

    def refused(self, topic: str, error: HeliographError) -> None:
        """The broker does not accept our publications on this topic."""
        for inquiry in list(self._by_request.values()):
            if inquiry.topic == topic:
                self._fail(inquiry, error)

    def lost(self, inbox: str) -> None:
        """Answers can no longer reach us at this inbox."""
        text = "the link was lost before the answer came; whether it was done is not known"
        for inquiry in list(self._by_request.values()):
            if inquiry.inbox == inbox:
                self._fail(inquiry, NotConnectedError(Reason.CLOSED, text))

    def refuse_all(self, error: HeliographError) -> None:
        """Answers cannot reach us at this broker."""
        for command in self._take_waiting():
            self._requests.settle(command.request, error=error)
        for inquiry in list(self._by_request.values()):
            self._fail(inquiry, error)

    def _forget(self, request: Request) -> None:
        """The program no longer waits for this request."""
        self._waiting.pop(request, None)
        inquiry = self._by_request.get(request)
        if inquiry is not None:
            self._drop(inquiry)

    def due_at(self, inbox: str) -> bool:
        """True if an answer is awaited there."""
        return any(inquiry.inbox == inbox for inquiry in self._by_request.values())

    def _fail(self, inquiry: Inquiry, error: HeliographError) -> None:
        self._drop(inquiry)
        self._requests.settle(inquiry.request, error=error)

    def _drop(self, inquiry: Inquiry) -> None:
        """The request is over: if the present broker does not have it yet, no other broker gets it."""
        del self._by_request[inquiry.request]
        del self._by_topic[inquiry.reply_to]
        self._publisher.outgoing.withdraw(inquiry.sequence)

    def __len__(self) -> int:
        return len(self._by_request) + len(self._waiting)
