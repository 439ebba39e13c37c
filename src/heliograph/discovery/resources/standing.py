"""Standing requests: continuous requests for dynamic resources, and the states that they receive.

In:    continuous requests of our clients and of neighbours; states of our own resources and from neighbours; new
       advertisements; ways that changed.
Out:   requests to the neighbours that lead to hosts of what may match; states to requesters, once.
State: requests by id with the hop that asked; what each neighbour was told; states seen recently.
Not here: watchers of our own clients (watchers.py), one-time requests (forwarding.py).
Paper: [resources] §4.3.2; covering as in §3.

A request goes to the hosts that its own broker found, each by the path toward it, so that it cannot go in circles. A
neighbour is told only requests that no other request told there for the same host covers. When a covering request ends,
those that it covered are told. A way that changes stirs the requests that used it: they may have missed something, so
their brokers ask for the current state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from heliograph.discovery.resources.conditions import ResourceCondition, read_condition
from heliograph.discovery.resources.forwarding import HERE
from heliograph.discovery.resources.messages import (
    IDS_PER_BODY_MAX,
    Message,
    RequestId,
    RequestsStirred,
    ResourceState,
    StandingRequests,
)
from heliograph.discovery.resources.places import Places
from heliograph.discovery.resources.table import AdvertisementTable, HostingBroker
from heliograph.errors import ConditionError, ProtocolError, Reason
from heliograph.machine import LinkId
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.index import BoxIndex, IndexFullError

STATES_REMEMBERED = 4_096
STIR_TTL = 64  # hops; while ways change, a request may briefly go in a circle


Hosts = dict[int, None]


class StandingRequest(msgspec.Struct, eq=False):
    """A continuous request, as this broker knows it."""

    id: RequestId
    condition: ResourceCondition
    hops: dict[LinkId, Hosts]  # hops that asked, and for which hosts; our own clients ask for all
    slot: int
    needs: dict[LinkId, Hosts] = {}  # neighbours that lead to these hosts


class StandingForwarding:
    """Continuous requests at one broker."""

    def __init__(
        self,
        table: AdvertisementTable,
        places: Places,
        requests_max: int,
        *,
        send: Callable[[LinkId, Message], None],
        tell: Callable[[RequestId, ResourceState], None],
        stirred: Callable[[RequestId], None],
        emptied: Callable[[RequestId, HostingBroker], None],
    ) -> None:
        self.requests: dict[RequestId, StandingRequest] = {}
        self.frames_told = 0  # frames with requests that begin or end, to neighbours
        self.states_told = 0
        self._table = table
        self._places = places
        self._requests_max = requests_max
        self._send = send
        self._tell = tell
        self._stirred = stirred
        self._emptied = emptied
        self._index = BoxIndex()
        self._by_slot: dict[int, StandingRequest] = {}
        self._sent: dict[LinkId, dict[RequestId, Hosts]] = {}
        self._seen: OrderedDict[tuple[int, int, int], None] = OrderedDict()

    # -- requests -----------------------------------------------------------------------------------------------

    def add(self, hop: LinkId, id: RequestId, where: str, hosts: Iterable[int] = ()) -> None:
        """A hop asks for these hosts; our own clients for all. ProtocolError if that cannot be read or kept."""
        request = self.requests.get(id)
        if request is None:
            request = self.requests[id] = self._begin(id, where)
        request.hops[hop] = dict.fromkeys(hosts)
        self._meet_needs(request)

    def _begin(self, id: RequestId, where: str) -> StandingRequest:
        if len(self.requests) >= self._requests_max:
            raise ProtocolError(Reason.RESOURCE_REQUESTS_OVER_LIMIT, "no more continuous requests are kept here")
        try:
            condition = read_condition(where)
            slot = self._index.spare
            self._index.add(slot, condition.conjunction)
        except ConditionError as error:
            raise ProtocolError(error.reason, error.detail) from None
        except IndexFullError as error:
            raise ProtocolError(Reason.RESOURCE_ATTRIBUTES_OVER_LIMIT, str(error)) from None
        request = self._by_slot[slot] = StandingRequest(id, condition, {}, slot)
        return request

    def drop(self, hop: LinkId, id: RequestId) -> None:
        """A hop no longer asks."""
        request = self.requests.get(id)
        if request is None or hop not in request.hops:
            return
        del request.hops[hop]
        if not request.hops:
            del self.requests[id]
            del self._by_slot[request.slot]
            self._index.remove(request.slot)
        self._meet_needs(request)

    def _wanted(self, request: StandingRequest) -> Hosts:
        """The hosts that any hop asks for."""
        wanted: Hosts = {}
        for hop, hosts in request.hops.items():
            if hop == HERE:
                wanted.update((host.broker, None) for host in self._table.overlapping_hosts(request.condition))
            else:
                wanted.update(hosts)
        return wanted

    def _meet_needs(self, request: StandingRequest) -> bool:
        """Tell the neighbours that have to know. Returns True if the ways to hosts have changed."""
        needs: dict[LinkId, Hosts] = {}
        for broker in self._wanted(request):
            host = self._table.hosts.get(broker)
            hop = self._places.hop(host.place) if host is not None else None
            if hop is not None:
                needs.setdefault(hop, {})[broker] = None
        before, request.needs = request.needs, needs
        for link in {**before, **needs}:
            self._offer(request, link)
        return before != needs

    def _offer(self, request: StandingRequest, link: LinkId) -> None:
        """Tell a neighbour which hosts we need through it, except those for which it was told a wider request."""
        sent = self._sent.setdefault(link, {})
        hosts = dict(request.needs.get(link, {}))
        for slot in self._index.coverers(request.condition.conjunction) if hosts else ():
            other = self._by_slot[slot]
            if other is not request and not (other.condition == request.condition and other.id > request.id):
                for host in sent.get(other.id, ()):
                    hosts.pop(host, None)
        before = sent.get(request.id, {})
        if hosts == before:
            return
        self.frames_told += 1
        if hosts:
            sent[request.id] = hosts
        else:
            del sent[request.id]
        if any(host not in hosts for host in before):
            self._tell_covered(request, link)  # before this one ends, so that no state is missed in between
        if hosts:
            some = list(hosts)[:IDS_PER_BODY_MAX]
            self._send(link, StandingRequests(add=[(request.id, request.condition.text, some)]))
        else:
            self._send(link, StandingRequests(drop=[request.id]))

    def _tell_covered(self, narrower: StandingRequest, link: LinkId) -> None:
        """It covers less there than before: tell the neighbour the requests that it covered."""
        for slot in self._index.covered(narrower.condition.conjunction).tolist():
            other = self._by_slot[slot]
            if other is not narrower and link in other.needs:
                self._offer(other, link)

    def hear_want(self, link: LinkId, message: StandingRequests) -> None:
        """A neighbour's requests begin or end."""
        for id, where, hosts in message.add:
            self.add(link, id, where, hosts)
        for id in message.drop:
            self.drop(link, id)

    # -- changes around us --------------------------------------------------------------------------------------

    def advertised(self, condition: ResourceCondition) -> None:
        """A resource is newly advertised: requests that may match it must reach its host."""
        self._meet_all(
            self._by_slot[slot]
            for slot in self._index.intersecting(condition.conjunction, Stored.SUBSCRIPTIONS).tolist()
        )

    def withdrawn(self, host: HostingBroker, condition: ResourceCondition) -> None:
        """An advertisement was withdrawn: tell requests that get no more from that host, whatever was lost before."""
        for slot in self._index.intersecting(condition.conjunction, Stored.SUBSCRIPTIONS).tolist():
            request = self._by_slot[slot]
            self._meet_needs(request)
            if HERE in request.hops and host not in self._table.still_overlapping(request.condition):
                self._emptied(request.id, host)

    def reborn(self, host: HostingBroker) -> None:
        """A host restarted: its earlier states are void, and its current ones are requested."""
        for request in self.requests.values():
            if HERE in request.hops:
                self._emptied(request.id, host)
                self._stirred(request.id)

    def link_down(self, link: LinkId) -> None:
        """A neighbour is gone, with what it asked and what it was told."""
        self._sent.pop(link, None)
        for request in list(self.requests.values()):
            request.needs.pop(link, None)
            self.drop(link, request.id)

    def ways_changed(self) -> None:
        """Requests may have to go elsewhere."""
        self._meet_all(self.requests.values())

    def _meet_all(self, requests: Iterable[StandingRequest]) -> None:
        """Tell neighbours what has changed, and tell the requests that may have missed something."""
        stirred: dict[LinkId, list[RequestId]] = {}
        for request in list(requests):
            if self._meet_needs(request):
                for hop in request.hops:
                    stirred.setdefault(hop, []).append(request.id)
        for hop, ids in stirred.items():
            self._stir(hop, ids, STIR_TTL)

    def _stir(self, hop: LinkId, ids: list[RequestId], ttl: int) -> None:
        if hop == HERE:
            for id in ids:
                self._stirred(id)
            return
        for start in range(0, len(ids), IDS_PER_BODY_MAX):
            self._send(hop, RequestsStirred(ids[start : start + IDS_PER_BODY_MAX], ttl))

    def hear_stirred(self, link: LinkId, message: RequestsStirred) -> None:
        """A way changed farther on: requests that one of ours covers may have missed something too."""
        if not message.ttl:
            return
        stirred: dict[LinkId, dict[RequestId, None]] = {}
        for id in message.ids:
            request = self.requests.get(id)
            if request is None:
                continue
            for slot in self._index.covered(request.condition.conjunction).tolist():
                other = self._by_slot[slot]
                if link in other.needs:
                    for hop in other.hops:
                        stirred.setdefault(hop, {})[other.id] = None
        for hop, found in stirred.items():
            if hop != link:
                self._stir(hop, list(found), message.ttl - 1)

    # -- states -------------------------------------------------------------------------------------------------

    def state(self, came: LinkId | None, state: ResourceState) -> None:
        """A state of a resource, ours or from a neighbour: sent once to each hop whose requests match."""
        mark = (state.host, state.incarnation, state.number)
        if mark in self._seen:
            return
        self._seen[mark] = None
        if len(self._seen) > STATES_REMEMBERED:
            self._seen.popitem(last=False)
        concerned: dict[int, None] = {}
        for values in (state.before, state.values):
            if values is not None:
                concerned.update(dict.fromkeys(self._index.match(values).tolist()))
        hops: dict[LinkId, None] = {}
        for slot in sorted(concerned):
            request = self._by_slot[slot]
            for hop, hosts in request.hops.items():
                if hop == HERE:
                    self._tell(request.id, state)
                elif hop != came and state.host in hosts:
                    hops[hop] = None
        self.states_told += len(hops)
        for hop in hops:
            self._send(hop, state)
