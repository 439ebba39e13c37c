"""What a program tells its session, and what the session answers.

In:    values of the program.
Out:   commands for ``Session.tell``; Outcome, which is the session's answer.
State: none.
Not here: settings (client/config.py, whose names can be imported from here too), the session (client/session.py), the
          asyncio interface (live/client.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from heliograph.client.config import ClientConfig as ClientConfig
from heliograph.client.config import Target as Target
from heliograph.errors import HeliographError
from heliograph.machine import Instant
from heliograph.model.subscription import Policy
from heliograph.wire.bodies import Body
from heliograph.wire.stores import StoreAdvertisement

Request = int
"""The program's own number, above 0, for a request whose outcome it awaits; 0 if it awaits none."""
EndSession = Callable[[HeliographError | None, Instant], None]
"""Ends the session: with an error, or with None if the program asked for it."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect; the outcome comes when a broker has welcomed us. Refused if time is up and every target failed."""

    request: Request
    ms_max: int = 5_000


@dataclass(slots=True)
class Publish:
    """Publish now, or when a broker is there. Without room it is dropped and counted, and ``request`` is refused."""

    topic: str
    payload: bytes
    headers: dict[str, Any] | None = None
    expires_in_ms: int | None = None
    content_type: str | None = None
    request: Request = 0  # answered only if there was no room
    to: list[str] | None = None  # inboxes: it goes to these sessions only


@dataclass(slots=True)
class PublishBatch:
    """Publish many payloads on one topic. They stay together, and are accepted all or not at all."""

    topic: str
    payloads: list[bytes]
    headers: dict[str, Any] | None = None
    expires_in_ms: int | None = None
    content_type: str | None = None
    request: Request = 0


@dataclass(slots=True, eq=False)
class PublishReliably:
    """Publish, and repeat until a store has it on disk; then ``request``, if any, is settled.

    The outcome is the store's number, and the first and last sequence.

    A part of a batch is staged in a store under the publisher's name, the batch's number and the part. Its publications
    may differ in topic and headers: then ``rows`` has those of each, and ``topic`` is the first of them.
    """

    topic: str
    payloads: list[bytes]
    headers: dict[str, Any] | None = None
    expires_in_ms: int | None = None
    content_type: str | None = None
    request: Request = 0
    store: StoreAdvertisement | None = None  # None: the one that serves the topic
    part: tuple[str, int, str] | None = None  # of a batch: publisher, number, part
    ms_max: int | None = None  # how long to wait; None: as long as the session waits for anything
    rows: list[tuple[str, dict[str, Any] | None]] | None = None
    error: HeliographError | None = None  # why it was not stored, for a program without a request

    @property
    def topics(self) -> frozenset[str]:
        """All its topics."""
        return frozenset([self.topic] if self.rows is None else [topic for topic, _ in self.rows])

    def ask(self, request: Request) -> None:
        """The program awaits the outcome under this number."""
        self.request = request

    def fail(self, error: HeliographError) -> None:
        """It will not be stored."""
        self.error = error


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe; the outcome is the subscription's number once it is in force."""

    request: Request
    filter: str
    policy: Policy = Policy.DROP_OLDEST
    echo: bool = True
    inbox_frames_max: int = 65_536
    inbox_bytes_max: int = 64 << 20
    group: str = ""  # share this filter with other clients that name the same group
    wide: bool = False  # in force at every broker in reach, not only at the session's own
    where: str = ""  # a condition on publications, beyond the topic
    language: str = "topic"  # of ``where``; "topic": no condition
    listens: bool = False  # it answers no request, as a monitor; not with a group


@dataclass(frozen=True, slots=True)
class ReadStores:
    """Read from stores, as a durable subscription (with a name) or a replay; the outcome is the reader's number.

    Its inbox gets StoredPublications, or StoredRuns if it is ``raw``.
    """

    request: Request
    filter: str = "#"
    name: str = ""
    where: str = ""
    language: str = "topic"
    store: str = ""  # the name or id of the only store to read; empty: every store that serves a part of the filter
    start: str = ""  # "first", "next"; empty: resume under the name; if that is new "next", without a name "first"
    positions: dict[str, int] = field(default_factory=dict)  # by store: begin here instead
    since_us: int | None = None  # … and not before the first publication stored at this time or later
    ends: dict[str, int] = field(default_factory=dict)  # by store: end before this position
    until_us: int | None = None  # … or before the first publication stored after this time
    follow: bool = False  # a replay goes on with what is stored later; otherwise it ends, in a store that has no other
    # end, with what that store had when it was first asked
    pace: float = 0.0  # 0: full speed; 1: as fast as they were published; 2: twice as fast
    window: int = 1_000  # publications under way or unread
    bytes_max: int = 64 << 20  # of the same
    raw: bool = False
    times: bool = False  # StoredRuns tell when their publications were stored
    whole: bool = False  # fail, rather than leave out what the reader may not hear
    manual: bool = False  # the program acknowledges what it is done with
    secret: bytes = field(default=b"", repr=False)  # of a client without credentials: proves that the name is its own


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The program has finished with a position of a durable subscription, or with everything up to it."""

    number: int
    store: str
    position: int
    cumulative: bool = False


@dataclass(frozen=True, slots=True)
class EndReading:
    """End a reader. What the program took is acknowledged first; with ``undone``, all but the last."""

    request: Request
    number: int
    undone: bool = False


@dataclass(frozen=True, slots=True)
class AskStores:
    """Send a request to the service `stores`; the outcome is the answer, a body of ``kind``."""

    request: Request
    body: Body
    kind: type[Body]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End a subscription; what is in its inbox can still be read."""

    request: Request
    number: int


@dataclass(frozen=True, slots=True)
class Flush:
    """The outcome comes when the broker has routed everything published before this."""

    request: Request


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a service at the broker; the outcome is its decoded JSON answer."""

    request: Request
    service: str
    body: dict[str, Any]
    watch: int = 0  # above 0: the service will send news under this number, which the body names as well
    more_ms: int = 0  # beyond the usual time, for a service that may take long


@dataclass(frozen=True, slots=True)
class EndWatch:
    """The program wants no more news of this watch; asking the service to end it is another request."""

    watch: int


@dataclass(frozen=True, slots=True)
class Inquire:
    """Publish a request to the subscribers of its topic; the outcome is the first answer, a Publication."""

    request: Request
    topic: str
    payload: bytes
    headers: dict[str, Any] | None = None
    content_type: str | None = None
    ms_max: int | None = None  # None: as long as the session waits for anything


@dataclass(frozen=True, slots=True)
class Taken:
    """The program took publications out of an inbox: there is room for more."""

    number: int


@dataclass(frozen=True, slots=True)
class TakenStored:
    """The program took publications out of the inbox of a reader."""

    number: int


@dataclass(frozen=True, slots=True)
class Move:
    """Move to another broker: by a planned move if there is a link, else by dialling it next. On failure, stay."""

    nearest: tuple[Target, ...]  # addresses of the broker to move to
    targets: tuple[Target, ...]  # what the session tries from now on when it has lost its link


@dataclass(frozen=True, slots=True)
class Drain:
    """Unsubscribe from everything, flush, read what is still on its way, then close."""

    request: Request


@dataclass(frozen=True, slots=True)
class Close:
    """Say goodbye and end, now."""

    request: Request


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a request: a value, or an error to raise."""

    request: Request
    value: Any = None
    error: HeliographError | None = None
