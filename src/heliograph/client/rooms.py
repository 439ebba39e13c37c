"""The rooms that a session and its conversation share, so that each is made once.

In:    the session's settings.
Out:   Rooms.
State: that of the rooms.
Not here: any rule; each room has its own file.
"""

from __future__ import annotations

from heliograph.client.config import ClientConfig
from heliograph.client.inquiries import Inquiries
from heliograph.client.outgoing import Outgoing
from heliograph.client.reader import Reader
from heliograph.client.refusals import Losses, Refusals
from heliograph.client.requests import Requests
from heliograph.client.subscriptions import Subscriptions
from heliograph.client.timing import Timing
from heliograph.client.writer import Writer
from heliograph.machine import Outbox, Timers


class Rooms:
    """Everything of a session that outlives a link."""

    __slots__ = (
        "config",
        "inquiries",
        "losses",
        "outbox",
        "outgoing",
        "reader",
        "refusals",
        "requests",
        "subscriptions",
        "timers",
        "timing",
        "writer",
    )

    def __init__(self, config: ClientConfig, secret: bytes, origin: int) -> None:
        self.config = config
        self.outbox = Outbox()
        self.timers = Timers()
        self.requests = Requests(self.timers, config.request_ms_max, config.requests_max)
        self.subscriptions = Subscriptions()
        self.writer = Writer(origin)
        self.outgoing = Outgoing(config.outgoing_bytes_max)
        self.inquiries = Inquiries(secret, self.requests, self.outgoing, self.writer)
        self.reader = Reader()
        self.timing = Timing(self.timers)
        self.refusals = Refusals()
        self.losses = Losses(self.outbox, self.timers)
