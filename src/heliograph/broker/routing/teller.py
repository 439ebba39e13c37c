"""The teller: sends something to the neighbours that it concerns.

In:    records, interests and other bodies, and the neighbours that they concern.
Out:   frames on neighbours' links; notes; counts of what was refused.
State: how many updates were told.
Not here: what is told, and when (all other parts of routing).

What stays inside a cluster goes to neighbours of our own cluster only. Nothing is told back to the link it came from.
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
        """Tell a neighbour something."""
        self._links.put(neighbour.link, control(kind, 0, body))

    def tell_record(self, record: Record, source: Port | None, raw: bytes = b"") -> None:
        """Tell all neighbours that it concerns, but not the one it came from."""
        raw = raw or wire.encode(record)
        inner = isinstance(record, Member)
        for neighbour in self._view.neighbours.values():
            if neighbour.link is not source and (not inner or neighbour.cluster == self._view.map.me.cluster):
                self.send_record(neighbour, raw)

    def send_record(self, neighbour: Neighbour, raw: bytes) -> None:
        """Tell one neighbour."""
        self.told += 1
        self.put(neighbour, Kind.MAP, raw)

    def tell_interests(self, bodies: list[Interest], only: Neighbour | None = None) -> None:
        """Tell one neighbour, or all that it concerns."""
        for body in bodies:
            raw = wire.encode(body)
            if only is not None:
                self.told += 1
                self.put(only, Kind.INTEREST, raw)
            else:
                self.pass_on(body.wide, raw, None)

    def pass_on(self, wide: bool, raw: bytes, source: Port | None) -> None:
        """Tell an interest to all neighbours that it concerns, but not to the one it came from."""
        cluster = self._view.map.me.cluster
        for neighbour in self._view.neighbours.values():
            if neighbour.link is not source and (wide or neighbour.cluster == cluster):
                self.told += 1
                self.put(neighbour, Kind.INTEREST, raw)

    def note(self, note: Note) -> None:
        """Write down an observation."""
        self._outbox.note(note)

    def refuse(self, reason: Reason) -> None:
        """Count something that was refused or not believed."""
        self._links.count(reason)
