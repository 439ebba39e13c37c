"""Hosting: the resources that are registered at this broker, with their leases and latest values.

In:    requests of owners: register, update, renew, withdraw; time.
Out:   advertisements added and removed; states that changed; refusals.
State: per resource its owner, ranges, lease and latest values (the PubCache).
Not here: telling other brokers (spreading.py), which requests want it (standing.py), System topics (service.py).
Paper: [resources] §4.2, the PubCache.

A resource's id is the hash of a secret that its owner presents here: only a holder of the secret can update, withdraw
or attach it elsewhere. If two brokers host a resource, the one where it was attached last has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush

import msgspec

from heliograph.discovery.resources.conditions import ResourceCondition, fixed_values, read_condition, remember
from heliograph.discovery.resources.messages import (
    VALUES_BYTES_MAX,
    VALUES_MAX,
    AdvertisedResource,
    FoundResource,
    ResourceState,
    Scalar,
    encode,
)
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.index import BoxIndex, IndexFullError
from heliograph.model.spelling import nearest

NS_PER_S = 1_000_000_000
EXPIRED_AT_ONCE = 128  # leases that end in one call: a few milliseconds

Holder = tuple[str, str]
"""An entity, and for clients without credentials, who are one entity, the address they came from."""


class HostedResource(msgspec.Struct):
    """One resource that we host."""

    advertised: AdvertisedResource
    condition: ResourceCondition
    owner: str
    expires_at: Instant
    slot: int
    fixed: dict[str, Scalar]  # the values that its ranges fix
    at: int  # network time of the last values, or of the registration
    values: dict[str, Scalar] | None = None
    number: int = 0  # our count of changes then
    version: int = 0  # the owner's count of updates
    source: str = ""  # of an owner without credentials

    @property
    def holder(self) -> Holder:
        """Who has a place for it."""
        return self.owner, self.source


def check_size(values: Mapping[str, Scalar]) -> None:
    """ProtocolError if the values are too many or too long for the messages between brokers."""
    if len(values) > VALUES_MAX or len(encode(values)) > VALUES_BYTES_MAX:
        raise ProtocolError(
            Reason.RESOURCE_VALUES_OVER_LIMIT,
            f"a resource has at most {VALUES_MAX} values, of {VALUES_BYTES_MAX} bytes in all",
        )


class Owned(msgspec.Struct):
    """What one owner has registered here."""

    resources: int = 0
    attributes: dict[str, int] = {}


class Hosting:
    """The resources at this broker."""

    def __init__(
        self,
        resources_per_owner_max: int,
        attributes_per_owner_max: int,
        *,
        network_time: Callable[[Instant], int],
        changed: Callable[[list[AdvertisedResource], list[AdvertisedResource]], None],
        state: Callable[[ResourceState], None],
    ) -> None:
        self.resources: dict[int, HostedResource] = {}
        self.number = 0  # the number of changes
        self._resources_per_owner_max = resources_per_owner_max
        self._attributes_per_owner_max = attributes_per_owner_max
        self._network_time = network_time
        self._changed = changed
        self._state = state
        self._owners: dict[Holder, Owned] = {}
        self._index = BoxIndex()  # ranges of dynamic resources
        self._ids: dict[int, int] = {}
        self._leases: list[tuple[Instant, int]] = []  # a heap; the old entry of a renewed lease stays until it comes up
        self.me = (0, 0)  # our broker's id and incarnation

    def become(self, broker: int, incarnation: int) -> None:
        """Set our identity."""
        self.me = (broker, incarnation)

    def limit(self, resources_per_owner_max: int, attributes_per_owner_max: int) -> None:
        """Apply new limits."""
        self._resources_per_owner_max = resources_per_owner_max
        self._attributes_per_owner_max = attributes_per_owner_max

    # -- owners -------------------------------------------------------------------------------------------------

    def register(
        self,
        advertised: AdvertisedResource,
        owner: str,
        lease_ns: int,
        now: Instant,
        source: str = "",
        values: Mapping[str, Scalar] | None = None,
    ) -> None:
        """A resource is registered, described again, or attached here; it will report ``values`` at once.

        ProtocolError if that is refused: then what was registered before stays.
        """
        condition = read_condition(advertised.where)
        if values is not None and not advertised.is_static:
            _full(condition, fixed_values(condition), values)
        known = self.resources.get(advertised.id)
        if known is not None and known.advertised.epoch > advertised.epoch:
            raise ProtocolError(Reason.RESOURCE_OUTDATED, "it was registered here later than that")
        if known is not None and known.advertised == advertised:
            self._lease(known, now + lease_ns)
            return
        self._check_owner((owner, source), condition, known)
        slot = -1
        if not advertised.is_static:
            slot = self._index.spare
            try:
                self._index.add(slot, condition.conjunction)
            except IndexFullError as error:
                raise ProtocolError(Reason.RESOURCE_ATTRIBUTES_OVER_LIMIT, str(error)) from None
        if known is not None:
            self._drop(known)
        if slot >= 0:
            self._ids[slot] = advertised.id
        hosted = HostedResource(
            advertised=advertised,
            condition=condition,
            owner=owner,
            expires_at=now + lease_ns,
            slot=slot,
            fixed=dict(fixed_values(condition)),
            at=self._network_time(now),
            source=source,
        )
        self.resources[advertised.id] = hosted
        self._lease(hosted, hosted.expires_at)
        owned = self._owners.setdefault(hosted.holder, Owned())
        owned.resources += 1
        for name in condition.box:
            owned.attributes[name] = owned.attributes.get(name, 0) + 1
        self.number += 1
        self._changed([advertised], [] if known is None else [known.advertised])

    def _check_owner(self, holder: Holder, condition: ResourceCondition, known: HostedResource | None) -> None:
        """Refuse what is beyond the limits of an owner once it has replaced what is known of the resource."""
        owned = self._owners.get(holder, Owned())
        owner = " at ".join(filter(None, holder))
        replaced = known.condition.box if known is not None and known.holder == holder else None
        if owned.resources - (replaced is not None) >= self._resources_per_owner_max:
            raise ProtocolError(
                Reason.RESOURCES_OVER_LIMIT, f"{owner} has {owned.resources} resources at this broker already"
            )
        names = owned.attributes.keys() | condition.box.keys()
        if replaced is not None:
            names -= {name for name in replaced if owned.attributes[name] == 1} - condition.box.keys()
        if len(names) > self._attributes_per_owner_max:
            raise ProtocolError(
                Reason.RESOURCE_ATTRIBUTES_OVER_LIMIT,
                f"the resources of {owner} may name {self._attributes_per_owner_max} attributes",
            )

    def update(self, resource: int, values: dict[str, Scalar], version: int, now: Instant) -> None:
        """The latest values of a dynamic resource. Values that its ranges fix may be omitted."""
        hosted = self._known(resource)
        if hosted.advertised.is_static:
            raise ProtocolError(Reason.RESOURCE_OUT_OF_RANGE, "a static resource does not change; register it anew")
        full = _full(hosted.condition, hosted.fixed, values)
        if version <= hosted.version and hosted.values is not None:
            if version < hosted.version:
                raise ProtocolError(Reason.RESOURCE_OUTDATED, f"update {hosted.version} is newer")
            return  # a repeat
        before, hosted.values, hosted.version = hosted.values, full, version
        self.number += 1
        hosted.number, hosted.at = self.number, self._network_time(now)
        self._state(self._state_of(hosted, before, full))

    def _state_of(
        self, hosted: HostedResource, before: dict[str, Scalar] | None, values: dict[str, Scalar] | None
    ) -> ResourceState:
        advertised = hosted.advertised
        at = hosted.at
        return ResourceState(
            *self.me, self.number, advertised.id, advertised.epoch, advertised.name, at, before, values
        )

    def renew(self, resource: int, lease_ns: int, now: Instant) -> None:
        """Renew a lease."""
        self._lease(self._known(resource), now + lease_ns)

    def _lease(self, hosted: HostedResource, until: Instant) -> None:
        hosted.expires_at = until
        heappush(self._leases, (until, hosted.advertised.id))
        if len(self._leases) > 4 * len(self.resources) + 64:
            self._leases = sorted((each.expires_at, each.advertised.id) for each in self.resources.values())

    def withdraw(self, resource: int) -> None:
        """Remove a resource."""
        hosted = self._known(resource)
        self._drop(hosted)
        self._changed([], [hosted.advertised])

    def _known(self, resource: int) -> HostedResource:
        hosted = self.resources.get(resource)
        if hosted is None:
            raise ProtocolError(Reason.RESOURCE_UNKNOWN, "no such resource is registered at this broker")
        return hosted

    def _drop(self, hosted: HostedResource) -> None:
        resource = hosted.advertised.id
        remember(hosted.condition)
        del self.resources[resource]
        if hosted.slot >= 0:
            self._index.remove(hosted.slot)
            del self._ids[hosted.slot]
        owned = self._owners[hosted.holder]
        owned.resources -= 1
        for name in hosted.condition.box:
            owned.attributes[name] -= 1
            if not owned.attributes[name]:
                del owned.attributes[name]
        if not owned.resources:
            del self._owners[hosted.holder]
        self.number += 1
        if hosted.values is not None:
            self._state(self._state_of(hosted, hosted.values, None))

    def expire(self, now: Instant) -> list[HostedResource]:
        """Remove resources whose owners did not renew their leases in time, at most EXPIRED_AT_ONCE."""
        gone: list[HostedResource] = []
        while self._leases and self._leases[0][0] <= now and len(gone) < EXPIRED_AT_ONCE:
            hosted = self.resources.get(heappop(self._leases)[1])
            if hosted is not None and hosted.expires_at <= now:
                self._drop(hosted)
                gone.append(hosted)
        if gone:
            self._changed([], [hosted.advertised for hosted in gone])
        return gone

    def outdated(self, resource: int, epoch: int) -> None:
        """It was attached elsewhere later."""
        hosted = self.resources.get(resource)
        if hosted is not None and hosted.advertised.epoch < epoch:
            self._drop(hosted)
            self._changed([], [hosted.advertised])

    # -- requests -----------------------------------------------------------------------------------------------

    def matching(self, condition: ResourceCondition, at: int) -> list[FoundResource]:
        """The dynamic resources that match now, and those that may match and have no values yet, as read ``at``."""
        found = []
        for slot in self._index.intersecting(condition.conjunction, Stored.ADVERTISEMENTS):
            hosted = self.resources[self._ids[slot]]
            if hosted.values is None or condition.has(hosted.values):
                found.append(self._found(hosted, at))
        return found

    def _found(self, hosted: HostedResource, at: int) -> FoundResource:
        advertised = hosted.advertised
        host, incarnation = self.me
        return FoundResource(
            id=advertised.id,
            host=host,
            incarnation=incarnation,
            epoch=advertised.epoch,
            at=at,
            updated=hosted.at,
            number=hosted.number,
            name=advertised.name,
            values=hosted.values,
            where=advertised.where if hosted.values is None else "",
        )


def _full(condition: ResourceCondition, fixed: Mapping[str, Scalar], values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Values with those that the ranges fix. ProtocolError if they are too large or outside the ranges."""
    full = {**fixed, **values}
    check_size(full)
    if not condition.has(full):
        raise ProtocolError(Reason.RESOURCE_OUT_OF_RANGE, _outside(condition, full))
    return full


def _outside(condition: ResourceCondition, values: Mapping[str, Scalar]) -> str:
    """What about these values is not as advertised."""
    advertised = f"advertised is {condition.text[:200]}"
    for name, allowed in condition.box.items():
        if name not in values:
            typed = nearest(name, sorted(values.keys() - condition.box.keys()))
            hint = f" (did you mean it by {typed[:60]}?)" if typed else ""
            return f"{name} has no value{hint}; {advertised}"
        if not allowed.has(values[name]):
            return f"{name} = {str(values[name])[:60]!r} is outside: {advertised}"
    return advertised
