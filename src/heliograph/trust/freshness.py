"""Freshness: each signed statement is accepted once, and only near its timestamp.

In:    a signer, the statement's UUID and timestamp, and the network time now.
Out:   nothing for a fresh statement; ProtocolError for one that is stale or was accepted before.
State: the ids of accepted statements, at most ``ids_max``, and a floor.
Not here: verifying the signature (keyring.py): do that first, or any peer could fill this table.

Ids are forgotten only when the table is full, not after some time, so a clock that steps forward and back does no harm.
The id with the oldest timestamp is forgotten first, and from then on nothing of that age or older is accepted (the
floor): a flood shortens the window, but no statement is ever accepted twice.
"""

from __future__ import annotations

from heapq import heappush, heappushpop

from heliograph.errors import ProtocolError, Reason

ID_BYTES = 16  # a UUID
WINDOW_NS = (
    30_000_000_000  # to either side: two clocks that are each off by 5 s, and a slow network, are well within it
)
IDS_MAX = 8_192  # about 2 MiB; 270 statements a second before the window gets shorter


class Freshness:
    """Which statements were accepted already, and which are too far from now to be accepted."""

    __slots__ = ("_by_stamp", "_floor_ns", "_ids_max", "_seen", "_window_ns")

    def __init__(self, window_ns: int = WINDOW_NS, ids_max: int = IDS_MAX) -> None:
        assert window_ns > 0
        assert ids_max >= 1
        self._window_ns = window_ns
        self._ids_max = ids_max
        self._seen: set[tuple[bytes, bytes]] = set()
        self._by_stamp: list[tuple[int, bytes, bytes]] = []  # a heap, oldest timestamp first
        self._floor_ns: int | None = None  # nothing stamped at or before this is accepted

    def __len__(self) -> int:
        return len(self._seen)

    def accept(self, signer: bytes, id: bytes, stamp_ns: int, now_ns: int) -> None:
        """Accept a verified statement. ``signer`` is its chain hash: no signer can use up ids of another.

        Raises ProtocolError: STALE if the timestamp is not near now, REPLAYED if this signer's id was accepted before.
        """
        if len(id) != ID_BYTES:
            raise ProtocolError(Reason.BODY_MALFORMED, f"an id has {ID_BYTES} bytes, this one has {len(id)}")
        if abs(stamp_ns - now_ns) > self._window_ns:
            side = "past" if stamp_ns < now_ns else "future"
            raise ProtocolError(Reason.STALE, f"stamped too far in the {side}; if it is new, the clocks disagree")
        if (signer, id) in self._seen:
            raise ProtocolError(Reason.REPLAYED, "this statement was received before")
        if self._floor_ns is not None and stamp_ns <= self._floor_ns:
            raise ProtocolError(Reason.STALE, "too many newer statements were received to tell whether this one is new")
        self._remember(signer, id, stamp_ns)

    def _remember(self, signer: bytes, id: bytes, stamp_ns: int) -> None:
        self._seen.add((signer, id))
        entry = (stamp_ns, signer, id)
        if len(self._seen) <= self._ids_max:
            heappush(self._by_stamp, entry)
            return
        oldest_ns, *oldest = heappushpop(self._by_stamp, entry)
        self._seen.remove((oldest[0], oldest[1]))
        self._floor_ns = oldest_ns
