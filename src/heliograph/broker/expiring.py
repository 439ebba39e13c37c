"""Expiring links: what a broker does when the certificate that proved a link ends.

In:    links, the wall clock.
Out:   a GOODBYE with grace to clients; renewed links to neighbours; the end of links with their certificates.
State: none of its own (trust/expiries.py).
Not here: when (trust/expiries.py), how a link between brokers is replaced (routing/renewals.py), revoked certificates
          (expelled.py).
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.links import Link, Links
from heliograph.broker.routing.peering import Peering
from heliograph.broker.routing.ports import READY
from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId, Outbox, Timers
from heliograph.notes import PeerRefused
from heliograph.trust.expiries import Expiries
from heliograph.wire import bodies
from heliograph.wire.frames import Kind, control

FAREWELL_MS = 2_000  # a client that is warned should be gone this long before its certificate ends


class ExpiringLinks:
    """The links of one broker that end with a certificate."""

    def __init__(
        self, links: Links, peering: Peering, outbox: Outbox, timers: Timers, others: Callable[[], list[str]]
    ) -> None:
        self._links = links
        self._peering = peering
        self._outbox = outbox
        self._others = others  # addresses of other brokers, for clients that have to leave
        self._expiries = Expiries(timers, self._ends, self._ended)

    def clock(self, wall_ns: int, now: Instant) -> None:
        """A reading of the wall clock."""
        self._expiries.clock(wall_ns, now)

    def add(self, link: Link, now: Instant) -> None:
        """A link came."""
        self._expiries.add(link.id, link.peer, now)

    def remove(self, link: LinkId) -> None:
        """A link is gone."""
        self._expiries.remove(link)

    def _ends(self, number: LinkId, left_ms: int, late: bool, now: Instant) -> None:
        """A neighbour's link is renewed in place, as often as it takes; a client is asked once to come again."""
        link = self._links.by_id[number]
        if link.neighbour is not None:
            self._peering.renew(link, left_ms, now)
        elif link.seen is not None and link.state == READY and not late:
            text = "your certificate ends soon; come back with a renewed one"
            grace_ms = max(1, left_ms - FAREWELL_MS)
            body = bodies.goodbye(Reason.CERTIFICATE_EXPIRED, text, grace_ms, self._others())
            self._links.put(link, control(Kind.GOODBYE, 0, body))

    def _ended(self, number: LinkId, now: Instant) -> None:
        link = self._links.by_id[number]
        self._outbox.note(PeerRefused(number, Reason.CERTIFICATE_EXPIRED, link.peer.address))
        self._links.hang_up(link, Reason.CERTIFICATE_EXPIRED, "the certificate of this link has ended")
