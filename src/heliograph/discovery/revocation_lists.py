"""Revocation lists in the network: certificates that the authority revoked are refused at every broker.

In:    the lists of the node's own files; lists from neighbours, in parts that fit a frame.
Out:   lists that are new here; parts for neighbours, and for directories that ask.
State: in the keyring, the newest list of each authority; of each neighbour, at most one list that is arriving.
Not here: reading and verifying lists (trust/), sending them (rights.py), ending links (broker/expelled.py), a directory
          in its own process, which asks for lists (list_learner.py).

A list is signed by the authority, so it may come from anywhere. It replaces older ones, and is kept until it ends:
certificates do not outlive their authority, and a list that ends later than they do is no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.machine import LinkId

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring
    from heliograph.trust.revocation import RevocationList

RIGHTS = "rights"  # the service
LIST_BYTES_MAX = 1 << 20  # as much as is read of a file; about 25,000 certificates
PART_BYTES = 48 << 10
NS_PER_S = 1_000_000_000
DIGESTS_KEPT = 8  # of lists: there is one per authority, and every second directories ask for their digests


class ListsRenewed:
    """Told to the service "rights": the node has read its certificates and revocation lists again."""


class ListPart(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a list on its way to a neighbour."""

    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]  # SHA-256 of the list
    size: Annotated[int, msgspec.Meta(gt=0, le=LIST_BYTES_MAX)]
    at: Annotated[int, msgspec.Meta(ge=0, le=LIST_BYTES_MAX)]
    data: Annotated[bytes, msgspec.Meta(max_length=PART_BYTES)]


@lru_cache(maxsize=DIGESTS_KEPT)
def digest_of(der: bytes) -> bytes:
    """The name of a list where the list itself would be too long."""
    return sha256(der).digest()


def parts_of(der: bytes) -> list[ListPart]:
    """A list in parts, in the order in which they are sent; none if it is too long."""
    digest, size = digest_of(der), len(der)
    starts = range(0, size if size <= LIST_BYTES_MAX else 0, PART_BYTES)
    return [ListPart(digest, size, at, der[at : at + PART_BYTES]) for at in starts]


class RevocationLists:
    """The revocation lists known at one broker."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._kept: dict[bytes, RevocationList] = {}  # by authority; those of neighbours survive a reload here
        self._arriving: dict[LinkId, tuple[bytes, bytearray]] = {}

    def known(self, wall_ns: int) -> list[RevocationList]:
        """The lists that have not ended."""
        return [one for one in self._keyring.authorities.revoked.lists if one.ends * NS_PER_S > wall_ns]

    def part(self, digest: bytes, at: int, wall_ns: int) -> ListPart:
        """The part of a list that begins there; ProtocolError if the list is not, or no longer, known here."""
        for known in self.known(wall_ns):
            if digest_of(known.der) == digest and 0 <= at < len(known.der) <= LIST_BYTES_MAX:
                return ListPart(digest, len(known.der), at, known.der[at : at + PART_BYTES])
        raise ProtocolError(Reason.QUESTION_UNKNOWN, "no such part of a revocation list")

    def gather(self, link: LinkId, part: ListPart) -> bytes | None:
        """A part arrived; returns the list once it is complete. ProtocolError if a part is missing or altered."""
        if part.at == 0:
            self._arriving[link] = (part.digest, bytearray())
        digest, data = self._arriving.get(link, (b"", bytearray()))
        if digest != part.digest or len(data) != part.at or part.at + len(part.data) > part.size:
            self._arriving.pop(link, None)
            raise ProtocolError(Reason.BODY_MALFORMED, "a part of a revocation list is missing")
        data += part.data
        if len(data) < part.size:
            return None
        del self._arriving[link]
        if sha256(data).digest() != digest:
            raise ProtocolError(Reason.BODY_MALFORMED, "a revocation list was altered on its way")
        return bytes(data)

    def take(self, der: bytes, wall_ns: int) -> RevocationList | None:
        """A whole list: None if it is known, or a newer one. ProtocolError if no authority of ours signed it."""
        if any(one.der == der for one in self._keyring.authorities.revoked.lists):
            return None
        new = self._keyring.authorities.read_list(der, wall_ns)
        if not self._keyring.revoke(new):
            return None
        self._kept[new.issuer] = new
        return new

    def renewed(self, wall_ns: int) -> None:
        """The files were read again: put the lists of neighbours back in force, if their authority still counts."""
        for issuer, one in list(self._kept.items()):
            try:
                self._keyring.revoke(self._keyring.authorities.read_list(one.der, wall_ns))
            except ProtocolError:
                del self._kept[issuer]

    def leave(self, present: Iterable[LinkId]) -> None:
        """These are the neighbours now: forget what was arriving from others."""
        there = dict.fromkeys(present)
        self._arriving = {link: begun for link, begun in self._arriving.items() if link in there}
