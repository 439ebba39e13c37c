"""Messages: what searches, directories and brokers send to each other, in datagrams, on topics and on links.

In:    fields, or bytes from any sender.
Out:   bytes, or a Message; ProtocolError if the bytes are not one.
State: none.
Not here: which senders may send what (responder.py, directory.py), signatures (signing.py), when messages are sent.
Paper: [brokers] §2.2, §3, §5.1.

A message is 26 bytes of head, little endian, a MessagePack map, perhaps a chain of certificates, and zeros up to the
size its kind asks for:

    3s magic "HGD"   u8 version   u8 kind   u8 flags   u16 length of the body   u16 of the chain   16s cookie

The cookie shows that the sender receives what is sent to its address. A datagram that asks for an answer is at least as
long as any answer that an unproven address gets, so that an attacker cannot use us to amplify its traffic. The
specification, with bytes to compare, is docs/reference/discovery.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from hashlib import sha256
from struct import Struct
from typing import Annotated, TypeVar

import msgspec

from heliograph.discovery.cookies import COOKIE_BYTES
from heliograph.discovery.signed_bodies import SEALED, SIGNED
from heliograph.errors import ProtocolError, Reason
from heliograph.wire.bodies import Network
from heliograph.wire.frames import Kind
from heliograph.wire.limits import HEAD_BYTES
from heliograph.wire.requests import RequestTypes

HEAD = Struct("<3sBBBHH16s")
MAGIC = b"HGD"
VERSION = 1
NO_COOKIE = bytes(COOKIE_BYTES)
DATAGRAM_BYTES_MAX = 1_232  # what every IPv6 path carries unfragmented: 1,280 less the IPv6 and UDP headers
LINK_BYTES_MAX = 16_384  # on topics and links, where a chain of certificates fits too
PING_BYTES = 320  # a PONG with the longest name is shorter
CHALLENGE_BYTES = 128  # three times this fits a signed request with its cookie, which answers a challenge
RESPONSE_BYTES = 640  # three times this fits six pings: a search may lose this many before the first pong
LIFETIME_S_MAX = 600  # of a broker advertisement: a directory forgets a broker that is silent for longer

DIRECTORY_NAME = b"bdn"  # of the SERVICE frames that carry messages on a directory's links
DIRECTORY_FRAMES: Mapping[int, int] = {
    Kind.SERVICE: HEAD_BYTES + HEAD.size + len(DIRECTORY_NAME) + LINK_BYTES_MAX,
}

REQUEST_TOPIC = b"Services/BrokerDiscoveryNodes/DiscoveryRequest"
ADVERTISEMENT_TOPIC = b"Services/BrokerDiscoveryNodes/BrokerAdvertisement"
ANNOUNCEMENT_TOPIC = b"Services/BrokerDiscoveryNodes/Announcement"
RELAY_TOPIC = b"Services/BrokerDiscoveryNodes/Relay/"  # followed by the directory's name

ON_TOPIC = "topic"  # in a SPREAD: relayed answers go to RELAY_TOPIC

LANDMARKS_MAX = 8  # distances in one message
ISLANDS_MAX = 2  # former islands that a broker reports
LISTED_MAX = 64  # brokers that an acknowledgement lists: more than answers are wanted
MARK_BYTES = 4

Name = Annotated[str, msgspec.Meta(max_length=128)]
Host = Annotated[str, msgspec.Meta(max_length=128)]
Word = Annotated[str, msgspec.Meta(max_length=64)]
Island = Annotated[str, msgspec.Meta(max_length=32)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Stamp = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
Id = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Ports = Annotated[dict[Annotated[str, msgspec.Meta(max_length=8)], Port], msgspec.Meta(max_length=4)]
Distances = Annotated[
    dict[Host, Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]], msgspec.Meta(max_length=LANDMARKS_MAX)
]
Addresses = Annotated[list[Host], msgspec.Meta(max_length=LANDMARKS_MAX)]
Attempt = Annotated[int, msgspec.Meta(ge=1, le=64)]
Whole = Annotated[bytes, msgspec.Meta(max_length=LINK_BYTES_MAX)]


class MessageKind(IntEnum):
    """Kinds of messages. Numbers are part of the protocol."""

    ADVERTISEMENT = 1  # broker -> directory
    REQUEST = 2  # requester -> directory or broker
    CHALLENGE = 3  # "present this cookie"
    ACKNOWLEDGEMENT = 4  # directory -> requester
    RESPONSE = 5  # broker -> requester
    PING = 6
    PONG = 7
    ANNOUNCEMENT = 8  # private directory -> brokers
    SPREAD = 9  # directory or broker -> brokers: a request whose address is proven
    RELAY = 10  # broker -> directory -> requester: a response that may not arrive directly
    CERTIFICATE_REQUEST = 11  # "whose certificate has this hash?"
    CERTIFICATE = 12
    LANDMARKS = 13  # directory -> broker: "how far are you from these?"


class MessageFlag(IntFlag):
    """Flags of a message."""

    SIGNED = SIGNED  # the body is in a signed envelope (trust/envelope.py)
    SEALED = SEALED  # and that, or the body, is sealed for its receiver (trust/sealing.py)


FLAGS_KNOWN = int(MessageFlag.SIGNED | MessageFlag.SEALED)
SHORTEST = {
    MessageKind.REQUEST: CHALLENGE_BYTES,  # larger to the multicast group: see GROUP_BYTES
    MessageKind.CHALLENGE: CHALLENGE_BYTES,
    MessageKind.RESPONSE: RESPONSE_BYTES,
    MessageKind.CERTIFICATE_REQUEST: DATAGRAM_BYTES_MAX,
    MessageKind.PING: PING_BYTES,
    MessageKind.ADVERTISEMENT: PING_BYTES,  # it is answered by a ping
}
"""The minimum size of datagrams that ask for something."""
GROUP_BYTES = DATAGRAM_BYTES_MAX  # of a REQUEST to the multicast group, which each broker answers with a challenge


class MessageBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all bodies. Unknown fields are ignored, so that newer senders can add fields."""


