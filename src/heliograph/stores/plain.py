"""Plain topics: which publications without a mark this store keeps.

In:    topics; the stores that are known.
Out:   yes or no, remembered by topic.
State: a bounded table of answers.
Not here: keeping them (intake.py), advertisements (known.py).
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.machine import Instant
from heliograph.stores.config import StoreConfig
from heliograph.stores.known import KnownStores, fit

TOPICS_MAX = 4_096


class PlainTopics:
    """Only one store keeps a publication that names no store: the one that publishers would choose."""

    def __init__(self, config: StoreConfig, known: KnownStores, own_id: Callable[[], int]) -> None:
        self._config = config
        self._known = known
        self._own_id = own_id
        self._answers: dict[bytes, bool] = {}

    def keeps(self, topic: bytes, now: Instant) -> bool:
        """True if this store keeps publications on this topic."""
        answer = self._answers.get(topic)
        if answer is None:
            if len(self._answers) >= TOPICS_MAX:
                self._answers.clear()
            answer = self._answers[topic] = self._is_first(topic, now)
        return answer

    def forget(self) -> None:
        """Stores came or went: find out again which store keeps which topic."""
        self._answers.clear()

    def _is_first(self, topic: bytes, now: Instant) -> bool:
        if self._config.keep != "all":
            return False
        name = topic.decode(errors="replace")
        depth = fit(list(self._config.patterns), name)
        if depth is None:
            return False
        for other in self._known.serving(name, now):
            other_depth = fit(other.patterns, name)
            assert other_depth is not None
            if (-other_depth, other.name, other.store) < (-depth, self._config.name, f"{self._own_id():016x}"):
                return False
        return True
