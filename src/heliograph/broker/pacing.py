"""Pacing: publishers that agreed to wait do not run far ahead of the next brokers.

In:    reads from such publishers; COUNT frames of neighbours.
Out:   holds and releases of those publishers.
State: none: what a neighbour has not confirmed is kept with it, and who waits for it with its link.
Not here: slow consumers (links.py), here or at other brokers (far_publishers.py, far_consumers.py).

The buffers of a TCP link take many megabytes. If they were full, a HOLD would come too late: more would be under way
than a slow consumer's broker has room for. So a publisher that agreed to wait is held while a neighbour has much to
confirm, or does not take what is sent: what waits for it here would be dropped beyond a limit. Thus nothing of it is
forgotten before it is confirmed, either: if the link breaks, all of it is sent again.
"""

from __future__ import annotations

from heliograph.broker.links import Links
from heliograph.broker.routing.ports import READY, UNCONFIRMED_BYTES_MAX, Port
from heliograph.broker.routing.view import View
from heliograph.machine import Instant

PACED_BYTES = UNCONFIRMED_BYTES_MAX * 3 // 4  # not confirmed by a neighbour; with one more read it is all kept
RELIEF_BYTES = UNCONFIRMED_BYTES_MAX // 2  # a neighbour that has read everything has confirmed all but a quarter


class Pacing:
    """Holds publishers until neighbours have confirmed what was sent."""

    def __init__(self, view: View, links: Links) -> None:
        self._view = view
        self._links = links

    def has_read(self, publisher: Port, now: Instant) -> None:
        """Something was read from a publisher that agreed to wait."""
        for neighbour in self._view.neighbours.values():
            is_behind = neighbour.sent_bytes > PACED_BYTES or neighbour.link.backlog
            if is_behind and publisher.state == READY:
                self._links.hold(publisher, neighbour.link, now)

    def counted(self, link: Port) -> None:
        """A neighbour has confirmed something."""
        neighbour = link.neighbour
        if link.holding and neighbour is not None and neighbour.sent_bytes <= RELIEF_BYTES and not link.backlog:
            self._links.release(link)
