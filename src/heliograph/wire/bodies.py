"""Bodies: the JSON payloads of control frames, as typed structs.

In:    JSON bytes from a peer, already bounded by CONTROL_BYTES_MAX.
Out:   structs; ProtocolError(BODY_MALFORMED) if the JSON does not fit. Unknown fields are ignored, so that a newer
       peer can send fields that we do not know.
State: none.
Not here: frame heads (wire/frames.py), what the fields mean for a broker (broker/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import NETWORK_LENGTH_MAX, NETWORK_PATTERN

Network = Annotated[str, msgspec.Meta(max_length=NETWORK_LENGTH_MAX, pattern=NETWORK_PATTERN)]
"""A network's name; empty: it has none."""

MOVE = "move"
"""A client with this feature in its HELLO moves to another broker when its overloaded broker asks it to."""
KEEP_ALIVE_MS_DEFAULT = 20_000
"""Part of the protocol: the value for a HELLO without ``keep_alive_ms``. Our client's default: client/config.py."""


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all bodies; a field at its default is left out."""


class Hello(Body, frozen=True):
    """The first frame of a client."""

    versions: list[int]
    secret: str  # the session secret, 32 to 128 hex digits; its hash is the session's origin
    features: list[str] = []  # used if the broker has them
    needs: list[str] = []  # refuse the session if the broker lacks one
    name: str = ""  # for logs
    entity: str = ""  # with a token: the entity it belongs to
    token: str = ""
    keep_alive_ms: int = KEEP_ALIVE_MS_DEFAULT
    hold: bool = False  # this publisher may be held for slow consumers
    moved: bool = False  # an overloaded broker asked it to come here


class Welcome(Body, frozen=True):
    """The broker's answer to a Hello that it accepts."""

    version: int
    broker: str
    incarnation: int
    origin: str  # 16 hex digits: the origin of the session's publications
    entity: str
    roles: list[str]
    features: list[str]
    limits: dict[str, int]
    keep_alive_ms: int
    inbox: str = ""  # the topic at which this session receives answers; no other session may subscribe there
    seen: str = ""  # 16 hex digits: the highest sequence known of this origin; empty if the origin is new here
    network: Network = ""  # the network to which the broker belongs; empty: it has no name
    slow: bool = False  # this broker ended the session's last link as a slow consumer's; the client may not know that


class Goodbye(Body, frozen=True):
    """The last frame before a link ends, or a warning that it will (``grace_ms`` > 0)."""

    reason: str
    code: int
    text: str = ""
    grace_ms: int = 0
    others: list[str] = []  # with a warning: other brokers' addresses, nearest first


class Subscribe(Body, frozen=True):
    """Ask for publications, under a number of the client's choice."""

    number: int
    filter: str
    language: str = "topic"  # of ``where``; "topic": there is only the filter
    policy: str = "drop_oldest"
    echo: bool = True
    group: str = ""  # share this filter with other subscriptions that name the same group
    wide: bool = False  # confirm only once every broker in reach knows of it
    where: str = ""  # the condition on events, in that language
    listens: bool = False  # it answers no request, as a store or a monitor; not with a group


class Unsubscribe(Body, frozen=True):
    """End a subscription."""

    number: int


class Time(Body, frozen=True):
    """In a PONG: network time as the sender knows it, in nanoseconds."""

    time: int  # nanoseconds since 1970
    error: int  # the largest possible error
    stratum: int  # how many clocks lie between the sender and the true time
    reference: int = 0  # the broker whose clock is the reference; 0: UTC
    era: int = 0  # of that clock: times of different eras cannot be compared
    age: int = 0  # since the reference itself last gave a time


class Refusal(Body, frozen=True):
    """A request, named by the frame's sequence, was refused. With 0, a publication on ``subject`` was."""

    reason: str
    code: int
    text: str = ""
    subject: str = ""


_encoder = msgspec.json.Encoder()
_B = TypeVar("_B", bound=Body)
_decoders: dict[type[Body], msgspec.json.Decoder[Any]] = {
    body: msgspec.json.Decoder(body) for body in (Hello, Welcome, Goodbye, Subscribe, Unsubscribe, Time, Refusal)
}


def encode(body: Body) -> bytes:
    """The body as JSON."""
    return _encoder.encode(body)


def decode(kind: type[_B], data: bytes) -> _B:
    """JSON as a body of this type."""
    try:
        body: _B = _decoders[kind].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
    return body


def goodbye(reason: Reason, text: str = "", grace_ms: int = 0, others: Sequence[str] = ()) -> bytes:
    """The encoded body of a GOODBYE."""
    return _encoder.encode(Goodbye(reason.word, reason, text, grace_ms, list(others)))


def refusal(reason: Reason, text: str = "", subject: str = "") -> bytes:
    """The encoded body of a REFUSED."""
    return _encoder.encode(Refusal(reason.word, reason, text, subject))


def reason_of(code: int) -> Reason:
    """A peer's reason code as a Reason; an unknown code becomes GOODBYE."""
    try:
        return Reason(code)
    except ValueError:
        return Reason.GOODBYE
