"""WaysHere: what a broker tells the services on its pipes about itself, its neighbours and the ways from here.

In:    values, or JSON from a broker on a pipe.
Out:   JSON, or structs; ProtocolError(BODY_MALFORMED) if the JSON does not fit.
State: none.
Not here: when services are told (broker/ways.py), how ways are found (broker/routing/map.py).

A host is named by its cluster and its slot there. Next hops are links: a service that sends to a link that has ended is
told so, and never reaches a later link to the same broker by mistake.
"""

from __future__ import annotations

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.wire.bodies import Body


class LinkedBroker(Body, frozen=True):
    """A neighbour."""

    link: int
    broker: int
    name: str
    cluster: str
    incarnation: int
    cost: int


class WaysHere(Body, frozen=True):
    """This broker, its neighbours, and the links through which other brokers and clusters are reached."""

    broker: int
    name: str
    cluster: str
    slot: int
    incarnation: int
    neighbours: list[LinkedBroker] = []
    members: list[tuple[int, int, int, int]] = []  # of our own cluster: slot, broker, link, cost
    clusters: list[tuple[str, int, int]] = []  # other clusters: name, link, cost


class Word(Body, frozen=True):
    """What a broker tells a service without being asked: one of these."""

    ways: WaysHere | None = None
    ended: int = 0  # the link of a client that had sent requests to this service


_words = msgspec.json.Decoder(Word)
_ways = msgspec.json.Decoder(WaysHere)
_encode = msgspec.json.Encoder().encode


def encode(body: Word | WaysHere) -> bytes:
    """The body as JSON."""
    return _encode(body)


def decode_word(data: bytes) -> Word:
    """JSON as a Word of the broker."""
    try:
        return _words.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
