"""The line: what a session knows of one link to a broker. It is made anew for each link.

In:    frames to write; what the session learns of the link.
Out:   gathered output; may publications flow; which subscriptions this broker has.
State: the splitter, the gathered output, when something was heard last, PINGs that wait for their PONG.
Not here: what outlives the link (client/session.py and the other rooms).

A session has one line that it uses. While it moves to another broker it has two: the next one rises beside the present
one, and then the old one stays until nothing more is due on it (client/roaming.py).
"""

from __future__ import annotations

from collections import deque

from heliograph.client.config import Target
from heliograph.client.subscriptions import Wish
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId
from heliograph.wire.bodies import Welcome
from heliograph.wire.frames import Kind, control
from heliograph.wire.splitter import Splitter


class Pings:
    """The PINGs of one link."""

    __slots__ = ("_highest", "_unanswered")

    def __init__(self) -> None:
        self._unanswered: deque[Instant | None] = deque()  # when each was written, if that matters
        self._highest = 0

    def ping(self, number: int, now: Instant | None = None) -> bytes:
        """A PING; its PONG says that everything up to this sequence was routed. With ``now`` it is timed."""
        self._unanswered.append(now)
        self._highest = max(self._highest, number)
        return control(Kind.PING, number)

    def pong(self, number: int) -> Instant | None:
        """A PONG came; returns when its PING was written, if it was timed. PONGs come in the order of their PINGs."""
        if not self._unanswered or number > self._highest:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a PONG that nobody asked for")
        return self._unanswered.popleft()


class Line:
    """One link to a broker."""

    __slots__ = (
        "asked",
        "attached_at",
        "gone",
        "heard_at",
        "held",
        "hinted",
        "id",
        "in_force",
        "keep_alive_ns",
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

    def __init__(self, link: LinkId, target: Target, now: Instant) -> None:
        self.id = link
        self.target = target
        self.hinted = False  # the address came from a broker, not from the program
        self.splitter = Splitter()
        self.out: list[bytes] = []  # for the next take
        self.pings = Pings()
        self.attached_at = now
        self.heard_at = now
        self.welcomed_at: Instant | None = None
        self.welcome: Welcome | None = None
        self.seen = 0  # the highest sequence of ours that the broker knew when it welcomed us
        self.keep_alive_ns = 0
        self.pressed = False  # by the driver: publications wait
        self.held = False  # by us: a full inbox waits for the program, or the line has to wait for its turn
        self.rising = False  # not in use yet: the session prepares to move there
        self.leaving = False  # the broker asked us to go
        self.gone = False  # after our own hangup
        self.ping_wanted = False
        self.unasked: deque[Wish] = deque()  # subscriptions to ask this broker for
        self.asked: set[int] = set()  # … that it was asked for
        self.in_force: set[int] = set()  # … and has confirmed
        self.restoring: set[int] = set()  # those of before that it has not put in force yet
        self.lost = 0  # publications that this link has lost at the broker
        self.said: tuple[Reason, str] | None = None  # the broker's goodbye

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
        """The topic under which the session is found at this broker; empty if it has none there."""
        return self.welcome.inbox if self.welcome is not None else ""