class Usage(MessageBody, frozen=True):
    """How busy a broker is."""

    connections: Count = 0  # sessions of clients
    links: Count = 0  # to other brokers
    cpu_permille: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 0
    memory_total: Count = 0  # bytes; 0: not known
    memory_used: Count = 0


class BrokerAdvertisement(MessageBody, frozen=True):
    """How a broker describes itself. The newest counts: by incarnation, then by number."""

    broker: Name
    incarnation: Count
    number: Count
    lifetime_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)]
    host: Host = ""  # "": the address that you see
    ports: Ports = {}  # by transport: tcp, tls, udp (discovery)
    address: Word = ""  # in the hierarchy: cluster/slot
    island: Island = ""  # a name shared by all brokers that are linked to each other, directly or not
    brokers: Count = 1  # how many there are on the island, as far as this one knows
    geography: Word = ""
    institution: Word = ""
    withdrawn: bool = False  # it is stopping: forget it
    distances: Distances = {}  # to landmarks, by their address: round trips in microseconds
    network: Network = ""


class DiscoveryRequest(MessageBody, frozen=True):
    """Asks for a broker to connect to."""

    id: Id
    attempt: Attempt  # a repeat with a higher number is answered again; with the same one it is not
    requester: Name = ""
    role: Word = "client"  # or "broker": it looks for a broker to join
    host: Host = ""
    port: Port = 0  # for datagrams; the observed port counts if known
    transports: Annotated[list[Word], msgspec.Meta(max_length=4)] = []
    budget: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50  # answers wanted, from all brokers together
    relay: bool = False  # no answer came directly: the directory should relay them
    sealed: bool = False  # seal the answers for the signer of this request
    measures: bool = False  # it can measure its distances once it knows the landmarks
    distances: Distances = {}  # … and these are they
    issued_ms: Stamp = 0  # wall time; with the id it makes replaying a signed request useless
    network: Network = ""  # the network of the wanted brokers; empty: any


class Challenge(MessageBody, frozen=True):
    """Asks to repeat the request with the cookie in this head."""

    id: Id
    shown: Annotated[bytes, msgspec.Meta(max_length=COOKIE_BYTES)] = b""  # the cookie of the request as received


