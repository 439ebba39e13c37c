"""A line: what a session knows about one link to a broker. Each link gets a new one.

In:    the broker's bytes; frames to write; what the session learns about the link.
Out:   whole frames; gathered output; whether publications and requests may be written; which subscriptions the broker
       has.
State: the splitter, the gathered output, when the broker last sent something, PINGs that wait for their PONG.
Not here: the lines of a session and what is done with them (client/lines.py), what outlives a link (client/session.py
          and its other parts).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from heliograph.client.config import NS_PER_MS, Target
from heliograph.client.subscriptions import LocalSubscription
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId
from heliograph.wire.bodies import Welcome
from heliograph.wire.frames import Kind, control
from heliograph.wire.splitter import Splitter


class Pings:
    """The PINGs of one link."""

    __slots__ = ("_unanswered", "highest")

    def __init__(self) -> None:
        self._unanswered: deque[Instant | None] = deque()  # when each was written, if it is timed
        self.highest = 0  # the sequence up to which the broker was asked to confirm

    def ping(self, number: int, now: Instant | None = None) -> bytes:
        """A PING. Its PONG confirms that everything up to this sequence was routed. With ``now`` it is timed."""
        self._unanswered.append(now)
        self.highest = max(self.highest, number)
        return control(Kind.PING, number)

    def pong(self, number: int) -> Instant | None:
        """A PONG came; returns when its PING was written, if it was timed. PONGs come in the order of their PINGs."""
        if not self._unanswered or number > self.highest:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a PONG without a PING")
        return self._unanswered.popleft()


class Line:
    """One link to a broker."""

    __slots__ = (
        "asked",
        "attached_at",
        "explained",
        "gone",
        "heard_at",
        "held",
        "hinted",
        "id",
        "in_force",
        "keep_alive_ns",
        "kept",
        "kept_bytes",
        "leaving",
        "lost",
        "out",
        "ping_wanted",
        "pings",
        "pressed",
        "restoring",
        "rising",
        "said",
        "seen",
        "splitter",
        "target",
        "unasked",
        "welcome",
        "welcomed_at",
    )

    def __init__(self, link: LinkId, target: Target, now: Instant, *, rising: bool, hinted: bool) -> None:
        self.id = link
        self.target = target
        self.rising = rising  # not in use yet: the session prepares to move there
        self.hinted = hinted  # the address came from a broker, not from the program
        self.splitter = Splitter()
        self.out: list[bytes] = []  # to be written with the next take
        self.pings = Pings()
        self.attached_at = now
        self.heard_at = now
        self.welcomed_at: Instant | None = None
        self.welcome: Welcome | None = None
        self.seen = 0  # the highest sequence of ours that the broker knew when it welcomed us
        self.keep_alive_ns = 0
        self.pressed = False  # by the driver: publications wait
        self.held = False  # by us: an inbox is full, or it is not yet this line's turn
        self.leaving = False  # the broker asked us to go
        self.gone = False  # either side has said goodbye
        self.explained = False  # the broker has
        self.ping_wanted = False
        self.unasked: deque[LocalSubscription] = deque()  # subscriptions to ask this broker for
        self.asked: set[int] = set()  # … that it was asked for
        self.in_force: set[int] = set()  # … and has confirmed
        self.restoring: set[int] = set()  # earlier subscriptions that are not in force here yet
        self.kept: list[bytes] = []  # deliveries that came while it was rising; they wait
        self.kept_bytes = 0
        self.lost = 0  # publications that this link has lost at the broker
        self.said: tuple[Reason, str] | None = None  # why the link ends, as told by the side that ends it

    @property
    def flows(self) -> bool:
        """True if publications may be written to it."""
        return self.welcomed_at is not None and not (self.pressed or self.leaving or self.gone or self.rising)

    @property
    def is_ready(self) -> bool:
        """True if requests may be written to it."""
        return self.welcomed_at is not None and not self.gone

    @property
    def inbox(self) -> str:
        """The topic of this session's inbox at this broker; empty if it has none there."""
        return self.welcome.inbox if self.welcome is not None else ""

    def read(self, data: bytes, now: Instant) -> Iterable[bytes]:
        """The whole frames after these bytes."""
        self.heard_at = now
        return self.splitter.split(data)

    def take_output(self) -> list[bytes]:
        """Everything gathered since the last time."""
        out, self.out = self.out, []
        return out

    def press(self, pressed: bool) -> None:
        """The driver's buffer for this link is full, or has room again."""
        self.pressed = pressed

    # -- the handshake ------------------------------------------------------------------------------------------

    def welcomed(self, welcome: Welcome, seen: int, now: Instant) -> None:
        """The broker has accepted the session."""
        self.welcome = welcome
        self.welcomed_at = now
        self.seen = seen
        self.keep_alive_ns = welcome.keep_alive_ms * NS_PER_MS

    def use(self) -> None:
        """The line is no longer rising: it is in use."""
        self.rising = False

    # -- reading and confirming ---------------------------------------------------------------------------------

    def hold(self, held: bool, now: Instant) -> None:
        """Stop or resume reading. Silence counts from now: while we do not read, it means nothing."""
        self.held = held
        self.heard_at = now

    def want_ping(self) -> None:
        """Send a PING behind the publications that wait."""
        self.ping_wanted = True

    def ping_written(self) -> None:
        """The PING that was wanted is in the output."""
        self.ping_wanted = False

    def keep(self, delivery: bytes) -> None:
        """Read this delivery once the line is in use."""
        self.kept.append(delivery)
        self.kept_bytes += len(delivery)

    def take_kept(self) -> list[bytes]:
        """The deliveries that waited."""
        kept, self.kept = self.kept, []
        return kept

    def newly_lost(self, lost: int) -> int:
        """How many publications the broker has dropped since it last said so; ``lost`` is its count so far."""
        newly = max(0, lost - self.lost)
        self.lost += newly
        return newly

    # -- subscriptions ------------------------------------------------------------------------------------------

    def part(self, number: int) -> None:
        """The broker is asked to end this subscription."""
        self.asked.discard(number)
        self.in_force.discard(number)

    def restore(self, numbers: set[int]) -> None:
        """These subscriptions were in force before; the session is restored when they are in force again."""
        self.restoring = numbers

    def restored(self, number: int) -> bool:
        """This subscription is in force, or never will be. True if that was still open."""
        if number not in self.restoring:
            return False
        self.restoring.discard(number)
        return True

    # -- leaving ------------------------------------------------------------------------------------------------

    def leave(self, reason: Reason | None = None, text: str = "") -> None:
        """Send no new publications to this broker."""
        self.leaving = True
        if reason is not None:
            self.said = (reason, text)

    def stay(self) -> None:
        """Leaving was called off."""
        self.leaving = False

    def hang_up(self, reason: Reason, text: str) -> None:
        """We end the link; an earlier reason is kept."""
        self.gone = True
        self.said = self.said or (reason, text)

    def dismissed(self, reason: Reason, text: str) -> None:
        """The broker ends the link."""
        self.gone = self.explained = True
        self.said = (reason, text)
