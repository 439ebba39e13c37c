"""Stores on the wire: STORED frames, and the JSON that clients, `stores` services and stores send each other.

In:    fields; bytes from a peer, already bounded by their frame.
Out:   bytes and structs; ProtocolError(BODY_MALFORMED) if something does not fit.
State: none.
Not here: what stores do with these (stores/), what clients do with them (client/).

docs/reference/protocol.md §10 is the specification. A STORED frame goes from a store to one session: its topic is that
session's inbox, its origin the store's id, and its flags say what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise
from struct import Struct, pack, unpack_from
from typing import Annotated, Any, TypeVar

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.model.topics import INBOX_ROOT, is_inbox
from heliograph.wire.bodies import Body
from heliograph.wire.frames import BODY_BYTES, HEAD, Frame, Kind, check_size
from heliograph.wire.hearing import Hearing
from heliograph.wire.limits import FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX
from heliograph.wire.name_proofs import Proof
from heliograph.wire.requests import UNREADABLE, RequestTypes

STORES = b"stores"
"""The service at every broker that knows which store serves which topics, and passes requests on to stores."""
ADVERTISEMENT = b"Services/Stores/Advertisement"
WANTED = b"Services/Stores/Wanted"
FORGOTTEN = b"Services/Stores/Forgotten"
REQUEST = b"Services/Stores/Request/%016x"
MAIN = "main"
"""The log of the publications that a store has accepted, in its order."""

STORED_EVENT_BYTES_MAX = FRAME_BYTES_MAX - (1 << 13)  # a publication that still fits into a STORED frame
STORED_BYTES = 1 << 18  # publications in one STORED frame; a larger one goes alone
STORED_BYTES_BULK = 1 << 19  # the same for a reader whose window is large
SPAN = Struct("<IIQQ")  # channel, log, position of the reading before this frame, position after it
OFFSETS_MAX = 1 << 16  # publications in one STORED frame
WINDOW_MAX = 1 << 20  # publications that a channel may have under way
NAME_LENGTH_MAX = 128
PATTERNS_MAX = 64
PARTS_MAX = 4_096
PIECES_MAX = 1_024  # of a range, in one answer
TOLD_MAX = 1_024  # stores in one message of a neighbour
SELECTED_MAX = 1_024  # spans of a selective acknowledgement
TAKEN_MAX = 1 << 14  # times of storing in one notice
NUMBER_MAX = (1 << 62) - 1
_COUNTED_MAX = 1 << 14
_COUNTING = pack(f"<{_COUNTED_MAX}I", *range(_COUNTED_MAX))  # offsets if every publication matches


class StoredFlag(IntEnum):
    """Flags of a STORED frame; a frame without flags carries publications."""

    ANSWER = 1  # to a `stores` service: the answer to a request that it passed on
    REFUSAL = 2  # the request was refused
    ACK = 4  # to a publisher: everything up to ``sequence`` is durable
    NOTICE = 8  # about a channel


STORED_FLAGS_KNOWN = int(StoredFlag.ANSWER | StoredFlag.REFUSAL | StoredFlag.ACK | StoredFlag.NOTICE)

StoreId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@:-]{{0,{NAME_LENGTH_MAX - 1}}}")
Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]*\Z")
]
Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Moment = Annotated[int, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]  # µs since 1970
Channel = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Window = Annotated[int, msgspec.Meta(ge=1, le=WINDOW_MAX)]
Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]


class Quality(msgspec.Struct, frozen=True, array_like=True):
    """The header `$q` of a reliable publication: [store, previous] or [store, previous, publisher, batch, part]."""

    store: StoreId
    previous: Count  # the sequence of the publisher's last reliable publication for this store; 0: there is none
    publisher: str = ""  # with a batch: the publisher that makes it
    batch: int = 0
    part: str = ""


class StoreAdvertisement(Body, frozen=True):
    """How a store describes itself, every few seconds and when asked (on WANTED). Soft state."""

    store: StoreId
    name: str
    patterns: Annotated[list[Pattern], msgspec.Meta(max_length=PATTERNS_MAX)]
    inbox: str  # of the store's session: where directed publications (batches) go
    ttl_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)]  # 0: the store is stopping now
    broker: str = ""  # the name of its broker …
    address: str = ""  # … and the broker's address, for bulk readers; empty: unknown
    state: str = "open"  # "open"; otherwise the word of the reason why it accepts nothing now
    first: Count = 0  # first position of its log MAIN
    next: Count = 0


class Asked(Body, frozen=True):
    """A request as a `stores` service passes it on to a store, on REQUEST."""

    number: Count  # the service's number for it; the answer carries it
    to: str  # the service's inbox
    entity: str  # the requester, as proven to its broker
    roles: list[str]
    inbox: str  # of the requester
    body: msgspec.Raw  # one of the requests below, as the service encoded it
    source: Annotated[str, msgspec.Meta(max_length=256)] = ""  # the address that the requester's places count for
    hears: Hearing | None = None  # what the requester may hear, with `open` and `credit`; may publish, with `commit`


class StoreForgotten(Body, frozen=True):
    """A `stores` service tells the others, on FORGOTTEN, that a store will not come back."""

    store: StoreId


class ToldStore(Body, frozen=True):
    """A store, as one `stores` service knows it and tells another at a neighbour."""

    store: StoreAdvertisement
    left_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)]  # until the end of its advertisement, or of its hour
    away: bool = False  # it was there within the last hour


class ToldStores(Body, frozen=True):
    """What `stores` services of neighbours tell each other."""

    stores: Annotated[list[ToldStore], msgspec.Meta(max_length=TOLD_MAX)]


# What a client asks the service `stores` of its broker. All but the first two are passed on to the store in question.


class FindStores(Body, frozen=True, tag="find", tag_field="do"):
    """Find the stores that serve a topic (the best first: publishers use that one) or overlap a filter, or all."""

    topic: str = ""
    filter: str = ""


class ForgetStore(Body, frozen=True, tag="forget", tag_field="do"):
    """For administrators: this store is away and will not come back. Nobody waits for it any longer."""

    store: StoreId


class AttachPublisher(Body, frozen=True, tag="attach", tag_field="do"):
    """Sent before the first reliable publication at a broker: send acknowledgements to this client's inbox."""

    store: StoreId


