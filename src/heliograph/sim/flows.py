"""Flows: which publications a stream carries, and when they are handed to the machine at its far end.

In:    bytes that a machine wrote at once: whole frames; how many bytes of them the far machine was given.
Out:   entries "carried" (a broker sent a publication to another) and "reached" (a machine was given one) in the
       journal, each only if a checker asks for it.
State: per stream, the publications under way, with the position at which their frame ends.
Not here: how bytes travel (network.py), what is made of the entries (checkers/).

A stream loses nothing but its end, so a position among the bytes written is the same among the bytes handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct

from heliograph.sim.journal import Journal
from heliograph.sim.tamper import payloads_inside

MARK = Struct("<IIQ")  # client, session, number: the beginning of every payload of a simulated program
Publication = tuple[str, int, int]
"""Publisher, session, number."""


class Flow:
    """What one stream carries."""

    __slots__ = ("_clients", "_ends", "_handed", "_is_between_brokers", "_journal", "_path", "_tells", "_written")

    def __init__(
        self,
        journal: Journal,
        clients: Sequence[str],
        path: tuple[str, str, int, int],
        *,
        is_between_brokers: bool,
        tells: frozenset[str],
    ) -> None:
        self._journal = journal
        self._clients = clients
        self._path = path  # from, to, the sender's incarnation, the receiver's number of the link
        self._is_between_brokers = is_between_brokers
        self._tells = tells
        self._written = 0
        self._handed = 0
        self._ends: deque[tuple[int, Publication]] = deque()

    def write(self, data: bytes) -> None:
        """The machine wrote these whole frames."""
        for payload, end in payloads_inside(data):
            publication = self._marked(payload)
            if publication is None:
                continue
            if self._is_between_brokers and "carried" in self._tells:
                source, target, _, _ = self._path
                publisher, _, number = publication
                self._journal.write("carried", source, target, publisher, number)
            if "reached" in self._tells:
                self._ends.append((self._written + end, publication))
        self._written += len(data)

    def _marked(self, payload: bytes) -> Publication | None:
        """The publication with this payload; None if no simulated program made it."""
        if len(payload) < MARK.size:
            return None
        index, session, number = MARK.unpack_from(payload)
        return (self._clients[index], session, number) if index < len(self._clients) else None

    def hand_over(self, size: int) -> None:
        """The far machine was given this many more bytes."""
        self._handed += size
        ends = self._ends
        while ends and ends[0][0] <= self._handed:
            source, target, incarnation, link = self._path
            self._journal.write("reached", target, source, incarnation, link, *ends.popleft()[1])
