"""Found: a search finds every topic that was acknowledged and that a directory which answered keeps, and no others.

In:    "sought", "found"; the book of topics.
Out:   a violation for each search that misses, repeats or invents a topic, shows one that is over, or fails for no
       reason.
State: searches under way.
Not here: what somebody may not find (hidden.py), what directories keep (replicas.py).

A directory that finished a search vouches for all that it keeps, whatever went wrong: so nothing excuses a search that
misses a topic which such a directory acknowledged before it began. Where no directory is left, owners answer: only
about as many of them as are needed, so that a search must then find something, not everything.
"""

from __future__ import annotations

from heliograph.sim.checkers.topics_book import SKEW_NS, STEADY_NS, TopicsBook
from heliograph.sim.loop import SECOND
from heliograph.sim.topics.script import Row

PATIENCE_NS = 8 * SECOND  # a search ends within this


class TopicsFound(TopicsBook):
    """Who finds what."""

    name = "found"

    def prepare(self) -> None:
        """No search has begun."""
        super().prepare()
        self._began: dict[tuple[str, int], tuple[int, str]] = {}
        self._creating: dict[str, None] = {}
        self._searches = self._complete = self._by_owners = self._failed = 0

    def on_creating(self, owner: str, name: str) -> None:
        """Something may come of this even if it is never acknowledged."""
        self._creating[name] = None

    def on_sought(self, who: str, number: int, text: str) -> None:
        """A search began."""
        self._began[who, number] = self.journal.instant, text

    def on_crashed(self, who: str, *_: object) -> None:
        """Its searches end with it."""
        self._began = {key: began for key, began in self._began.items() if key[0] != who}

    def on_found(
        self,
        who: str,
        number: int,
        rows: list[Row],
        directories: tuple[str, ...],
        owners: tuple[str, ...],
        error: str,
    ) -> None:
        """A search ended."""
        began, text = self._began.pop((who, number))
        self._searches += 1
        self._judge_rows(who, began, rows)
        found = {uuid for _, uuid, _, _ in rows}
        for uuid, name in self.names.items():
            keeper = next((one for one in self.keepers[uuid] if one in directories), "")
            if keeper and uuid not in found and self._should_find(who, uuid, began, text):
                self.blame(f"{who} misses {name} ({uuid}), which {keeper} acknowledged and finished the search")
        self._complete += bool(directories)
        if not self.is_calm(began):
            return
        self._failed += bool(error) and bool(self.alive)
        if error and self.alive and not self._is_lossy:
            self.blame(f"{who} found nothing, though {', '.join(self.alive)} runs: {error}")
        if not self.alive:
            self._judge_owners(who, began, text, rows)

    @property
    def _is_lossy(self) -> bool:
        return self.scenario.topics is not None and self.scenario.topics.loss > 0

    def _judge_rows(self, who: str, began: int, rows: list[Row]) -> None:
        if len({uuid for _, uuid, _, _ in rows}) != len(rows):
            self.blame(f"{who} found a topic twice: {rows}")
        for name, uuid, owner, told_by in rows:
            if name not in self.topics or (uuid not in self.names and name not in self._creating):
                self.blame(f"{who} found {name} ({uuid}), which nobody created")
                continue
            if owner != self.topics[name].owner:
                self.blame(f"{who} found {name} ({uuid}) of {owner}, but it belongs to {self.topics[name].owner}")
            if uuid in self.names and self.expires_at(uuid) + 2 * SKEW_NS < began:
                self.blame(f"{told_by} showed {who} {name} ({uuid}), whose life is over")
            gone_at = self.withdrawn_at.get(name)
            if gone_at is not None and gone_at + STEADY_NS <= began and self.is_calm(began):
                self.blame(f"{told_by} showed {who} {name} ({uuid}), which was withdrawn")

    def _should_find(self, who: str, uuid: str, began: int, text: str) -> bool:
        name, now = self.names[uuid], self.journal.instant
        if text not in ("plant", name) or self.created_at[uuid] >= began or name in self.ending_at:
            return False
        if self.expires_at(uuid) <= now:
            return False
        return self.is_reader(who, name) or any(
            grant.discover
            and self.granted_at[grant.name] < began
            and not any(one.name in self.ending_at for one in self.above(grant))
            for grant in self.grants_of(who, name)
        )

    def _judge_owners(self, who: str, began: int, text: str, rows: list[Row]) -> None:
        """Owners show topics to readers only: grants are for directories."""
        self._by_owners += 1
        there = [
            uuid
            for uuid, name in self.names.items()
            if self._should_find(who, uuid, began, text)
            and self.is_reader(who, name)
            and self.topics[name].owner != who
            and self.created_at[uuid] + STEADY_NS <= began
        ]
        if there and not rows and not self._is_lossy:
            self.blame(f"{who} found nothing without a directory, though owners of {len(there)} topics are there")

    def end(self) -> None:
        """Nothing is under way any more."""
        for (who, number), (began, _) in self._began.items():
            if self.journal.instant - began > PATIENCE_NS:
                self.blame(f"search {number} of {who} never ended")
        if self.scenario.search and not self._complete:
            self.blame("no directory finished any search")
        if self._failed * 10 > self._searches:
            self.blame(f"{self._failed} of {self._searches} searches failed, though directories were there")

    def tally(self) -> dict[str, int]:
        """How many searches were judged."""
        return {"searches": self._searches, "complete": self._complete, "by_owners": self._by_owners}
