"""Requests to the service "rights", as typed structs.

In:    JSON from clients, and from directories in their own processes.
Out:   structs, by REQUESTS; bytes of their texts; ProtocolError if one is malformed.
State: none.
Not here: carrying them out (rights.py), what is in a bundle (bundle.py) or in a statement (grants.py).
"""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated

from msgspec import Meta

from heliograph.discovery.revocation_lists import LIST_BYTES_MAX
from heliograph.errors import ProtocolError, Reason
from heliograph.wire.bodies import Body
from heliograph.wire.requests import RequestTypes


class PresentGrant(Body, frozen=True, tag="present", tag_field="do"):
    """Present a bundle, to use its topic on this link."""

    bundle: str
    proof: str | None = None  # base64: the challenge of an earlier answer, signed with the holder's key


class RevokeGrants(Body, frozen=True, tag="revoke", tag_field="do"):
    """Bring a revocation, which all brokers are told."""

    statement: str  # base64, in its envelope
    bundle: str = ""  # with the grant that it revokes


class ListDigests(Body, frozen=True, tag="lists", tag_field="do"):
    """Ask which lists of revoked certificates are in force."""


class ListPiece(Body, frozen=True, tag="list", tag_field="do"):
    """Ask for a piece of one of them."""

    digest: str  # of the list, hexadecimal
    at: Annotated[int, Meta(ge=0, le=LIST_BYTES_MAX)]


class ListRevocations(Body, frozen=True, tag="revocations", tag_field="do"):
    """Ask for revocations of grants, in pages; for directories only."""

    since: str = ""  # of an earlier answer: which life of the broker its numbers are of
    after: Annotated[int, Meta(ge=0, le=1 << 53)] = 0  # the last number of an earlier answer


RightsRequest = PresentGrant | RevokeGrants | ListDigests | ListPiece | ListRevocations
REQUESTS: RequestTypes[RightsRequest] = RequestTypes(RightsRequest)


def read_base64(text: str) -> bytes:
    """The bytes that a text stands for."""
    try:
        return b64decode(text)
    except ValueError as error:
        raise ProtocolError(Reason.BODY_MALFORMED, f"not base64: {error}") from None


def read_hex(text: str) -> bytes:
    """The same for hexadecimal digits."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise ProtocolError(Reason.BODY_MALFORMED, f"not hexadecimal: {error}") from None
