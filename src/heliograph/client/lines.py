"""The lines of a session: the one in use, and a second one while the session moves to another broker.

In:    links; publications that wait; requests to hold, ping or end a line; time.
Out:   HELLO, PING and GOODBYE frames, publications, holds and hangups, gathered into one write per line.
State: the lines by link; which is in use (``current``), which prepares to be (``rising``).
Not here: what one line knows (client/line.py), what a broker's frames mean (client/conversation.py), when to move
          (client/roaming.py).

While a session moves, the rising line is prepared beside the current one. Afterwards the old line stays until nothing
more is due on it.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.client.config import NS_PER_MS, Target
from heliograph.client.line import Line
from heliograph.client.outgoing import Outgoing
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId, Outbox, Timers
from heliograph.notes import PeerRefused
from heliograph.wire import bodies
from heliograph.wire.bodies import Welcome
from heliograph.wire.frames import Kind, control

SILENCES_MAX = 3  # keep-alive intervals of silence end a link
CONFIRM_NS = 250_000_000  # after a publication; what is not confirmed is repeated if the broker dies
JOINED_FROM = 8  # copying this many pieces into one is cheaper than writing them separately


class Lines:
    """The links of one session to brokers."""

    def __init__(
        self,
        hello: Callable[[bool], bytes],
        handshake_ms_max: int,
        outbox: Outbox,
        timers: Timers,
        outgoing: Outgoing,
    ) -> None:
        self._hello = hello  # makes a HELLO that says whether an overloaded broker asked us to move
        self._handshake_ns_max = handshake_ms_max * NS_PER_MS
        self._outbox = outbox
        self._timers = timers
        self._outgoing = outgoing
        self.by_link: dict[LinkId, Line] = {}
        self.current: Line | None = None  # the one in use, or about to be
        self.rising: Line | None = None  # the one to which the session is about to move
        self._answers_at_rising = False
        self._confirms = False  # a PING will follow what was sent
        self.used = 0  # lines that were in use
        self.welcome: Welcome | None = None  # of the line that came into use last

    @property
    def is_ready(self) -> bool:
        """True while a broker has welcomed the session and the link is there."""
        return self.current is not None and self.current.is_ready

    @property
    def settles(self) -> bool:
        """True while subscriptions are carried over to another broker; new ones wait until that is done."""
        return self.rising is not None and self.rising.welcomed_at is not None

    @property
    def inbox(self) -> str:
        """The topic of the session's inbox, at the present broker or the one it is moving to; empty without one."""
        line = self.current
        next_inbox = self.rising.inbox if self._answers_at_rising and self.rising is not None else ""
        if next_inbox or line is None or not line.is_ready:
            return next_inbox
        return "" if line.leaving else line.inbox

    # -- the life of a line -------------------------------------------------------------------------------------

    def open(
        self,
        link: LinkId,
        target: Target,
        now: Instant,
        *,
        rising: bool = False,
        hinted: bool = False,
        advised: bool = False,
    ) -> None:
        """A dial has made a link: say hello. A rising line is prepared while the other one stays in use."""
        line = self.by_link[link] = Line(link, target, now, rising=rising, hinted=hinted)
        if rising:
            self.rising = line
        else:
            self.current = line
        line.out.append(self._hello(advised))
        self._timers.set(("handshake", link), now + self._handshake_ns_max, lambda now: self._handshake_late(line))

    def welcomed(self, line: Line, welcome: Welcome, seen: int, now: Instant) -> None:
        """The broker has accepted the session on this line."""
        self._timers.cancel(("handshake", line.id))
        line.welcomed(welcome, seen, now)
        at = now + line.keep_alive_ns
        self._timers.set(("keep alive", line.id), at, lambda now: self._keep_alive(line, now))

    def use(self, line: Line) -> None:
        """Publications go over this line from now on."""
        line.use()
        self.current = line
        self.used += 1
        self.welcome = line.welcome

    def begin_move(self, line: Line) -> None:
        """The session is about to leave this line: answers to new requests should come on the rising one."""
        line.leave()
        self._answers_at_rising = True

    def drop_rising(self) -> Line | None:
        """Stop preparing the rising line; returns it."""
        line, self.rising = self.rising, None
        self._answers_at_rising = False
        return line

    def hang_up(self, line: Line, reason: Reason, text: str = "") -> None:
        """Tell the broker why, and end the link."""
        if not line.gone:
            line.hang_up(reason, text)
            line.out.append(control(Kind.GOODBYE, 0, bodies.goodbye(reason, text)))
            self._outbox.hang_up(line.id, reason)

    def hang_up_all(self) -> None:
        """Say goodbye on every line; what was published this turn still goes out."""
        for line in self.by_link.values():
            if line is self.current:
                self.pump(line)
            self.hang_up(line, Reason.GOODBYE)

    def refuse(self, line: Line, error: ProtocolError) -> None:
        """The broker broke the rules: end the link."""
        self._outbox.note(PeerRefused(line.id, error.reason, error.detail))
        self.hang_up(line, error.reason, error.detail)

    def dismissed(self, line: Line, reason: Reason, text: str) -> None:
        """The broker has said goodbye."""
        line.dismissed(reason, text)
        self._outbox.hang_up(line.id, reason)

    def remove(self, line: Line) -> None:
        """The link is gone."""
        del self.by_link[line.id]
        if line is self.current:
            self.current = None
        for key in ("handshake", "keep alive"):
            self._timers.cancel((key, line.id))

    def _handshake_late(self, line: Line) -> None:
        self.hang_up(line, Reason.TIME_OUT, "no WELCOME in time")

    def _keep_alive(self, line: Line, now: Instant) -> None:
        """Ping a quiet broker; leave one that stays silent."""
        if not line.is_ready:
            return
        if line.held:
            line.hold(True, now)  # we do not read, so its silence means nothing; but it needs a sign of life from us
        quiet = now - line.heard_at
        if quiet >= SILENCES_MAX * line.keep_alive_ns:
            self.hang_up(line, Reason.SILENT, "nothing was heard for three keep-alive intervals")
            return
        at = line.heard_at + line.keep_alive_ns
        if quiet >= line.keep_alive_ns or line.held:
            if line is self.current:
                self.ping(line)
            else:  # only the line in use has publications to confirm
                line.out.append(line.pings.ping(0))
            at = now + line.keep_alive_ns
        self._timers.set(("keep alive", line.id), at, lambda now: self._keep_alive(line, now))

    # -- writing and reading ------------------------------------------------------------------------------------

    def gather(self) -> None:
        """Put everything that may be written into one write per line."""
        for line in self.by_link.values():
            if line is self.current:
                self.pump(line)
            if line.out:
                out = line.take_output()
                self._outbox.writes.append((line.id, out if len(out) < JOINED_FROM else [b"".join(out)]))

    def pump(self, line: Line) -> None:
        """Move waiting publications, and the PING after them, to the line's output."""
        if not line.flows or line.unasked:
            return
        outgoing = self._outgoing
        if outgoing.waiting:
            line.out.extend(outgoing.send(line.pings.ping))
            if not self._confirms:
                self._confirms = True
                self._timers.set("confirm", 0, self._confirm_later)
        if line.ping_wanted:
            line.ping_written()
            self.ping(line)

    def request(self, line: Line, frame: bytes) -> None:
        """Write a request after everything published before it."""
        self.pump(line)
        line.out.append(frame)

    def ping(self, line: Line) -> None:
        """Ask the broker now to confirm everything that was sent."""
        line.out.append(self._outgoing.ping(line.pings.ping))

    def _confirm_later(self, now: Instant) -> None:
        self._timers.set("confirm", now + CONFIRM_NS, self._confirm)

    def _confirm(self, now: Instant) -> None:
        """Ask without being told to, so that little is repeated if the broker dies: a group's member may differ."""
        self._confirms = False
        line, sent = self.current, self._outgoing.sent
        if line is not None and sent and line.pings.highest < sent[-1][0]:
            line.want_ping()

    def confirm_soon(self) -> None:
        """Ask the broker to confirm everything published so far, by a PING after it."""
        if self.current is not None:
            self.current.want_ping()

    def hold(self, line: Line, held: bool, now: Instant) -> None:
        """Stop or resume reading a line."""
        line.hold(held, now)
        self._outbox.holds.append((line.id, held))
