"""Publications: an event as a program sees it.

In:    the parts of an EVENT frame.
Out:   Publication, with headers decoded on first use; StoredPublication and StoredRun, with positions.
State: none.
Not here: frame bytes (wire/frames.py), routing (broker/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

# Reserved headers begin with "$"; publishers' own never do.
TIMESTAMP = "$t"  # network time in microseconds since 1970 at the publisher
STAMP_MIN = -62_135_596_800_000_000  # the year 1: what no table or calendar can show is no time
STAMP_MAX = 253_402_300_799_999_999  # … and the year 9999
UNSYNCHRONISED = "$u"  # present and true while the publisher's clock is not synchronised to network time
EXPIRY = "$x"  # network time in microseconds after which it has expired
TYPE = "$y"  # content type of the payload
SYNOPSIS = "$s"  # synopsis type, if the topic alone does not say what the event is about
QUALITY = "$q"  # delivery constraints
DESTINATIONS = "$d"  # explicit list of destination clients
REPLY_TO = "$r"  # topic on which the publisher awaits an answer
TRACE = "$p"  # the brokers that it passed, if tracing was asked for
RESERVED = (TIMESTAMP, UNSYNCHRONISED, EXPIRY, TYPE, SYNOPSIS, QUALITY, DESTINATIONS, REPLY_TO, TRACE)

Scalar = str | int | float | bool
Headers = dict[str, Any]

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Publication:
    """An event that arrived: topic, headers, payload and its id (origin, sequence)."""

    __slots__ = ("_headers", "_raw_headers", "flags", "origin", "payload", "sequence", "topic")

    def __init__(
        self, topic: str, payload: bytes, origin: int, sequence: int, raw_headers: bytes, flags: int = 0
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.origin = origin
        self.sequence = sequence
        self.flags = flags
        self._raw_headers = raw_headers
        self._headers: Headers | None = None

    @property
    def id(self) -> tuple[int, int]:
        """The id of the publication, unique in the whole network."""
        return (self.origin, self.sequence)

    @property
    def store(self) -> str | None:
        """The store that delivered it; None if it was delivered live."""
        return None

    @property
    def position(self) -> int | None:
        """Its position in the log of that store."""
        return None

    @property
    def size(self) -> int:
        """Bytes of headers and payload."""
        return len(self.payload) + len(self._raw_headers)

    @property
    def all_headers(self) -> Headers:
        """Every header, reserved ones included; a malformed header block reads as empty."""
        if self._headers is None:
            try:
                self._headers = _decode(self._raw_headers) if self._raw_headers else {}
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._headers = {}
        return self._headers

    @property
    def headers(self) -> Headers:
        """The publisher's own headers."""
        return {key: value for key, value in self.all_headers.items() if not key.startswith("$")}

    @property
    def timestamp_us(self) -> int | None:
        """When it was published, in microseconds since 1970, if the publisher gave a time between the years 1 and
        9999."""
        return stamp_of(self.all_headers)

    @property
    def synchronised(self) -> bool:
        """False if the publisher's clock was not synchronised to network time."""
        return not self.all_headers.get(UNSYNCHRONISED, False)

    @property
    def expiry_us(self) -> int | None:
        """The network time at which it expires; None: never."""
        expiry = self.all_headers.get(EXPIRY)
        return expiry if isinstance(expiry, int) else None

    @property
    def content_type(self) -> str | None:
        """The type of the payload, if the publisher gave one."""
        kind = self.all_headers.get(TYPE)
        return kind if isinstance(kind, str) else None

    @property
    def reply_to(self) -> str | None:
        """The topic on which its publisher awaits an answer; None if it awaits none."""
        topic = self.all_headers.get(REPLY_TO)
        return topic if isinstance(topic, str) else None

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.topic!r}, {len(self.payload)} bytes, id={self.origin:016x}/{self.sequence})"
        )


class StoredPublication(Publication):
    """A publication that a store delivered, with its position there."""

    __slots__ = ("_position", "_store")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        origin: int,
        sequence: int,
        raw_headers: bytes,
        flags: int,
        store: str,
        position: int,
    ) -> None:
        super().__init__(topic, payload, origin, sequence, raw_headers, flags)
        self._store = store
        self._position = position

    @property
    def store(self) -> str:
        """The id of the store that delivered it."""
        return self._store

    @property
    def position(self) -> int:
        """Its position in the log of that store."""
        return self._position


class StoredRun:
    """Publications of a store as bytes: whole EVENT frames and their positions. For programs that read many."""

    __slots__ = ("after", "before", "data", "positions", "store", "taken")

    def __init__(
        self,
        store: str,
        before: int,
        after: int,
        positions: Sequence[int],
        data: bytes,
        taken: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.store = store
        self.before = before  # it covers the log from here …
        self.after = after  # … up to, not including, here; positions that are missing in it did not match
        self.positions = positions
        self.data = data
        self.taken = taken  # (position, µs since 1970): when it was stored, each until the next one; empty: unknown

    @property
    def size(self) -> int:
        """Bytes of its publications."""
        return len(self.data)

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return f"StoredRun({len(self.positions)} publications, {self.store}/{self.before}-{self.after})"


def stamp_of(headers: Mapping[str, Any]) -> int | None:
    """The time in headers that any client may have written, if it is one that tables and calendars can show."""
    stamp = headers.get(TIMESTAMP)
    return stamp if type(stamp) is int and STAMP_MIN <= stamp <= STAMP_MAX else None
