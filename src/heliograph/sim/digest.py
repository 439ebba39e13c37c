"""The digest of a run: one hash over every effect of every machine, each with its virtual instant.

In:    the effects of each take, as the world carries them out.
Out:   64 hex digits. Equal digests mean equal runs, to the last byte and nanosecond.
State: a running hash and what has not been fed to it yet.
Not here: what is worth reading about a run (journal.py).
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

import msgspec

from heliograph.machine import Effects, Instant

_TAKE = Struct("<QIq")  # instant, machine, wake_at (-1: none)
_WRITE = Struct("<QI")  # link, number of bytes
_PARTS_MAX = 1_024  # joined and hashed at once: one call instead of a thousand
_PART_BYTES_MAX = 1 << 16  # a large write is hashed at once, so that waiting parts stay small

_encode_note = msgspec.json.Encoder().encode


class Digest:
    """Fed by the world's inner loop, so adding is only appending."""

    __slots__ = ("_hash", "_parts")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=32)
        self._parts: list[bytes] = []

    def add(self, instant: Instant, machine: int, wake_at: Instant | None) -> None:
        """A machine was asked what it wants; every take is in the digest, also an empty one."""
        parts = self._parts
        parts.append(_TAKE.pack(instant, machine, -1 if wake_at is None else wake_at))
        if len(parts) > _PARTS_MAX:
            self._feed()

    def add_write(self, link: int, data: bytes) -> None:
        """Bytes that a machine wrote to a link."""
        parts = self._parts
        parts.append(_WRITE.pack(link, len(data)))
        parts.append(data)
        if len(data) > _PART_BYTES_MAX:
            self._feed()

    def add_rest(self, effects: Effects) -> None:
        """Everything but writes and wake_at; rare beside them."""
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
            self._add(b"note", _encode_note(note))
        if effects.stop:
            self._add(b"stop", b"")

    def _add(self, kind: bytes, detail: bytes) -> None:
        self._parts.append(b"%s %d %s" % (kind, len(detail), detail))

    def hex(self) -> str:
        """The digest of everything so far; more may follow."""
        self._feed()
        return self._hash.hexdigest()

    def _feed(self) -> None:
        self._hash.update(b"".join(self._parts))
        self._parts.clear()