class OpenChannel(Body, frozen=True, tag="open", tag_field="do"):
    """Begin or resume a durable subscription (with a name) or a replay (without) on one of the client's channels."""

    store: StoreId
    channel: Channel
    name: str = ""
    filter: str = "#"
    language: str = "topic"
    where: str = ""
    start: str = ""  # "first" | "next" | "": where it stopped; if new, "next" with a name, "first" without
    position: Count | None = None  # begin here instead …
    since_us: int | None = None  # … and not before the first publication stored at this time or later
    end: Count | None = None  # end before this position …
    until_us: int | None = None  # … or before the first publication stored later
    pace: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0  # 0: full speed; 1: original speed; 2: twice that
    window: Window = 1_000
    times: bool = False  # also tell when publications were stored
    whole: bool = False  # refuse, rather than leave out what the reader may not hear
    proof: Proof = ""  # of a client without credentials: that the name is its own …
    owner: Proof = ""  # … and with which other names it is listed


class GiveCredit(Body, frozen=True, tag="credit", tag_field="do"):
    """Everything before ``at`` has arrived; continue while fewer than ``window`` publications are under way."""

    store: StoreId
    channel: Channel
    at: Count
    window: Window = 1_000
    again: bool = False  # something was lost: send again from ``at`` on


class AckPositions(Body, frozen=True, tag="ack", tag_field="do"):
    """Acknowledge, for a durable subscription, everything before ``before`` and the spans [first, end) of ``also``."""

    store: StoreId
    name: Name
    before: Count
    also: Annotated[list[tuple[Count, Count]], msgspec.Meta(max_length=SELECTED_MAX)] = []
    proof: Proof = ""


class CloseChannel(Body, frozen=True, tag="close", tag_field="do"):
    """End a channel. A durable subscription keeps its position."""

    store: StoreId
    channel: Channel
    opened: Count = 0  # only if a `stores` service opened it under this number, as its requester has left; 0: always


class DropName(Body, frozen=True, tag="drop", tag_field="do"):
    """Forget a durable subscription."""

    store: StoreId
    name: Name
    proof: Proof = ""
    entity: str = ""  # whose it is, if an administrator asks; empty: the requester's own


class ReleaseName(Body, frozen=True, tag="release", tag_field="do"):
    """For administrators: take a name from the client without credentials that has it. The next to open it gets it."""

    store: StoreId
    name: Name


class ListLogs(Body, frozen=True, tag="logs", tag_field="do"):
    """The logs of a store, with positions and times."""

    store: StoreId


class MeasureLog(Body, frozen=True, tag="measure", tag_field="do"):
    """Divide the positions from ``start`` to ``end`` into pieces of at most so many bytes."""

    store: StoreId
    start: Count
    end: Count
    bytes: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
    most: Annotated[int, msgspec.Meta(ge=1, le=PIECES_MAX)] = PIECES_MAX  # pieces


