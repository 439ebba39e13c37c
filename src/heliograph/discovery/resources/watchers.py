"""Watchers: continuous requests of our own clients, and the numbered publications that they get.

In:    watches that begin and end; states, advertisements that came and went, snapshots.
Out:   publications to the inboxes of sessions.
State: per watch its condition, inbox and last number.
Not here: how the client uses them (watching.py), the path of requests (standing.py).
Paper: [resources] §4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.discovery.resources.conditions import ResourceCondition, fixed_values, read_condition
from heliograph.discovery.resources.core import ResourceCore
from heliograph.discovery.resources.forwarding import HERE, NORMAL
from heliograph.discovery.resources.gathering import GatheredAnswer, ResourceQuestion
from heliograph.discovery.resources.messages import AdvertisedResource, RequestId, ResourceState
from heliograph.discovery.resources.table import HostingBroker, TableDifference, TableRow
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId, Timers
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.index import BoxIndex, IndexFullError
from heliograph.model.ages import Age
from heliograph.model.predicates import Value

SOON_NS = 20_000_000  # after a way changed, so that several changes are handled as one
AGAIN_NS = 500_000_000  # if hosts were missing
SNAPSHOT_PART = 200  # resources in one publication
ROWS_PER_WAKE = 5 * SNAPSHOT_PART  # of a long snapshot: a few milliseconds

_encode = msgspec.json.Encoder().encode


class Watcher(msgspec.Struct, eq=False):
    """One continuous request of a client of ours."""

    number: int
    asker: LinkId
    inbox: str
    condition: ResourceCondition
    is_static: bool
    id: RequestId
    told: int = 0  # the number of the last publication
    slot: int = -1
    asking: bool = False  # a snapshot is in progress


class Watchers:
    """The watches of this broker's clients."""

    def __init__(
        self,
        timers: Timers,
        watches_per_client_max: int,
        *,
        publish: Callable[[bytes, bytes], None],
        age_ms: Callable[[int, Instant], float],
        deadline_ns: int,
    ) -> None:
        self.by_number: dict[int, Watcher] = {}
        self._timers = timers
        self._per_client_max = watches_per_client_max
        self._publish = publish
        self._age_ms = age_ms
        self._deadline_ns = deadline_ns
        self._by_id: dict[RequestId, Watcher] = {}
        self._static = BoxIndex()
        self._by_slot: dict[int, Watcher] = {}
        self._number = 0

    def begin(
        self, core: ResourceCore, asker: LinkId, inbox: str, condition: ResourceCondition, is_static: bool, now: Instant
    ) -> Watcher:
        """A watch begins; its first publication is a snapshot. ProtocolError if there are too many."""
        if sum(each.asker == asker for each in self.by_number.values()) >= self._per_client_max:
            raise ProtocolError(
                Reason.RESOURCE_REQUESTS_OVER_LIMIT, f"a client has at most {self._per_client_max} watches"
            )
        broker, incarnation = core.hosting.me
        self._number += 1
        id = (broker, incarnation, (1 << 40) + self._number)
        watcher = Watcher(self._number, asker, inbox, condition, is_static, id)
        if is_static:
            self._enter(watcher)
        else:
            core.standing.add(HERE, id, condition.text)
        self.by_number[watcher.number] = self._by_id[id] = watcher
        self._timers.set(("watch", watcher.number), now, lambda now: self.snapshot(core, watcher, now))
        return watcher

    def _enter(self, watcher: Watcher) -> None:
        slot = self._static.spare
        try:
            self._static.add(slot, watcher.condition.conjunction)
        except IndexFullError as error:
            raise ProtocolError(Reason.RESOURCE_ATTRIBUTES_OVER_LIMIT, str(error)) from None
        watcher.slot = slot
        self._by_slot[slot] = watcher

    def end(self, core: ResourceCore, watcher: Watcher) -> None:
        """A watch ends."""
        del self.by_number[watcher.number], self._by_id[watcher.id]
        self._timers.cancel(("watch", watcher.number))
        if watcher.is_static:
            self._static.remove(watcher.slot)
            del self._by_slot[watcher.slot]
        else:
            core.standing.drop(HERE, watcher.id)

    def leave(self, core: ResourceCore, asker: LinkId) -> None:
        """A client disconnected."""
        for watcher in [each for each in self.by_number.values() if each.asker == asker]:
            self.end(core, watcher)

    # -- what watchers are told ---------------------------------------------------------------------------------

    def _tell(self, watcher: Watcher, **said: Any) -> None:
        watcher.told += 1
        topic = f"{watcher.inbox}/resources/{watcher.number}".encode()
        self._publish(topic, _encode({"number": watcher.told, **said}))

    def state(self, core: ResourceCore, id: RequestId, state: ResourceState, now: Instant) -> None:
        """The new state of a dynamic resource."""
        watcher = self._by_id.get(id)
        if watcher is None:
            return
        fits = state.values is not None and watcher.condition.has(state.values)
        said = {
            **{"id": f"{state.id:016x}", "name": state.name, "host": name_of(core, state.host), "epoch": state.epoch},
            **{"incarnation": state.incarnation, "number": state.number, "values": state.values},
            **{"fits": fits, "gone": state.values is None, "age_ms": self._age_ms(state.at, now)},
        }
        self._tell(watcher, states=[said])

    def learned(self, host: HostingBroker, difference: TableDifference) -> None:
        """Static resources were added or removed."""
        if not self._by_slot:
            return
        added = {each.id: each for each in difference.added if each.is_static}
        removed = [each for each in difference.removed if each.is_static and each.id not in added]
        for advertised in [*removed, *added.values()]:
            gone = advertised.id not in added
            conjunction = read_condition(advertised.where).conjunction
            for slot in self._static.intersecting(conjunction, Stored.SUBSCRIPTIONS).tolist():
                self._tell(
                    self._by_slot[slot], states=[{**described(host, advertised), "fits": not gone, "gone": gone}]
                )

    def stirred(self, core: ResourceCore, id: RequestId, now: Instant) -> None:
        """The watcher may have missed something."""
        watcher = self._by_id.get(id)
        if watcher is not None:
            self.again(core, watcher, now + SOON_NS)

    def again(self, core: ResourceCore, watcher: Watcher, at: Instant) -> None:
        """Send a new snapshot at that time."""
        self._timers.set(("watch", watcher.number), at, lambda now: self.snapshot(core, watcher, now))

    def emptied(self, core: ResourceCore, id: RequestId, host: HostingBroker) -> None:
        """A host has nothing more for this watcher."""
        watcher = self._by_id.get(id)
        if watcher is not None:
            self._tell(watcher, emptied=[name_of(core, host.broker), host.incarnation])

    def snapshot(self, core: ResourceCore, watcher: Watcher, now: Instant) -> None:
        """Send what there is now."""
        if self.by_number.get(watcher.number) is not watcher:
            return
        if watcher.asking:
            self.again(core, watcher, now + SOON_NS)
            return
        if watcher.is_static:
            self._snapshot_static(core, watcher, now)
            return
        question = ResourceQuestion(watcher.condition, NORMAL, deadline_ns=self._deadline_ns)
        watcher.asking = True

        def answered(answer: GatheredAnswer, now: Instant) -> None:
            watcher.asking = False
            if self.by_number.get(watcher.number) is not watcher:
                return
            self._answered(core, watcher, answer, now)

        try:
            core.gathering.begin(question, answered, now)
        except ProtocolError as error:
            core.count(error.reason)
            watcher.asking = False
            self.again(core, watcher, now + AGAIN_NS)

    def _snapshot_static(self, core: ResourceCore, watcher: Watcher, now: Instant) -> None:
        """Send the static resources, some per wake. Changes in the meantime have higher numbers and win."""
        ages = {host.broker: host.age for host in core.table.hosts.values()}
        hosts = {host.name: host.age for host in core.table.hosts.values()}
        rows = core.static(watcher.condition)
        watcher.asking = True

        def go_on(start: int, now: Instant) -> None:
            if self.by_number.get(watcher.number) is not watcher:
                return
            for first in range(start, min(start + ROWS_PER_WAKE, len(rows) - SNAPSHOT_PART), SNAPSHOT_PART):
                part = rows[first : first + SNAPSHOT_PART]
                self._tell(watcher, snapshot=[described_row(row, ages[row.host.broker]) for row in part], more=True)
            rest = start + ROWS_PER_WAKE
            if rest < len(rows) - SNAPSHOT_PART:
                self._timers.set(("snapshot", watcher.number), 0, lambda now: go_on(rest, now))
                return
            watcher.asking = False
            last = max(0, -(-len(rows) // SNAPSHOT_PART) - 1) * SNAPSHOT_PART
            found = [described_row(row, ages[row.host.broker]) for row in rows[last:]]
            self._tell(watcher, snapshot=found, hosts=hosts, missing=[])

        go_on(0, now)

    def _answered(self, core: ResourceCore, watcher: Watcher, answer: GatheredAnswer, now: Instant) -> None:
        found = [
            {
                **{"id": f"{each.id:016x}", "name": each.name, "host": name_of(core, each.host), "epoch": each.epoch},
                **{"incarnation": each.incarnation, "number": each.number, "values": each.values},
                "age_ms": self._age_ms(each.at, now),
            }
            for each in answer.found
        ]
        hosts = {name_of(core, host): as_of for host, as_of in answer.hosts.items()}
        self._tell_snapshot(watcher, found, hosts, answer.missing)
        if answer.missing or not answer.is_complete:
            self.again(core, watcher, now + AGAIN_NS)

    def _tell_snapshot(
        self, watcher: Watcher, found: list[dict[str, Any]], hosts: dict[str, tuple[int, int]], missing: list[str]
    ) -> None:
        """Send it in parts; the last one names the hosts that all of them cover."""
        parts = [found[start : start + SNAPSHOT_PART] for start in range(0, len(found), SNAPSHOT_PART)] or [[]]
        for part in parts[:-1]:
            self._tell(watcher, snapshot=part, more=True)
        self._tell(watcher, snapshot=parts[-1], hosts=hosts, missing=missing)


def name_of(core: ResourceCore, broker: int) -> str:
    """A broker's name, or its id if the table does not contain it."""
    host = core.table.hosts.get(broker)
    return f"{broker:016x}" if host is None else host.name


def described(
    host: HostingBroker, advertised: AdvertisedResource, values: dict[str, Value] | None = None, age: Age | None = None
) -> dict[str, Any]:
    """A static resource, as requesters see it; ``age``: as of which change of its host."""
    incarnation, number = age or host.age
    return {
        **{"id": f"{advertised.id:016x}", "name": advertised.name, "host": host.name, "epoch": advertised.epoch},
        **{"incarnation": incarnation, "number": number, "age_ms": 0.0},
        "values": fixed_values(read_condition(advertised.where)) if values is None else values,
        "where": advertised.where,
    }


def described_row(row: TableRow, age: Age | None = None) -> dict[str, Any]:
    """The same, of a row of the table."""
    return described(row.host, row.advertised, row.fixed, age)
