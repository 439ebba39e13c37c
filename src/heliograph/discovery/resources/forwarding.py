"""Forwarding of one-time requests and their answers, hop by hop; similar requests share answers.

In:    requests, answers and completions from neighbours and from our own clients; new advertisements; time.
Out:   the same to neighbours; answers and completion of our own requests.
State: per request known here: where it came from, which requests share its answers, what was passed on.
Not here: asking again and deadlines (gathering.py), our own resources (hosting.py), continuous requests (standing.py).
Paper: [resources] §5, Algorithms 1 and 2: SrdSubList is ``_listed``, SubWaitingListMap ``KnownRequest.waiting``,
       ResourceCacheMap ``KnownRequest.cache``.

The rules that make the algorithms exact on every graph:
1. Of equal requests only the older covers.
2. A covered request always goes on to the covering one's host broker.
3. Its answers leave a broker by the hop by which it first came; if it came covered and that is over when it comes
   uncovered, by that hop, as otherwise its completion would overtake them.
4. A broker passes each answer of a request on once, unless its host read it again since.
5. An answer may go back where it came from, unless the request came from there covered by the same one.

The rules that make shared answers true:
6. A broker answers for its own resources from its own table, whether a request shares or not; what others have read
   there goes no further.
7. A request shares what a host read after it was issued, less the age that it allows. Hosts that were read earlier
   count as unanswered, and its broker asks again (gathering.py). Clocks differ: a request is issued at the latest time
   that any broker may show then, and a host is read at the earliest.
8. An older request covers while it is under way, or while everything it found is young enough. One that asks for the
   best covers none: what it found was cut.

A broker tells the hop that a request came from when all brokers that it asked have answered. A second arrival of a
request that was already routed is answered at once. If a covering request is no longer known, the request goes back
uncovered.

A request that is answered is remembered for late arrivals and answers, and if it may cover others, as long as answers
are kept. The places for requests are shared (remembering.py) among the brokers that ask, and our own clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import NamedTuple

import msgspec

from heliograph.discovery.resources.conditions import ResourceCondition, fits_found, read_condition
from heliograph.discovery.resources.messages import (
    IDS_PER_BODY_MAX,
    RESULTS_PER_BODY_MAX,
    FoundResource,
    Message,
    RequestId,
    ResourceRequest,
    ResourceRequestDone,
    ResourcesFound,
    in_parts,
)
from heliograph.discovery.resources.ordering import BestSoFar, enough
from heliograph.discovery.resources.places import Places
from heliograph.discovery.resources.remembering import Key, RememberedRequests
from heliograph.discovery.resources.table import AdvertisementTable
from heliograph.errors import ConditionError, ProtocolError, Reason
from heliograph.machine import Instant, LinkId
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.index import BoxIndex, IndexFullError

HERE: LinkId = 0  # the hop of our own clients
SIMILARITY, NORMAL, DIRECT = "similarity", "normal", "direct"
DELIVERIES = (SIMILARITY, NORMAL, DIRECT)
NEVER = (-1, -1)
MARGIN_NS = 5_000_000_000  # how long a request is remembered beyond its deadline or its answer, at least
COVERERS_MAX = 64  # looked at for one request; one that finds none goes on uncovered, which is always right
FORGOTTEN_AT_ONCE = 1_000  # requests that expire in one call: a few milliseconds


Asked = tuple[LinkId, RequestId | None]
"""The link that was asked, and under which covering request."""


class HostRead(NamedTuple):
    """When a hosting broker read its resources for an answer."""

    incarnation: int
    number: int  # its count of changes then
    at: int  # network time there, less its error


Reads = dict[int, HostRead]
"""Hosting brokers that answered."""


class Arrival(msgspec.Struct, eq=False):
    """One arrival of a request."""

    hop: LinkId
    cover: RequestId | None
    pending: dict[Asked, None] = {}
    hosts: Reads = {}  # hosts that answered
    direct: dict[int, int] = {}  # the number of answers that a host sent directly
    lost: bool = False
    uncovered: bool = False
    over: bool = False

    def add_hosts(self, reads: Iterable[tuple[int, HostRead]], me: int) -> None:
        """Hosts that answered, except this broker. Of two reads the older counts: either may have been passed on."""
        for host, read in reads:
            known = self.hosts.get(host)
            if host != me and (known is None or read.at < known.at):
                self.hosts[host] = read


class KnownRequest(msgspec.Struct, eq=False):
    """One attempt of a request, as this broker knows it."""

    request: ResourceRequest
    condition: ResourceCondition
    hop: LinkId  # by which its answers leave
    best: BestSoFar | None  # of the answers that passed here, if it asks for the best ones
    arrivals: dict[Asked, Arrival] = {}
    passed: dict[int, tuple[int, int]] = {}  # resources that passed here, with their epoch, and when they were read
    waiting: dict[Key, KnownRequest] = {}  # requests that share its answers
    dependants: list[tuple[KnownRequest, Arrival]] = []  # … and wait for its completion
    cache: dict[int, FoundResource] = {}  # at its host broker
    hosts: Reads = {}  # once it is complete
    slot: int = -1  # in the index of those that may cover
    is_routed: bool = False  # to the hosts of resources, from here
    is_answered: bool = False  # with the resources of this broker
    is_complete: bool = False

    @property
    def key(self) -> Key:
        """Its name."""
        return (self.request.id, self.request.attempt)

    @property
    def oldest(self) -> int:
        """Answers that were read at this time or before are too old."""
        return self.request.issued - self.request.max_age

    @property
    def rank(self) -> tuple[int, RequestId]:
        """The lower one is older."""
        return (self.request.issued, self.request.id)

    @property
    def is_under_way(self) -> bool:
        """True while answers to it may come."""
        return any(not arrival.over for arrival in self.arrivals.values())

    @property
    def reads(self) -> Reads:
        """The hosts that have answered it, as far as this broker knows."""
        if self.is_complete:
            return self.hosts
        return {host: read for arrival in self.arrivals.values() for host, read in arrival.hosts.items()}


DirectSend = Callable[[ResourceRequest, ResourcesFound, Callable[[], None], Instant], bool]
"""Sends a package to the requester's broker. Returns False if it cannot; calls back if it fails later."""