class ListNames(Body, frozen=True, tag="names", tag_field="do"):
    """The requester's durable subscriptions (for an administrator: all of them), in pages."""

    store: StoreId
    after: str = ""  # "entity/name" of the last entry of the previous page
    owner: Proof = ""  # of a client without credentials


class CommitBatch(Body, frozen=True, tag="commit", tag_field="do"):
    """Make a batch visible: these parts, each with the number of publications that it must have."""

    store: StoreId
    publisher: Name
    batch: Count
    parts: Annotated[list[tuple[Name, Count]], msgspec.Meta(max_length=PARTS_MAX)]
    query: Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)] = ""  # what counts the batches, if it has an id
    once: bool = False  # the publisher's name is used for this batch only: the store need not remember it
    proof: Proof = ""  # of a client without credentials: that the publisher's name is its own


class ListBatches(Body, frozen=True, tag="batches", tag_field="do"):
    """The requester's batches that are staged and not committed (for an administrator: all of them), in pages."""

    store: StoreId
    after: str = ""  # "entity/publisher/batch" of the last entry of the previous page


class DropBatch(Body, frozen=True, tag="drop_batch", tag_field="do"):
    """Forget what is staged for a batch. Without credentials only administrators do that."""

    store: StoreId
    publisher: Name
    batch: Count
    entity: str = ""  # whose it is, if an administrator asks; empty: the requester's own


RequestToStore = (
    AttachPublisher
    | OpenChannel
    | GiveCredit
    | AckPositions
    | CloseChannel
    | DropName
    | ReleaseName
    | ListLogs
    | MeasureLog
    | ListNames
    | CommitBatch
    | ListBatches
    | DropBatch
)
StoreRequest = FindStores | ForgetStore | RequestToStore
REQUESTS: RequestTypes[StoreRequest] = RequestTypes(StoreRequest)
"""What both the service `stores` and a store decode with."""


# The answers.


class StoresFound(Body, frozen=True):
    """The answer to FindStores."""

    stores: list[StoreAdvertisement]
    away: list[StoreAdvertisement] = []  # known within the last hour, not there now; for a topic: if no store is there


class Attached(Body, frozen=True):
    """The answer to AttachPublisher: the store has everything up to this sequence; 0: the publisher is unknown."""

    have: Count
    inbox: str = ""  # of the store's session: where directed publications (batches) go now


class ChannelOpened(Body, frozen=True):
    """The answer to OpenChannel: where the reading begins, and what the log contains."""

    channel: Channel
    position: Count
    first: Count
    next: Count
    log: str = MAIN
    created: bool = False


class RequestDone(Body, frozen=True):
    """The answer to ForgetStore, AckPositions (durable by then), CloseChannel, DropName, ReleaseName, CommitBatch,
    DropBatch."""

    before: Count = 0  # AckPositions: everything before this is acknowledged
    batch: Count = 0  # CommitBatch: this publisher's last visible batch …
    position: Count = 0  # … and where it begins
    repeated: bool = False  # this batch, or a later one, was already committed: nothing changed


class LogEntry(Body, frozen=True):
    """One log of a store."""

    log: str
    first: Count
    next: Count
    bytes: Count
    first_us: int = 0
    last_us: int = 0


class LogsFound(Body, frozen=True):
    """The answer to ListLogs."""

    logs: list[LogEntry]
    counts: dict[str, int] = {}  # what the store has done since it started, and its current state


class LogMeasured(Body, frozen=True):
    """The answer to MeasureLog: pieces of whole runs, one after the other from ``start`` on.

    A piece is larger than asked for only if it is a single run.
    """

    pieces: list[tuple[Count, Count]]  # where each ends, and its bytes
    more: bool = False  # the last piece may go on, and others follow: ask again from its end


class NameEntry(Body, frozen=True):
    """One durable subscription."""

    entity: str
    name: str
    filter: str
    before: Count  # everything before this is acknowledged
    lag: Count  # positions from there to the end of the log; not all of them need to match
    connected: bool = False
    language: str = "topic"
    where: str = ""


class BatchEntry(Body, frozen=True):
    """A batch that is not committed."""

    entity: str
    publisher: str
    batch: Count
    parts: Count
    bytes: Count  # as they count in ``store.staged_bytes_max``
    sources: list[str] = []  # the addresses from which clients without credentials have staged it, as far as known


class BatchesFound(Body, frozen=True):
    """The answer to ListBatches. ``more``: ask again after the last entry."""

    batches: list[BatchEntry]
    more: bool = False


class NamesFound(Body, frozen=True):
    """The answer to ListNames. ``more``: ask again after the last entry."""

    names: list[NameEntry]
    more: bool = False


# The payloads of STORED frames with the flags ACK and NOTICE.


