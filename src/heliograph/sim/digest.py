"""The digest of a run: one hash over every effect of every machine, each with its virtual instant.

In:    the effects of each take, as the world carries them out.
Out:   64 hex digits. Equal digests mean equal runs, to the last byte and nanosecond.
State: a running hash and what has not been added to it yet.
Not here: a readable account of a run (journal.py).
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

import msgspec

from heliograph.machine import Effects, Instant

TAKE = Struct("<QIq")  # instant, machine, wake_at (-1: none)
WRITE = Struct("<QI")  # link, number of bytes
PARTS_MAX = 512  # joined and hashed at once: one call instead of hundreds

_encode_note = msgspec.json.Encoder().encode


class Digest:
    """A running hash of everything that machines want done, with every byte that was written.

    The world's inner loop appends to ``parts`` itself: a TAKE for each take that writes or moves the alarm, then a
    WRITE and the data for each write; and calls ``feed`` when there are more than PARTS_MAX.
    """

    __slots__ = ("_hash", "parts")

    def __init__(self) -> None:
        self._hash = sha256()
        self.parts: list[bytes] = []

    def add_rest(self, instant: Instant, machine: int, effects: Effects) -> None:
        """Everything but writes and wake_at; rare compared to them."""
        self.parts.append(TAKE.pack(instant, machine, -1))
        for link, hold in effects.holds:
            self._add(b"hold", b"%d %d" % (link, hold))
        for link, reason in effects.hangups:
            self._add(b"hangup", b"%d %d" % (link, reason))
        for ticket, dial in effects.dials:
            self._add(b"dial", repr((ticket, dial)).encode())
        for ticket, job in effects.jobs:
            self._add(b"job", b"%d %s" % (ticket, type(job).__name__.encode()))
        for datagram in effects.datagrams:
            self._add(b"datagram", repr(datagram).encode())
        for commit in effects.commits:
            self._add(b"commit", repr(commit).encode())
        for read in effects.reads:
            self._add(b"read", repr(read).encode())
        for note in effects.notes:
            self._add(b"note", _encode_note(note.repeatable))
        if effects.stop:
            self._add(b"stop", b"")

    def _add(self, kind: bytes, detail: bytes) -> None:
        self.parts.append(b"%s %d %s" % (kind, len(detail), detail))

    def hex(self) -> str:
        """The digest of everything so far; more may follow."""
        self.feed()
        return self._hash.hexdigest()

    def feed(self) -> None:
        """Hash what was added."""
        self._hash.update(b"".join(self.parts))
        self.parts.clear()
