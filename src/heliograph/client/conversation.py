"""The conversation: what a session and its broker say to each other, frame by frame.

In:    the broker's bytes; subscriptions, requests and publications of the session's rooms.
Out:   frames, holds and hangups; settled requests; publications in inboxes.
State: the line in use, and beside it the one that rises or that is left while the session moves.
Not here: what is asked of a broker (client/asking.py), finding a broker (client/reach.py), moving to another one
          (client/roaming.py), commands of the program and the end of a session (client/session.py).

Everything a broker sends is checked. One that breaks the rules loses the link; the session looks for another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from heliograph.client.asking import Asking
from heliograph.client.config import Target
from heliograph.client.line import Line
from heliograph.client.reader import prefix_of
from heliograph.client.requests import NS_PER_MS
from heliograph.client.roaming import Roaming
from heliograph.client.rooms import Rooms
from heliograph.client.subscriptions import ANSWERS, DIRECTED, Wish
from heliograph.errors import HeliographError, ProtocolError, Reason, RefusedError
from heliograph.machine import Instant, LinkId
from heliograph.model.identity import network_in_words
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.model.topics import is_inbox
from heliograph.notes import PeerRefused, SessionRestored
from heliograph.wire import bodies
from heliograph.wire.frames import VERSION, Frame, Kind, control
from heliograph.wire.limits import PAYLOAD_BYTES_MAX

KEEP_ALIVE_MS_MAX = 86_400_000
SILENCES_MAX = 3  # keep-alive times without a word end a link
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
        Reason.NETWORK_OTHER,
        Reason.TAKEN_OVER,
    }
)
RULES_BROKEN = 200


class Owner(Protocol):
    """What a conversation tells the session it belongs to."""

    def welcomed(self, line: Line, now: Instant) -> None:
        """This line is in use from now on."""

    def progressed(self, now: Instant) -> None:
        """The broker confirmed or answered something."""

    def hinted(self, targets: list[Target]) -> None:
        """The broker named others where we may go."""

    def refused(self, error: HeliographError, now: Instant) -> None:
        """The broker will not have this session, now or later."""


class Conversation:
    """The session's side of one link after another."""

    def __init__(self, rooms: Rooms, origin: int, hello: Callable[[bool], bytes], owner: Owner) -> None:
        self.lines: dict[LinkId, Line] = {}
        self.line: Line | None = None  # the one in use, or about to be
        self.links = 0  # lines that were in use
        self.lost_at_broker = 0
        self.asking = Asking(rooms, self)
        self.roaming = Roaming(rooms, self)
        self.owner = owner
        self._rooms = rooms
        self._origin = origin
        self._hello = hello  # given whether an overloaded broker asked us to come
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

    def begin(
        self,
        link: LinkId,
        target: Target,
        now: Instant,
        *,
        rising: bool = False,
        hinted: bool = False,
        advised: bool = False,
    ) -> Line:
        """A link is there: say hello."""
        self.lines[link] = line = Line(link, target, now)
        line.rising, line.hinted = rising, hinted
        if not rising:
            self.line = line
        line.out.append(self._hello(advised))
        at = now + self._rooms.config.dial_ms_max * NS_PER_MS
        self._rooms.timers.set(("handshake", link), at, lambda now: self._handshake_late(line))
        return line

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """The broker's bytes, split anywhere."""
        line = self.lines.get(link)
        if line is None or line.gone:
            return
        line.heard_at = now
        self._hear(line, line.splitter.split(data), now)
        if line.leaving:
            self.leave_if_done(line)
        self.review_hold(now)

    def _hear(self, line: Line, frames: Iterable[bytes], now: Instant) -> None:
        handlers = self._handlers
        try:
            for frame in frames:
                kind = frame[4]
                if line.welcomed_at is None and kind not in (Kind.WELCOME, Kind.GOODBYE):
                    raise ProtocolError(Reason.KIND_UNEXPECTED, "the first frame of a broker is a WELCOME")
                handlers[kind](line, frame, now)
                if line.gone:
                    return
            if line.splitter.fault is not None:
                raise ProtocolError(line.splitter.fault, "what came is not a frame of this protocol")
        except ProtocolError as error:
            self._rooms.outbox.note(PeerRefused(line.id, error.reason, error.detail))
            self.hang_up(line, error.reason, error.detail)

    def hang_up(self, line: Line, reason: Reason, text: str = "") -> None:
        """Say why, and end the link."""
        if not line.gone:
            line.gone = True
            line.said = line.said or (reason, text)
            line.out.append(control(Kind.GOODBYE, 0, bodies.goodbye(reason, text)))
            self._rooms.outbox.hang_up(line.id, reason)

    def hang_up_all(self) -> None:
        """Say goodbye on every line; what was published this turn still goes out."""
        for line in self.lines.values():
            if line is self.line:
                self.pump(line)
            self.hang_up(line, Reason.GOODBYE)

    def end(self, line: Line) -> None:
        """The link is gone: forget what was under way on it."""
        del self.lines[line.id]
        if line is self.line:
            self.line = None
        for key in ("handshake", "keep alive", "leave", "ask on"):
            self._rooms.timers.cancel((key, line.id))
        self._rooms.timing.end(line)
        self.asking.forget(line)
        if line.inbox:
            self._rooms.inquiries.lost(line.inbox)

    def gather(self) -> None:
        """Put everything that may be written into one write per line."""
        for line in self.lines.values():
            if line is self.line:
                self.pump(line)
            if line.out:
                out, line.out = line.out, []
                self._rooms.outbox.writes.append((line.id, out if len(out) < JOINED_FROM else [b"".join(out)]))

    def pump(self, line: Line) -> None:
        """Move waiting publications, and the PING behind them, to the output."""
        if not line.flows or line.unasked:
            return
        outgoing = self._rooms.outgoing
        if outgoing.waiting:
            line.out += outgoing.send(line.pings.ping)
        if line.ping_wanted:
            line.ping_wanted = False
            line.out.append(outgoing.ping(line.pings.ping))

    def _handshake_late(self, line: Line) -> None:
        self.hang_up(line, Reason.TIME_OUT, "no WELCOME in time")

    def _keep_alive(self, line: Line, now: Instant) -> None:
        """Ask a quiet broker for a sign of life, and leave a silent one."""
        if not line.is_ready:
            return
        if line.held:
            line.heard_at = now  # we do not read: its silence is our doing. But it should hear from us.
        quiet = now - line.heard_at
        if quiet >= SILENCES_MAX * line.keep_alive_ns:
            self.hang_up(line, Reason.SILENT, "nothing was heard for three keep-alive intervals")
            return
        at = line.heard_at + line.keep_alive_ns
        if quiet >= line.keep_alive_ns or line.held:
            # Only the line in use has our publications to confirm.
            ping = line.pings.ping
            line.out.append(self._rooms.outgoing.ping(ping) if line is self.line else ping(0))
            at = now + line.keep_alive_ns
        self._rooms.timers.set(("keep alive", line.id), at, lambda now: self._keep_alive(line, now))

    # -- what the session wants ---------------------------------------------------------------------------------

    def subscribe(self, wish: Wish, now: Instant) -> None:
        """Ask for a new subscription; without a link, or in the middle of a move, it waits for the next one."""
        line = self.line
        if line is not None and line.is_ready and not self.roaming.settles:
            self.asking.subscribe(line, wish, now)

    def listen(self, now: Instant) -> None:
        """Hear answers: subscribe to the session's own inbox topic, unless that is done."""
        subscriptions = self._rooms.subscriptions
        answers = subscriptions.answers or subscriptions.listen(self._rooms.inquiries.answer_box())
        line = self.line
        if line is not None and line.is_ready and not line.leaving and ANSWERS not in line.asked:
            self.asking.subscribe(line, answers, now)

    def confirm_soon(self) -> None:
        """Ask the broker to confirm everything published so far."""
        if self.line is not None:
            self.line.ping_wanted = True

    def review_hold(self, now: Instant) -> None:
        """Stop reading while an inbox is full, so that the broker sees the pressure and its policy can do its work."""
        line = self.line
        pressing = self._rooms.subscriptions.pressing
        if line is None or not line.is_ready or not (pressing or line.held):
            return
        times = UNANSWERED_TIMES if len(self._rooms.requests) or self.roaming.settles else 1
        held = any(times == 1 or wish.inbox.fills(times) for wish in pressing.values())
        if held != line.held:
            self.hold(line, held, now)

    def hold(self, line: Line, held: bool, now: Instant) -> None:
        """Stop or resume reading a line."""
        line.held = held
        line.heard_at = now
        self._rooms.outbox.holds.append((line.id, held))

    # -- a line comes into use ----------------------------------------------------------------------------------

    def _welcome(self, line: Line, raw: bytes, now: Instant) -> None:
        if line.welcomed_at is not None:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a second WELCOME")
        welcome = bodies.decode(bodies.Welcome, Frame(raw).payload)
        line.seen = self._check_welcome(welcome)
        timers = self._rooms.timers
        if line.seen > self._rooms.outgoing.sent_to:
            used = "the broker knows later publications under this session's secret: it was used elsewhere"
            if line.rising:
                raise ProtocolError(Reason.DUPLICATE, used)
            self.owner.refused(RefusedError(Reason.DUPLICATE, used), now)
            return
        timers.cancel(("handshake", line.id))
        line.welcome = welcome
        line.welcomed_at = now
        line.keep_alive_ns = welcome.keep_alive_ms * NS_PER_MS
        timers.set(("keep alive", line.id), now + line.keep_alive_ns, lambda now: self._keep_alive(line, now))
        self._rooms.timing.begin(line, now)
        if line.rising:
            self.roaming.welcomed(line, now)
        else:
            line.restoring = {wish.number for wish in self._rooms.subscriptions.everything()}
            self._enter(line, now)

    def _check_welcome(self, welcome: bodies.Welcome) -> int:
        """The highest sequence that the broker knows of us; 0 if none."""
        if welcome.version != VERSION:
            raise ProtocolError(Reason.VERSION_UNSUPPORTED, f"the broker chose version {welcome.version}")
        if welcome.origin != f"{self._origin:016x}":
            raise ProtocolError(Reason.ORIGIN_FOREIGN, "the broker names another origin than ours")
        if not 0 < welcome.keep_alive_ms <= KEEP_ALIVE_MS_MAX or welcome.limits.get("payload_bytes_max", 1) <= 0:
            raise ProtocolError(Reason.BODY_MALFORMED, "a WELCOME with impossible limits")
        wanted = self._rooms.config.network
        if wanted is not None and welcome.network != wanted:
            belongs = f"broker {welcome.broker[:64]!r} there belongs to {network_in_words(welcome.network)}"
            raise ProtocolError(Reason.NETWORK_OTHER, f"{belongs}; {network_in_words(wanted)} was asked for")
        if welcome.inbox and not is_inbox(welcome.inbox):
            raise ProtocolError(Reason.BODY_MALFORMED, "a WELCOME with an impossible inbox")
        try:
            return int.from_bytes(bytes.fromhex(welcome.seen), "big") if welcome.seen else 0
        except ValueError:
            raise ProtocolError(Reason.BODY_MALFORMED, "seen is not hexadecimal") from None

    def _enter(self, line: Line, now: Instant, *, planned: bool = False) -> None:
        """Use this line from now on: ask for everything, and repeat what no broker has confirmed."""
        rooms = self._rooms
        assert line.welcome is not None
        self._repeated = rooms.outgoing.rewind(line.seen)
        bytes_max = line.welcome.limits.get("payload_bytes_max", PAYLOAD_BYTES_MAX)
        rooms.writer.payload_bytes_max = min(PAYLOAD_BYTES_MAX, bytes_max)
        self.links += 1
        if not planned:
            self._note_restored(line)
        self.asking.ask_for_all(line, now)
        self.asking.ask_waiting(line)
        self.owner.welcomed(line, now)

    def adopt(self, line: Line, kept: list[bytes], now: Instant, *, planned: bool) -> None:
        """A line that rose beside another is now the one in use; ``kept`` are the deliveries that came on it so far."""
        line.rising = False
        self.line = line
        if line.held:
            self.hold(line, False, now)
        for number in sorted(line.in_force):
            self.asking.settle(number)
        self._enter(line, now, planned=planned)
        self._hear(line, kept, now)

    def restored(self, line: Line, number: int) -> None:
        """This subscription is in force again, or will not be."""
        if number in line.restoring:
            line.restoring.discard(number)
            self._note_restored(line)

    def _note_restored(self, line: Line) -> None:
        if not line.restoring and self.links > 1 and line is self.line:
            note = SessionRestored(str(line.target), len(self._rooms.subscriptions), self._repeated)
            self._rooms.outbox.note(note)

    # -- hearing ------------------------------------------------------------------------------------------------

    def _delivery(self, line: Line, raw: bytes, now: Instant) -> None:
        if line.rising:
            self.roaming.keep(line, raw)
            return
        rooms = self._rooms
        numbers, lost, start = prefix_of(raw)
        if lost > line.lost:
            self.lost_at_broker += lost - line.lost
            line.lost = lost
        if not numbers:
            self._directed(rooms.reader.read(raw, start), now)
            return
        wishes = rooms.subscriptions.of(numbers)
        if line is not self.line:  # we have moved: all but answers comes on the new line, for later subscriptions too
            wishes = tuple(wish for wish in wishes if wish.number == ANSWERS)
        if not wishes:  # ended meanwhile
            return
        share = wishes[0].number if len(wishes) == 1 and wishes[0].group else 0
        publications = rooms.reader.read(raw, start, share)
        if not publications:
            return
        for wish in wishes:
            inbox = wish.inbox
            dropped = inbox.put(publications if wish.echo or wish.group else self._without_own(publications))
            rooms.subscriptions.news[wish.number] = inbox
            if dropped:
                rooms.losses.add("inbox", dropped, now)
            elif inbox.pressing:
                rooms.subscriptions.pressing[wish.number] = wish

    def _without_own(self, publications: list[Publication]) -> list[Publication]:
        """Our broker knows what is our own; another one to which we have moved since does not."""
        return [publication for publication in publications if publication.origin != self._origin]

    def _directed(self, publications: list[Publication], now: Instant) -> None:
        if publications:
            subscriptions = self._rooms.subscriptions
            dropped = subscriptions.directed.put(publications)
            subscriptions.news[DIRECTED] = subscriptions.directed
            if dropped:
                self._rooms.losses.add("inbox", dropped, now)

    def _ping(self, line: Line, raw: bytes, now: Instant) -> None:
        line.out.append(control(Kind.PONG, Frame(raw).sequence))

    def _pong(self, line: Line, raw: bytes, now: Instant) -> None:
        frame = Frame(raw)
        number = frame.sequence
        self._rooms.timing.heard(frame, line.pings.pong(number), now)
        self._rooms.outgoing.confirm(number)
        self.owner.progressed(now)

    def _confirmed(self, line: Line, raw: bytes, now: Instant) -> None:
        self.asking.confirmed(line, Frame(raw), now)
        self.owner.progressed(now)

    def _refused(self, line: Line, raw: bytes, now: Instant) -> None:
        frame = Frame(raw)
        refusal = bodies.decode(bodies.Refusal, frame.payload)
        if frame.sequence:
            self.asking.refused(line, frame, refusal, now)
            self.owner.progressed(now)
        elif refusal.code == Reason.RESPONDERS_MISSING:
            self._rooms.inquiries.unanswerable(refusal.subject, refusal.text)
        else:
            refused = self._rooms.refusals.heard(refusal)
            self._rooms.inquiries.refused(refusal.subject, refused.error(1))

    def _service(self, line: Line, raw: bytes, now: Instant) -> None:
        self.asking.served(line, Frame(raw))

    def _goodbye(self, line: Line, raw: bytes, now: Instant) -> None:
        body = bodies.decode(bodies.Goodbye, Frame(raw).payload)
        reason = bodies.reason_of(body.code)
        if body.grace_ms > 0 and line.welcomed_at is not None:
            self._warned(line, body, now)
            return
        line.said = (reason, body.text)
        line.gone = True
        self._rooms.outbox.hang_up(line.id, reason)
        if line is not self.line or (line.hinted and line.welcomed_at is None):
            return  # it is not the program who chose this broker: there are others
        if reason in FATAL or reason < RULES_BROKEN:
            self.owner.refused(RefusedError(reason, body.text), now)
        elif reason is Reason.SLOW_CONSUMER:
            self._end_strict(RefusedError(reason, body.text))

    def _end_strict(self, error: RefusedError) -> None:
        """We were too slow. Who asked to be disconnected rather than lose something must hear that he did."""
        for wish in self._rooms.subscriptions:
            if wish.policy is Policy.DISCONNECT:
                self._rooms.subscriptions.remove(wish, error)

    # -- leaving a broker that drains ---------------------------------------------------------------------------

    def _warned(self, line: Line, body: bodies.Goodbye, now: Instant) -> None:
        """The broker will go away: move to another one if it names one, else leave it in time.

        One that is only overloaded stays, and so do we if no other broker will have us.
        """
        if body.code == Reason.OVERLOADED:
            if line is self.line and not line.leaving:
                self.roaming.advised(line, body, now)
        elif line.rising:
            self.hang_up(line, Reason.GOODBYE, "you drain too")
        elif line is self.line and not line.leaving and not self.roaming.begin(line, body, now):
            self.leave_soon(line, now + body.grace_ms * NS_PER_MS, now)

    def leave_soon(self, line: Line, until: Instant, now: Instant) -> None:
        """New publications wait for the next broker; what this one has, it should confirm first."""
        line.leaving = True
        line.said = (Reason.DRAINING, "the broker asked us to leave")
        line.out.append(self._rooms.outgoing.ping(line.pings.ping))
        self.leave_at(line, (now + until) // 2)

    def leave_at(self, line: Line, at: Instant) -> None:
        """Leave when nothing more is due on this line, and at this instant in any case."""
        line.leaving = True
        timers = self._rooms.timers
        timers.set(("leave", line.id), at, lambda now: self.hang_up(line, Reason.GOODBYE))
        self.leave_if_done(line)

    def leave_if_done(self, line: Line) -> None:
        """Leave, if that was intended, as soon as nothing more is due on this line."""
        rooms = self._rooms
        if not line.leaving or rooms.requests.answers_due(line.id) or rooms.inquiries.due_at(line.inbox):
            return
        if line is not self.line or not (rooms.outgoing.sent or self.roaming.settles):
            self.hang_up(line, Reason.GOODBYE)
