"""The handshake: how a broker accepts a session, and how it says goodbye.

In:    WELCOME and GOODBYE frames.
Out:   a line that comes into use, or that rises; a move to another broker; the end of the session if the broker rejects
       it for good.
State: none.
Not here: HELLO and time-outs (client/lines.py), what happens when a line comes into use (client/resumption.py).
"""

from __future__ import annotations

from heliograph.client.commands import EndSession
from heliograph.client.dialler import FATAL
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.outgoing import Outgoing
from heliograph.client.resumption import Resumption
from heliograph.client.roaming import Roaming
from heliograph.client.subscriptions import LocalSubscriptions
from heliograph.client.timing import SessionTime
from heliograph.errors import ProtocolError, Reason, RefusedError
from heliograph.machine import Instant
from heliograph.model.identity import describe_network
from heliograph.model.topics import is_inbox
from heliograph.wire import bodies
from heliograph.wire.frames import VERSION, Frame

KEEP_ALIVE_MS_MAX = 86_400_000
TOO_SLOW = (
    "the broker had ended the link, because too much waited for this client, or because it held publishers and took "
    "nothing for too long"
)
RULES_BROKEN = 200  # reasons below it mean that we broke the wire protocol, so trying again would not help


class Handshake:
    """Handles the WELCOME and GOODBYE of brokers."""

    def __init__(
        self,
        origin: int,
        network: str | None,
        subscriptions: LocalSubscriptions,
        outgoing: Outgoing,
        time: SessionTime,
        lines: Lines,
        resumption: Resumption,
        roaming: Roaming,
        end_session: EndSession,
    ) -> None:
        self._origin = origin
        self._network = network  # brokers of other networks are rejected; None: any network
        self._subscriptions = subscriptions
        self._outgoing = outgoing
        self._time = time
        self._lines = lines
        self._resumption = resumption
        self._roaming = roaming
        self._end_session = end_session

    def welcome(self, line: Line, raw: bytes, now: Instant) -> None:
        """WELCOME: the broker accepts us."""
        if line.welcomed_at is not None:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a second WELCOME")
        welcome = bodies.decode(bodies.Welcome, Frame(raw).payload)
        seen = self._check(welcome)
        if seen > self._outgoing.sent_to:
            used = "the broker knows later publications under this session's secret: it was used elsewhere"
            if line.rising:
                raise ProtocolError(Reason.DUPLICATE, used)
            self._end_session(RefusedError(Reason.DUPLICATE, used), now)
            return
        self._lines.welcomed(line, welcome, seen, now)
        slow = RefusedError(Reason.SLOW_CONSUMER, TOO_SLOW) if welcome.slow else None
        self._subscriptions.explained(welcome.broker, slow)
        self._time.begin(line, now)
        if line.rising:
            self._roaming.welcomed(line, now)
        else:
            self._resumption.start(line, now)

    def _check(self, welcome: bodies.Welcome) -> int:
        """The highest of our sequences that the broker knows; 0 if none."""
        if welcome.version != VERSION:
            raise ProtocolError(Reason.VERSION_UNSUPPORTED, f"the broker chose version {welcome.version}")
        if welcome.origin != f"{self._origin:016x}":
            raise ProtocolError(Reason.ORIGIN_FOREIGN, "the broker names another origin than ours")
        if not 0 < welcome.keep_alive_ms <= KEEP_ALIVE_MS_MAX or welcome.limits.get("payload_bytes_max", 1) <= 0:
            raise ProtocolError(Reason.BODY_MALFORMED, "a WELCOME with impossible limits")
        wanted = self._network
        if wanted is not None and welcome.network != wanted:
            belongs = f"broker {welcome.broker[:64]!r} there belongs to {describe_network(welcome.network)}"
            raise ProtocolError(Reason.NETWORK_OTHER, f"{belongs}; {describe_network(wanted)} was asked for")
        if welcome.inbox and not is_inbox(welcome.inbox):
            raise ProtocolError(Reason.BODY_MALFORMED, "a WELCOME with an impossible inbox")
        try:
            return int.from_bytes(bytes.fromhex(welcome.seen), "big") if welcome.seen else 0
        except ValueError:
            raise ProtocolError(Reason.BODY_MALFORMED, "seen is not hexadecimal") from None

    def goodbye(self, line: Line, raw: bytes, now: Instant) -> None:
        """GOODBYE: the broker ends the link, or will soon."""
        body = bodies.decode(bodies.Goodbye, Frame(raw).payload)
        reason = bodies.reason_of(body.code)
        if body.grace_ms > 0 and line.welcomed_at is not None:
            self._warned(line, body, now)
            return
        self._lines.dismissed(line, reason, body.text)
        if line is not self._lines.current or (line.hinted and line.welcomed_at is None):
            return  # the program did not choose this broker: there are others
        if reason is Reason.CERTIFICATE_EXPIRED and line.welcomed_at is not None:
            return  # dial again: there may be a renewed certificate by now; if not, the next handshake says so
        if reason in FATAL or reason < RULES_BROKEN:
            self._end_session(RefusedError(reason, body.text), now)
        elif reason is Reason.SLOW_CONSUMER:
            self._end_strict(RefusedError(reason, body.text))

    def _warned(self, line: Line, body: bodies.Goodbye, now: Instant) -> None:
        """The broker will go away; or it is overloaded and asks us to move, but stays."""
        if body.code == Reason.OVERLOADED:
            if line is self._lines.current and not line.leaving:
                self._roaming.advised(line, body, now)
        elif line.rising:
            self._lines.hang_up(line, Reason.GOODBYE, "you are draining as well")
        elif line is self._lines.current and not line.leaving:
            self._roaming.begin(line, body, now)

    def _end_strict(self, error: RefusedError) -> None:
        """We were too slow. End the subscriptions that must not lose anything, so that the program is told."""
        for subscription in self._subscriptions:
            if subscription.policy.is_strict:
                self._subscriptions.remove(subscription, error)
