"""Messages between resource services of neighbouring brokers.

In:    values, or JSON from a neighbour's service.
Out:   JSON, or structs; ProtocolError(BODY_MALFORMED) if the JSON is invalid.
State: none.
Not here: messages of clients (service.py), frames (wire/frames.py), how messages are handled (the other files here).

A broker is named by its id; if it hosts resources, its place (cluster and slot) says how it is reached. A request is
named by its host broker's id, that broker's incarnation and a number. Times are network time in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from heliograph.errors import ProtocolError, Reason
from heliograph.wire.bodies import Body

ADVERTISEMENTS_PER_BODY_MAX = 64
RESULTS_PER_BODY_MAX = 64
IDS_PER_BODY_MAX = 500
TEXT_LENGTH_MAX = 4_096
NAME_LENGTH_MAX = 128
VALUES_MAX = 64
VALUES_BYTES_MAX = 8_192  # of one resource, as JSON: two of its states fit in a message
PART_BYTES = 40_000  # of the items in one message: with the rest, below what a service may send at once

Id = Annotated[int, Meta(ge=0)]
"""Of a broker or a resource. Its 64 bits are checked below, because the decoder can check only 63."""
Count = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
Name = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
Number = Annotated[int, Meta(ge=0, le=1_000_000)]
Scalar = int | float | str | bool
Values = Annotated[dict[Name, Scalar], Meta(max_length=VALUES_MAX)]
Hosts = Annotated[list[Id], Meta(max_length=IDS_PER_BODY_MAX)]
RequestId = tuple[Id, Count, Count]  # host broker, its incarnation, number


class AdvertisedResource(Body, frozen=True, array_like=True):
    """A resource as all brokers know it."""

    id: Id
    is_static: bool
    where: Text  # its ranges, in the canonical form of the language predicates
    epoch: Count  # when its owner attached it: the newest wins
    name: Name = ""
    attached: bool = False  # another broker may host it too, and must be told: it is told even if covered


class FoundResource(Body, frozen=True, array_like=True):
    """A resource in an answer."""

    id: Id
    host: Id
    incarnation: Count  # of its host broker
    epoch: Count
    at: Count  # when its host broker read it
    updated: Count  # when its owner reported these values; without values: when it was registered
    number: Count  # the host broker's count of changes at that time
    name: Name
    values: Values | None  # None: it has reported no values yet …
    where: Text = ""  # … and only its ranges show whether it may match


class AdvertisementsTold(Body, frozen=True, tag="told", tag_field="say"):
    """What a broker hosts: a change with the next number, or everything (``full``), in several bodies if ``more``.

    ``paced``: the sender waits until it hears that this part was taken.
    """

    host: Id
    name: Name
    cluster: Name
    slot: Annotated[int, Meta(ge=0, le=0xFFFF)]
    incarnation: Count
    number: Count
    full: bool = False
    more: bool = False
    add: Annotated[list[AdvertisedResource], Meta(max_length=ADVERTISEMENTS_PER_BODY_MAX)] = []
    remove: Annotated[list[Id], Meta(max_length=IDS_PER_BODY_MAX)] = []
    part: Number = 0  # of everything
    paced: bool = False

    @property
    def age(self) -> tuple[int, int]:
        """The greater one is newer."""
        return (self.incarnation, self.number)


class AdvertisementsOffered(Body, frozen=True, tag="offer", tag_field="say"):
    """Which brokers' tables the sender has and which it wants. ``fresh``: earlier messages on this link are void.

    ``taken``: parts that were taken, by host and number; such a message says nothing else.
    """

    has: Annotated[list[tuple[Id, Count, Count]], Meta(max_length=IDS_PER_BODY_MAX)] = []
    wants: Annotated[list[Id], Meta(max_length=IDS_PER_BODY_MAX)] = []
    fresh: bool = False
    more: bool = False  # the sender has more, which follow
    taken: Annotated[list[tuple[Id, Number]], Meta(max_length=IDS_PER_BODY_MAX)] = []


class ResourceRequest(Body, frozen=True, tag="ask", tag_field="say"):
    """A one-time request in transit. ``cover``: the request whose answers it shares, toward whose host it goes."""

    id: RequestId
    attempt: Number
    where: Text
    issued: Count
    until: Count
    deliver: Annotated[str, Meta(max_length=16)] = "normal"
    best: Number = 0  # 0: all
    order: Name = ""
    max_age: Count = 0  # nanoseconds
    cover: RequestId | None = None
    reply: tuple[Name, Name] | None = None  # for direct delivery: the address of its host broker, and a topic there


class ResourcesFound(Body, frozen=True, tag="found", tag_field="say"):
    """Answers to a request: one package."""

    id: RequestId
    attempt: Number
    found: Annotated[list[FoundResource], Meta(max_length=RESULTS_PER_BODY_MAX)]


class ResourceRequestDone(Body, frozen=True, tag="done", tag_field="say"):
    """All brokers that the sender asked on behalf of this request have answered."""

    id: RequestId
    attempt: Number
    cover: RequestId | None = None  # as in the request that this answers
    hosts: Annotated[list[tuple[Id, Count, Count, Count]], Meta(max_length=IDS_PER_BODY_MAX)] = []  # which hosts
    # answered, at which incarnation and number of changes, and when they read their resources
    lost: bool = False  # a broker became unreachable in the meantime
    uncovered: bool = False  # the covering request is no longer known there, or its answers are too old
    direct: Annotated[list[tuple[Id, Count]], Meta(max_length=IDS_PER_BODY_MAX)] = []  # answers that a host
    # sent directly: they may arrive later than this


class StandingRequests(Body, frozen=True, tag="want", tag_field="say"):
    """Continuous requests that begin or end, each with the brokers that host what may match."""

    add: Annotated[list[tuple[RequestId, Text, Hosts]], Meta(max_length=32)] = []
    drop: Annotated[list[RequestId], Meta(max_length=IDS_PER_BODY_MAX)] = []


class ResourceState(Body, frozen=True, tag="state", tag_field="say"):
    """A resource's new state, for all continuous requests that match its old or new values."""

    host: Id
    incarnation: Count
    number: Count
    id: Id
    epoch: Count
    name: Name
    at: Count
    before: Values | None
    values: Values | None  # None: it is gone