class Acknowledged(Body, frozen=True):
    """In an ACK that says more than its sequence."""

    missing: Count = 0  # repeat everything after the frame's sequence, up to and including this one
    refused: list[tuple[Count, int]] = []  # publications that are not stored: (sequence, code)
    state: str = "open"  # as in StoreAdvertisement: why nothing is accepted now


class Notice(Body, frozen=True):
    """About a channel. ``code`` 0 without a gap and without times: it has reached its end."""

    channel: Channel
    next: Count  # the current position of the reading
    gap: tuple[Count, Count] | None = None  # these positions [first, end) cannot be read; the reading continues
    code: int = 0  # why the channel was closed, or why there is a gap
    text: str = ""
    taken: Annotated[list[tuple[Count, Moment]], msgspec.Meta(max_length=TAKEN_MAX)] = []
    """If the reader asked for times: (position, µs since 1970) for the next frame, each until the next position."""


_encoder = msgspec.json.Encoder()
_B = TypeVar("_B", bound=msgspec.Struct)
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def encode(body: Body) -> bytes:
    """A body as JSON."""
    return _encoder.encode(body)


def decode(kind: type[_B], data: bytes) -> _B:
    """JSON as a body of this type."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        body: _B = decoder.decode(data)
    except UNREADABLE as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
    return body


def stored(
    inbox: bytes,
    store: int,
    sequence: int = 0,
    payload: bytes | Sequence[bytes] = b"",
    headers: bytes = b"",
    flags: int = 0,
) -> bytes:
    """A STORED frame; its payload may come in pieces. OverflowError if its receiver would not accept it."""
    pieces = (payload,) if isinstance(payload, bytes) else payload
    length = BODY_BYTES + len(inbox) + len(headers) + sum(map(len, pieces))
    check_size(length)
    head = HEAD.pack(length, Kind.STORED, flags, len(inbox), store, sequence, len(headers))
    return b"".join((head, inbox, headers, *pieces))


def span(channel: int, before: int, after: int, offsets: Sequence[int], log: int = 0) -> bytes:
    """The headers of a STORED frame with publications: each one's position is ``before`` plus its offset."""
    return SPAN.pack(channel, log, before, after) + (_counted(offsets) or pack(f"<{len(offsets)}I", *offsets))


def _counted(offsets: Sequence[int]) -> bytes | None:
    """Consecutive offsets as bytes: a slice of a constant. None if they are not consecutive."""
    count = len(offsets)
    first = offsets[0] if count else 0
    if first + count > _COUNTED_MAX or not count or offsets[-1] - first != count - 1:
        return None  # they are ascending, so first and last suffice
    return _COUNTING[4 * first : 4 * (first + count)]


def span_of(frame: Frame) -> tuple[int, int, int, Sequence[int]]:
    """(channel, before, after, offsets) of a STORED frame; ProtocolError if they do not fit each other.

    Consecutive offsets, the usual case, are a range.
    """
    headers = frame.headers
    count, odd = divmod(len(headers) - SPAN.size, 4)
    if odd or count < 0:
        raise ProtocolError(Reason.BODY_MALFORMED, "a stored frame whose offsets do not fit its bytes")
    channel, _, before, after = SPAN.unpack_from(headers)
    first = unpack_from("<I", headers, SPAN.size)[0] if count else 0
    offsets: Sequence[int] = range(first, first + count)
    counts_up = headers[SPAN.size :] == _COUNTING[4 * first : 4 * (first + count)]
    if not counts_up:
        offsets = unpack_from(f"<{count}I", headers, SPAN.size)
    if after < before or (not counts_up and any(late <= early for early, late in pairwise(offsets))):
        raise ProtocolError(Reason.BODY_MALFORMED, "a stored frame whose positions do not rise")
    if offsets and before + offsets[-1] >= after:
        raise ProtocolError(Reason.BODY_MALFORMED, "a stored frame whose positions lie beyond its end")
    return channel, before, after, offsets


def check_name(name: str) -> None:
    """ProtocolError if this is not a valid name for a durable subscription."""
    if _NAME.fullmatch(name) is None:
        text = f"a name has at most {NAME_LENGTH_MAX} letters, digits and . _ @ : -, the first a letter or digit"
        raise ProtocolError(Reason.BODY_MALFORMED, text)


def inbox_of(text: str) -> bytes | None:
    """A text as an inbox topic; None if it is not one."""
    return text.encode() if is_inbox(text) else None


assert STORED_EVENT_BYTES_MAX > PAYLOAD_BYTES_MAX, "the largest payload can be stored"
assert INBOX_ROOT == b"Inbox"
