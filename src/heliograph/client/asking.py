"""Asking: what a session asks of a broker, subscriptions and services, and what the broker answers.

In:    subscriptions and requests of the program; CONFIRMED, REFUSED and SERVICE frames.
Out:   SUBSCRIBE, UNSUBSCRIBE and SERVICE frames; settled requests.
State: requests to services that wait for a link. What a broker was asked is with its line (client/line.py).
Not here: publications (client/conversation.py), moving between brokers (client/roaming.py).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.client.commands import Ask, Request
from heliograph.client.line import Line
from heliograph.client.requests import Expected
from heliograph.client.rooms import Rooms
from heliograph.client.subscriptions import Wish
from heliograph.errors import NotConnectedError, ProtocolError, Reason, RefusedError
from heliograph.machine import Instant
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, ServiceFlag, control, service

if TYPE_CHECKING:
    from heliograph.client.conversation import Conversation

ASKED_AT_ONCE = 1_000  # subscriptions per input: a hundred thousand would stall the program's loop

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Asking:
    """Questions to brokers, and their answers."""

    def __init__(self, rooms: Rooms, conversation: Conversation) -> None:
        self._rooms = rooms
        self._conversation = conversation
        self._asks: deque[Ask] = deque()  # requests to services that wait for a link

    # -- subscriptions ------------------------------------------------------------------------------------------

    def subscribe(self, line: Line, wish: Wish, now: Instant) -> None:
        """Ask for a new subscription, in order with what was published before."""
        self._conversation.pump(line)
        line.unasked.append(wish)
        self._ask_on(line, now)

    def ask_for_all(self, line: Line, now: Instant) -> None:
        """Ask for every subscription that this broker was not asked for yet."""
        wishes = self._rooms.subscriptions.everything()
        line.unasked.extend(wish for wish in wishes if wish.number not in line.asked)
        self._ask_on(line, now)

    def unsubscribe(self, line: Line | None, wish: Wish, request: Request) -> None:
        """End a subscription, at the present broker and at the one to which we are about to move."""
        rooms = self._rooms
        wish.inbox.drops = True  # nobody reads it any more: it must not hold the link
        rooms.subscriptions.pressing.pop(wish.number, None)
        rising = self._conversation.roaming.line
        if rising is not None and wish.number in rising.asked:
            self.part(rising, wish.number)
        if line is None or not line.is_ready or wish.number not in line.asked:
            rooms.subscriptions.remove(wish)
            rooms.requests.settle(request)
            return
        wish.ending = True
        number = rooms.requests.expect(line.id, Expected("unsubscribe", request, wish.number))
        self._write(line, control(Kind.UNSUBSCRIBE, number, bodies.encode(bodies.Unsubscribe(wish.number))))

    def part(self, line: Line, number: int) -> None:
        """End a subscription at this broker; for the program it goes on."""
        line.asked.discard(number)
        line.in_force.discard(number)
        request = self._rooms.requests.expect(line.id, Expected("part", 0, number))
        line.out.append(control(Kind.UNSUBSCRIBE, request, bodies.encode(bodies.Unsubscribe(number))))

    def mark(self, line: Line, number: int) -> int:
        """A subscription of no use but its answer: it comes when everybody knows what was asked before.

        It stands behind everything that was on its way to us here, or from us, when the broker got it. Returns the
        number of the answer.
        """
        body = bodies.Subscribe(number=number, filter=f"{line.inbox}/mark", wide=True)
        request = self._rooms.requests.expect(line.id, Expected("pass", 0, number))
        line.out.append(control(Kind.SUBSCRIBE, request, bodies.encode(body)))
        return request

    def _ask_on(self, line: Line, now: Instant) -> None:
        if not line.is_ready:
            return
        rooms = self._rooms
        for _ in range(min(ASKED_AT_ONCE, len(line.unasked))):
            wish = line.unasked.popleft()
            if wish.number in line.asked:
                continue
            if wish.ending or rooms.subscriptions.get(wish.number) is not wish:
                self._conversation.restored(line, wish.number)
                continue
            number = rooms.requests.expect(line.id, Expected("subscribe", 0, wish.number))
            line.out.append(control(Kind.SUBSCRIBE, number, wish.body(line.inbox)))
            line.asked.add(wish.number)
        if line.unasked:
            rooms.timers.set(("ask on", line.id), now, lambda now: self._ask_on(line, now))
        elif line.rising:
            self._conversation.roaming.asked_all(line, now)

    # -- services -----------------------------------------------------------------------------------------------

    def ask(self, line: Line | None, ask: Ask) -> None:
        """Ask a service; without a link the request waits for one."""
        if line is None or not line.is_ready or line.leaving:
            self._asks.append(ask)
            return
        number = self._rooms.requests.expect(line.id, Expected("ask", ask.request, service=ask.service))
        self._write(line, service(ask.service.encode(), _encode(ask.body), number))

    def ask_waiting(self, line: Line) -> None:
        """There is a link for the requests that waited for one."""
        asks, self._asks = self._asks, deque()
        for ask in asks:
            self.ask(line, ask)

    def forget_ask(self, request: Request) -> None:
        """Nobody waits for this any more."""
        self._asks = deque(ask for ask in self._asks if ask.request != request)

    def _write(self, line: Line, frame: bytes) -> None:
        """Write a request behind what was published before it."""
        self._conversation.pump(line)
        line.out.append(frame)

    # -- answers ------------------------------------------------------------------------------------------------

    def confirmed(self, line: Line, frame: Frame, now: Instant) -> None:
        """CONFIRMED."""
        rooms = self._rooms
        expected = rooms.requests.answered(line.id, frame.sequence)
        if expected.verb == "ask":
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a service answers with a SERVICE frame")
        if expected.verb == "unsubscribe":
            self._ended(expected)
        elif expected.verb == "pass":
            self._conversation.roaming.passed(line, frame.sequence, now)
        elif expected.verb == "subscribe":
            line.in_force.add(expected.number)
            self._conversation.restored(line, expected.number)
            if not line.rising:
                self.settle(expected.number)

    def settle(self, number: int) -> None:
        """This subscription is in force: tell who waits for it."""
        wish = self._rooms.subscriptions.get(number)
        if wish is not None and wish.request:
            self._rooms.requests.settle(wish.request, number)
            wish.request = 0

    def refused(self, line: Line, frame: Frame, refusal: bodies.Refusal, now: Instant) -> None:
        """REFUSED, of something else than a publication."""
        expected = self._rooms.requests.answered(line.id, frame.sequence)
        if expected.verb == "ask":
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a service refuses with a SERVICE frame")
        if expected.verb == "unsubscribe":  # the broker does not have it: that is what was wanted
            self._ended(expected)
        elif expected.verb == "part":
            pass
        elif line.rising:
            self._conversation.roaming.refused(line, _error_of(refusal), now)
        elif expected.verb == "pass":
            self._conversation.roaming.passed(line, frame.sequence, now)
        elif line is self._conversation.line:
            self._refuse(line, expected.number, _error_of(refusal))

    def _refuse(self, line: Line, number: int, error: RefusedError) -> None:
        """The present broker will not have this subscription."""
        rooms = self._rooms
        line.asked.discard(number)
        self._conversation.restored(line, number)
        wish = rooms.subscriptions.get(number)
        if wish is None:
            return
        if wish is rooms.subscriptions.answers:
            rooms.inquiries.refuse_all(error)
        rising = self._conversation.roaming.line
        if rising is not None and number in rising.asked:
            self.part(rising, number)
        rooms.subscriptions.remove(wish, error)
        rooms.requests.settle(wish.request, error=error)

    def _ended(self, expected: Expected) -> None:
        wish = self._rooms.subscriptions.get(expected.number)
        if wish is not None and wish.ending:
            self._rooms.subscriptions.remove(wish)
        self._rooms.requests.settle(expected.request)

    def served(self, line: Line, frame: Frame) -> None:
        """SERVICE."""
        requests = self._rooms.requests
        expected = requests.answered(line.id, frame.sequence)
        if not frame.flags & ServiceFlag.ANSWER or frame.topic != expected.service.encode() or expected.verb != "ask":
            raise ProtocolError(Reason.KIND_UNEXPECTED, "an answer that nobody asked for")
        if frame.flags & ServiceFlag.REFUSAL:
            requests.settle(expected.request, error=_error_of(bodies.decode(bodies.Refusal, frame.payload)))
            return
        try:
            answer = _decode_object(frame.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(Reason.BODY_MALFORMED, f"a service's answer: {error}") from None
        requests.settle(expected.request, answer)

    def forget(self, line: Line) -> None:
        """The link is gone, and with it the answers that were due on it."""
        for expected in self._rooms.requests.forget_link(line.id):
            if expected.verb == "ask":
                lost = "the link was lost before the answer came; whether it was done is not known"
                self._rooms.requests.settle(expected.request, error=NotConnectedError(Reason.CLOSED, lost))
            elif expected.verb == "unsubscribe":
                self._ended(expected)


def _error_of(refusal: bodies.Refusal) -> RefusedError:
    return RefusedError(bodies.reason_of(refusal.code), refusal.text)
