"""The core of a resource service: its parts, and which message is for which of them.

In:    ways, links that come up and end, messages of neighbours, requests of owners and requesters, time.
Out:   messages to neighbours; answers; states for watchers.
State: held by the parts.
Not here: the pipe and clients' messages (service.py), and the parts: table and spreading (advertisements), hosting (our
          resources), forwarding and gathering (one-time requests), standing (continuous ones).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from heliograph.discovery.resources import messages
from heliograph.discovery.resources.conditions import ResourceCondition, read_condition
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.resources.forwarding import HERE, Arrival, DirectSend, HostRead, Reads, RequestForwarding
from heliograph.discovery.resources.gathering import AnswerGathering
from heliograph.discovery.resources.hosting import EXPIRED_AT_ONCE, HostedResource, Hosting
from heliograph.discovery.resources.messages import (
    AdvertisedResource,
    AdvertisementsOffered,
    AdvertisementsTold,
    FoundResource,
    Message,
    RequestId,
    RequestsStirred,
    ResourceRequest,
    ResourceRequestDone,
    ResourcesFound,
    ResourceState,
    StandingRequests,
)
from heliograph.discovery.resources.places import Places
from heliograph.discovery.resources.remembering import Key
from heliograph.discovery.resources.spreading import Spreading
from heliograph.discovery.resources.standing import StandingForwarding
from heliograph.discovery.resources.table import AdvertisementTable, HostingBroker, TableDifference, TableRow
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId, Timers
from heliograph.timekeeping.incarnations import Incarnations, Outbidding
from heliograph.wire.ways import WaysHere

NS_PER_S = 1_000_000_000
WALL_STEP_NS = 20 * NS_PER_S  # times of reads that would go back by more follow the clock
TICK_NS = NS_PER_S // 2  # between checks for what has expired or stalled


class ResourceCore:
    """Resource discovery at one broker, without its pipe."""

    def __init__(
        self,
        config: ResourcesConfig,
        timers: Timers,
        *,
        network_time: Callable[[Instant], int],
        time_error: Callable[[Instant], int],
        send: Callable[[LinkId, bytes], None],
        state: Callable[[ResourceState], None],
        told: Callable[[RequestId, ResourceState], None],
        stirred: Callable[[RequestId], None],
        emptied: Callable[[RequestId, HostingBroker], None],
        learned: Callable[[HostingBroker, TableDifference], None],
        direct: DirectSend = lambda request, found, undelivered, now: False,
        reply: Callable[[RequestId], tuple[str, str] | None] = lambda id: None,
    ) -> None:
        self.refused: dict[str, int] = {}
        self.places = Places()
        self.table = AdvertisementTable(config.resources_max)
        self._forget_ns = config.forget_s * NS_PER_S
        self._timers = timers
        self._network_time = network_time
        self._time_error = time_error
        self._read_at = 0  # the time of the last read of our resources
        self._send_bytes = send
        self._state = state
        self._told_learned = learned
        self._expired: list[HostedResource] = []
        self._is_ticking = False
        self._silent: dict[LinkId, None] = {}  # neighbours without this service
        self._unreachable: dict[int, Instant] = {}  # hosting brokers that are out of reach, and since when
        self.incarnations: Incarnations[int] = Incarnations(timers, self._ask_again)
        self._outbidding = Outbidding(timers, self._raise_incarnation)
        self._incarnation_min = 0  # of ours: others know an advertisement of ours under the one before
        self.spreading = Spreading(
            *(self.table, self.places, self.incarnations, self._outbidding, self._send, self.count, self._learned),
            later=lambda: timers.set("spread", 0, lambda now: self.spreading.flush()),
        )
        self.hosting = Hosting(
            config.resources_per_owner_max,
            config.attributes_per_owner_max,
            network_time=network_time,
            changed=self._own_changed,
            state=self._own_state,
        )
        self.forwarding = RequestForwarding(
            self.table,
            self.places,
            config.requests_max,
            config.cache_s * NS_PER_S,
            network_time=network_time,
            own=self._own,
            send=self._send,
            count=self.count,
            found=self._found,
            done=self._done,
            direct=direct,
        )
        self.gathering = AnswerGathering(
            self.table,
            self.places,
            timers,
            config.requests_max,
            network_time=network_time,
            time_error=time_error,
            ask=self._ask,
            arrived=self._arrived,
            is_settled=lambda: self.spreading.is_settled,
            reply=reply,
        )
        self.standing = StandingForwarding(
            self.table,
            self.places,
            config.requests_max,
            send=self._send,
            tell=told,
            stirred=stirred,
            emptied=emptied,
        )

    def count(self, reason: Reason) -> None:
        """Something was refused for this reason."""
        self.refused[reason.word] = self.refused.get(reason.word, 0) + 1

    def flush(self) -> None:
        """Tell changes of our resources now. What comes next must find them in the tables."""
        self._timers.cancel("spread")
        self.spreading.flush()

    # -- calls between the parts ----------------------------------------------------------------------------------

    def _send(self, link: LinkId, message: Message) -> None:
        if link in self.places.links and link not in self._silent:
            self._send_bytes(link, messages.encode(message))

    def _ask(self, request: ResourceRequest, now: Instant, holder: str) -> None:
        self.flush()
        self.forwarding.ask(HERE, request, now, holder)

    def _found(self, key: tuple[RequestId, int], found: list[FoundResource]) -> None:
        self.gathering.found(key, found)

    def _done(self, key: tuple[RequestId, int], arrival: Arrival, now: Instant) -> None:
        self.gathering.done(key, arrival, now)

    def _own(self, condition: ResourceCondition, now: Instant) -> tuple[list[FoundResource], HostRead]:
        """Our resources, and when they were read: at the earliest time that any clock in the network shows now, so that
        what is issued later never takes them for younger than itself. Each read is later than the last, or brokers on
        its way would take it for a repetition."""
        at = self._network_time(now) - self._time_error(now)
        if at <= self._read_at < at + WALL_STEP_NS:
            at = self._read_at + 1
        self._read_at = at
        return self.hosting.matching(condition, at), HostRead(self.hosting.me[1], self.hosting.number, at)

    def _arrived(self, key: Key) -> Reads:
        """The hosts whose answers to a request of our own client are all here, while others may be awaited."""
        known = self.forwarding.known.get(key)
        arrivals = () if known is None else known.arrivals.values()
        return {host: read for each in arrivals for host, read in each.hosts.items() if host not in each.direct}

    def _own_changed(self, came: list[AdvertisedResource], went: list[AdvertisedResource]) -> None:
        """Our resources changed. That ends sharing here, also if others are not told because another one covers it."""
        for advertised in (*went, *came):
            if not advertised.is_static:
                self.forwarding.end_sharing(read_condition(advertised.where))
        self.spreading.change(came, [advertised.id for advertised in went])

    def _own_state(self, state: ResourceState) -> None:
        self._state(state)
        self.standing.state(None, state)

    def _learned(self, host: HostingBroker, difference: TableDifference) -> None:
        """Advertisements came or went: requests that did not ask for them cover less, and others may want them."""
        for advertised in difference.added:
            if not advertised.is_static:
                condition = read_condition(advertised.where)
                self.forwarding.end_sharing(condition)
                self.standing.advertised(condition)
            if host.broker != self.hosting.me[0]:
                self.hosting.outdated(advertised.id, advertised.epoch)
        for advertised in difference.removed:
            if not advertised.is_static:
                condition = read_condition(advertised.where)
                self.forwarding.end_sharing(condition)
                self.standing.withdrawn(host, condition)
        if difference.removed:
            self.gathering.withdrawn(host)
        if difference.is_reborn:
            self.standing.reborn(host)
        self._told_learned(host, difference)

    # -- the network ------------------------------------------------------------------------------------------------

    def hear_ways(self, ways: WaysHere, now: Instant) -> None:
        """The neighbours and ways have changed. With the first ones, time begins to pass."""
        self.flush()
        ways = replace(ways, incarnation=max(ways.incarnation, self._incarnation_min))
        if not self._is_ticking:
            self._is_ticking = True
            self._timers.set("tick", now + TICK_NS, self._tick)
        changed = self.places.hear(ways)
        self.hosting.become(ways.broker, ways.incarnation)
        for link in changed.went:
            self._silent.pop(link, None)
            self._link_down(link, now)
        self.spreading.place_changed()
        for link in changed.came:
            self.spreading.greet(link)
        self.standing.ways_changed()
        self._look_for_lost(now)

    def _raise_incarnation(self, newest: int, is_contested: bool, now: Instant) -> None:
        """Others know advertisements of ours that are newer than ours: tell ours again under a higher incarnation."""
        if is_contested:
            self.count(Reason.NAME_TAKEN)
        ways = self.places.ways
        assert ways is not None
        self._incarnation_min = newest + 1
        self.hear_ways(ways, now)

    def _ask_again(self, link: LinkId, hosts: list[int], now: Instant) -> None:
        """What a neighbour told of these was not believed, and can be now."""
        self.spreading.ask_again(link, hosts)

    def _link_down(self, link: LinkId, now: Instant) -> None:
        self.spreading.link_down(link)
        self.forwarding.link_down(link, now)
        self.standing.link_down(link)

    def hear_neighbour(self, link: LinkId, payload: bytes, now: Instant) -> None:
        """A message of a neighbour. Invalid ones are counted; the neighbour keeps its link."""
        if link not in self.places.links:
            return
        self.flush()
        unread: list[str] = []
        try:
            message = messages.decode(payload, unread)
            for _ in unread:
                self.count(Reason.BODY_MALFORMED)
            self._hear(link, message, now)
        except ProtocolError as error:
            self.count(error.reason)

    def hear_direct(self, payload: bytes, seal: str, seal_of: Callable[[RequestId], str]) -> None:
        """Answers that a hosting broker sent straight to us, with the seal of the request that they answer."""
        try:
            message = messages.decode(payload)
        except ProtocolError as error:
            self.count(error.reason)
            return
        if not isinstance(message, ResourcesFound) or seal != seal_of(message.id):
            self.count(Reason.RESOURCE_FOREIGN)
        elif not self.gathering.is_under_way((message.id, message.attempt)):
            self.count(Reason.RESOURCE_REQUEST_UNKNOWN)
        else:
            self.gathering.found((message.id, message.attempt), message.found)

    def _hear(self, link: LinkId, message: Message, now: Instant) -> None:
        match message:
            case ResourceRequest():
                self.forwarding.ask(link, message, now)
            case ResourcesFound():
                self.forwarding.hear_found(link, message)
            case ResourceRequestDone():
                self.forwarding.hear_done(link, message, now)
            case ResourceState():
                self.standing.state(link, message)
            case StandingRequests():
                self.standing.hear_want(link, message)
            case RequestsStirred():
                self.standing.hear_stirred(link, message)
            case AdvertisementsTold():
                self.spreading.hear_told(link, message, now)
            case AdvertisementsOffered():
                if message.fresh:
                    self._link_down(link, now)
                    self.spreading.greet(link)
                    self.standing.ways_changed()
                self.spreading.hear_offer(link, message, now)

    def hear_refusal(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """Our message did not arrive. If the service is missing there, send no more; otherwise start again soon."""
        self.count(reason)
        if reason is Reason.SERVICE_UNKNOWN:
            self._silent[link] = None
            self._link_down(link, now)
        elif reason is not Reason.CLOSED and link in self.places.links:
            self._timers.set(("anew", link), now + NS_PER_S, lambda now: self._begin_anew(link, now))

    def _begin_anew(self, link: LinkId, now: Instant) -> None:
        if link in self.places.links:
            self._link_down(link, now)
            self.spreading.greet(link, fresh=True)
            self.standing.ways_changed()

    def _look_for_lost(self, now: Instant) -> None:
        """Forget hosting brokers that have long been out of reach."""
        me = self.hosting.me[0]
        for host in list(self.table.hosts.values()):
            if host.broker == me or self.places.hop(host.place) is not None:
                self._unreachable.pop(host.broker, None)
            else:
                self._unreachable.setdefault(host.broker, now)
        if self._unreachable:
            self._timers.set("lost", min(self._unreachable.values()) + self._forget_ns, self._forget_lost)

    def _forget_lost(self, now: Instant) -> None:
        for broker, since in list(self._unreachable.items()):
            if now - since >= self._forget_ns:
                del self._unreachable[broker]
                host = self.table.hosts.get(broker)
                difference = self.table.forget(broker)
                if host is not None:
                    self._learned(host, difference)
        self._look_for_lost(now)

    # -- time ---------------------------------------------------------------------------------------------------

    def _tick(self, now: Instant) -> None:
        """End leases and requests that have expired. Begin anew with neighbours that have long taken nothing."""
        self._end_leases(now)
        self._forget_requests(now)
        for link in self.spreading.stalled(now):
            self._begin_anew(link, now)
        self._timers.set("tick", now + TICK_NS, self._tick)

    def _end_leases(self, now: Instant) -> None:
        gone = self.hosting.expire(now)
        self._expired += gone
        if len(gone) >= EXPIRED_AT_ONCE:
            self._timers.set("leases", now, self._end_leases)  # the next slice

    def _forget_requests(self, now: Instant) -> None:
        if self.forwarding.expire(now):
            self._timers.set("forget", now, self._forget_requests)  # the next slice

    def take_expired(self) -> list[HostedResource]:
        """The resources whose leases have ended since the last call."""
        expired, self._expired = self._expired, []
        return expired

    def static(self, condition: ResourceCondition) -> list[TableRow]:
        """The static resources that match, from our own table."""
        self.flush()
        return self.table.overlapping_static(condition)

    def static_rows(self, condition: ResourceCondition) -> list[TableRow]:
        """The same, with every advertisement of a resource that two brokers host."""
        self.flush()
        return self.table.overlapping_rows(condition)
