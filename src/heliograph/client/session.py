"""The session: the client's machine. It outlives links, keeps order, and repeats what no broker has confirmed.

In:    commands of the program (client/commands.py); a broker's bytes; time.
Out:   dials and frames; outcomes, inboxes and refusals for the program to collect.
State: its rooms: reach (which broker), line (the present link), outgoing, subscriptions, requests, refusals.
Not here: sockets and tasks (live/client.py), the rooms' own rules (the files they are named after).

The life of a session: dial → HELLO → WELCOME → in use → link lost → pause → dial …, until the program closes it, or a
broker refuses it for a reason that trying again would not change. On each WELCOME everything is subscribed again, and
published again what lies above the broker's ``seen``.

The longest file of this room: it is one flat dispatch, inputs first, then commands, then frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.client import commands
from heliograph.client.commands import Outcome
from heliograph.client.config import ClientConfig, is_loopback
from heliograph.client.inbox import Inbox
from heliograph.client.line import Line
from heliograph.client.outgoing import Outgoing
from heliograph.client.reach import Reach
from heliograph.client.reader import Reader
from heliograph.client.refusals import Losses, RefusedPublication, Refusals
from heliograph.client.requests import Expected, Requests
from heliograph.client.subscriptions import Stage, Subscriptions, Wish
from heliograph.client.writer import Writer, header_block, plain_block
from heliograph.errors import (
    ClosedError,
    HeliographError,
    NotConnectedError,
    ProtocolError,
    Reason,
    RefusedError,
    UsageError,
)
from heliograph.machine import Address, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.model.origin import SECRET_BYTES_MAX, SECRET_BYTES_MIN, origin_of
from heliograph.model.subscription import Policy
from heliograph.model.topics import topic_fault
from heliograph.notes import PeerRefused, SessionRestored
from heliograph.wire import bodies
from heliograph.wire.frames import VERSION, Frame, Kind, ServiceFlag, control, service
from heliograph.wire.limits import CONTROL_BYTES_MAX, PAYLOAD_BYTES_MAX, SEQUENCE_MAX

NS_PER_MS = 1_000_000
KEEP_ALIVE_MS_MAX = 86_400_000
SILENCES_MAX = 3  # keep-alive times without a word end a link
ASKED_AT_ONCE = 1_000  # subscriptions per input: a hundred thousand would stall the program's loop
UNANSWERED_TIMES = 2  # a full inbox lets the link run on to twice its size while an answer waits behind the deliveries

# Trying again would not change these.
FATAL = frozenset(
    {
        Reason.VERSION_UNSUPPORTED,
        Reason.FEATURE_UNSUPPORTED,
        Reason.ORIGIN_FOREIGN,
        Reason.CREDENTIAL_MISSING,
        Reason.CREDENTIAL_WRONG,
        Reason.CERTIFICATE_EXPIRED,
        Reason.CERTIFICATE_UNTRUSTED,
        Reason.ROLE_MISSING,
        Reason.TAKEN_OVER,
    }
)
FATAL_DIALS = frozenset({Reason.CERTIFICATE_EXPIRED, Reason.CERTIFICATE_UNTRUSTED, Reason.TLS_FAILED})

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Session:
    """One client. ``secret`` (16 to 64 random bytes) is its identity as a publisher; ``seed`` draws its jitter."""

    def __init__(self, config: ClientConfig, *, secret: bytes, seed: int) -> None:
        config.check()
        if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
            raise UsageError(f"a session secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
        self.config = config
        self.origin = origin_of(secret)
        self.welcome: bodies.Welcome | None = None  # what the broker said last
        self.error: HeliographError | None = None  # why the session ended, if not by the program's wish
        self.ended = False
        self._outbox = Outbox()
        self._timers = Timers()
        self._requests = Requests(self._timers, config.request_ms_max, config.requests_max)
        self._subscriptions = Subscriptions()
        self._writer = Writer(self.origin)
        self._outgoing = Outgoing(config.outgoing_bytes_max)
        self._reader = Reader()
        self._refusals = Refusals()
        self._losses = Losses(self._outbox, self._timers)
        self._reach = Reach(config, seed, self._outbox, self._timers, self._end)
        self._line: Line | None = None
        self._hello = _hello(config, secret)
        self._wall_offset_ns: int | None = None  # wall time minus monotonic time
        self._connects: dict[int, Instant] = {}  # request -> until when
        self._flushes: dict[int, int] = {}  # request -> the sequence that has to be confirmed
        self._unasked: deque[Wish] = deque()  # subscriptions to ask the present broker for
        self._asks: deque[commands.Ask] = deque()  # that wait for a link
        self._pressing: dict[int, Wish] = {}  # subscriptions whose inbox is full
        self._draining = 0  # the request, while under way
        self._lost_at_broker = 0
        self._links = 0  # welcomes so far
        self._tells: dict[type, Callable[[Any, Instant], None]] = {
            commands.Publish: self._tell_publish,
            commands.PublishBatch: self._tell_batch,
            commands.Send: self._tell_send,
            commands.Taken: self._tell_taken,
            commands.Connect: self._tell_connect,
            commands.Subscribe: self._tell_subscribe,
            commands.Unsubscribe: self._tell_unsubscribe,
            commands.Flush: self._tell_flush,
            commands.Ask: self._tell_ask,
            commands.Drain: self._tell_drain,
            commands.Close: self._tell_close,
        }
        self._kinds: dict[int, Callable[[Line, bytes, Instant], None]] = {
            Kind.DELIVERY: self._on_delivery,
            Kind.PONG: self._on_pong,
            Kind.PING: self._on_ping,
            Kind.CONFIRMED: self._on_confirmed,
            Kind.REFUSED: self._on_refused,
            Kind.SERVICE: self._on_service,
            Kind.WELCOME: self._on_welcome,
            Kind.GOODBYE: self._on_goodbye,
        }

    # -- what the program may look at ---------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """False: publish no more until the broker has confirmed some of it."""
        return self._outgoing.bytes < self._outgoing.bytes_max

    @property
    def waiting_bytes(self) -> bool:
        """True while there are publications that no take has handed to the driver."""
        return bool(self._outgoing.waiting)

    def collect(self) -> list[Outcome]:
        """Outcomes since the last call."""
        return self._requests.collect()

    def collect_news(self) -> list[Inbox]:
        """Inboxes that got something, or ended, since the last call."""
        return self._subscriptions.collect_news()

    def collect_refusals(self) -> list[RefusedPublication]:
        """Publications that the broker refused since the last call."""
        return self._refusals.collect()

    def inbox(self, number: int) -> Inbox:
        """Where the publications of this subscription are."""
        wish = self._subscriptions.get(number)
        if wish is None:
            raise UsageError(f"there is no subscription {number}")
        return wish.inbox

    def report(self, question: str) -> Any:
        """A read-only answer about state: "overview" or "subscriptions"."""
        if question == "overview":
            return self._report_overview()
        if question == "subscriptions":
            return [_report_wish(wish) for wish in self._subscriptions]
        raise UsageError(f"a session has no report on {question!r}: ask for overview or subscriptions")

    # -- inputs of the driver -----------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The dial succeeded: say hello."""
        reach = self._reach
        if self.ended or self._line is not None or peer.ticket is None or peer.ticket != reach.ticket:
            self._outbox.hang_up(link, Reason.TIME_OUT)  # a dial that came through after we gave up on it
            return
        reach.attached()
        self._line = Line(link, reach.target, now)
        if self.config.token and not reach.target.secure and not _stays_here(peer):
            # "localhost" did not mean this machine. The token is not for those who listen on the way.
            self._end(NotConnectedError(Reason.CREDENTIAL_MISSING, f"no token is sent in clear to {peer.address}"), now)
            return
        self._line.out.append(self._hello)
        self._timers.set("handshake", now + self.config.dial_ms_max * NS_PER_MS, self._handshake_late)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """The broker's bytes, split anywhere."""
        line = self._line
        if line is None or line.id != link or line.gone:
            return
        line.heard_at = now
        kinds = self._kinds
        try:
            for frame in line.splitter.split(data):
                kinds[frame[4]](line, frame, now)
                if line.gone:
                    return
            if line.splitter.fault is not None:
                raise ProtocolError(line.splitter.fault)
        except ProtocolError as error:
            self._outbox.note(PeerRefused(link, error.reason, error.detail))
            self._hang_up(line, error.reason, error.detail)

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A session opens no datagram socket; what comes is not for it."""

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The link is gone: find a broker again."""
        line = self._line
        if line is None or line.id != link:
            return
        self._line = None
        for key in ("handshake", "keep alive", "leave", "ask on"):
            self._timers.cancel(key)
        self._forget_link(now)
        if self.ended:
            return
        said = line.said if line.said is not None else (reason, "")
        if line.welcomed_at is None:
            self._dial_failed(*said, now)
        else:
            self._reach.left(now - line.welcomed_at, now)
        self._review_drain(now)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Publications wait here while the driver's buffer is full."""
        if self._line is not None and self._line.id == link:
            self._line.pressed = pressed

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A session asks for no commit, read or job."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A dial did not succeed."""
        if ticket == self._reach.ticket and not self.ended:
            self._dial_failed(reason, "", now)

    def tell(self, command: Any, now: Instant) -> None:
        """A command of the program; UsageError if it makes no sense."""
        tell = self._tells.get(type(command))
        if tell is None:
            raise UsageError(f"a session does not know the command {type(command).__name__}")
        tell(command, now)

    def clock(self, wall_ns: int, now: Instant) -> None:
        """What the wall clock says, for the stamps of publications."""
        self._wall_offset_ns = wall_ns - now

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def take(self) -> Effects:
        """Everything wanted since the last take: one write, whatever number of publications it holds."""
        line = self._line
        if line is not None:
            if line.flows:
                self._pump(line)
            if line.out:
                self._outbox.writes.append((line.id, line.out))
                line.out = []
        return self._outbox.empty(self._timers.next())

    # -- publishing ---------------------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: bytes,
        now: Instant,
        headers: dict[str, Any] | None = None,
        expires_in_ms: int | None = None,
        content_type: str | None = None,
    ) -> bool:
        """Gather one publication for the next take; False, and counted, if there is no room."""
        outgoing = self._outgoing
        if outgoing.bytes >= outgoing.bytes_max or self.ended or self._draining:
            return self._no_room(1, now)
        name = self._writer.topic(topic)
        flags = 0
        if headers is None and expires_in_ms is None and content_type is None and self._wall_offset_ns is not None:
            block = plain_block((now + self._wall_offset_ns) // 1_000)
        else:
            block, flags = header_block(self._stamp_us(now), headers, expires_in_ms, content_type)
        frame = self._writer.frame(name, block, payload, outgoing.assigned + 1, flags)
        outgoing.add(frame)
        return True

    def publish_batch(
        self,
        topic: str,
        payloads: list[bytes],
        now: Instant,
        headers: dict[str, Any] | None = None,
        expires_in_ms: int | None = None,
        content_type: str | None = None,
    ) -> bool:
        """Gather many publications on one topic; all or none."""
        outgoing = self._outgoing
        if outgoing.bytes >= outgoing.bytes_max or self.ended or self._draining:
            return self._no_room(len(payloads), now)
        if not payloads:
            return True
        name = self._writer.topic(topic)
        block, flags = header_block(self._stamp_us(now), headers, expires_in_ms, content_type)
        run = self._writer.frames(name, block, payloads, outgoing.assigned + 1, flags)
        outgoing.add(run, len(payloads))
        return True

    def _stamp_us(self, now: Instant) -> int | None:
        return None if self._wall_offset_ns is None else (now + self._wall_offset_ns) // 1_000

    def _no_room(self, publications: int, now: Instant) -> bool:
        if self.ended or self._draining:
            raise UsageError(f"the session publishes no more: {self.error or 'it was closed'}")
        self._losses.add("outgoing", publications, now)
        return False