class Acknowledgement(MessageBody, frozen=True):
    """A directory has the request, and has passed it on unless there is a reason."""

    id: Id
    attempt: Attempt
    directory: Name = ""
    brokers: Count = 0  # how many it knows, including those that it did not ask
    asked: Count = 0  # the number of brokers to which it sent the request
    reason: Count = 0  # why it did not
    text: Annotated[str, msgspec.Meta(max_length=200)] = ""
    landmarks: Addresses = []  # measure your distance to these, and near brokers will answer
    listed: Annotated[bytes, msgspec.Meta(max_length=MARK_BYTES * LISTED_MAX)] = b""  # ``marks_of`` a few


class DiscoveryResponse(MessageBody, frozen=True):
    """A broker that would accept the requester."""

    id: Id
    attempt: Attempt
    broker: Name
    incarnation: Count = 0
    host: Host = ""  # "": the address that you see
    ports: Ports = {}
    address: Word = ""
    geography: Word = ""
    institution: Word = ""
    timestamp_ns: Stamp = 0  # network time when it was sent
    error_ns: Stamp = -1  # its error bound; below 0: this broker's time is not synchronised
    usage: Usage = Usage()
    island: Island = ""
    brokers: Count = 1  # on its island, as far as it knows
    distances: Distances = {}  # to landmarks, as in its advertisement
    network: Network = ""
    settling: bool = False  # it has just started, or is linking: its island may change
    before: Annotated[list[Island], msgspec.Meta(max_length=ISLANDS_MAX)] = []  # islands it was on recently


class Ping(MessageBody, frozen=True):
    """Measures a round trip. The cookie of its head comes back too, so that only the pinged broker can answer."""

    sent_ns: Stamp


class Pong(MessageBody, frozen=True):
    """Returns the ping's own timestamp, so that no clocks need to agree."""

    sent_ns: Stamp
    broker: Name = ""


class Announcement(MessageBody, frozen=True):
    """A directory asks brokers to advertise with it."""

    directory: Name
    host: Host = ""
    port: Port = 0
    lifetime_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 60
    private: bool = True


class Spread(MessageBody, frozen=True):
    """A request between brokers. The first broker that spread it has proven the requester's address."""

    request: Whole  # the message as the requester sent it, without its padding
    host: Host
    port: Port
    by: Name = ""  # the directory or broker that proved the address
    relay: Host = ""  # where answers are relayed: "host:port", or "topic" for RELAY_TOPIC
    last: bool = False  # this broker was chosen: it answers, and passes nothing on


class Relay(MessageBody, frozen=True):
    """A response for a requester that the broker may not be able to reach."""

    id: Id
    response: Whole
    host: Host = ""  # where the directory saw the broker, for the requester
    to_host: Host = ""  # the requester, as the directory's SPREAD named it …
    to_port: Port = 0  # … for the directory: an id alone does not tell requesters apart


class CertificateRequest(MessageBody, frozen=True):
    """Asks for the chain of certificates with this hash."""

    hash: Annotated[bytes, msgspec.Meta(max_length=64)]


class Certificate(MessageBody, frozen=True):
    """The chain with the requested hash."""

    chain: Whole


class Landmarks(MessageBody, frozen=True):
    """Asks a broker to measure its distances to these brokers, and to report them in its next advertisement."""

    landmarks: Addresses


BODIES: dict[MessageKind, type[MessageBody]] = {
    MessageKind.ADVERTISEMENT: BrokerAdvertisement,
    MessageKind.REQUEST: DiscoveryRequest,
    MessageKind.CHALLENGE: Challenge,
    MessageKind.ACKNOWLEDGEMENT: Acknowledgement,
    MessageKind.RESPONSE: DiscoveryResponse,
    MessageKind.PING: Ping,
    MessageKind.PONG: Pong,
    MessageKind.ANNOUNCEMENT: Announcement,
    MessageKind.SPREAD: Spread,
    MessageKind.RELAY: Relay,
    MessageKind.CERTIFICATE_REQUEST: CertificateRequest,
    MessageKind.CERTIFICATE: Certificate,
    MessageKind.LANDMARKS: Landmarks,
}
KINDS = {body: kind for kind, body in BODIES.items()}

_kinds = {int(kind): kind for kind in BODIES}
_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: msgspec.msgpack.Decoder(body) for kind, body in BODIES.items()}
_B = TypeVar("_B", bound=MessageBody)