class RequestsStirred(Body, frozen=True, tag="stir", tag_field="say"):
    """The way to some hosts changed: these continuous requests may have missed something."""

    ids: Annotated[list[RequestId], Meta(max_length=IDS_PER_BODY_MAX)]
    ttl: Annotated[int, Meta(ge=0, le=64)] = 64


Message = (
    AdvertisementsTold
    | AdvertisementsOffered
    | ResourceRequest
    | ResourcesFound
    | ResourceRequestDone
    | StandingRequests
    | ResourceState
    | RequestsStirred
)

encode = msgspec.json.Encoder().encode
ID_MAX = (1 << 64) - 1


@cache
def _decoder() -> msgspec.json.Decoder[Message]:
    """Made for the first message: that takes as long as loading half of this room."""
    return msgspec.json.Decoder(Message)


Item = TypeVar("Item")


def in_parts(items: Sequence[Item], count_max: int) -> list[list[Item]]:
    """Items in lists that each fit in a message; one empty list if there are none."""
    if len(items) <= 1:
        return [list(items)]
    parts: list[list[Item]] = []
    start = 0
    while start < len(items):
        count = length_of_part(items, start, count_max)
        parts.append(list(items[start : start + count]))
        start += count
    return parts


def length_of_part(items: Sequence[Item], start: int, count_max: int) -> int:
    """How many items from there on fit in a message: at least one, if there are any."""
    count = size = 0
    for item in islice(items, start, start + count_max):
        size += len(encode(item))
        if count and size > PART_BYTES:
            break
        count += 1
    return count


def decode(data: bytes, unread: list[str] | None = None) -> Message:
    """JSON as a message. An advertisement that cannot be read costs only itself: it is left out, with what was known
    of its resource, and ``unread`` says why."""
    try:
        return _decoder().decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = str(error)
    unread = [] if unread is None else unread
    try:
        return _decoder().decode(_readable(data, unread))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        unread.clear()
        raise ProtocolError(Reason.BODY_MALFORMED, problem) from None


class _AdvertisedId(msgspec.Struct, array_like=True):
    """As much of an advertisement as says which resource it is about."""

    id: Id


def _readable(data: bytes, unread: list[str]) -> bytes:
    """The same message without the advertisements that cannot be read; their resources are removed."""
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    added = msgspec.json.decode(fields.get("add", b"[]"), type=list[msgspec.Raw])
    if bytes(fields.get("say", b"")) != b'"told"' or len(added) > ADVERTISEMENTS_PER_BODY_MAX:
        return data
    remove = msgspec.json.decode(fields.get("remove", b"[]"), type=list[int])
    kept = []
    for raw in added:
        try:
            msgspec.json.decode(raw, type=AdvertisedResource)
            kept.append(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            unread.append(str(error))
            remove.append(msgspec.json.decode(raw, type=_AdvertisedId).id)
    return msgspec.json.encode({**fields, "add": kept, "remove": remove})
