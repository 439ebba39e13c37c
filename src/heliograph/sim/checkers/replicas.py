"""Replicas: a directory keeps what it acknowledged, through crashes, and nothing that was withdrawn or has expired.

In:    the book of topics; at the end, what is in each directory's repository.
Out:   a violation for each topic that a directory lost, never got although nothing was wrong, or still has.
State: which directories should have which topics.
Not here: what searches show of it (found.py).

Directories are no exact copies: one that is away when a topic is advertised does not get it. A withdrawal reaches all,
because they ask brokers for revocations.
"""

from __future__ import annotations

from heliograph.sim.checkers.topics_book import SKEW_NS, STEADY_NS, TopicsBook
from heliograph.sim.loop import SECOND

ADVERTISED_NS = 2 * SECOND  # a creation in a calm network takes less


class TopicReplicas(TopicsBook):
    """What directories keep."""

    name = "replicas"

    def prepare(self) -> None:
        """No directory has anything."""
        super().prepare()
        self._expected: dict[str, dict[str, None]] = {name: {} for name in self.alive}

    def on_created(self, owner: str, name: str, uuid: str, keepers: tuple[str, ...], expires_at: int) -> None:
        """Whoever acknowledged it has it; if nothing is wrong, all have heard of it."""
        super().on_created(owner, name, uuid, keepers, expires_at)
        heard = list(self.alive) if self.is_calm(self.journal.instant - ADVERTISED_NS) else []
        for directory in {**dict.fromkeys(keepers), **dict.fromkeys(heard)}:
            self._expected[directory][uuid] = None

    def end(self) -> None:
        """Compare with what is on disk."""
        now = self.journal.instant
        for directory, expected in self._expected.items():
            has = set(self.ask(directory, "repository"))
            for uuid in expected:
                name = self.names[uuid]
                if uuid not in has and name not in self.ending_at and now < self.expires_at(uuid):
                    self.blame(f"{directory} no longer has {name} ({uuid})")
            if directory in self.alive and self.is_calm(now - STEADY_NS):
                for uuid in has & set(self.names):
                    self._judge_kept(directory, uuid, now)

    def _judge_kept(self, directory: str, uuid: str, now: int) -> None:
        name = self.names[uuid]
        gone_at = self.withdrawn_at.get(name)
        if gone_at is not None and gone_at + STEADY_NS <= now:
            self.blame(f"{directory} still has {name} ({uuid}), which was withdrawn")
        if self.expires_at(uuid) + 2 * SKEW_NS + STEADY_NS <= now:
            self.blame(f"{directory} still has {name} ({uuid}), whose life is over")

    def tally(self) -> dict[str, int]:
        """How many topics were kept."""
        return {"created": len(self.names), "copies": sum(map(len, self._expected.values()))}