@dataclass(frozen=True, slots=True)
class Message:
    """A message without its head. ``body`` is MessagePack, or an envelope or a seal around it."""

    kind: MessageKind
    flags: int
    cookie: bytes
    body: bytes
    chain: bytes = b""  # of the signer, if there was room


def encode(body: MessageBody) -> bytes:
    """A body as MessagePack."""
    return _encoder.encode(body)


def decode(kind: type[_B], data: bytes) -> _B:
    """MessagePack as a body of this type."""
    try:
        body: _B = _decoders[KINDS[kind]].decode(data)  # type: ignore[assignment]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
    return body


def pack(message: Message, *, pad: bool = True) -> bytes:
    """A message as bytes; ``pad`` if it is sent as a datagram. A chain that does not fit is left out."""
    body, chain = message.body, message.chain
    if pad and HEAD.size + len(body) + len(chain) > DATAGRAM_BYTES_MAX:
        chain = b""
    head = HEAD.pack(MAGIC, VERSION, message.kind, message.flags, len(body), len(chain), message.cookie)
    data = head + body + chain
    return data.ljust(SHORTEST.get(message.kind, 0), b"\0") if pad else data


def write(body: MessageBody, cookie: bytes = NO_COOKIE, *, pad: bool = True) -> bytes:
    """An unsigned message."""
    return pack(Message(KINDS[type(body)], 0, cookie, encode(body)), pad=pad)


def unpack(data: bytes, *, padded: bool = True) -> Message:
    """Remove the head. ProtocolError if this is not a message or, as a datagram, too short for its kind."""
    if len(data) < HEAD.size:
        raise ProtocolError(Reason.FRAME_TOO_SHORT, "less than a head")
    if len(data) > (DATAGRAM_BYTES_MAX if padded else LINK_BYTES_MAX):
        raise ProtocolError(Reason.FRAME_OVER_LIMIT, f"{len(data)} bytes")
    magic, version, kind, flags, body_length, chain_length, cookie = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise ProtocolError(Reason.BODY_MALFORMED, "not a discovery message")
    if version != VERSION:
        raise ProtocolError(Reason.VERSION_UNSUPPORTED, f"version {version}; this is {VERSION}")
    known = _kinds.get(kind)
    if known is None:
        raise ProtocolError(Reason.KIND_UNKNOWN, f"kind {kind}")
    if flags & ~FLAGS_KNOWN:
        raise ProtocolError(Reason.FLAGS_UNKNOWN, f"flags {flags}")
    top = HEAD.size + body_length
    if top + chain_length > len(data):
        raise ProtocolError(Reason.FRAME_TOO_SHORT, "shorter than its head says")
    if padded and len(data) < SHORTEST.get(known, 0):
        raise ProtocolError(Reason.FRAME_TOO_SHORT, "the request must be padded to the size of its answer")
    return Message(known, flags, cookie, data[HEAD.size : top], data[top : top + chain_length])


def mark_of(broker: str, before: int = 0) -> bytes:
    """A short hash of a broker's name, to distinguish the brokers of one search. ``before``: how many brokers of that
    name, in other networks, have a mark already."""
    return sha256((f"{broker} {before}" if before else broker).encode()).digest()[:MARK_BYTES]


def marks_of(brokers: Iterable[str]) -> bytes:
    """The marks of all these, one after the other."""
    seen: Counter[str] = Counter()
    marks = []
    for broker in brokers:
        marks.append(mark_of(broker, seen[broker]))
        seen[broker] += 1
    return b"".join(marks)


def bare(message: Message) -> bytes:
    """The message for topics and links: without padding, and without the cookie, which other parties must not see."""
    return pack(replace(message, cookie=NO_COOKIE), pad=False)


def _read_request(data: bytes) -> CertificateRequest:
    message = unpack(data, padded=False)
    if message.kind != MessageKind.CERTIFICATE_REQUEST:
        raise ProtocolError(Reason.KIND_UNEXPECTED, "this service only hands out certificates")
    return decode(CertificateRequest, message.body)


REQUESTS: RequestTypes[CertificateRequest] = RequestTypes(CertificateRequest, read=_read_request)
"""What clients may ask the responder of a broker."""
