"""The conversation: what a session and its present broker say to each other, frame by frame.

In:    the broker's bytes; subscriptions, requests and publications of the session's rooms.
Out:   frames, holds and hangups; settled requests; publications in inboxes.
State: the present line, what the broker has not been asked yet, which inboxes are full.
Not here: finding a broker (client/reach.py), commands of the program and the end of a session (client/session.py).

Everything a broker sends is checked. One that breaks the rules loses the link; the session looks for another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from heliograph.client.commands import Ask, Request
from heliograph.client.config import Target
from heliograph.client.line import Line
from heliograph.client.requests import NS_PER_MS, Expected
from heliograph.client.rooms import Rooms
from heliograph.client.subscriptions import Stage, Wish
from heliograph.errors import HeliographError, NotConnectedError, ProtocolError, Reason, RefusedError
from heliograph.machine import Instant, LinkId
from heliograph.model.subscription import Policy
from heliograph.notes import PeerRefused, SessionRestored
from heliograph.wire import bodies
from heliograph.wire.frames import VERSION, Frame, Kind, ServiceFlag, control, service
from heliograph.wire.limits import PAYLOAD_BYTES_MAX

KEEP_ALIVE_MS_MAX = 86_400_000
SILENCES_MAX = 3  # keep-alive times without a word end a link
ASKED_AT_ONCE = 1_000  # subscriptions per input: a hundred thousand would stall the program's loop
JOINED_FROM = 8  # so many pieces are cheaper to copy into one than to write as they are
UNANSWERED_TIMES = 2  # a full inbox lets the link run on to twice its size while an answer waits behind the deliveries

# Trying again would not change these; nor those below 200: the broker says that we broke the rules of the wire.
FATAL = frozenset(
    {
        Reason.CREDENTIAL_MISSING,
        Reason.CREDENTIAL_WRONG,
        Reason.CERTIFICATE_EXPIRED,
        Reason.CERTIFICATE_UNTRUSTED,
        Reason.ROLE_MISSING,
        Reason.TAKEN_OVER,
    }
)
RULES_BROKEN = 200

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Owner(Protocol):
    """What a conversation tells the session it belongs to."""

    def welcomed(self, welcome: bodies.Welcome, now: Instant) -> None:
        """The broker has welcomed us."""

    def progressed(self, now: Instant) -> None:
        """The broker confirmed or answered something."""

    def refused(self, error: HeliographError, now: Instant) -> None:
        """The broker will not have this session, now or later."""


class Conversation:
    """The session's side of one link after another."""

    def __init__(self, rooms: Rooms, origin: int, hello: bytes, owner: Owner) -> None:
        self.line: Line | None = None
        self.links = 0  # welcomes so far
        self.lost_at_broker = 0
        self.pressing: dict[int, Wish] = {}  # subscriptions whose inbox is full
        self._rooms = rooms
        self._origin = f"{origin:016x}"
        self._hello = hello
        self._owner = owner
        self._unasked: deque[Wish] = deque()  # subscriptions to ask this broker for
        self._asks: deque[Ask] = deque()  # requests to services that wait for a link
        self._repeated = 0
        self._handlers: dict[int, Callable[[Line, bytes, Instant], None]] = {
            Kind.DELIVERY: self._delivery,
            Kind.PONG: self._pong,
            Kind.PING: self._ping,
            Kind.CONFIRMED: self._confirmed,
            Kind.REFUSED: self._refused,
            Kind.SERVICE: self._service,
            Kind.WELCOME: self._welcome,
            Kind.GOODBYE: self._goodbye,
        }

    # -- the life of a line -------------------------------------------------------------------------------------

    def begin(self, link: LinkId, target: Target, handshake_ms: int, now: Instant) -> None:
        """A link is there: say hello."""
        self.line = line = Line(link, target, now)
        line.out.append(self._hello)
        self._rooms.timers.set("handshake", now + handshake_ms * NS_PER_MS, self._handshake_late)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """The broker's bytes, split anywhere."""
        line = self.line
        if line is None or line.id != link or line.gone:
            return
        line.heard_at = now
        handlers = self._handlers
        try:
            for frame in line.splitter.split(data):
                kind = frame[4]
                if line.welcomed_at is None and kind not in (Kind.WELCOME, Kind.GOODBYE):
                    raise ProtocolError(Reason.KIND_UNEXPECTED, "the first frame of a broker is a WELCOME")
                handlers[kind](line, frame, now)
                if line.gone:
                    return
            if line.splitter.fault is not None:
                raise ProtocolError(line.splitter.fault, "what came is not a frame of this protocol")
        except ProtocolError as error:
            self._rooms.outbox.note(PeerRefused(link, error.reason, error.detail))
            self.hang_up(line, error.reason, error.detail)
            return
        self.review_hold(now)

    def hang_up(self, line: Line, reason: Reason, text: str = "") -> None:
        """Say why, and end the link."""
        if not line.gone:
            line.gone = True
            line.said = line.said or (reason, text)
            line.out.append(control(Kind.GOODBYE, 0, bodies.goodbye(reason, text)))
            self._rooms.outbox.hang_up(line.id, reason)

    def end(self, now: Instant) -> None:
        """The link is gone: forget what was under way on it."""
        self.line = None
        rooms = self._rooms
        for key in ("handshake", "keep alive", "leave", "ask on"):
            rooms.timers.cancel(key)
        for expected in rooms.requests.forget_link():
            if expected.verb == "ask":
                lost = "the link was lost before the answer came; whether it was done is not known"
                rooms.requests.settle(expected.request, error=NotConnectedError(Reason.CLOSED, lost))
            elif expected.verb == "unsubscribe":
                rooms.requests.settle(expected.request)
        for wish in rooms.subscriptions:
            if wish.stage is Stage.ENDING:
                self._drop(wish)
            else:
                wish.stage = Stage.WANTED
        self._unasked.clear()

    def gather(self) -> None:
        """Put everything that may be written into one write."""
        line = self.line
        if line is None:
            return
        self.pump(line)
        if line.out:
            out, line.out = line.out, []
            self._rooms.outbox.writes.append((line.id, out if len(out) < JOINED_FROM else [b"".join(out)]))

    def pump(self, line: Line) -> None:
        """Move waiting publications, and the PING behind them, to the output."""
        if not line.flows or self._unasked:
            return
        outgoing = self._rooms.outgoing
        if outgoing.waiting:
            line.out += outgoing.send()
        if line.ping_wanted:
            line.ping_wanted = False
            line.out.append(outgoing.ping())

    def _handshake_late(self, now: Instant) -> None:
        if self.line is not None:
            self.hang_up(self.line, Reason.TIME_OUT, "no WELCOME in time")

    def _keep_alive(self, now: Instant) -> None:
        """Ask a quiet broker for a sign of life, and leave a silent one."""
        line = self.line
        if line is None or not line.is_ready:
            return
        if line.held:
            line.heard_at = now  # we do not read: its silence is our doing. But it should hear from us.
        quiet = now - line.heard_at
        if quiet >= SILENCES_MAX * line.keep_alive_ns:
            self.hang_up(line, Reason.SILENT, "nothing was heard for three keep-alive intervals")
            return
        at = line.heard_at + line.keep_alive_ns
        if quiet >= line.keep_alive_ns or line.held:
            line.out.append(self._rooms.outgoing.ping())
            at = now + line.keep_alive_ns
        self._rooms.timers.set("keep alive", at, self._keep_alive)

    # -- asking -------------------------------------------------------------------------------------------------

    def subscribe(self, wish: Wish, now: Instant) -> None:
        """Ask for a new subscription, in order with what was published before; without a link it waits for one."""
        line = self.line
        if line is not None and line.is_ready:
            self.pump(line)
            self._unasked.append(wish)
            self._ask_on(now)

    def unsubscribe(self, wish: Wish, request: Request) -> None:
        """End a subscription."""
        line = self.line
        wish.inbox.drops = True  # nobody reads it any more: it must not hold the link
        self.pressing.pop(wish.number, None)
        if line is None or not line.is_ready or wish.stage is Stage.WANTED:
            self._drop(wish)
            self._rooms.requests.settle(request)
            return
        wish.stage = Stage.ENDING
        number = self._rooms.requests.expect(Expected("unsubscribe", request, wish.number))
        self._write(line, control(Kind.UNSUBSCRIBE, number, bodies.encode(bodies.Unsubscribe(wish.number))))

    def ask(self, ask: Ask, now: Instant) -> None:
        """Ask a service; without a link the request waits for one."""
        line = self.line
        if line is None or not line.is_ready or line.leaving:
            self._asks.append(ask)
            return
        number = self._rooms.requests.expect(Expected("ask", ask.request, service=ask.service))
        self._write(line, service(ask.service.encode(), _encode(ask.body), number))

    def forget_ask(self, request: Request) -> None:
        """Nobody waits for this any more."""
        self._asks = deque(ask for ask in self._asks if ask.request != request)

    def confirm_soon(self) -> None:
        """Ask the broker to confirm everything published so far."""
        if self.line is not None:
            self.line.ping_wanted = True

    def review_hold(self, now: Instant) -> None:
        """Stop reading while an inbox is full, so that the broker sees the pressure and its policy can do its work."""
        line = self.line
        if line is None or not line.is_ready or not (self.pressing or line.held):
            return
        times = UNANSWERED_TIMES if len(self._rooms.requests) else 1
        held = any(times == 1 or wish.inbox.fills(times) for wish in self.pressing.values())
        if held != line.held:
            line.held = held
            line.heard_at = now
            self._rooms.outbox.holds.append((line.id, held))

    def _write(self, line: Line, frame: bytes) -> None:
        """Write a request behind what was published before it."""
        self.pump(line)
        line.out.append(frame)

    def _ask_on(self, now: Instant) -> None:
        line = self.line
        if line is None or not line.is_ready:
            return
        for _ in range(min(ASKED_AT_ONCE, len(self._unasked))):
            wish = self._unasked.popleft()
            if wish.stage is Stage.WANTED and self._rooms.subscriptions.get(wish.number) is wish:
                number = self._rooms.requests.expect(Expected("subscribe", wish.request, wish.number))
                line.out.append(control(Kind.SUBSCRIBE, number, wish.body()))
                wish.stage = Stage.ASKED
            else:
                self._restored(line, wish.number)
        if self._unasked:
            self._rooms.timers.set("ask on", now, self._ask_on)

    def _drop(self, wish: Wish, error: HeliographError | None = None) -> None:
        self.pressing.pop(wish.number, None)
        self._rooms.subscriptions.remove(wish, error)

    # -- hearing ------------------------------------------------------------------------------------------------

    def _welcome(self, line: Line, raw: bytes, now: Instant) -> None:
        if line.welcomed_at is not None:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a second WELCOME")
        welcome = bodies.decode(bodies.Welcome, Frame(raw).payload)
        seen = self._check_welcome(welcome)
        rooms = self._rooms
        if seen > rooms.outgoing.sent_to:
            used = "the broker knows later publications under this session's secret: it was used elsewhere"
            self._owner.refused(RefusedError(Reason.DUPLICATE, used), now)
            return
        self._repeated = rooms.outgoing.rewind(seen)
        rooms.writer.payload_bytes_max = min(
            PAYLOAD_BYTES_MAX, welcome.limits.get("payload_bytes_max", PAYLOAD_BYTES_MAX)
        )
        rooms.timers.cancel("handshake")
        line.welcomed_at = now
        line.keep_alive_ns = welcome.keep_alive_ms * NS_PER_MS
        rooms.timers.set("keep alive", now + line.keep_alive_ns, self._keep_alive)
        self.links += 1
        self._unasked.extend(rooms.subscriptions)
        line.restoring = {wish.number for wish in self._unasked}
        self._note_restored(line)
        self._ask_on(now)
        asks, self._asks = self._asks, deque()
        for ask in asks:
            self.ask(ask, now)
        self._owner.welcomed(welcome, now)

    def _check_welcome(self, welcome: bodies.Welcome) -> int:
        """The highest sequence that the broker knows of us; 0 if none."""
        if welcome.version != VERSION:
            raise ProtocolError(Reason.VERSION_UNSUPPORTED, f"the broker chose version {welcome.version}")
        if welcome.origin != self._origin:
            raise ProtocolError(Reason.ORIGIN_FOREIGN, "the broker names another origin than ours")
        if not 0 < welcome.keep_alive_ms <= KEEP_ALIVE_MS_MAX or welcome.limits.get("payload_bytes_max", 1) <= 0:
            raise ProtocolError(Reason.BODY_MALFORMED, "a WELCOME with impossible limits")
        try:
            return int.from_bytes(bytes.fromhex(welcome.seen), "big") if welcome.seen else 0
        except ValueError:
            raise ProtocolError(Reason.BODY_MALFORMED, "seen is not hexadecimal") from None

    def _restored(self, line: Line, number: int) -> None:
        """This subscription is in force again, or will not be."""
        if number in line.restoring:
            line.restoring.discard(number)
            self._note_restored(line)

    def _note_restored(self, line: Line) -> None:
        if not line.restoring and self.links > 1:
            note = SessionRestored(str(line.target), len(self._rooms.subscriptions), self._repeated)
            self._rooms.outbox.note(note)

    def _delivery(self, line: Line, raw: bytes, now: Instant) -> None:
        rooms = self._rooms
        numbers, lost, publications = rooms.reader.read(raw)
        if lost > line.lost:
            self.lost_at_broker += lost - line.lost
            line.lost = lost
        if not publications:
            return
        for wish in rooms.subscriptions.of(numbers):
            inbox = wish.inbox
            dropped = inbox.put(publications)
            rooms.subscriptions.news[wish.number] = inbox
            if dropped:
                rooms.losses.add("inbox", dropped, now)
            elif inbox.pressing:
                self.pressing[wish.number] = wish

    def _ping(self, line: Line, raw: bytes, now: Instant) -> None:
        line.out.append(control(Kind.PONG, Frame(raw).sequence))

    def _pong(self, line: Line, raw: bytes, now: Instant) -> None:
        self._rooms.outgoing.pong(Frame(raw).sequence)
        self._owner.progressed(now)
        self._leave_if_done(line)

    def _confirmed(self, line: Line, raw: bytes, now: Instant) -> None:
        expected = self._rooms.requests.answered(Frame(raw).sequence)
        if expected.verb == "ask":
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a service answers with a SERVICE frame")
        wish = self._rooms.subscriptions.get(expected.number)
        if expected.verb == "unsubscribe":
            if wish is not None:
                self._drop(wish)
            self._rooms.requests.settle(expected.request)
        else:
            self._restored(line, expected.number)
            if wish is not None and wish.stage is Stage.ASKED:
                wish.stage = Stage.IN_FORCE
            self._rooms.requests.settle(expected.request, expected.number)
            if wish is not None:
                wish.request = 0
        self._owner.progressed(now)
        self._leave_if_done(line)

    def _refused(self, line: Line, raw: bytes, now: Instant) -> None:
        frame = Frame(raw)
        refusal = bodies.decode(bodies.Refusal, frame.payload)
        if frame.sequence == 0:
            self._rooms.refusals.heard(refusal)
            return
        expected = self._rooms.requests.answered(frame.sequence)
        if expected.verb == "ask":
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a service refuses with a SERVICE frame")
        error = _refused_error(refusal)
        wish = self._rooms.subscriptions.get(expected.number)
        if wish is not None:
            self._drop(wish, None if expected.verb == "unsubscribe" else error)
        if expected.verb == "unsubscribe":  # the broker does not have it: that is what was wanted
            self._rooms.requests.settle(expected.request)
        else:
            self._restored(line, expected.number)
            self._rooms.requests.settle(expected.request, error=error)
        self._owner.progressed(now)
        self._leave_if_done(line)

    def _service(self, line: Line, raw: bytes, now: Instant) -> None:
        frame = Frame(raw)
        expected = self._rooms.requests.answered(frame.sequence)
        if not frame.flags & ServiceFlag.ANSWER or frame.topic != expected.service.encode() or expected.verb != "ask":
            raise ProtocolError(Reason.KIND_UNEXPECTED, "an answer that nobody asked for")
        if frame.flags & ServiceFlag.REFUSAL:
            refusal = bodies.decode(bodies.Refusal, frame.payload)
            self._rooms.requests.settle(expected.request, error=_refused_error(refusal))
        else:
            try:
                answer = _decode_object(frame.payload)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ProtocolError(Reason.BODY_MALFORMED, f"a service's answer: {error}") from None
            self._rooms.requests.settle(expected.request, answer)
        self._leave_if_done(line)

    def _goodbye(self, line: Line, raw: bytes, now: Instant) -> None:
        body = bodies.decode(bodies.Goodbye, Frame(raw).payload)
        reason = bodies.reason_of(body.code)
        if body.grace_ms > 0 and line.welcomed_at is not None:
            self._prepare_to_leave(line, body.grace_ms, now)
            return
        line.said = (reason, body.text)
        line.gone = True
        self._rooms.outbox.hang_up(line.id, reason)
        if reason in FATAL or reason < RULES_BROKEN:
            self._owner.refused(RefusedError(reason, body.text), now)
        elif reason is Reason.SLOW_CONSUMER:
            self._end_strict(RefusedError(reason, body.text))

    def _end_strict(self, error: RefusedError) -> None:
        """We were too slow. Who asked to be disconnected rather than lose something must hear that he did."""
        for wish in self._rooms.subscriptions:
            if wish.policy is Policy.DISCONNECT:
                self._drop(wish, error)

    # -- leaving a broker that drains ---------------------------------------------------------------------------

    def _prepare_to_leave(self, line: Line, grace_ms: int, now: Instant) -> None:
        """New publications wait for the next broker; what this one has, it should confirm first."""
        line.leaving = True
        line.said = (Reason.DRAINING, "the broker asked us to leave")
        line.out.append(self._rooms.outgoing.ping())
        self._rooms.timers.set("leave", now + grace_ms * NS_PER_MS // 2, self._leave)
        self._leave_if_done(line)

    def _leave_if_done(self, line: Line) -> None:
        if line.leaving and not self._rooms.outgoing.sent and not self._rooms.requests.answers_due:
            self.hang_up(line, Reason.GOODBYE)

    def _leave(self, now: Instant) -> None:
        if self.line is not None:
            self.hang_up(self.line, Reason.GOODBYE)


def _refused_error(refusal: bodies.Refusal) -> RefusedError:
    return RefusedError(bodies.reason_of(refusal.code), refusal.text)
