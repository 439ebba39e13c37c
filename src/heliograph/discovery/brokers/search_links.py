"""The links of a search: to directories that are asked by TCP, and to listed brokers that may take links.

In:    parties to dial; links that come up, fail or end.
Out:   dials and hang-ups; the messages that come on a link.
State: a splitter per link; which party each dial is for.
Not here: the messages on a link (request_sender.py, search.py).
"""

from __future__ import annotations

from heliograph.discovery.brokers.asked import AskedParty
from heliograph.discovery.brokers.messages import DIRECTORY_FRAMES
from heliograph.errors import Reason
from heliograph.machine import Dial, LinkId, Outbox, Ticket
from heliograph.wire.splitter import Splitter


class SearchLinks:
    """The links of one search."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._splitters: dict[LinkId, Splitter] = {}
        self._dials: dict[Ticket, AskedParty] = {}

    def dial(self, party: AskedParty) -> None:
        """Dial this party, unless a dial to it is under way."""
        if party not in self._dials.values():
            self._dials[self._outbox.dial(Dial(*party.address))] = party

    def attach(self, link: LinkId, ticket: Ticket | None) -> AskedParty | None:
        """A link is up: returns the party that was dialled, if there was one."""
        self._splitters[link] = Splitter(DIRECTORY_FRAMES)
        return self._dials.pop(ticket or 0, None)

    def splitter(self, link: LinkId) -> Splitter | None:
        """Takes the bytes of this link apart."""
        return self._splitters.get(link)

    def detach(self, link: LinkId) -> None:
        """A link has closed."""
        self._splitters.pop(link, None)

    def failed(self, ticket: Ticket) -> None:
        """A party could not be dialled."""
        self._dials.pop(ticket, None)

    def hang_up(self) -> None:
        """End all links."""
        for link in self._splitters:
            self._outbox.hang_up(link, Reason.GOODBYE)
