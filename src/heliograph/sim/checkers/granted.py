"""Granted: who has a right gets what is published on a topic, and nobody else; a revoked grant ends.

In:    "sent", "read", "allowed"; the book of topics.
Out:   a violation for each publication that somebody got without a right, for each grant that a broker accepts after it
       was revoked, and for each holder that got nothing at the end.
State: what was sent, and what each entity got.
Not here: keys of encrypted topics (keys.py), finding topics (hidden.py).

A revocation takes time to reach every broker. It counts STEADY_NS after a broker took it, if nothing has gone wrong
since; a publication counts by when it was sent.
"""

from __future__ import annotations

from heliograph.sim.checkers.topics_book import STEADY_NS, TopicsBook
from heliograph.sim.loop import SECOND

LATE_NS = 5 * SECOND  # the end of the run, in which every holder must get everything …
ARRIVED_NS = 3 * SECOND // 2  # … except what was sent a moment ago


class TopicsGranted(TopicsBook):
    """Who gets what."""

    name = "granted"

    def prepare(self) -> None:
        """Nothing was published."""
        super().prepare()
        self._sent: dict[tuple[str, int], int] = {}
        self._read: dict[tuple[str, str, int], None] = {}
        self._here: dict[str, dict[tuple[str, int], None]] = {}  # what each entity got on its present link
        self._judged = 0

    def on_sent(self, owner: str, name: str, number: int) -> None:
        """An owner published."""
        self._sent[name, number] = self.journal.instant

    def on_attached(self, who: str, *_: object) -> None:
        """A new session: what was under way may reach it, too."""
        self._here.pop(who, None)

    def on_read(self, who: str, name: str, number: int, opened: bool | None) -> None:
        """Somebody got it."""
        sent_at = self._sent.get((name, number))
        if sent_at is None:
            self.blame(f"{who} got {name} {number}, which nobody sent")
            return
        here = self._here.setdefault(who, {})
        if (name, number) in here:
            self.blame(f"{who} got {name} {number} twice on one link")
        self._read[who, name, number] = here[name, number] = None
        grants = [grant for grant in self.grants_of(who, name) if grant.subscribe]
        if who != self.topics[name].owner and all(self.is_over(grant, sent_at) for grant in grants):
            self.blame(f"{who} got {name} {number} without a right to it")

    def on_allowed(self, who: str, name: str) -> None:
        """A broker accepted a grant."""
        if self.is_over(self.grants[name], self.journal.instant):
            self.blame(f"the broker of {who} accepted {name}, which was revoked")

    def end(self) -> None:
        """Everybody who has a right got what was sent lately."""
        now = self.journal.instant
        since, until = now - LATE_NS, now - ARRIVED_NS
        lately = {key: at for key, at in self._sent.items() if since <= at <= until}
        if not self.is_calm(since):
            self.blame("the end of the run is not calm: settle_s is too short")
            return
        for grant in self.grants.values():
            if not grant.subscribe or self.ended_at(grant) <= now or not self.topics[grant.topic].every_s:
                continue
            if self.granted_at.get(grant.name, now) + STEADY_NS > since:
                self.blame(f"{grant.name} was not made in time")
                continue
            numbers = [number for name, number in lately if name == grant.topic]
            missed = [number for number in numbers if (grant.holder, grant.topic, number) not in self._read]
            self._judged += 1
            if missed or not numbers:
                self.blame(f"{grant.holder}, who has {grant.name}, misses {missed or 'everything'} of {grant.topic}")

    def tally(self) -> dict[str, int]:
        """How much was published and read."""
        return {"sent": len(self._sent), "read": len(self._read), "holders": self._judged}