class ForwardingCounts(msgspec.Struct):
    """What crossed links: the paper's counts, and further ones."""

    subscriptions: int = 0
    publications: int = 0  # packages
    results: int = 0  # resources in them
    completions: int = 0
    shared: int = 0  # requests that found a covering one here
    direct: int = 0  # packages sent straight to the requester's broker; also counted as publications


class RequestForwarding:
    """Requests in progress, at one broker.

    It has 34 methods because the paper's two algorithms, completion and covering work on one table of requests.
    """

    def __init__(
        self,
        table: AdvertisementTable,
        places: Places,
        requests_max: int,
        kept_ns: int,
        *,
        network_time: Callable[[Instant], int],
        own: Callable[[ResourceCondition, Instant], tuple[list[FoundResource], HostRead]],
        send: Callable[[LinkId, Message], None],
        count: Callable[[Reason], None],
        found: Callable[[Key, list[FoundResource]], None],
        done: Callable[[Key, Arrival, Instant], None],
        direct: DirectSend,
    ) -> None:
        self.known: dict[Key, KnownRequest] = {}
        self.counts = ForwardingCounts()
        self.looked_at = 0  # requests that might cover another one
        self._table = table
        self._places = places
        self._requests_max = requests_max
        self._kept_ns = kept_ns  # how long answers are kept for requests that allow their age
        self._remembered = RememberedRequests()
        self._network_time = network_time
        self._own = own
        self._send = send
        self._count = count
        self._found = found
        self._done = done
        self._direct = direct
        self._listed = BoxIndex()  # requests that may cover others
        self._by_slot: dict[int, KnownRequest] = {}
        self._issued: dict[int, int] = {}  # when, by slot
        self._first: dict[RequestId, KnownRequest] = {}  # those that may be named as covering

    # -- requests (Algorithm 1) ---------------------------------------------------------------------------------

    def ask(self, hop: LinkId, request: ResourceRequest, now: Instant, holder: str = "") -> None:
        """A request arrives, from a neighbour or from one of our clients, who counts as this holder. ProtocolError if
        it cannot be read."""
        key = (request.id, request.attempt)
        known = self.known.get(key)
        if known is None:
            source = f"client {holder}" if hop == HERE else f"broker {request.id[0]}"
            known = self._begin(hop, request, source, now)
            if known is None:
                self._refuse(hop, request, now)
                return
        asked = (hop, request.cover)
        if asked in known.arrivals:
            self._send_done(known, Arrival(hop, request.cover))
            return
        arrival = known.arrivals[asked] = Arrival(hop, request.cover)
        if request.cover is None:
            self._work(known, arrival, now)
        else:
            self._follow(known, arrival, request.cover, now)
        self._settle(known, arrival, now)

    def _begin(self, hop: LinkId, request: ResourceRequest, source: str, now: Instant) -> KnownRequest | None:
        try:
            condition = read_condition(request.where)
        except ConditionError as error:
            raise ProtocolError(error.reason, error.detail) from None
        if len(self.known) >= self._requests_max and not self._make_room(source, now):
            return None
        best = BestSoFar(request.best, request.order) if request.best else None
        known = KnownRequest(request, condition, hop, best)
        self.known[known.key] = known
        self._remembered.add(source, known.key, request.until)
        return known

    def _make_room(self, source: str, now: Instant) -> bool:
        """Forget the oldest request of the source that has most, or of this one; False if both have none to spare."""
        key = self._remembered.giving_way(source)
        if key is None:
            return False
        self._count(Reason.RESOURCE_REQUESTS_OVER_LIMIT)
        known = self.known[key]
        awaited = [arrival for arrival in known.arrivals.values() if not arrival.over]
        self._forget(known, now)
        for arrival in awaited:
            arrival.pending.clear()
            arrival.lost = True
            self._settle(known, arrival, now)
        return True

    def _refuse(self, hop: LinkId, request: ResourceRequest, now: Instant) -> None:
        self._count(Reason.RESOURCE_REQUESTS_OVER_LIMIT)
        if hop != HERE:
            self._send(hop, ResourceRequestDone(request.id, request.attempt, request.cover, lost=True))
        else:
            self._done((request.id, request.attempt), Arrival(hop, None, lost=True), now)

    def _work(self, known: KnownRequest, arrival: Arrival, now: Instant) -> None:
        """Share the answers of a covering request, or send it to the hosts of resources."""
        if known.is_routed or any(each is not arrival and each.cover is None for each in known.arrivals.values()):
            return  # done when it first came
        if all(each.over for each in known.arrivals.values() if each is not arrival):
            known.hop = arrival.hop
        shares = known.request.deliver == SIMILARITY
        coverer = self._find(known, now) if shares else None
        if coverer is not None:
            self.counts.shared += 1
            self._join(known, arrival, coverer, now)
            return
        if shares:
            self._list(known)
        self._route(known, arrival, now)

    def _follow(self, known: KnownRequest, arrival: Arrival, cover: RequestId, now: Instant) -> None:
        """It arrived to share the answers of that request."""
        coverer = self._first.get(cover)
        if coverer is None or coverer.slot < 0 or coverer is known or not self._may_cover(coverer, known, now):
            arrival.uncovered = True
            return
        self._join(known, arrival, coverer, now)

    def _join(self, known: KnownRequest, arrival: Arrival, coverer: KnownRequest, now: Instant) -> None:
        if self._me in self._table.hosts:
            self._answer(known, arrival, now)
        coverer.waiting[known.key] = known
        if coverer.hop != HERE:
            self._ask(coverer.hop, known, arrival, coverer.request.id)
            return
        fitting = self._fitting(known, coverer.cache.values())
        self._pass(known, fitting, None)
        if coverer.is_complete:
            self._share_hosts(known, arrival, coverer)
        else:
            arrival.pending[(HERE, coverer.request.id)] = None
            coverer.dependants.append((known, arrival))

    def _route(self, known: KnownRequest, arrival: Arrival, now: Instant) -> None:
        """Send it to all brokers that host what may match, but not back."""
        known.is_routed = True
        back = {each.hop for each in known.arrivals.values() if each.cover is None}
        hops: dict[LinkId, None] = {}
        for host in self._table.overlapping_hosts(known.condition):
            if host.broker == self._me:
                self._answer(known, arrival, now)
                continue
            hop = self._places.hop(host.place)
            if hop is not None and hop not in back:
                hops[hop] = None
        for hop in hops:
            self._ask(hop, known, arrival, None)

    def _answer(self, known: KnownRequest, arrival: Arrival, now: Instant) -> None:
        """Answer with the resources that we host, once."""
        if known.is_answered:
            return
        known.is_answered = True
        found, read = self._own(known.condition, now)
        request = known.request
        arrival.hosts[self._me] = read
        chosen = enough(found, request.best, request.order)
        if request.deliver == DIRECT and request.reply is not None and known.hop != HERE:
            arrival.direct[self._me] = len(chosen)
            self._answer_directly(known, chosen, now)
        else:
            self._pass(known, chosen, None)

    def _answer_directly(self, known: KnownRequest, found: list[FoundResource], now: Instant) -> None:
        """Answer straight to the requester's broker, or along the path if that is not possible."""
        for part in in_parts(found, RESULTS_PER_BODY_MAX) if found else ():

            def along(part: list[FoundResource] = part) -> None:
                if self.known.get(known.key) is known:
                    self._pass(known, part, None)

            if self._direct(known.request, ResourcesFound(*known.key, part), along, now):
                self.counts.publications += 1
                self.counts.direct += 1
                self.counts.results += len(part)
            else:
                along()

    @property
    def _me(self) -> int:
        return self._places.ways.broker if self._places.ways is not None else -1

    def _ask(self, hop: LinkId, known: KnownRequest, arrival: Arrival, cover: RequestId | None) -> None:
        arrival.pending[(hop, cover)] = None
        self.counts.subscriptions += 1
        request = known.request
        self._send(
            hop,
            ResourceRequest(
                *(request.id, request.attempt, request.where, request.issued, request.until, request.deliver),
                *(request.best, request.order, request.max_age, cover, request.reply),
            ),
        )

    # -- covering -----------------------------------------------------------------------------------------------

    def _find(self, known: KnownRequest, now: Instant) -> KnownRequest | None:
        """The oldest request whose answers this one can share, of the youngest that cover it: others are too old."""
        youngest = nlargest(COVERERS_MAX, self._listed.coverers(known.condition.conjunction), self._issued.__getitem__)
        found = sorted((self._by_slot[slot] for slot in youngest), key=lambda each: each.rank)
        self.looked_at += len(found)
        return next((each for each in found if self._may_cover(each, known, now)), None)

    def _may_cover(self, wide: KnownRequest, narrow: KnownRequest, now: Instant) -> bool:
        one, other = wide.request, narrow.request
        if one.id == other.id or not wide.condition.covers(narrow.condition):
            return False
        if one.until <= self._network_time(now):
            return False
        if wide.condition == narrow.condition and wide.rank >= narrow.rank:
            return False
        return self._is_young(wide, narrow)

    def _is_young(self, wide: KnownRequest, narrow: KnownRequest) -> bool:
        """True if the answers to a request can be young enough for another one, as far as this broker knows."""
        oldest = narrow.oldest
        if wide.request.issued < oldest and not (wide.is_complete or wide.is_under_way):
            return False
        reads, me = wide.reads, self._me
        for host in self._table.still_overlapping(narrow.condition):
            read = reads.get(host.broker)
            if host.broker != me and (wide.is_complete if read is None else read.at <= oldest):
                return False
        return True

    def _share_hosts(self, known: KnownRequest, arrival: Arrival, coverer: KnownRequest) -> None:
        """The hosts that answered the covering request; those that were read too early have not answered this one."""
        young = ((host, read) for host, read in coverer.hosts.items() if read.at > known.oldest)
        arrival.add_hosts(young, self._me)

    def _list(self, known: KnownRequest) -> None:
        if known.request.best:
            return
        try:
            slot = self._listed.spare
            self._listed.add(slot, known.condition.conjunction)
        except IndexFullError:
            return
        known.slot = slot
        self._by_slot[slot] = known
        self._issued[slot] = known.request.issued
        self._first[known.request.id] = known

    def _unlist(self, known: KnownRequest) -> None:
        """It no longer covers other requests."""
        if known.slot >= 0:
            self._listed.remove(known.slot)
            del self._by_slot[known.slot], self._issued[known.slot]
            known.slot = -1
        if self._first.get(known.request.id) is known:
            del self._first[known.request.id]

    def end_sharing(self, condition: ResourceCondition) -> None:
        """Resources of this kind came or went: requests from before no longer cover those that would ask for them."""
        if not self._by_slot:
            return
        for slot in self._listed.intersecting(condition.conjunction, Stored.SUBSCRIPTIONS).tolist():
            self._unlist(self._by_slot[slot])

    # -- answers (Algorithm 2) ----------------------------------------------------------------------------------

    def hear_found(self, hop: LinkId, message: ResourcesFound) -> None:
        """Answers from a neighbour."""
        known = self.known.get((message.id, message.attempt))
        if known is None:
            self._count(Reason.RESOURCE_REQUEST_UNKNOWN)
            return
        self._pass(known, [each for each in message.found if each.host != self._me], hop)

    def _pass(self, known: KnownRequest, found: Iterable[FoundResource], came: LinkId | None) -> None:
        """Pass answers of a request on, each once, also to requests that share them."""
        found = list(found)
        fresh = [each for each in found if known.passed.get(each.id, NEVER) < (each.epoch, each.at)]
        known.passed.update((each.id, (each.epoch, each.at)) for each in fresh)
        if known.hop == HERE:
            known.cache.update((each.id, each) for each in fresh)
            if fresh:
                self._found(known.key, fresh)
        else:
            self._send_found(known, fresh if known.best is None else known.best.cut(fresh))
        for other in list(known.waiting.values()):
            if self.known.get(other.key) is not other:
                del known.waiting[other.key]  # it has expired
                continue
            from_there = came is not None and (came, known.request.id) in other.arrivals
            if other.hop == came and from_there:
                continue
            fitting = self._fitting(other, found)
            if fitting:
                self._pass(other, fitting, came)

    def _fitting(self, known: KnownRequest, found: Iterable[FoundResource]) -> list[FoundResource]:
        """The answers to another request that match this one, are young enough, and not about our own resources."""
        oldest, me = known.oldest, self._me
        return [each for each in found if each.at > oldest and each.host != me and fits_found(known.condition, each)]

    def _send_found(self, known: KnownRequest, found: list[FoundResource]) -> None:
        for part in in_parts(found, RESULTS_PER_BODY_MAX) if found else ():
            self.counts.publications += 1
            self.counts.results += len(part)
            self._send(known.hop, ResourcesFound(*known.key, part))

    # -- completion ---------------------------------------------------------------------------------------------

    def hear_done(self, hop: LinkId, message: ResourceRequestDone, now: Instant) -> None:
        """A neighbour has answered."""
        known = self.known.get((message.id, message.attempt))
        if known is None:
            return
        asked = (hop, message.cover)
        for arrival in list(known.arrivals.values()):
            if asked not in arrival.pending:
                continue
            del arrival.pending[asked]
            arrival.add_hosts(((host, HostRead(*read)) for host, *read in message.hosts), self._me)
            arrival.direct.update(message.direct)
            arrival.lost |= message.lost
            if message.uncovered and message.cover is not None:
                self._uncover(known, arrival, message.cover, now)
            self._settle(known, arrival, now)
            return

    def _uncover(self, known: KnownRequest, arrival: Arrival, cover: RequestId, now: Instant) -> None:
        """The covering request is no longer known at its host: it covers nothing, and this one goes on uncovered."""
        coverer = self._first.get(cover)
        if coverer is not None:
            coverer.waiting.pop(known.key, None)
            self._unlist(coverer)
        if arrival.cover is not None:
            arrival.uncovered = True
        elif not known.is_routed:
            self._work_again(known, arrival, now)

    def _work_again(self, known: KnownRequest, arrival: Arrival, now: Instant) -> None:
        coverer = self._find(known, now)
        if coverer is not None:
            self._join(known, arrival, coverer, now)
        else:
            self._list(known)
            self._route(known, arrival, now)

    def _settle(self, known: KnownRequest, arrival: Arrival, now: Instant) -> None:
        """If all brokers that we asked have answered, report completion."""
        if arrival.pending or arrival.over:
            return
        arrival.over = True
        if arrival.hop != HERE:
            self._send_done(known, arrival)
            self._rest(known, now)
            return
        known.is_complete = not arrival.lost
        known.hosts = arrival.hosts
        if arrival.lost:
            self._unlist(known)
        self._done(known.key, arrival, now)
        self._rest(known, now)
        dependants, known.dependants = known.dependants, []
        for other, waiting in dependants:
            waiting.pending.pop((HERE, known.request.id), None)
            self._share_hosts(other, waiting, known)
            waiting.lost |= arrival.lost
            self._settle(other, waiting, now)

    def _rest(self, known: KnownRequest, now: Instant) -> None:
        """If it is answered, remember it no longer than that serves others."""
        if not known.is_under_way:
            kept_ns = max(MARGIN_NS, self._kept_ns) if known.slot >= 0 else MARGIN_NS
            self._remembered.shorten(known.key, self._network_time(now) + kept_ns)

    def _send_done(self, known: KnownRequest, arrival: Arrival) -> None:
        if arrival.hop == HERE:
            return
        self.counts.completions += 1
        self._send(
            arrival.hop,
            ResourceRequestDone(
                id=known.request.id,
                attempt=known.request.attempt,
                cover=arrival.cover,
                hosts=[(host, *read) for host, read in arrival.hosts.items()][:IDS_PER_BODY_MAX],
                lost=arrival.lost,
                uncovered=arrival.uncovered,
                direct=list(arrival.direct.items())[:IDS_PER_BODY_MAX],
            ),
        )

    # -- ending -------------------------------------------------------------------------------------------------

    def link_down(self, link: LinkId, now: Instant) -> None:
        """A neighbour is gone: it needs no answers, and will send none."""
        for known in list(self.known.values()):
            if known.hop == link:
                self._forget(known, now)
                continue
            for arrival in list(known.arrivals.values()):
                lost = [asked for asked in arrival.pending if asked[0] == link]
                for asked in lost:
                    del arrival.pending[asked]
                    arrival.lost = True
                if lost:
                    self._settle(known, arrival, now)

    def expire(self, now: Instant) -> bool:
        """Forget expired requests; True if there are more."""
        expired = self._remembered.expired(self._network_time(now), FORGOTTEN_AT_ONCE)
        for key in expired:
            if (known := self.known.get(key)) is not None:
                self._forget(known, now)
        return len(expired) == FORGOTTEN_AT_ONCE

    def _forget(self, known: KnownRequest, now: Instant) -> None:
        if self.known.get(known.key) is known:
            del self.known[known.key]
            self._remembered.remove(known.key)
        self._unlist(known)
        dependants, known.dependants = known.dependants, []
        for other, waiting in dependants:
            waiting.pending.pop((HERE, known.request.id), None)
            waiting.lost = True
            self._settle(other, waiting, now)

    @property
    def listed(self) -> Iterable[KnownRequest]:
        """The requests that may cover others."""
        return self._by_slot.values()
