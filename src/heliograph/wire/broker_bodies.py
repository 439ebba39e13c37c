"""Bodies between brokers: the records of the network map and of interests, as they travel.

In:    JSON bytes from a linked broker.
Out:   structs; ProtocolError(BODY_MALFORMED) if the JSON does not fit.
State: none.
Not here: frame heads (wire/frames.py), how records are used (broker/routing/map.py, interests.py).

Some names on the wire are older than those in the code: `speaker` is the leader, `lives` are incarnations, and a WAVE
frame carries a barrier.

A record is identified by its broker and replaced by a newer one: higher incarnation, then higher number. It is passed
on to other brokers unchanged, as the bytes that were received.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import ENTITY_LENGTH_MAX, ENTITY_PATTERN
from heliograph.wire.bodies import Body, Network
from heliograph.wire.limits import ADDRESS_LENGTH_MAX, AGE_MAX, COST_MAX, LINKS_PER_BROKER_MAX, TRACE_MAX

INTERESTS_PER_BODY_MAX = 500  # fits a frame, whatever the filters are
SYNC_PER_BODY_MAX = 500  # items offered or asked for at once
ID_MAX = (1 << 64) - 1
MEMBERS_MAX = 64  # brokers of a cluster: slots 0 to 63, the bits of a parcel's member mask

What = Literal["member", "gateway", "narrow", "wide"]
"""A record of the map, or an interest of a broker or of a part of a cluster."""

Id = Annotated[int, Meta(ge=0)]
"""The id of a broker. The functions below check that it has 64 bits: the decoder can only check 63."""
Age = Annotated[int, Meta(ge=0, le=AGE_MAX)]
Cost = Annotated[int, Meta(ge=0, le=COST_MAX)]
Name = Annotated[str, Meta(max_length=ENTITY_LENGTH_MAX, pattern=ENTITY_PATTERN)]
Links = Annotated[dict[Id, Cost], Meta(max_length=LINKS_PER_BROKER_MAX)]
Incarnations = Annotated[dict[Id, Age], Meta(max_length=LINKS_PER_BROKER_MAX)]
Address = Annotated[str, Meta(max_length=ADDRESS_LENGTH_MAX)]
Slot = Annotated[int, Meta(ge=0, lt=MEMBERS_MAX)]


class Member(Body, frozen=True, tag="member", tag_field="record", rename={"incarnations": "lives"}):
    """A broker as its own cluster knows it. Sent within the cluster only."""

    broker: Id
    name: Name
    cluster: Name
    slot: Slot
    epoch: Annotated[
        int, Meta(ge=0, le=0xFFFF)
    ]  # raised when a slot gets another owner, so that an old member mask is not misread
    incarnation: Age
    number: Age
    links: Links  # neighbour in this cluster -> cost
    address: Address = ""  # where clients dial it
    incarnations: Incarnations = {}  # of neighbours; a record of an earlier one does not confirm the link

    @property
    def age(self) -> tuple[int, int]:
        """The greater is newer."""
        return (self.incarnation, self.number)


class Gateway(
    Body, frozen=True, tag="gateway", tag_field="record", rename={"leader": "speaker", "incarnations": "lives"}
):
    """A broker with links into other clusters, as the whole network knows it."""

    broker: Id
    name: Name
    cluster: Name
    leader: Id  # of the connected part of the cluster to which this broker belongs
    incarnation: Age
    number: Age
    outside: Links  # neighbour in another cluster -> cost
    inside: Links  # other gateway of the same part of the cluster -> cost
    address: Address = ""  # where clients dial it
    incarnations: Incarnations = {}  # of neighbours; a record of an earlier one does not confirm the link

    @property
    def age(self) -> tuple[int, int]:
        """The greater is newer."""
        return (self.incarnation, self.number)


Told = str | tuple[str, str, str]
"""What is wanted: a topic filter, or a topic filter with the language and text of a condition."""
T = TypeVar("T")
Some = Annotated[list[T], Meta(max_length=INTERESTS_PER_BODY_MAX)]


class Interest(Body, frozen=True):
    """What a broker (or a part of a cluster, represented by its leader) wants: a change, or a full snapshot.

    Changes are numbered consecutively. A snapshot (``full``) may come in several bodies, of which all but the last
    say ``more``.
    """

    owner: Id
    wide: bool  # False: of one broker, sent within its cluster; True: of a part of a cluster, sent everywhere
    incarnation: Age
    number: Age
    full: bool = False
    more: bool = False
    total: Age = 0  # in the last of several bodies: how many interests they contain together
    add: Some[Told] = []
    remove: Some[Told] = []
    add_listening: Some[Told] = []  # these answer no request: stores and monitors
    remove_listening: Some[Told] = []
    add_groups: Some[tuple[Told, str]] = []  # what is wanted, and the group
    remove_groups: Some[tuple[Told, str]] = []

    @property
    def age(self) -> tuple[int, int]:
        """The greater is newer."""
        return (self.incarnation, self.number)


class Sync(Body, frozen=True):
    """What the sender has, so that the receiver can ask for what it lacks; or what the sender asks for in full."""

    has: Annotated[
        list[tuple[What, Id, Age, Age]], Meta(max_length=SYNC_PER_BODY_MAX)
    ] = []  # kind, owner, incarnation, number
    wants: Annotated[list[tuple[What, Id]], Meta(max_length=SYNC_PER_BODY_MAX)] = []


class LinkUp(Body, frozen=True):
    """The first frame of a broker that dials another, and the answer to it."""

    versions: list[int]
    broker: Id
    name: Name
    cluster: Annotated[
        str, Meta(max_length=ENTITY_LENGTH_MAX, pattern=rf"{ENTITY_PATTERN}|^\Z")
    ]  # empty: not in a cluster yet
    incarnation: Age
    nonce: str  # hex, fresh for this link
    network: Network = ""  # the network's name; brokers of different networks do not link
    renews: bool = False  # in a LINK: it takes the place of the link that these brokers have, without loss


class Proof(Body, frozen=True):
    """Proof that a broker has the network key: of the one that dialled, and then of the other."""

    proof: str


class BarrierBody(Body, frozen=True):
    """A barrier: every broker in reach answers the neighbour it came from, once all neighbours that it asked have
    answered."""

    broker: Id  # the broker that started it
    number: Age
    wide: bool  # False: within the cluster
    answer: bool = False
    told: tuple[Id, Age, Age] = (0, 0, 0)  # leader, incarnation, number of an interest: already told, or to wait for


class Mark(Body, frozen=True, rename={"leader": "speaker"}):
    """Asks for an answer once everything that the sender sent before has arrived. It follows that in a parcel."""

    broker: Id
    leader: Id  # of its part of its cluster


class Marked(Body, frozen=True, rename={"leader": "speaker"}):
    """The answer to a MARK, from a broker where it has arrived, back along its path."""

    broker: Id  # the broker that asked
    leader: Id
    by: Id  # the broker that answers
    ttl: Annotated[int, Meta(ge=0, le=0xFF)]
    way: Annotated[list[Id], Meta(max_length=TRACE_MAX)] = []  # brokers that the MARK passed; the last is next


class HoldOrigin(Body, frozen=True):
    """Asks a broker to read no more from one of its clients for now (HOLD), or to go on (RELEASE): a consumer at the
    asking broker is slow. It goes back along the path of the client's publications."""

    broker: Id  # where they entered the network, or this cluster
    by: Id  # the broker that asks
    origin: Id  # of the publications
    ttl: Annotated[int, Meta(ge=0, le=0xFF)]
    way: Annotated[list[Id], Meta(max_length=TRACE_MAX)] = []  # brokers that the publications passed; the last is next


