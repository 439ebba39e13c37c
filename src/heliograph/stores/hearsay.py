"""Hearsay: what services `stores` of neighbouring brokers tell each other, as one that starts knows no absent store.

In:    neighbours that appear; what they tell.
Out:   the stores that are known here, to new neighbours; stores that were unknown here, to the known ones and on to the
       other neighbours; links of clients that end.
State: the present neighbours.
Not here: advertisements (desk.py), the table of stores (known.py), readings of clients that leave (leaving.py).

A store that is known here, or was forgotten here, is not changed by hearsay. So what is told spreads once, and the hour
after which a store that is away is forgotten goes on everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId
from heliograph.stores.known import KnownStores
from heliograph.stores.leaving import LeavingClients
from heliograph.wire import stores as wire
from heliograph.wire.limits import SERVICE_HOP_BYTES_MAX
from heliograph.wire.pages import one_page
from heliograph.wire.stores import ToldStore, ToldStores
from heliograph.wire.ways import WaysHere

MESSAGES_MAX = 16  # to one neighbour at once: 1 MiB, thousands of stores with few patterns
ROWS_BYTES = SERVICE_HOP_BYTES_MAX - 1_024  # with commas and the rest of the message, one frame

Send = Callable[[LinkId, bytes], None]


class Hearsay:
    """The attendant of the service `stores` (services/broker_session.py). ``learned``: stores became known."""

    def __init__(self, known: KnownStores, leaving: LeavingClients, learned: Callable[[Instant], None]) -> None:
        self._known = known
        self._leaving = leaving
        self._send: Send | None = None
        self._learned = learned
        self._neighbours: dict[LinkId, None] = {}
        self.malformed = 0

    def begin(self, send: Send) -> None:
        """The broker is attached."""
        self._send = send

    def clear(self) -> None:
        """The broker is detached."""
        self._send = None
        self._neighbours.clear()

    def hear_ways(self, ways: WaysHere, now: Instant) -> None:
        """A new neighbour is told which stores are known here."""
        present = dict.fromkeys(each.link for each in ways.neighbours)
        new = [link for link in present if link not in self._neighbours]
        self._neighbours = present
        if new:
            self._tell(new, self._known.told(now))

    def hear_neighbour(self, link: LinkId, payload: bytes, now: Instant) -> None:
        """What a neighbour knows."""
        try:
            told = wire.decode(ToldStores, payload).stores
        except ProtocolError:
            self.malformed += 1
            return
        new = [each for each in told if self._known.learn(each, now)]
        if new:
            self._tell([other for other in self._neighbours if other != link], new)
            self._learned(now)

    def _tell(self, links: list[LinkId], stores: Iterable[ToldStore]) -> None:
        rows = iter(stores)
        row: msgspec.Raw | None = None
        if self._send is None or not links:
            return
        for _ in range(MESSAGES_MAX):
            page, row = one_page(rows, row, bytes_max=ROWS_BYTES, rows_max=wire.TOLD_MAX)
            message = msgspec.json.encode({"stores": page})
            if page and len(message) <= SERVICE_HOP_BYTES_MAX:  # a single longer one is told to nobody
                for link in links:
                    self._send(link, message)
            if row is None:
                return

    def hear_refusal(self, link: LinkId, number: int, reason: Reason, now: Instant) -> None:
        """Not needed: a neighbour that did not hear this hears advertisements."""

    def hear_end(self, asker: LinkId, now: Instant) -> None:
        """A client has left."""
        self._leaving.hear_end(asker, now)

    def hear_untold(self, asker: LinkId, watch: int, now: Instant) -> None:
        """Not needed: there are no watches of stores."""
