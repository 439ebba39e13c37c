"""A chain: the reliable publications of one publisher for this store, each naming the one before.

In:    publications in any order, with repeats.
Out:   those that are next, in the publisher's order; what is missing.
State: the last number taken and the last durable one; a bounded number of publications that wait for an earlier one.
Not here: writing them (intake.py), the vault (vault_calls.py).

Nothing is taken twice: a number at or below the last one taken is a repeat.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct

from heliograph.machine import Instant

STATE = Struct("<QQ")  # have, time of the last change; then the publisher's inbox and entity, each on a line
EARLY_MAX = 20_000  # of one chain
EARLY_BYTES_MAX = 8 << 20


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
        "_early",
        "_unread",
        "asked_at",
        "early_bytes",
        "entity",
        "have",
        "highest",
        "inbox",
        "is_read",
        "refused",
        "taken",
    )

    def __init__(self, origin_inbox: str = "") -> None:
        self.inbox = origin_inbox  # where acknowledgements go; empty: unknown
        self.entity = ""  # known once the publisher has attached
        self.have = 0  # durable
        self.taken = 0  # given to the vault, perhaps not durable yet
        self.highest = 0  # highest number ever received
        self.is_read = False  # ``have`` was read from the vault
        self.asked_at: Instant | None = None  # when we last asked for missing ones
        self.refused: list[tuple[int, int]] = []  # to be reported with the next acknowledgement
        self._early: dict[int, tuple[int, bytes]] = {}  # previous -> sequence, frame
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
        if previous > self.taken:
            if previous not in self._early and self._has_room(raw):
                self._early[previous] = (sequence, raw)
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
        if self._early:
            self._forget_old()
        return Verdict.TAKEN

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
        for previous in [previous for previous in self._early if previous < self.taken]:
            self.early_bytes -= len(self._early.pop(previous)[1])

    @property
    def missing(self) -> int:
        """The number up to which publications are missing; 0: none is known to be missing."""
        return min(self._early, default=0)

    @property
    def is_idle(self) -> bool:
        """True if it can be forgotten: everything is in the vault."""
        return self.is_read and self.taken == self.have and not self._early and not self.refused

    def read(self, state: bytes | None) -> list[tuple[int, int, bytes]]:
        """Take the state that the vault holds. Returns publications that arrived meanwhile, to be offered again."""
        self.is_read = True
        if state is not None and len(state) >= STATE.size:
            self.have = self.taken = STATE.unpack_from(state)[0]
            inbox, _, entity = state[STATE.size :].decode(errors="replace").partition("\n")
            self.inbox = self.inbox or inbox
            self.entity = self.entity or entity
        unread, self._unread = self._unread, []
        self.early_bytes = 0
        return unread

    def state(self, sequence: int, wall_ns: int) -> bytes:
        """The state for the vault once everything up to this number is durable."""
        return STATE.pack(sequence, max(0, wall_ns)) + f"{self.inbox}\n{self.entity}".encode()

    def made_durable(self, sequence: int) -> None:
        """Everything up to here is durable."""
        self.have = max(self.have, sequence)

    def attach(self, inbox: str, entity: str) -> None:
        """Its publisher has attached."""
        self.inbox = inbox
        self.entity = entity

    def refuse(self, sequence: int, code: int) -> None:
        """A publication that is not kept; the publisher is told once."""
        if len(self.refused) < EARLY_MAX:
            self.refused.append((sequence, code))

    def told(self) -> None:
        """The publisher was told what was refused."""
        self.refused = []

    def ask(self, now: Instant | None) -> None:
        """The publisher was asked for missing publications; None: none are missing."""
        self.asked_at = now

    def reset(self) -> None:
        """Publications that were taken but are not durable are lost, and must be sent again."""
        self.taken = self.have
        self._early.clear()
        self._unread.clear()
        self.early_bytes = 0
