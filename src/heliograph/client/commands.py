"""What a program tells its session, and what it hears back.

In:    values of the program.
Out:   frozen commands for ``Session.tell``; Outcome and Inbox for the way back.
State: none.
Not here: the session itself (client/session.py), the asyncio face (live/client.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from heliograph.errors import HeliographError
from heliograph.model.subscription import Policy

Request = int
"""The face's own number for something it awaits."""


@dataclass(slots=True)
class Publish:
    """Publish now, or as soon as a broker is there. Encoded headers may be given instead of ``headers``."""

    topic: str
    payload: bytes
    headers: dict[str, Any] | None = None
    expires_in_ms: int | None = None


@dataclass(slots=True)
class PublishBatch:
    """Many payloads on one topic; they stay together."""

    topic: str
    payloads: list[bytes]
    headers: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe; the outcome is the subscription's number once it is in force at the broker."""

    request: Request
    filter: str
    policy: Policy = Policy.DROP_OLDEST
    echo: bool = True
    inbox_frames_max: int = 65_536
    inbox_bytes_max: int = 64 << 20


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


@dataclass(frozen=True, slots=True)
class Taken:
    """The program took publications out of an inbox: room for more."""

    number: int


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
    """What became of a request: a value, or an error to raise."""

    request: Request
    value: Any = None
    error: HeliographError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A broker's address as a program names it."""

    host: str
    port: int
    secure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a session behaves; every default works."""

    targets: tuple[Target, ...]
    name: str = ""
    entity: str = ""
    token: str = field(default="", repr=False)
    hold: bool = False  # ready to wait for slow consumers
    keep_alive_ms: int = 20_000
    dial_ms_max: int = 5_000
    request_ms_max: int = 10_000
    retry_ms: int = 50  # first pause after a lost link; doubled up to the maximum, with jitter
    retry_ms_max: int = 5_000
    give_up_ms: int | None = None  # None: a session that was once welcomed tries for ever
    outgoing_bytes_max: int = 8 << 20  # published and not yet confirmed by the broker
