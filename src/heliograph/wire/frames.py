"""Frames: the layout of everything that crosses a link, and how to write it.

In:    fields.
Out:   bytes; and the Structs with which scans read them.
State: none.
Not here: cutting a stream into frames (wire/scan.py), the JSON bodies (wire/bodies.py).

Every frame begins with the same 28 bytes, little endian (docs/reference/protocol.md is the specification):

    u32 length          of what follows these four bytes
    u8  kind
    u8  flags
    u16 topic length
    u64 origin
    u64 sequence
    u32 header length
    topic | headers | payload

An EVENT uses all fields. A control frame has a JSON payload, and its request number as sequence. A DELIVERY has the
receiver's subscription numbers (u32 each) as headers, the number of publications that the link has lost so far as
origin, and whole EVENT frames as payload. A PARCEL, between brokers, is a hop prefix with whole frames. It uses the
same bytes differently: ttl for flags, cluster epoch for topic length, member mask for origin, parcel number for
sequence.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, pack, unpack_from

from heliograph.errors import ProtocolError, Reason
from heliograph.wire.limits import CLUSTERS_MAX, FRAME_BYTES_MAX, GROUPS_MAX, HEAD_BYTES, TRACE_MAX

HEAD = Struct("<IBBHQQI")
SCAN = Struct("<IIQQI")  # the same bytes with kind, flags and topic length as one word, to compare them at once
LENGTH = Struct("<I")
ORIGIN = SEQUENCE = Struct("<Q")  # at offsets 8 and 16
HOP_COUNTS = Struct("<HHI")  # clusters, brokers in the trace, groups
BODY_BYTES = HEAD_BYTES - 4  # what ``length`` counts before topic, headers and payload
VERSION = 1


class Kind(IntEnum):
    """Kinds of frames: 1-15 carry publications and services, 16-31 client and broker, 32-47 broker and broker."""

    EVENT = 1
    PARCEL = 2
    DELIVERY = 3
    SERVICE = 4
    STORED = 5
    HELLO = 16
    WELCOME = 17
    GOODBYE = 18
    PING = 19
    PONG = 20
    SUBSCRIBE = 21
    UNSUBSCRIBE = 22
    CONFIRMED = 23
    REFUSED = 24
    LINK = 32
    LINKED = 33
    PROOF = 34
    MAP = 35
    INTEREST = 36
    SYNC = 37
    COUNT = 38
    WAVE = 39
    TRACE = 40
    TRACED = 41
    MARK = 42
    MARKED = 43
    HOLD = 44
    RELEASE = 45


class Flag(IntEnum):
    """Flags of an EVENT. A frame with a flag that its broker does not know is refused."""

    PACKED = 1  # many events of one topic under one head: reserved
    FOREIGN = 2  # the id was assigned elsewhere (a gateway, a peer): reserved
    EXPIRES = 4  # the headers carry an expiry, so brokers read them
    DIRECTED = 8  # the headers carry an explicit list of destinations: it goes only to them
    REQUEST = 16  # the headers carry a reply topic; without subscribers the publisher is told at once
    REPEAT = 32  # a reliable publication sent again: brokers that have seen it pass it only to stores


class ServiceFlag(IntEnum):
    """Flags of a SERVICE frame."""

    ANSWER = 1
    REFUSAL = 2  # the request was refused: the payload is a Refusal
    NEIGHBOUR = 4  # from a service to the same service at a linked broker; on a pipe, the origin is that link
    NEWS = 8  # from a service to a client, of the watch with this number; on a pipe, the origin is the client's link


EVENT_FLAGS_KNOWN = Flag.EXPIRES | Flag.DIRECTED | Flag.REQUEST | Flag.REPEAT


def event(topic: bytes, payload: bytes, origin: int, sequence: int, headers: bytes = b"", flags: int = 0) -> bytes:
    """An EVENT frame."""
    topic_length, header_length = len(topic), len(headers)
    head = HEAD.pack(
        BODY_BYTES + topic_length + header_length + len(payload),
        1,
        flags,
        topic_length,
        origin,
        sequence,
        header_length,
    )
    return head + topic + headers + payload


def control(kind: Kind, number: int = 0, body: bytes = b"") -> bytes:
    """A control frame with its JSON body; ``number`` ties an answer to its request."""
    return HEAD.pack(BODY_BYTES + len(body), kind, 0, 0, 0, number, 0) + body


def service(name: bytes, body: bytes, number: int, asker: int = 0, headers: bytes = b"", flags: int = 0) -> bytes:
    """A SERVICE frame: a request to the service of that name, or its answer. The broker fills in ``asker``.

    OverflowError if the frame is larger than a receiver accepts: that costs the request, and not the link.
    """
    length = BODY_BYTES + len(name) + len(headers) + len(body)
    check_size(length)
    return HEAD.pack(length, Kind.SERVICE, flags, len(name), asker, number, len(headers)) + name + headers + body


def check_size(length: int) -> None:
    """OverflowError for a frame that its receiver would not accept."""
    if length + 4 > FRAME_BYTES_MAX:
        raise OverflowError(f"a frame of {length + 4} bytes; at most {FRAME_BYTES_MAX} are accepted")


def delivery(numbers: bytes, size: int, dropped: int) -> bytes:
    """The prefix of a DELIVERY whose frames have ``size`` bytes; ``numbers`` are packed u32s."""
    return HEAD.pack(BODY_BYTES + len(numbers) + size, Kind.DELIVERY, 0, 0, dropped, 0, len(numbers)) + numbers


def hop_headers(clusters: tuple[int, ...], trace: tuple[int, ...], groups: tuple[int, ...]) -> bytes:
    """The headers of a PARCEL: its cluster parts, trace and groups, all 64-bit ids."""
    assert len(clusters) <= CLUSTERS_MAX
    assert len(trace) <= TRACE_MAX
    assert len(groups) <= GROUPS_MAX
    ids = clusters + trace + groups
    return HOP_COUNTS.pack(len(clusters), len(trace), len(groups)) + pack(f"<{len(ids)}Q", *ids)


def parcel(
    size: int,
    ttl: int,
    epoch: int,
    members: int,
    number: int,
    clusters: tuple[int, ...] = (),
    trace: tuple[int, ...] = (),
    groups: tuple[int, ...] = (),
) -> bytes:
    """The hop prefix of a PARCEL whose frames have ``size`` bytes; clusters, trace and groups are 64-bit ids."""
    hops = hop_headers(clusters, trace, groups)
    return HEAD.pack(BODY_BYTES + len(hops) + size, Kind.PARCEL, ttl, epoch, members, number, len(hops)) + hops


def hops_of(frame: Frame) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The clusters, trace and groups of a PARCEL. ProtocolError if its counts do not fit its bytes."""
    headers = frame.headers
    if len(headers) < HOP_COUNTS.size:
        raise ProtocolError(Reason.BODY_MALFORMED, "a parcel without counts")
    clusters, trace, groups = HOP_COUNTS.unpack_from(headers)
    if clusters > CLUSTERS_MAX or trace > TRACE_MAX or groups > GROUPS_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, "a parcel with too many targets or hops")
    count = clusters + trace + groups
    if len(headers) != HOP_COUNTS.size + 8 * count:
        raise ProtocolError(Reason.BODY_MALFORMED, "a parcel whose counts do not fit its bytes")
    ids = unpack_from(f"<{count}Q", headers, HOP_COUNTS.size)
    return ids[:clusters], ids[clusters : clusters + trace], ids[clusters + trace :]


class Frame:
    """One parsed frame. For the slow path, clients and tests; the fast path is wire/scan.py."""

    __slots__ = ("epoch", "flags", "headers", "kind", "origin", "payload", "raw", "sequence", "topic")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        _, self.kind, self.flags, topic_length, self.origin, self.sequence, header_length = HEAD.unpack_from(raw)
        self.epoch = topic_length  # the meaning of this field in a PARCEL
        top = HEAD_BYTES + (0 if self.kind == Kind.PARCEL else topic_length)
        self.topic = raw[HEAD_BYTES:top]
        self.headers = raw[top : top + header_length]
        self.payload = raw[top + header_length :]
