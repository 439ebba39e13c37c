"""What checkers of topics know: who created, granted, revoked and withdrew what, and how long nothing has gone wrong.

In:    entries of directories and entities; faults as they begin and end; "disturbed" and "settled".
Out:   TopicsBook, the base of these checkers.
State: the book.
Not here: the rules (found.py, hidden.py, granted.py, keys.py, replicas.py), entities (sim/topics/).
"""

from __future__ import annotations

from heliograph.repository import EVERYBODY
from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.maps import AT_ONCE
from heliograph.sim.loop import SECOND
from heliograph.sim.topics.plans import GrantPlan

STEADY_NS = 4 * SECOND  # after this, without faults, every broker and directory knows what was revoked and withdrawn
SKEW_NS = SECOND // 2  # clocks differ, and messages take time
NO_END = ("clock_step",)
NEVER = 1 << 62


class TopicsBook(Checker):
    """Base of the checkers of topics."""

    def prepare(self) -> None:
        """Nothing has happened yet."""
        scenario = self.scenario
        self.topics = {plan.name: plan for plan in scenario.topic}
        self.grants = {plan.name: plan for plan in scenario.grant}
        self.alive = {plan.name: None for plan in scenario.directory}
        self.names: dict[str, str] = {}  # UUID -> name, as acknowledged
        self.created_at: dict[str, int] = {}  # UUID -> when that was
        self._expires_at: dict[str, int] = {}  # UUID -> as its directory signed
        self.keepers: dict[str, tuple[str, ...]] = {}  # UUID -> directories that acknowledged it
        self.ending_at: dict[str, int] = {}  # topics and grants: their end began …
        self.told_at: dict[str, int] = {}  # … and a broker knows of it …
        self.withdrawn_at: dict[str, int] = {}  # … and a directory
        self.granted_at: dict[str, int] = {}
        self._active = 0
        self._settled = not scenario.topology.links
        self._restless_at = 0  # the last time that something went wrong, or was mended

    # -- how long nothing has gone wrong --------------------------------------------------------------------------

    def is_calm(self, since: int) -> bool:
        """True if nothing went wrong from STEADY_NS before this instant until now."""
        return self._settled and not self._active and self._restless_at + STEADY_NS <= since

    def on_fault(self, target: str, kind: str) -> None:
        """A fault began."""
        if kind not in self.scenario.checks.harmless:
            self._active += kind not in AT_ONCE + NO_END
            self._restless_at = self.journal.instant

    def on_healed(self, target: str, kind: str) -> None:
        """A fault ended."""
        if kind not in self.scenario.checks.harmless:
            self._active -= kind not in AT_ONCE + NO_END
            self._restless_at = self.journal.instant

    def on_disturbed(self, *_: object) -> None:
        """The brokers' maps may be wrong."""
        self._settled = False

    def on_settled(self, *_: object) -> None:
        """They are right again."""
        self._settled = True
        self._restless_at = self.journal.instant

    def on_died(self, directory: str) -> None:
        """A directory ended for good."""
        self.alive.pop(directory, None)
        self._restless_at = self.journal.instant

    # -- topics and grants ----------------------------------------------------------------------------------------

    def on_created(self, owner: str, name: str, uuid: str, keepers: tuple[str, ...], expires_at: int) -> None:
        """A directory keeps a new topic."""
        self._expires_at[uuid] = expires_at
        self.names[uuid] = name
        self.created_at[uuid] = self.journal.instant
        self.keepers[uuid] = keepers

    def on_withdrawing(self, owner: str, name: str) -> None:
        """An owner begins to withdraw its topic, or to revoke a grant."""
        self.ending_at[name] = self.journal.instant

    on_revoking = on_withdrawing

    def on_revoked(self, who: str, name: str) -> None:
        """A broker knows that it is over."""
        self.told_at[name] = self.journal.instant

    def on_withdrawn(self, owner: str, name: str) -> None:
        """So does a directory."""
        self.withdrawn_at[name] = self.journal.instant

    def on_granted(self, who: str, name: str) -> None:
        """A holder got a grant."""
        self.granted_at[name] = self.journal.instant

    def expires_at(self, uuid: str) -> int:
        """The life of a topic is not over before this, by any clock; after 2 * SKEW_NS more it is over by all."""
        return self._expires_at[uuid] - SKEW_NS

    def is_reader(self, who: str, name: str) -> bool:
        """True if this entity may find the topic without a grant."""
        plan = self.topics[name]
        return EVERYBODY in plan.readers or who in plan.readers or who == plan.owner

    def grants_of(self, who: str, name: str) -> list[GrantPlan]:
        """The grants to this topic that this entity has by now."""
        return [
            plan
            for plan in self.grants.values()
            if plan.topic == name and plan.holder == who and plan.name in self.granted_at
        ]

    def above(self, grant: GrantPlan) -> list[GrantPlan]:
        """The grant and all that it was derived from: it ends with each of them."""
        found = [grant]
        while found[-1].using:
            found.append(self.grants[found[-1].using])
        return found

    def ended_at(self, grant: GrantPlan) -> int:
        """When a broker learned that it is over; NEVER if none did."""
        ends = [self.told_at.get(one.name, NEVER) for one in self.above(grant)]
        return min(*ends, self.told_at.get(grant.topic, NEVER))

    def is_over(self, grant: GrantPlan, at: int) -> bool:
        """True if at this instant, in a calm network, nobody may use the grant any more."""
        return self.ended_at(grant) + STEADY_NS <= at and self.is_calm(at)
