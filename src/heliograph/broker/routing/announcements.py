"""Announcements: what this broker tells its cluster about itself: its links, its slot, its address.

In:    changes of our links, slot or address.
Out:   our Member record, told to the neighbours of our cluster.
State: whether a change has not been announced yet, and when it may be.
Not here: links to other clusters (leadership.py), interests (advertising.py).

Bad news is announced at once. Good news waits for more good news (pace.py) and is announced when routing settles.
"""

from __future__ import annotations

from msgspec.structs import replace

from heliograph.broker.routing.pace import Pace
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.machine import Instant


class Announcements:
    """Keeps our own Member record up to date, and announces it."""

    def __init__(self, view: View, teller: Teller) -> None:
        self._view = view
        self._teller = teller
        self._pace = Pace()
        self._is_untold = False  # our links differ from what we announced

    def announce_soon(self) -> None:
        """Our links are better than we announced. That can wait for more news."""
        self._is_untold = True
        self._view.map.touch()

    def announce_due(self, now: Instant) -> None:
        """Announce what waits, if it has waited long enough."""
        if self._is_untold and now >= self._pace.next_at:
            self.announce(now)
        elif self._is_untold:
            self._view.look_again(self._pace.next_at)

    def announce(self, now: Instant, anew: bool = False) -> None:
        """Announce what changed about ourselves; with ``anew``, even if nothing changed."""
        self._is_untold = False
        view = self._view
        me = view.map.me
        links = view.linked(inside=True)
        record = replace(me, links=links, incarnations=view.incarnations_of(links))
        if record == me and not anew:
            view.map.touch()  # links to other clusters may have changed
            return
        record = replace(record, number=me.number + 1)
        self._pace.told(now)
        self._teller.tell_record(record, None)
        view.map.learn(record)  # links to other clusters follow when routing settles, after a new leader's interests

    def listen(self, address: str, now: Instant) -> None:
        """The address at which clients can dial us."""
        me = self._view.map.me
        self._view.map.learn(replace(me, address=address, number=me.number + 1))
        self.announce(now, anew=True)
