"""The teller: sends records, interests and other bodies to the neighbours that they concern.

In:    records, interests and other bodies, and the neighbours that they concern.
Out:   frames on neighbours' links; notes; counts of what was refused.
State: how many updates were told.
Not here: what is told, and when (all other parts of routing).

What stays inside a cluster goes to neighbours of our own cluster only. Nothing is sent back to the link it came from.
"""

from __future__ import annotations

from heliograph.broker.routing.ports import LinkWriter, Neighbour, Port
from heliograph.broker.routing.view import View
from heliograph.errors import Reason
from heliograph.machine import Outbox
from heliograph.notes import Note
from heliograph.wire import broker_bodies as wire
from heliograph.wire.broker_bodies import Interest, Member, Record
from heliograph.wire.frames import Kind, control


class Teller:
    """Tells neighbours."""

    def __init__(self, view: View, links: LinkWriter, outbox: Outbox) -> None:
        self._view = view
        self._links = links
        self._outbox = outbox
        self.told = 0  # records and interests

    def put(self, neighbour: Neighbour, kind: Kind, body: bytes) -> None:
        """Send a body to a neighbour."""
        self._links.put(neighbour.link, control(kind, 0, body))

    def tell_record(self, record: Record, source: Port | None, raw: bytes = b"") -> None:
        """Send a record to all neighbours that it concerns, but not to the one it came from."""
        raw = raw or wire.encode(record)
        inner = isinstance(record, Member)
        for neighbour in self._view.neighbours.values():
            if neighbour.link is not source and (not inner or neighbour.cluster == self._view.map.me.cluster):
                self.send_record(neighbour, raw)

    def send_record(self, neighbour: Neighbour, raw: bytes) -> None:
        """Send a record to one neighbour."""
        self.told += 1
        self.put(neighbour, Kind.MAP, raw)

    def tell_interests(self, bodies: list[Interest], only: Neighbour | None = None) -> None:
        """Send interests to one neighbour, or to all that they concern."""
        for body in bodies:
            raw = wire.encode(body)
            if only is not None:
                self.told += 1
                self.put(only, Kind.INTEREST, raw)
            else:
                self.pass_on(body.wide, raw, None)

    def pass_on(self, wide: bool, raw: bytes, source: Port | None) -> None:
        """Send an interest to all neighbours that it concerns, but not to the one it came from."""
        cluster = self._view.map.me.cluster
        for neighbour in self._view.neighbours.values():
            if neighbour.link is not source and (wide or neighbour.cluster == cluster):
                self.told += 1
                self.put(neighbour, Kind.INTEREST, raw)

    def note(self, note: Note) -> None:
        """Write down an observation."""
        self._outbox.note(note)

    def refuse(self, reason: Reason) -> None:
        """Count something that was refused or rejected."""
        self._links.count(reason)
