"""The inbox: publications of one subscription that the program has not read yet, bounded.

In:    publications, as the session receives them.
Out:   publications, oldest first; ``pressing`` while a full inbox asks the session to stop reading.
State: the queue, and how many were lost because the program did not read them.
Not here: holding the link (client/deliveries.py), waiting for the next publication (live/subscription.py).
"""

from __future__ import annotations

from collections import deque

from heliograph.errors import HeliographError
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy

OBJECT_BYTES = 256  # memory of a publication beside its payload and headers


class Inbox:
    """The unread publications of a subscription. If full, it drops the oldest (``drop_oldest``) or presses."""

    __slots__ = (
        "_queue",
        "bytes",
        "bytes_max",
        "drops",
        "ended",
        "error",
        "frames_max",
        "lost",
        "number",
        "pressing",
        "received",
    )

    def __init__(self, number: int, policy: Policy, frames_max: int, bytes_max: int) -> None:
        self.number = number
        self.frames_max = frames_max
        self.bytes_max = bytes_max
        self.drops = policy is Policy.DROP_OLDEST
        self.bytes = 0
        self.received = 0
        self.lost = 0
        self.pressing = False  # stays set until it is half empty again
        self.ended = False  # nothing more will come
        self.error: HeliographError | None = None  # why it ended, unless the program ended it
        self._queue: deque[Publication] = deque()

    def put(self, publications: list[Publication]) -> int:
        """Add what arrived; returns how many of the oldest were dropped."""
        queue = self._queue
        queue.extend(publications)
        self.received += len(publications)
        size = self.bytes
        for publication in publications:
            size += OBJECT_BYTES + publication.size
        self.bytes = size
        if size <= self.bytes_max and len(queue) <= self.frames_max:
            return 0
        if self.drops:
            return self._drop_oldest()
        self.pressing = True
        return 0

    def take(self) -> Publication | None:
        """The oldest publication, or None."""
        if not self._queue:
            return None
        publication = self._queue.popleft()
        self.bytes -= OBJECT_BYTES + publication.size
        return publication

    def take_all(self) -> list[Publication]:
        """Everything that is waiting."""
        publications = list(self._queue)
        self._queue.clear()
        self.bytes = 0
        return publications

    def take_some(self, most: int | None) -> list[Publication]:
        """The oldest publications, at most this many; None: all."""
        queue = self._queue
        if most is None or len(queue) <= most:
            return self.take_all()
        publications = [queue.popleft() for _ in range(most)]
        self.bytes -= sum(OBJECT_BYTES + publication.size for publication in publications)
        return publications

    def fills(self, times: int) -> bool:
        """True if it holds more than ``times`` its limit."""
        return self.bytes > times * self.bytes_max or len(self._queue) > times * self.frames_max

    def is_half_empty(self) -> bool:
        """True if there is enough room to resume reading."""
        return 2 * self.bytes <= self.bytes_max and 2 * len(self._queue) <= self.frames_max

    def lose(self, count: int) -> None:
        """Count publications that were lost before they arrived."""
        self.lost += count

    def forget(self) -> None:
        """Forget what is waiting: the program will not read it."""
        self._queue.clear()
        self.bytes = 0

    def relax(self) -> None:
        """There is room again: stop pressing."""
        self.pressing = False

    def abandon(self) -> None:
        """The program will not read any more: from now on drop the oldest instead of pressing."""
        self.drops = True

    def end(self, error: HeliographError | None = None) -> None:
        """Nothing more will come; what is there can still be read."""
        if not self.ended:
            self.ended = True
            self.error = error

    def _drop_oldest(self) -> int:
        dropped = 0
        while self._queue and self.fills(1):
            self.take()
            dropped += 1
        self.lost += dropped
        return dropped

    def __len__(self) -> int:
        return len(self._queue)
