"""Watchers: continuous requests of our own clients, and the numbered news that they get.

In:    watches that begin and end; states, advertisements that came and went, snapshots; clients that do not read.
Out:   news for the link of each watching client.
State: per watch its condition and last number; snapshots under way, in parts.
Not here: the form of news and how the client uses them (news.py), the path of requests (standing.py).
Paper: [resources] §4.3.

The client chooses the number of a watch; another client may use the same one. The broker refuses news for a client that
does not read. Its watch then gets nothing until a pause is over, and begins anew: it is told so, and gets a snapshot.
If the client still does not read, the pauses grow, and so do those between the parts of a long snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from heliograph.discovery.resources.answers import Row
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
from heliograph.wire.pages import one_page

SOON_NS = 20_000_000  # after a way changed, so that several changes are handled as one
AGAIN_NS = 500_000_000  # if hosts were missing
PAUSE_NS = 500_000_000  # before a watch begins anew; doubled while its client still does not read
PAUSE_NS_MAX = 16 * PAUSE_NS
CALM_NS = 60_000_000_000  # after so long without a refusal the pauses are short again
PACES = 16  # between two slices of a snapshot for a slow client there is this part of the pause
SNAPSHOT_PART = 200  # resources in one part …
SNAPSHOT_PART_BYTES = 128 << 10  # … and their bytes: little, beside what may wait for a link
PARTS_PER_WAKE = 5  # of a long snapshot: a few milliseconds

_encode = msgspec.json.Encoder().encode
Tell = Callable[[LinkId, int, bytes], None]
"""Sends news: the client's link, the number of its watch, the payload."""


class Watcher(msgspec.Struct, eq=False):
    """One continuous request of a client of ours."""

    asker: LinkId
    number: int  # chosen by the client
    condition: ResourceCondition
    is_static: bool
    id: RequestId
    told: int = 0  # the number of the last news
    slot: int = -1
    asking: bool = False  # a snapshot is in progress
    has_ended: bool = False
    is_blocked: bool = False  # its client does not read: nothing is told until it begins anew
    blocked_at: Instant = -CALM_NS
    pause_ns: int = 0


