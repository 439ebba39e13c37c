"""Expelled peers: links and rights of revoked certificates are ended, and no new links are accepted.

In:    serial numbers of revoked certificates, from the node's files or from its service "rights"; new links.
Out:   hangups, with a note; the end of rights that rest on these certificates.
State: the serial numbers, bounded; they are kept until the broker restarts.
Not here: revocation lists and who signs them (trust/revocation.py), how they spread (discovery/topics/rights.py).

TLS checks the list that its files had at the last reload, and of two lists made in one second it keeps the older. This
table is therefore consulted for every link. Serial numbers are random, so that those of two authorities differ.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.broker.links import Link, Links
from heliograph.broker.rights import Rights
from heliograph.errors import Reason
from heliograph.machine import Outbox
from heliograph.notes import PeerRefused

EXPELLED_MAX = 200_000  # about 20 MiB; beyond it the oldest are left to TLS, which reads the list from its file


class Expelled:
    """The peers that may have no link."""

    def __init__(self, links: Links, rights: Rights, outbox: Outbox) -> None:
        self._links = links
        self._rights = rights
        self._outbox = outbox
        self._serials: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._serials)

    def add(self, serials: Iterable[str]) -> int:
        """End the links of these certificates, and all rights that rest on them. Returns how many links there were."""
        named = [serial for serial in serials if serial]
        self._rights.expel(named)
        new = dict.fromkeys(serial for serial in named if serial not in self._serials)
        self._serials |= new
        for serial in list(self._serials)[: max(0, len(self._serials) - EXPELLED_MAX)]:
            del self._serials[serial]
        links = [link for link in self._links.by_id.values() if link.peer.serial in new]
        return sum(self.check(link) for link in links)

    def check(self, link: Link) -> bool:
        """End this link if its peer's certificate was revoked; True if so."""
        if not self._serials or link.peer.serial not in self._serials:
            return False
        self._outbox.note(PeerRefused(link.id, Reason.CERTIFICATE_REVOKED, link.peer.address))
        self._links.hang_up(link, Reason.CERTIFICATE_REVOKED, "the authority revoked your certificate")
        return True
