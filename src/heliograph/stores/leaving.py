"""Readings of clients at this broker: when a client's link ends, its readings are closed, and others get the places.

In:    requests to open and close channels, as they are passed on to stores; links that end.
Out:   requests to close, for the service `stores` (desk.py) to pass on.
State: per link, which channels it opened at which store.
Not here: who tells of links that end (hearsay.py), the channels themselves (channels.py), which also end when their
          reader is silent for a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from heliograph.machine import Instant, LinkId
from heliograph.wire.requests import Asker
from heliograph.wire.stores import CloseChannel, OpenChannel, RequestToStore

READINGS_MAX = 1_024  # of one link that are closed with it; further ones end by silence


@dataclass(frozen=True, slots=True)
class _Readings:
    """What one client has opened."""

    asker: Asker
    opened: dict[tuple[str, int], int] = field(default_factory=dict)  # by store and channel: the number of the request


class LeavingClients:
    """Notes what clients open."""

    def __init__(self, close: Callable[[Asker, CloseChannel], None]) -> None:
        self._close = close
        self._links: dict[LinkId, _Readings] = {}

    def note(self, link: LinkId, asker: Asker, request: RequestToStore, number: int) -> None:
        """A request of a client is passed on under this number."""
        if isinstance(request, OpenChannel):
            opened = self._links.setdefault(link, _Readings(asker)).opened
            if len(opened) < READINGS_MAX:
                opened[request.store, request.channel] = number
        elif isinstance(request, CloseChannel) and link in self._links:
            self._links[link].opened.pop((request.store, request.channel), None)

    def clear(self) -> None:
        """The broker is detached."""
        self._links.clear()

    def hear_end(self, asker: LinkId, now: Instant) -> None:
        """A client has left."""
        left = self._links.pop(asker, None)
        if left is not None:
            for (store, channel), number in left.opened.items():
                self._close(left.asker, CloseChannel(store, channel, number))
