"""Freshness: each signed statement is accepted once, and only near its timestamp.

In:    a signer, the statement's UUID and timestamp, and the network time now.
Out:   nothing for a fresh statement; ProtocolError for one that is stale or was accepted before.
State: the ids of accepted statements by signer, at most ``ids_max`` together, and floors.
Not here: verifying the signature (keyring.py): do that first, or any peer could fill this table.

Ids are forgotten only when the table is full, not after some time, so a clock that steps forward and back does no harm.
The signer with the most ids then gives way: its id with the oldest timestamp is forgotten, and from then on nothing of
that age or older is accepted from it (its floor). A flood shortens the flooder's own window, also if it is stamped in
the future, but no statement is ever accepted twice.
"""

from __future__ import annotations

from heapq import heappop, heappush

from heliograph.errors import ProtocolError, Reason

ID_BYTES = 16  # a UUID
WINDOW_NS = (
    30_000_000_000  # to either side: two clocks that are each off by 5 s, and a slow network, are well within it
)
IDS_MAX = 8_192  # about 2 MiB; 270 statements a second before somebody's window gets shorter


class Signer:
    """The statements of one signer."""

    __slots__ = ("by_stamp", "floor_ns", "seen")

    def __init__(self, floor_ns: int | None) -> None:
        self.seen: set[bytes] = set()
        self.by_stamp: list[tuple[int, bytes]] = []  # a heap, oldest timestamp first
        self.floor_ns = floor_ns  # nothing stamped at or before this is accepted

    def add(self, id: bytes, stamp_ns: int) -> None:
        """A statement was accepted."""
        self.seen.add(id)
        heappush(self.by_stamp, (stamp_ns, id))

    def forget_oldest(self) -> None:
        """From now on nothing as old as this is accepted."""
        self.floor_ns, oldest = heappop(self.by_stamp)
        self.seen.remove(oldest)


class Freshness:
    """Which statements were accepted already, and which are too far from now to be accepted."""

    __slots__ = ("_count", "_floor_ns", "_ids_max", "_signers", "_window_ns")

    def __init__(self, window_ns: int = WINDOW_NS, ids_max: int = IDS_MAX) -> None:
        assert window_ns > 0
        assert ids_max >= 1
        self._window_ns = window_ns
        self._ids_max = ids_max
        self._count = 0
        self._signers: dict[bytes, Signer] = {}  # as many as ids at most
        self._floor_ns: int | None = None  # of signers that were forgotten, so of all that are new

    def __len__(self) -> int:
        return self._count

    def accept(self, signer: bytes, id: bytes, stamp_ns: int, now_ns: int) -> None:
        """Accept a verified statement. ``signer`` is its chain hash: no signer can use up ids of another.

        Raises ProtocolError: STALE if the timestamp is not near now, REPLAYED if this signer's id was accepted before.
        """
        if len(id) != ID_BYTES:
            raise ProtocolError(Reason.BODY_MALFORMED, f"an id has {ID_BYTES} bytes, this one has {len(id)}")
        if abs(stamp_ns - now_ns) > self._window_ns:
            side = "past" if stamp_ns < now_ns else "future"
            raise ProtocolError(Reason.STALE, f"stamped too far in the {side}; if it is new, the clocks disagree")
        known = self._signers.get(signer)
        if known is not None and id in known.seen:
            raise ProtocolError(Reason.REPLAYED, "this statement was received before")
        floor_ns = self._floor_ns if known is None else known.floor_ns
        if floor_ns is not None and stamp_ns <= floor_ns:
            raise ProtocolError(Reason.STALE, "too many newer statements were received to tell whether this one is new")
        if known is None:
            known = self._add(signer)
        known.add(id, stamp_ns)
        self._count += 1
        if self._count > self._ids_max:
            self._make_room(known)

    def _add(self, signer: bytes) -> Signer:
        if len(self._signers) >= self._ids_max:
            self._forget_signer()
        known = self._signers[signer] = Signer(self._floor_ns)
        return known

    def _make_room(self, known: Signer) -> None:
        """The signer of the new statement gives way if it has more than its share, otherwise the one with the most."""
        if len(known.seen) * len(self._signers) <= self._ids_max:
            known = max(self._signers.values(), key=lambda each: len(each.seen))
        known.forget_oldest()
        self._count -= 1

    def _forget_signer(self) -> None:
        """Forget the signer whose newest statement is the oldest; what it could repeat is below the floor of all."""
        oldest = min(self._signers, key=lambda each: self._newest_ns(self._signers[each]))
        gone = self._signers.pop(oldest)
        self._count -= len(gone.seen)
        self._floor_ns = max(self._newest_ns(gone), self._floor_ns or 0)

    def _newest_ns(self, signer: Signer) -> int:
        return max((stamp_ns for stamp_ns, _ in signer.by_stamp), default=signer.floor_ns or 0)
