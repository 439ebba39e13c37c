"""Plans: which neighbours get a parcel, and which targets each of them serves.

In:    targets, with the time to live and the trace of the parcel that has to reach them.
Out:   a sink per neighbour; how many targets cannot be reached.
State: cached splits of targets, until the paths change; which destinations were used recently.
Not here: which path is shortest (map.py), how a destination changes its path (changeover.py), what is sent
          (forwarding.py, parcels.py).

Everything for one destination (a member of our cluster, or a part of another) goes to one neighbour, whatever other
destinations a parcel has: publisher order depends on this.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.routing.holds import Holds
from heliograph.broker.routing.map import Paths
from heliograph.broker.routing.ports import HopSink, LinkWriter, Neighbour, Port
from heliograph.broker.routing.targets import TargetedRun, Targets
from heliograph.broker.routing.view import View
from heliograph.machine import Instant, Timers
from heliograph.wire.limits import CLUSTERS_MAX, TRACE_MAX

TTL = 64  # hops; a trace and the shortest path end a loop long before
PLANS_MAX = 16_384  # remembered splits of targets
VISITS_MAX = 1  # while a change spreads and views differ, a parcel may turn back: then it waits (eddies.py) …
VISITS_TROUBLED_MAX = 3  # … but later after a loss, when turning back may be right
TROUBLED_NS = 2_000_000_000  # after a loss; by then all brokers know of it, and what was under way has arrived
IN_USE_NS = 2_000_000_000  # parcels sent longer ago have arrived, unless a link on their path has failed

Split = list[tuple[Neighbour, Targets]]


class Plans:
    """Splits targets by the neighbour that leads to them."""

    def __init__(
        self, view: View, holds: Holds, links: LinkWriter, timers: Timers, forget_all: Callable[[], None]
    ) -> None:
        self._view = view
        self._holds = holds
        self._links = links
        self._timers = timers
        self._forget_all = forget_all  # called when computed routes and ways are outdated
        self.is_troubled = False  # a link was lost a short while ago
        self._splits: dict[object, Split] = {}
        self._used: dict[int, Instant] = {}  # destination -> when it was last used, on forgotten paths

    def hops(self, targets: Targets) -> list[HopSink]:
        """The sinks of a publication that enters the network here."""
        view = self._view
        return [neighbour.sink(some, TTL, view.epoch, (view.me,)) for neighbour, some in self.split(targets)]

    def next_hops(
        self, targets: Targets, ttl: int, trace: tuple[int, ...], turns_back: bool = False
    ) -> tuple[list[HopSink], int]:
        """The sinks of a parcel that has passed these brokers, and how many targets have no path."""
        view = self._view
        visits_max = VISITS_TROUBLED_MAX if self.is_troubled else VISITS_MAX
        passed = (*trace, view.me)[-TRACE_MAX:]
        reached_members = 0
        reached_parts = 0
        lost = 0
        sinks: list[HopSink] = []
        for neighbour, some in self.split(targets, trace):
            reached_members |= some.members
            reached_parts += len(some.parts)
            if not turns_back and trace.count(neighbour.broker) >= visits_max:
                neighbour = self._holds.eddy
            if ttl <= 0:
                lost += 1
            else:
                sinks.append(neighbour.sink(some, ttl, view.epoch, passed))
        if reached_members != targets.members or reached_parts < len(targets.parts):
            lost += 1
        return sinks, lost

    def split(self, targets: Targets, trace: tuple[int, ...] = ()) -> Split:
        """Targets by the neighbour that leads to them. Those without a path are left out."""
        if trace and self._holds.changing:
            return self._split(targets, trace)  # depends on the trace: some parcels are not held
        split = self._splits.get(targets.key)
        if split is None:
            if len(self._splits) >= PLANS_MAX:
                self._splits.clear()
            split = self._splits[targets.key] = self._split(targets, trace)
        return split

    def _split(self, targets: Targets, trace: tuple[int, ...]) -> Split:
        view = self._view
        paths = view.paths
        members: dict[Neighbour, int] = {}
        parts: dict[Neighbour, list[int]] = {}
        wanted = list(targets.parts)
        mask = targets.members
        while mask:
            bit = mask & -mask
            mask ^= bit
            broker = paths.members.get(bit.bit_length() - 1)
            neighbour = None if broker is None else self._holds.way_to(broker, paths.steps.get(broker), trace)
            if neighbour is not None:
                members[neighbour] = members.get(neighbour, 0) | bit
            else:
                wanted.extend(paths.siblings)  # it may be in another part of our cluster now
        for part in dict.fromkeys(wanted):
            neighbour = self._holds.way_to(paths.part_named(part), paths.next_to_part(part), trace)
            if neighbour is not None:  # the next broker may know the old name only, or both
                parts.setdefault(neighbour, []).append(part)
        found: Split = []
        for neighbour in sorted({**members, **parts}, key=lambda neighbour: neighbour.broker):
            through = parts.get(neighbour, [])
            for start in range(0, max(1, len(through)), CLUSTERS_MAX):
                some = tuple(through[start : start + CLUSTERS_MAX])
                mask = members.get(neighbour, 0) if start == 0 else 0
                found.append((neighbour, Targets(mask, some, targets.groups)))
        return found

    def destinations(self, targets: Targets) -> list[int]:
        """Members and parts, by their present names."""
        paths = self._view.paths
        members = [broker for slot, broker in paths.members.items() if targets.members >> slot & 1]
        return [*members, *(paths.part_named(part) for part in targets.parts)]

    def widened(self, targets: Targets) -> Targets:
        """The same, with every part that broke off from one of them a short while ago."""
        found: dict[int, None] = {}
        for part in targets.parts:
            names = self._view.paths.parts_named(part)
            found.update(dict.fromkeys(names if len(names) > 1 else [part]))  # else the next may know the old name only
        return Targets(targets.members, tuple(found), targets.groups)

    def sort(self, targets: Targets, waits: Callable[[int], bool]) -> tuple[Targets | None, Targets | None]:
        """Targets whose destinations have to wait, and those that need not."""
        paths = self._view.paths
        members = 0
        for slot, broker in paths.members.items():
            if targets.members >> slot & 1 and waits(broker):
                members |= 1 << slot
        parts = tuple(part for part in targets.parts if waits(paths.part_named(part)))
        if not members and not parts:
            return None, targets
        others = tuple(part for part in targets.parts if part not in parts)
        free = Targets(targets.members & ~members, others, targets.groups)
        return Targets(members, parts, targets.groups), free if free.members or others else None

    def send(self, run: TargetedRun, source: Port, now: Instant, turns_back: bool = False) -> int:
        """Send a run along the current paths. Returns how many targets have no path."""
        sinks, lost = self.next_hops(run.targets, run.ttl, run.trace, turns_back)
        for sink in sinks:
            self._links.deliver(source, sink, run.frames, now)
        return lost

    # -- what is in use -------------------------------------------------------------------------------------------

    def lost(self, now: Instant) -> None:
        """A link is gone, here or elsewhere: for a while parcels may have to turn back."""
        self.is_troubled = True
        self._timers.set("troubled", now + TROUBLED_NS, self._calm_down)

    def hear_loss(self, now: Instant) -> None:
        """A neighbour tells of a loss. What it sends again because of that may follow before the map is settled."""
        if not self.is_troubled:
            self.forget_ways(self._view.paths, now)
        self.lost(now)

    def _calm_down(self, now: Instant) -> None:
        self.is_troubled = False
        self._view.map.forget_breaks()
        self.forget_ways(self._view.paths, now)

    def forget_ways(self, before: Paths, now: Instant) -> None:
        """The paths, or what is held back on them, are no longer those of ``before``."""
        self._forget(before.members, now)
        self._forget_all()

    def _forget(self, members: dict[int, int], now: Instant) -> None:
        """The paths change. ``members``: which broker had which slot until now."""
        self._splits.clear()
        used = {each: at for each, at in self._used.items() if now - at < IN_USE_NS}
        for neighbour in self._view.neighbours.values():
            mask, parts = neighbour.forget_sinks()
            used.update((broker, now) for slot, broker in members.items() if mask >> slot & 1)
            used.update((part, now) for part in parts)
        self._used = used
        self._holds.forget_sinks()

    def members_in_use(self, now: Instant) -> dict[int, None]:
        """The members of our cluster to which something may be on its way from here."""
        view = self._view
        mask = 0
        for neighbour in view.neighbours.values():
            mask |= neighbour.aimed_members
        return {
            broker: None
            for slot, broker in view.paths.members.items()
            if mask >> slot & 1
            or self.is_used(broker, now)
            or broker in self._holds.changing
            or broker in self._holds.turning
        }

    def is_used(self, destination: int, now: Instant) -> bool:
        """True if something that was sent there on forgotten paths may still be under way."""
        return now - self._used.get(destination, -IN_USE_NS) < IN_USE_NS
