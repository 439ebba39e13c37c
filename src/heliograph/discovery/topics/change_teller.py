"""Which standing search is told next of a change: a few at each wake, the entities in turn.

In:    standing searches with entries that concern them.
Out:   calls of ``tell``, never more than TOLD_AT_ONCE in one input.
State: changes that wait to be told, in order for each entity; bounded.
Not here: which standing searches an entry concerns (watches.py), what is sent to them (topic_searches.py).

A change costs a signed and sealed message for each standing search that it concerns, and there may be thousands. So the
machine gets no long stretch of work by one change, and an entity with one standing search waits for one message of each
other entity, however many standing searches those have.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from heliograph.machine import Instant, Timers
from heliograph.repository import TopicEntry

if TYPE_CHECKING:
    from heliograph.discovery.topics.watches import Watch

TOLD_AT_ONCE = 4  # about a millisecond: each is signed and sealed
WAITING_MAX = 65_536  # changes that wait; entities share the places, so one that is told much takes none from others

Tell = Callable[["Watch", TopicEntry, str, Instant], None]


class ChangeTeller:
    """The changes that standing searches of one directory have yet to be told."""

    def __init__(self, timers: Timers, tell: Tell, waiting_max: int = WAITING_MAX) -> None:
        self._timers = timers
        self._tell = tell
        self._waiting_max = waiting_max
        self._waiting: OrderedDict[str, deque[tuple[Watch, TopicEntry, str]]] = OrderedDict()  # whose turn is first

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, watch: Watch, entry: TopicEntry, change: str, now: Instant) -> bool:
        """Tell this standing search soon. Returns False if its entity has used up its share of the places."""
        entity = watch.asker.identity.entity
        if not self._waiting:
            self._timers.set("changes", now, self._tell_some)
        turn = self._waiting.setdefault(entity, deque())
        if len(turn) >= max(1, self._waiting_max // len(self._waiting)):
            return False
        turn.append((watch, entry, change))
        return True

    def _tell_some(self, now: Instant) -> None:
        for _ in range(TOLD_AT_ONCE):
            if not self._waiting:
                return
            entity, turn = self._waiting.popitem(last=False)
            watch, entry, change = turn.popleft()
            if turn:
                self._waiting[entity] = turn
            self._tell(watch, entry, change, now)
        if self._waiting:
            self._timers.set("changes", now, self._tell_some)
