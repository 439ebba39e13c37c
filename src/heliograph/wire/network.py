"""Bodies between brokers: the records of the network map and of interests, as they travel.

In:    JSON bytes from a linked broker.
Out:   structs; ProtocolError(BODY_MALFORMED) where the JSON does not fit.
State: none.
Not here: frame heads (wire/frames.py), what is made of records (broker/routing/map.py, interests.py).

A record is known by its broker and replaced by one that is newer: higher incarnation, then higher number. It is passed
on to other brokers as the bytes that came.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.wire.bodies import Body

INTERESTS_PER_BODY_MAX = 500  # well within a frame, whatever the filters are
SYNC_PER_BODY_MAX = 500  # things that are offered or asked for at once
NOWHERE = -1  # not at one place
MEMBERS_MAX = 64  # brokers of a cluster: slots 0 to 63, the bits of a parcel's member mask

What = Literal["member", "gateway", "narrow", "wide"]
"""A record of the map, or an interest of a broker or of a part of a cluster."""


class Member(Body, frozen=True, tag="member", tag_field="record"):
    """A broker as its own cluster knows it. Told within the cluster only."""

    broker: int
    name: str
    cluster: str
    slot: int
    epoch: int  # raised when a slot changes hands, so that an old member mask is not misread
    incarnation: int
    number: int
    links: dict[int, int]  # neighbour in this cluster -> cost
    address: str = ""  # where clients dial it
    lives: dict[int, int] = {}  # neighbour -> its incarnation: a record of an earlier life does not confirm the link

    @property
    def age(self) -> tuple[int, int]:
        """The greater is newer."""
        return (self.incarnation, self.number)


class Gateway(Body, frozen=True, tag="gateway", tag_field="record"):
    """A broker with links into other clusters, as the whole network knows it."""

    broker: int
    name: str
    cluster: str
    speaker: int  # the broker that speaks for the connected part of the cluster in which this one is
    incarnation: int
    number: int
    outside: dict[int, int]  # neighbour in another cluster -> cost
    inside: dict[int, int]  # other gateway of the same part of the cluster -> cost
    address: str = ""  # where clients dial it
    lives: dict[int, int] = {}  # neighbour -> its incarnation: a record of an earlier life does not confirm the link
    near: int = 0  # its district: a bit for each slot whose broker has no nearer gateway

    @property
    def age(self) -> tuple[int, int]:
        """The greater is newer."""
        return (self.incarnation, self.number)


Told = str | tuple[str, str, str]
"""What is wanted: a topic filter, or a topic filter with the language and text of a condition."""


class Interest(Body, frozen=True):
    """What a broker (or, spoken by one of its brokers, a part of a cluster) wants: a change, or all of it anew.

    A change has the number that follows the one before it. A snapshot (``full``) may come in several bodies, of which
    all but the last say ``more``.
    """

    owner: int
    wide: bool  # False: of one broker, told within its cluster; True: of a part of a cluster, told everywhere
    incarnation: int
    number: int
    full: bool = False
    more: bool = False
    add: list[Told] = []
    at: list[int] = []  # for each of these the slot of the member that wants it, if it is one only; else NOWHERE
    remove: list[Told] = []
    add_groups: list[tuple[Told, str]] = []  # what is wanted, and the group
    remove_groups: list[tuple[Told, str]] = []

    @property
    def age(self) -> tuple[int, int]:
        """The greater is newer."""
        return (self.incarnation, self.number)


class Sync(Body, frozen=True):
    """What the sender has, so that the receiver can ask for what it lacks; or what the sender wants in full."""

    has: list[tuple[What, int, int, int]] = []  # what, whose, incarnation, number
    wants: list[tuple[What, int]] = []


class LinkUp(Body, frozen=True):
    """The first frame of a broker that dials another, and the answer to it."""

    versions: list[int]
    broker: int
    name: str
    cluster: str  # empty: not placed yet
    incarnation: int
    nonce: str  # hex, fresh for this link
    proof: str = ""  # in the answer, with a network key: that the answering broker has it


class Proof(Body, frozen=True):
    """The dialling broker's proof that it has the network key."""

    proof: str


class Wave(Body, frozen=True):
    """A question that every broker in reach answers to the one it heard it from, once all it asked have answered."""

    broker: int  # who started it
    number: int
    wide: bool  # False: within the cluster
    answer: bool = False
    told: tuple[int, int, int] = (0, 0, 0)  # speaker, incarnation, number of an interest: told, or to be waited for


Record = Member | Gateway

_encode = msgspec.json.Encoder().encode
_records = msgspec.json.Decoder(Record)


def encode(body: Body) -> bytes:
    """Any of these as JSON."""
    return _encode(body)


def decode_record(data: bytes) -> Record:
    """JSON as a record."""
    record: Any = decode_with(_records, data)
    if isinstance(record, Gateway) and not 0 <= record.near < 1 << MEMBERS_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, f"a district has slots 0..{MEMBERS_MAX - 1}")
    if isinstance(record, Member) and not 0 <= record.slot < MEMBERS_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, f"slot {record.slot} is not in 0..{MEMBERS_MAX - 1}")
    found: Record = record
    return found


_interests = msgspec.json.Decoder(Interest)
_syncs = msgspec.json.Decoder(Sync)
_link_ups = msgspec.json.Decoder(LinkUp)
_proofs = msgspec.json.Decoder(Proof)
_waves = msgspec.json.Decoder(Wave)


def decode_interest(data: bytes) -> Interest:
    """JSON as an interest."""
    interest: Interest = decode_with(_interests, data)
    return interest


def decode_sync(data: bytes) -> Sync:
    """JSON as a sync."""
    sync: Sync = decode_with(_syncs, data)
    return sync


def decode_link_up(data: bytes) -> LinkUp:
    """JSON as the first frame of a broker."""
    link_up: LinkUp = decode_with(_link_ups, data)
    return link_up


def decode_proof(data: bytes) -> Proof:
    """JSON as a proof."""
    proof: Proof = decode_with(_proofs, data)
    return proof


def decode_wave(data: bytes) -> Wave:
    """JSON as a wave."""
    wave: Wave = decode_with(_waves, data)
    return wave


def decode_with(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    """JSON through a decoder; what does not fit is the peer's fault."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
