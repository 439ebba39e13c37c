"""Hidden: nobody is shown a topic that he may not find.

In:    "sought", "found", "noticed"; the book of topics.
Out:   a violation for each topic that a search, once or standing, showed to somebody who is no reader, does not own it,
       and has no grant that lets him find it.
State: when searches began.
Not here: what should be found (found.py), publications (granted.py).

A revoked grant counts until brokers and directories can have heard of it: STEADY_NS in a calm network. Whoever was
shown a topic is told of its end too, so "gone" is no violation.
"""

from __future__ import annotations

from heliograph.sim.checkers.topics_book import TopicsBook
from heliograph.sim.topics.script import Row


class TopicsHidden(TopicsBook):
    """Who may find what."""

    name = "hidden"

    def prepare(self) -> None:
        """No search has begun."""
        super().prepare()
        self._began: dict[tuple[str, int], int] = {}
        self._shown = 0

    def on_sought(self, who: str, number: int, text: str) -> None:
        """A search began."""
        self._began[who, number] = self.journal.instant

    def on_found(self, who: str, number: int, rows: list[Row], *_: object) -> None:
        """A search ended."""
        began = self._began.pop((who, number))
        for name, uuid, _owner, told_by in rows:
            self._judge(who, name, uuid, told_by, began)

    def on_noticed(self, who: str, change: str, name: str, uuid: str, owner: str, told_by: str) -> None:
        """A standing search showed something."""
        if change != "gone":
            self._judge(who, name, uuid, told_by, self.journal.instant)

    def _judge(self, who: str, name: str, uuid: str, told_by: str, at: int) -> None:
        self._shown += 1
        if name not in self.topics or self.is_reader(who, name):
            return
        if not any(grant.discover and not self.is_over(grant, at) for grant in self.grants_of(who, name)):
            self.blame(f"{told_by} showed {who} {name} ({uuid}), who may not find it")

    def end(self) -> None:
        """A run in which nothing was shown proves nothing."""
        if self.scenario.search and not self._shown:
            self.blame("no search showed anything")