Record = Member | Gateway


def broker_id(name: str) -> int:
    """A broker's id, computed from its name: names are unique in a network."""
    return int.from_bytes(sha256(b"heliograph broker " + name.encode()).digest()[:8], "little")


_encode = msgspec.json.Encoder().encode
_records = msgspec.json.Decoder(Record)


def encode(body: Body) -> bytes:
    """A body as JSON."""
    return _encode(body)


def decode_record(data: bytes) -> Record:
    """JSON as a record."""
    record: Record = decode_with(_records, data)
    if not record.address.isprintable():
        raise ProtocolError(Reason.BODY_MALFORMED, "an address that cannot be printed")
    if isinstance(record, Member):
        _check_ids(record.broker, 0, *record.links, *record.incarnations)
        return record
    _check_ids(record.broker, record.leader, *record.outside, *record.inside, *record.incarnations)
    return record


_interests = msgspec.json.Decoder(Interest)
_syncs = msgspec.json.Decoder(Sync)
_link_ups = msgspec.json.Decoder(LinkUp)
_proofs = msgspec.json.Decoder(Proof)
_barriers = msgspec.json.Decoder(BarrierBody)
_marks = msgspec.json.Decoder(Mark)
_markeds = msgspec.json.Decoder(Marked)
_holds = msgspec.json.Decoder(HoldOrigin)


def decode_interest(data: bytes) -> Interest:
    """JSON as an interest."""
    interest: Interest = decode_with(_interests, data)
    _check_ids(interest.owner, 0)
    return interest


def decode_sync(data: bytes) -> Sync:
    """JSON as a sync."""
    sync: Sync = decode_with(_syncs, data)
    _check_ids(0, 0, *(item[1] for item in sync.has), *(item[1] for item in sync.wants))
    return sync


def decode_link_up(data: bytes) -> LinkUp:
    """JSON as the first frame of a broker."""
    link_up: LinkUp = decode_with(_link_ups, data)
    _check_ids(link_up.broker, 0)
    if not link_up.nonce.isalnum():  # otherwise a proof for one pair of nonces could be valid for another
        raise ProtocolError(Reason.BODY_MALFORMED, "a nonce is hexadecimal")
    return link_up


def decode_proof(data: bytes) -> Proof:
    """JSON as a proof."""
    proof: Proof = decode_with(_proofs, data)
    return proof


def decode_barrier(data: bytes) -> BarrierBody:
    """JSON of a WAVE frame as a barrier."""
    barrier: BarrierBody = decode_with(_barriers, data)
    _check_ids(barrier.broker, barrier.told[0])
    return barrier


def decode_mark(data: bytes) -> Mark:
    """JSON as a mark."""
    mark: Mark = decode_with(_marks, data)
    _check_ids(mark.broker, mark.leader)
    return mark


def decode_marked(data: bytes) -> Marked:
    """JSON as the answer to a mark."""
    marked: Marked = decode_with(_markeds, data)
    _check_ids(marked.broker, marked.leader, marked.by, *marked.way)
    return marked


def decode_hold(data: bytes) -> HoldOrigin:
    """JSON as the body of a HOLD or RELEASE."""
    hold: HoldOrigin = decode_with(_holds, data)
    _check_ids(hold.broker, hold.by, hold.origin, *hold.way)
    return hold


def _check_ids(*ids: int) -> None:
    """ProtocolError if an id is out of range. At least two ids, because ``max`` needs them."""
    if max(ids) > ID_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, "a broker's id has 64 bits")


def decode_with(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    """Decode JSON; ProtocolError if it does not fit."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
