"""A chain: the reliable publications of one publisher for this store, each naming the one before.

In:    publications in any order, with repeats.
Out:   those that are next, in the publisher's order; what is missing.
State: the last number taken and the last durable one; a bounded number of publications that wait for an earlier one,
       for a bounded time.
Not here: writing them (intake.py), the vault (vault_calls.py).

Nothing is taken twice: a number at or below the last one taken is a repeat.
"""

from __future__ import annotations

from enum import Enum
from heapq import heappop, heappush
from struct import Struct

from heliograph.machine import Instant
from heliograph.model.identity import ANONYMOUS
from heliograph.stores.names import Holder

STATE = Struct("<QQ")  # have, time of the last change; then the publisher's inbox, entity and source, each on a line
EARLY_MAX = 20_000  # of one chain
EARLY_BYTES_MAX = 8 << 20
REFUSED_MAX = 1_024  # told with one acknowledgement
ASK_NS = 300_000_000  # between asking for missing publications and asking again: at first …
ASK_NS_MAX = 10_000_000_000  # … and at last
PATIENCE_NS = 60_000_000_000  # without progress; then what waits is refused


class Verdict(Enum):
    """What happened to a publication that was offered."""

    TAKEN = 1
    REPEATED = 2  # it was taken before
    EARLY = 3  # an earlier one is missing: it waits
    BROKEN = 4  # it cannot follow the last one taken
    UNKNOWN = 5  # the durable state of this publisher is still being read: it waits


