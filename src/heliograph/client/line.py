"""The line: what a session knows of its present link to a broker. It is made anew for each link.

In:    frames to write; what the session learns of the link.
Out:   gathered output; may publications flow.
State: the splitter, the gathered output, when something was heard last.
Not here: what outlives the link (client/session.py and the other rooms).
"""

from __future__ import annotations

from heliograph.client.config import Target
from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId
from heliograph.wire.splitter import Splitter


class Line:
    """One link to a broker."""

    __slots__ = (
        "attached_at",
        "gone",
        "heard_at",
        "held",
        "id",
        "keep_alive_ns",
        "leaving",
        "lost",
        "out",
        "ping_wanted",
        "pressed",
        "restoring",
        "said",
        "splitter",
        "target",
        "welcomed_at",
    )

    def __init__(self, link: LinkId, target: Target, now: Instant) -> None:
        self.id = link
        self.target = target
        self.splitter = Splitter()
        self.out: list[bytes] = []  # for the next take
        self.attached_at = now
        self.heard_at = now
        self.welcomed_at: Instant | None = None
        self.keep_alive_ns = 0
        self.pressed = False  # by the driver: publications wait
        self.held = False  # by us: a full inbox waits for the program
        self.leaving = False  # the broker asked us to go
        self.gone = False  # after our own hangup
        self.ping_wanted = False
        self.restoring: set[int] = set()  # subscriptions that this broker has not put in force yet
        self.lost = 0  # publications that this link has lost at the broker
        self.said: tuple[Reason, str] | None = None  # the broker's goodbye

    @property
    def flows(self) -> bool:
        """True if publications may be written to it."""
        return self.welcomed_at is not None and not (self.pressed or self.leaving or self.gone)

    @property
    def is_ready(self) -> bool:
        """True if requests may be written to it."""
        return self.welcomed_at is not None and not self.gone
