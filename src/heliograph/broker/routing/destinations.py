"""Destinations: where a topic goes besides a broker's own clients, and which neighbours lead there.

In:    topics, and remote interests whose conditions a publication meets.
Out:   targets; the sinks of their next hops; which owners have members of the groups that share a topic; whether one
       of them may answer a request.
State: none; the view has the interests and the paths.
Not here: what is sent there (forwarding.py, parcels.py), our own clients (broker/subscriptions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from heliograph.broker.routing.interests import Owner, RemoteInterest
from heliograph.broker.routing.plans import Plans
from heliograph.broker.routing.ports import HopSink
from heliograph.broker.routing.targets import Targets
from heliograph.broker.routing.view import View
from heliograph.matching.condition import Event
from heliograph.model.subscription import Wanted, filter_of


def group_id(wanted: Wanted, group: str) -> int:
    """The number under which a shared subscription travels in a parcel."""
    asked = b"" if isinstance(wanted, bytes) else f"\0{wanted.language}\0{wanted.where}".encode()
    return int.from_bytes(sha256(filter_of(wanted) + asked + b"\0" + group.encode()).digest()[:8], "little")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where a topic goes besides a broker's own clients."""

    hops: tuple[HopSink, ...] = ()
    shares: dict[int, list[Targets]] = field(default_factory=dict)  # group -> owners with members, nearest first


class Destinations:
    """Finds where a topic goes."""

    def __init__(self, view: View, plans: Plans) -> None:
        self._view = view
        self._plans = plans

    def elsewhere(self, topic: bytes, inside: bool, conditional: Sequence[RemoteInterest] = ()) -> Elsewhere:
        """Where a topic goes besides our own clients; ``conditional``: interests whose conditions are met."""
        if not self._view.interests:
            return Elsewhere()
        targets, groups = self.targets_of(topic, inside, conditional)
        shares = {share: [self._share(share, owner) for owner in owners] for share, owners in groups.items()}
        return Elsewhere(tuple(self._plans.hops(targets)), shares)

    def targets_of(
        self, topic: bytes, inside: bool, conditional: Sequence[RemoteInterest] = ()
    ) -> tuple[Targets, dict[int, list[Owner]]]:
        """The targets of a topic besides our own clients, and for each group that shares it the owners with members.

        ``inside``: it came from another cluster, where it was sent to all other clusters; only ours is left.
        """
        members = 0
        parts: dict[int, None] = {}
        groups: dict[int, list[Owner]] = {}
        paths = self._view.paths
        for interest in [*self._view.interests.match(topic), *conditional]:
            owner = interest.owner
            if owner.wide and (inside or owner.broker not in paths.parts):
                continue
            if not owner.wide and (owner.broker not in paths.cluster or owner.broker == self._view.me):
                continue
            if interest.group is not None:
                owners = groups.setdefault(group_id(interest.wanted, interest.group), [])
                if owner not in owners:
                    owners.append(owner)
            elif owner.wide:
                parts[owner.broker] = None
            else:
                members |= 1 << paths.cluster[owner.broker].slot
        for owners in groups.values():
            owners.sort(key=lambda owner: (self._cost_of(owner), owner.broker))
        return Targets(members, tuple(sorted(parts))), groups

    def answers(self, topic: bytes, event: Callable[[], Event]) -> bool:
        """True if another broker in reach wants this publication and may answer it: more than listens."""
        interests = self._view.interests
        if not interests:
            return False
        if any(self._may_answer(interest) for interest in interests.match(topic)):
            return True
        fields = interests.fields(topic)
        if not fields:
            return False
        content = event()
        met = (value for field in fields for entry in field.match(content) for value in entry.values)
        return any(self._may_answer(interest) for interest in met)

    def _may_answer(self, interest: RemoteInterest) -> bool:
        if interest.listens:
            return False
        owner, view = interest.owner, self._view
        if owner.wide:
            return owner.broker in view.paths.parts
        return owner.broker in view.paths.cluster and owner.broker != view.me

    def _share(self, share: int, owner: Owner) -> Targets:
        if owner.wide:
            return Targets(0, (owner.broker,), (share,))
        return Targets(1 << self._view.paths.cluster[owner.broker].slot, (), (share,))

    def _cost_of(self, owner: Owner) -> int:
        paths = self._view.paths
        return paths.costs[paths.parts[owner.broker] if owner.wide else owner.broker]
