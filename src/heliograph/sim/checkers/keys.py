"""Keys: what is sent on an encrypted topic after a revocation is closed to the revoked holder, and open to the others.

In:    "sent", "read", "leaked"; the book of topics.
Out:   a violation for each publication that somebody could open who has no grant from the owner's last key on, for each
       that was sent in the clear, and for each holder that cannot open what is sent at the end.
State: what was sent, and what each entity opened.
Not here: who gets publications at all (granted.py).

The owner changes the key when it revokes, before anybody else knows: so nothing excuses a revoked holder that opens a
later publication, wherever he got it: every entity gets a copy of each. A grant that a delegator revoked changes no
key.
"""

from __future__ import annotations

from heliograph.sim.checkers.granted import ARRIVED_NS, LATE_NS
from heliograph.sim.checkers.topics_book import NEVER, TopicsBook
from heliograph.sim.topics.plans import GrantPlan


class TopicKeys(TopicsBook):
    """Who can open what."""

    name = "keys"

    def prepare(self) -> None:
        """Nothing was published."""
        super().prepare()
        self._sent: dict[tuple[str, int], int] = {}
        self._opened: dict[tuple[str, str, int], None] = {}

    def on_sent(self, owner: str, name: str, number: int) -> None:
        """An owner published."""
        self._sent[name, number] = self.journal.instant

    def on_read(self, who: str, name: str, number: int, opened: bool | None) -> None:
        """Somebody got it, and tried to open it."""
        if opened is None:
            if self.topics[name].encrypted:
                self.blame(f"{name} {number} was sent in the clear")
            return
        if opened:
            self._opened[who, name, number] = None
            self._judge(who, name, number)

    def on_leaked(self, who: str, name: str, number: int, opened: bool | None) -> None:
        """Somebody got a copy, with or without a right."""
        if opened:
            self._judge(who, name, number)

    def _judge(self, who: str, name: str, number: int) -> None:
        sent_at = self._sent.get((name, number), 0)
        if all(self._changed_at(grant) < sent_at for grant in self.grants_of(who, name)):
            self.blame(f"{who} opened {name} {number}, sent after its last grant was revoked")

    def _changed_at(self, grant: GrantPlan) -> int:
        """When the owner drew a key that the holder of this grant never gets."""
        return min(self.ending_at.get(one.name, NEVER) if not one.using else NEVER for one in self.above(grant))

    def end(self) -> None:
        """Who still has a grant opened what was sent lately."""
        since, until = self.journal.instant - LATE_NS, self.journal.instant - ARRIVED_NS
        lately = [(name, number) for (name, number), at in self._sent.items() if since <= at <= until]
        for grant in self.grants.values():
            plan = self.topics[grant.topic]
            if not plan.encrypted or not grant.subscribe or self.ended_at(grant) != NEVER:
                continue
            closed = [
                number
                for name, number in lately
                if name == grant.topic and (grant.holder, name, number) not in self._opened
            ]
            if closed:
                self.blame(f"{grant.holder}, who has {grant.name}, cannot open {closed} of {grant.topic}")

    def tally(self) -> dict[str, int]:
        """How much was opened."""
        return {"opened": len(self._opened)}
