"""Inquiries: requests that other clients answer, and their answers on the way back.

In:    Inquire commands; what comes to the session's own inbox topic; refusals of the broker.
Out:   publications with a reply topic; outcomes.
State: requests that wait for a broker, and published ones without an answer: as many as may be open at once.
Not here: subscribing to that topic (client/conversation.py), time-outs (client/requests.py).

The last level of a reply topic is drawn from the session's secret: only who sees the request can answer it.
A request is published once. If the link is lost before the answer came, it fails, and what no broker has confirmed of
it is withdrawn: whether to ask again is for the program to say, which knows if doing it twice does harm.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from hmac import new as hmac

from heliograph.client.commands import Inquire, Request
from heliograph.client.inbox import Inbox
from heliograph.client.outgoing import Outgoing, too_much
from heliograph.client.requests import Requests
from heliograph.client.subscriptions import ANSWERS
from heliograph.client.writer import Stamp, Writer, header_block
from heliograph.errors import HeliographError, NoRespondersError, NotConnectedError, Reason, UsageError
from heliograph.machine import Instant
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.model.topics import INBOX_ROOT

LEVEL_BYTES = 8


class Inquiry:
    """A request that was published and has no answer yet."""

    __slots__ = ("inbox", "reply_to", "request", "sequence", "topic")

    def __init__(self, command: Inquire, inbox: str, reply_to: str, sequence: int) -> None:
        self.request = command.request
        self.topic = command.topic
        self.inbox = inbox
        self.reply_to = reply_to
        self.sequence = sequence


class AnswerBox(Inbox):
    """The inbox of the session's own inbox topic: whatever comes is handed on at once."""

    __slots__ = ("_hand_on",)

    def __init__(self, number: int, hand_on: Callable[[Publication], None]) -> None:
        super().__init__(number, Policy.DROP_OLDEST, 1, 1)
        self._hand_on = hand_on

    def put(self, publications: list[Publication]) -> int:
        """Nothing waits here."""
        for publication in publications:
            self._hand_on(publication)
        return 0


class Inquiries:
    """All requests to other clients."""

    __slots__ = (
        "_by_request",
        "_by_topic",
        "_count",
        "_key",
        "_outgoing",
        "_requests",
        "_writer",
        "unexpected",
        "waiting",
    )

    def __init__(self, secret: bytes, requests: Requests, outgoing: Outgoing, writer: Writer) -> None:
        self._key = sha256(b"heliograph reply " + secret).digest()
        self._requests = requests
        self._outgoing = outgoing
        self._writer = writer
        self._count = 0
        self.waiting: dict[Request, Inquire] = {}  # for a broker
        self._by_request: dict[Request, Inquiry] = {}
        self._by_topic: dict[str, Inquiry] = {}
        self.unexpected = 0  # answers that came too late, or a second time, or that nobody asked for

    def answer_box(self) -> Inbox:
        """The inbox of the session's own inbox topic."""
        return AnswerBox(ANSWERS, self.heard)

    def add(self, command: Inquire, stamp: Stamp | None, now: Instant) -> None:
        """Await an answer; it is published as soon as there is a broker. UsageError for what no broker would take."""
        self._frame(command, INBOX_ROOT.decode(), stamp)
        self._requests.open(command.request, now, lambda now: self.forget(command.request), command.ms_max)
        self.waiting[command.request] = command

    def publish(self, inbox: str, stamp: Stamp | None) -> None:
        """Publish those that wait; answers will come to this inbox."""
        for command in self._take_waiting():
            reply_to = self._reply_topic(inbox)
            try:
                frame = self._frame(command, reply_to, stamp)
            except UsageError as error:  # this broker takes less than others
                self._requests.settle(command.request, error=error)
                continue
            if not self._outgoing.has_room:
                self._requests.settle(command.request, error=too_much())
                continue
            self._outgoing.add(frame)
            inquiry = Inquiry(command, inbox, reply_to, self._outgoing.assigned)
            self._by_request[inquiry.request] = self._by_topic[reply_to] = inquiry

    def _frame(self, command: Inquire, reply_to: str, stamp: Stamp | None) -> bytes:
        block, flags = header_block(stamp, command.headers, None, command.content_type, None, reply_to)
        topic = self._writer.topic(command.topic)
        return self._writer.frame(topic, block, command.payload, self._outgoing.assigned + 1, flags)

    def _take_waiting(self) -> list[Inquire]:
        waiting = list(self.waiting.values())
        self.waiting.clear()
        return waiting

    def _reply_topic(self, inbox: str) -> str:
        """A topic that was not used before, and that nobody can guess."""
        self._count += 1
        level = hmac(self._key, self._count.to_bytes(8, "little"), sha256).digest()[:LEVEL_BYTES]
        return f"{inbox}/{level.hex()}"

    def heard(self, publication: Publication) -> None:
        """Something came to the session's inbox topic."""
        inquiry = self._by_topic.get(publication.topic)
        if inquiry is None:
            self.unexpected += 1
            return
        self._drop(inquiry)
        self._requests.settle(inquiry.request, publication)

    def unanswerable(self, reply_to: str, text: str) -> None:
        """The broker says that nobody is there to answer."""
        inquiry = self._by_topic.get(reply_to)
        if inquiry is not None:
            self._fail(inquiry, NoRespondersError(Reason.RESPONDERS_MISSING, text))

    def refused(self, topic: str, error: HeliographError) -> None:
        """The broker does not take our publications on this topic."""
        for inquiry in list(self._by_request.values()):
            if inquiry.topic == topic:
                self._fail(inquiry, error)

    def lost(self, inbox: str) -> None:
        """No answer can reach us there any more."""
        text = "the link was lost before the answer came; whether it was done is not known"
        for inquiry in list(self._by_request.values()):
            if inquiry.inbox == inbox:
                self._fail(inquiry, NotConnectedError(Reason.CLOSED, text))

    def refuse_all(self, error: HeliographError) -> None:
        """We cannot be answered at this broker."""
        for command in self._take_waiting():
            self._requests.settle(command.request, error=error)
        for inquiry in list(self._by_request.values()):
            self._fail(inquiry, error)

    def forget(self, request: Request) -> None:
        """Nobody waits for this any more."""
        self.waiting.pop(request, None)
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
        """It is over: should the broker not have it yet, it goes to no other."""
        del self._by_request[inquiry.request]
        del self._by_topic[inquiry.reply_to]
        self._outgoing.withdraw(inquiry.sequence)

    def __len__(self) -> int:
        return len(self._by_request) + len(self.waiting)