class Chain:
    """One publisher."""

    __slots__ = (
        "_asked_at",
        "_early",
        "_early_order",
        "_pause_ns",
        "_stuck_at",
        "_stuck_since",
        "_unread",
        "early_bytes",
        "entity",
        "have",
        "highest",
        "inbox",
        "is_read",
        "refused",
        "source",
        "taken",
    )

    def __init__(self, origin_inbox: str = "") -> None:
        self.inbox = origin_inbox  # where acknowledgements go; empty: unknown
        self.entity = ""  # known once the publisher has attached …
        self.source = ""  # … and the address that it counts for
        self.have = 0  # durable
        self.taken = 0  # given to the vault, perhaps not durable yet
        self.highest = 0  # highest number ever received
        self.is_read = False  # ``have`` was read from the vault
        self._asked_at: Instant | None = None  # when we last asked for missing ones
        self._pause_ns = ASK_NS  # until we ask again
        self._stuck_at = -1  # what ``taken`` was when we first asked …
        self._stuck_since: Instant = 0  # … and when that was
        self.refused: list[tuple[int, int]] = []  # to be reported with the next acknowledgement
        self._early: dict[int, tuple[int, bytes]] = {}  # previous -> sequence, frame
        self._early_order: list[int] = []  # a heap of the same previous numbers; it may have some that were taken
        self._unread: list[tuple[int, int, bytes]] = []
        self.early_bytes = 0

    def offer(self, sequence: int, previous: int, raw: bytes, taken: list[tuple[int, bytes]]) -> Verdict:
        """Take a publication if it is next, and those that waited for it; they are added to ``taken`` in order."""
        self.highest = max(self.highest, sequence)
        if not self.is_read:
            if self._has_room(raw):
                self._unread.append((sequence, previous, raw))
                self.early_bytes += len(raw)
            return Verdict.UNKNOWN
        if sequence <= self.taken:
            return Verdict.REPEATED
        if previous >= sequence:
            return Verdict.BROKEN
        if previous > self.taken:
            if previous not in self._early and self._has_room(raw):
                self._early[previous] = (sequence, raw)
                heappush(self._early_order, previous)
                self.early_bytes += len(raw)
            return Verdict.EARLY
        if previous < 0 or 0 < previous < self.taken:
            return Verdict.BROKEN
        taken.append((sequence, raw))
        self.taken = sequence
        while self._early and (waiting := self._early.pop(self.taken, None)) is not None:
            self.early_bytes -= len(waiting[1])
            taken.append(waiting)
            self.taken = waiting[0]
        self._forget_old()
        return Verdict.TAKEN

    def would_wait(self, sequence: int, previous: int, raw: bytes) -> int:
        """The bytes that this publication, if it is offered, adds to what waits."""
        if self.is_read and (sequence <= self.taken or not self.taken < previous < sequence or previous in self._early):
            return 0
        return len(raw) if self._has_room(raw) else 0

    @property
    def holder(self) -> Holder:
        """Whom it counts for."""
        return self.entity, self.source if self.entity == ANONYMOUS.entity else ""

    def is_next(self, sequence: int, previous: int) -> bool:
        """True if this follows the last one taken, and none waits."""
        return previous == self.taken < sequence and self.is_read and not self._early

    def advance(self, sequence: int) -> None:
        """Everything up to this number was taken, one after the other."""
        self.taken = sequence
        self.highest = max(self.highest, sequence)

    def _has_room(self, raw: bytes) -> bool:
        count = len(self._early) + len(self._unread)
        return count < EARLY_MAX and self.early_bytes + len(raw) <= EARLY_BYTES_MAX

    def _forget_old(self) -> None:
        """Forget what waits for a number that was passed, and what the heap has of those that were taken."""
        while self._early_order and self._early_order[0] < self.taken:
            waiting = self._early.pop(heappop(self._early_order), None)
            if waiting is not None:
                self.early_bytes -= len(waiting[1])

    @property
    def missing(self) -> int:
        """The number up to which publications are missing; 0: none is known to be missing."""
        return self._early_order[0] if self._early_order else 0

    @property
    def is_idle(self) -> bool:
        """True if it can be forgotten: everything is in the vault."""
        return self.is_read and self.taken == self.have and not self._early and not self.refused

    def read(self, state: bytes | None) -> list[tuple[int, int, bytes]]:
        """Take the state that the vault holds. Returns publications that arrived meanwhile, to be offered again."""
        self.is_read = True
        if state is not None and len(state) >= STATE.size:
            self.have = self.taken = STATE.unpack_from(state)[0]
            inbox, entity, source, *_ = [*state[STATE.size :].decode(errors="replace").split("\n"), "", ""]
            self.inbox = self.inbox or inbox
            if not self.entity:
                self.entity, self.source = entity, source
        unread, self._unread = self._unread, []
        self.early_bytes = 0
        return unread

    def state(self, sequence: int, wall_ns: int) -> bytes:
        """The state for the vault once everything up to this number is durable."""
        return STATE.pack(sequence, max(0, wall_ns)) + f"{self.inbox}\n{self.entity}\n{self.source}".encode()

    def made_durable(self, sequence: int) -> None:
        """Everything up to here is durable."""
        self.have = max(self.have, sequence)

    def attach(self, inbox: str, entity: str, source: str) -> None:
        """Its publisher has attached."""
        self.inbox = inbox
        self.entity = entity
        self.source = source

    def refuse(self, sequence: int, code: int) -> None:
        """A publication that is not kept; the publisher is told once, if it has attached."""
        if self.inbox and len(self.refused) < REFUSED_MAX:
            self.refused.append((sequence, code))

    def told(self) -> None:
        """The publisher was told what was refused."""
        self.refused = []

    def ask(self, now: Instant) -> Instant | None:
        """It is time to ask the publisher for what is missing: returns when to ask again, later each time until there
        is progress. None if we have just asked."""
        if self._asked_at is not None and now < self._asked_at + (ASK_NS if self._moved else self._pause_ns):
            return None
        if self._asked_at is None or self._moved:
            self._stuck_at, self._stuck_since, self._pause_ns = self.taken, now, ASK_NS
        else:
            self._pause_ns = min(2 * self._pause_ns, ASK_NS_MAX)
        self._asked_at = now
        return now + self._pause_ns

    @property
    def _moved(self) -> bool:
        return self.taken != self._stuck_at

    def closed(self) -> None:
        """Nothing is missing any more."""
        self._asked_at = None

    def is_hopeless(self, now: Instant) -> bool:
        """True if we have asked in vain for long."""
        return self._asked_at is not None and not self._moved and now - self._stuck_since >= PATIENCE_NS

    def give_up(self, code: int) -> int:
        """Forget what waits for an earlier publication, and refuse the first of it. Returns how many were forgotten."""
        self.refuse(self._early[self.missing][0], code)
        count = len(self._early)
        self._early.clear()
        self._early_order.clear()
        self.early_bytes = 0
        self._asked_at = None
        return count

    def give_way(self) -> None:
        """Forget what waits. Its publisher sends it again, beginning with what is missing."""
        self._early.clear()
        self._early_order.clear()
        self._unread.clear()
        self.early_bytes = 0
        self._asked_at = None

    def reset(self) -> None:
        """Publications that were taken but are not durable are lost, and must be sent again."""
        self.taken = self.have
        self._early.clear()
        self._early_order.clear()
        self._unread.clear()
        self.early_bytes = 0