class Watchers:
    """The watches of this broker's clients."""

    def __init__(
        self,
        timers: Timers,
        watches_per_client_max: int,
        *,
        tell: Tell,
        age_ms: Callable[[int, Instant], float],
        deadline_ns: int,
    ) -> None:
        self.begun_anew = 0
        self._timers = timers
        self._per_client_max = watches_per_client_max
        self._send = tell
        self._age_ms = age_ms
        self._deadline_ns = deadline_ns
        self._by_asker: dict[LinkId, dict[int, Watcher]] = {}
        self._by_id: dict[RequestId, Watcher] = {}
        self._static = BoxIndex()
        self._by_slot: dict[int, Watcher] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, asker: LinkId, number: int) -> Watcher | None:
        """A client's watch of this number."""
        return self._by_asker.get(asker, {}).get(number)

    def begin(
        self,
        core: ResourceCore,
        asker: LinkId,
        number: int,
        condition: ResourceCondition,
        is_static: bool,
        now: Instant,
    ) -> Watcher:
        """A watch begins; its first news are a snapshot. ProtocolError if there are too many, or one of this number."""
        own = self._by_asker.get(asker, {})
        if len(own) >= self._per_client_max:
            raise ProtocolError(
                Reason.RESOURCE_REQUESTS_OVER_LIMIT, f"a client has at most {self._per_client_max} watches"
            )
        if number in own:
            raise ProtocolError(Reason.RESOURCE_CALL_MALFORMED, f"this client has a watch {number} already")
        broker, incarnation = core.hosting.me
        self._count += 1
        watcher = Watcher(asker, number, condition, is_static, (broker, incarnation, (1 << 40) + self._count))
        if is_static:
            self._enter(watcher)
        else:
            core.standing.add(HERE, watcher.id, condition.text)
        self._by_asker.setdefault(asker, {})[number] = self._by_id[watcher.id] = watcher
        self.again(core, watcher, now)
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
        own = self._by_asker[watcher.asker]
        del own[watcher.number], self._by_id[watcher.id]
        if not own:
            del self._by_asker[watcher.asker]
        watcher.has_ended = True
        self._timers.cancel(("watch", watcher.id))
        self._timers.cancel(("snapshot", watcher.id))
        if watcher.is_static:
            self._static.remove(watcher.slot)
            del self._by_slot[watcher.slot]
        else:
            core.standing.drop(HERE, watcher.id)

    def leave(self, core: ResourceCore, asker: LinkId) -> None:
        """A client disconnected."""
        for watcher in list(self._by_asker.get(asker, {}).values()):
            self.end(core, watcher)

    # -- what watchers are told ---------------------------------------------------------------------------------

    def _tell(self, watcher: Watcher, **said: Any) -> None:
        if watcher.is_blocked:
            return
        watcher.told += 1
        self._send(watcher.asker, watcher.number, _encode({"number": watcher.told, **said}))

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
        """Send a new snapshot at that time; one that is blocked gets it later."""
        if not watcher.is_blocked:
            self._timers.set(("watch", watcher.id), at, lambda now: self._snapshot(core, watcher, now))

    def emptied(self, core: ResourceCore, id: RequestId, host: HostingBroker) -> None:
        """A host has nothing more for this watcher."""
        watcher = self._by_id.get(id)
        if watcher is not None:
            self._tell(watcher, emptied=[name_of(core, host.broker), host.incarnation])

    # -- a client that does not read ----------------------------------------------------------------------------

    def untold(self, core: ResourceCore, asker: LinkId, number: int, now: Instant) -> None:
        """The broker refused news: this watch gets nothing until the pause is over, and then begins anew."""
        watcher = self.get(asker, number)
        if watcher is None or watcher.is_blocked:
            return
        is_calm = now - watcher.blocked_at >= CALM_NS
        watcher.pause_ns = PAUSE_NS if is_calm else min(2 * watcher.pause_ns, PAUSE_NS_MAX)
        watcher.is_blocked = True
        watcher.blocked_at = now
        self._timers.set(
            ("watch", watcher.id), now + watcher.pause_ns, lambda now: self._begin_anew(core, watcher, now)
        )

    def _begin_anew(self, core: ResourceCore, watcher: Watcher, now: Instant) -> None:
        """Say so, which is short; a snapshot follows if that is not refused as well."""
        self.begun_anew += 1
        watcher.is_blocked = False
        self._tell(watcher, anew=True)
        self.again(core, watcher, now + SOON_NS)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def _snapshot(self, core: ResourceCore, watcher: Watcher, now: Instant) -> None:
        """Send what there is now."""
        if watcher.asking:
            self.again(core, watcher, now + SOON_NS)
            return
        watcher.asking = True
        if watcher.is_static:
            ages = {host.broker: host.age for host in core.table.hosts.values()}
            hosts = {host.name: host.age for host in core.table.hosts.values()}
            rows = (described_row(row, ages[row.host.broker]) for row in core.static(watcher.condition))
            self._tell_parts(watcher, rows, {"hosts": hosts, "missing": []}, now)
            return
        question = ResourceQuestion(watcher.condition, NORMAL, deadline_ns=self._deadline_ns)
        try:
            core.gathering.begin(question, lambda answer, now: self._answered(core, watcher, answer, now), now)
        except ProtocolError as error:
            core.count(error.reason)
            watcher.asking = False
            self.again(core, watcher, now + AGAIN_NS)

    def _answered(self, core: ResourceCore, watcher: Watcher, answer: GatheredAnswer, now: Instant) -> None:
        if watcher.has_ended:
            return
        rows = (
            {
                **{"id": f"{each.id:016x}", "name": each.name, "host": name_of(core, each.host), "epoch": each.epoch},
                **{"incarnation": each.incarnation, "number": each.number, "values": each.values},
                "age_ms": self._age_ms(each.updated, now),
            }
            for each in answer.found
            if each.values is not None  # else it has reported none: its first ones will be told
        )
        hosts = {name_of(core, host): (read.incarnation, read.number) for host, read in answer.hosts.items()}
        self._tell_parts(watcher, rows, {"hosts": hosts, "missing": answer.missing}, now)
        if answer.missing or not answer.is_complete:
            self.again(core, watcher, now + AGAIN_NS)

    def _tell_parts(self, watcher: Watcher, rows: Iterable[Row], last: dict[str, Any], now: Instant) -> None:
        """Send a snapshot, some parts per wake. Changes in the meantime have higher numbers and win."""
        parts = _parts(iter(rows))

        def go_on(now: Instant) -> None:
            for number, part, is_last in islice(parts, PARTS_PER_WAKE):
                self._tell(watcher, snapshot=part, part=number, **(last if is_last else {"more": True}))
                if is_last or watcher.is_blocked:
                    watcher.asking = False
                    return
            pace_ns = watcher.pause_ns // PACES if now - watcher.blocked_at < CALM_NS else 0
            self._timers.set(("snapshot", watcher.id), now + pace_ns if pace_ns else 0, go_on)

        go_on(now)


def _parts(rows: Iterator[Row]) -> Iterator[tuple[int, list[msgspec.Raw], bool]]:
    """A snapshot as parts that fit in a frame: the number of each, its rows, and whether it is the last."""
    number = 0
    part, rest = one_page(rows, None, SNAPSHOT_PART, SNAPSHOT_PART_BYTES)
    while rest is not None:
        yield number, part, False
        number += 1
        part, rest = one_page(rows, rest, SNAPSHOT_PART, SNAPSHOT_PART_BYTES)
    yield number, part, True


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
