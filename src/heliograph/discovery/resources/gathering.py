"""Gathering: the answers to a one-time request of one of our clients, until it is complete or times out.

In:    requests of clients; answers and completions; time.
Out:   requests, repeated with a higher attempt if something was lost; the whole answer.
State: per request in progress what was found, which hosts have answered, and when it ends; how many each client has.
Not here: the path of requests (forwarding.py), messages to and from clients (service.py).

A request that lost answers on its way is repeated, and so is one whose shared answers were too old for it, then at
once. The repeat does not share the answers of other requests. When all places are taken, the oldest request of the
client that has most is answered with what it has found.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from heliograph.broker.shares import Shares
from heliograph.discovery.resources.conditions import ResourceCondition
from heliograph.discovery.resources.forwarding import DIRECT, MARGIN_NS, NORMAL, SIMILARITY, Arrival, Reads
from heliograph.discovery.resources.messages import FoundResource, RequestId, ResourceRequest
from heliograph.discovery.resources.ordering import best
from heliograph.discovery.resources.places import COST_FAR, Places
from heliograph.discovery.resources.remembering import Key
from heliograph.discovery.resources.table import AdvertisementTable, HostingBroker
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Timers

NS_PER_MS = 1_000_000
AGAIN_MS = 50  # before a request that lost something is repeated; then twice as long


class ResourceQuestion(msgspec.Struct, frozen=True):
    """A client's request."""

    condition: ResourceCondition
    deliver: str = SIMILARITY
    best: int = 0
    order: str = ""
    max_age_ns: int = 0  # how old shared answers may be; 0: those read after this request was made
    deadline_ns: int = 2_000_000_000
    cache_ns: int = 100_000_000_000  # how long its answers are kept for requests that allow such an age
    holder: str = ""  # whose places it takes: an entity, or an address; empty: a watch


class GatheredAnswer(msgspec.Struct):
    """The answer to a request."""

    found: list[FoundResource]
    is_complete: bool
    missing: list[str]  # hosting brokers that did not answer
    hosts: Reads  # those that did
    attempts: int
    took_ns: int
    as_of: int  # network time: no host was read earlier, so what came later may be missing


Answered = Callable[[GatheredAnswer, Instant], None]


class Gathered(msgspec.Struct):
    """One request in progress."""

    id: RequestId
    question: ResourceQuestion
    answered: Answered
    began: Instant
    ends: Instant
    attempt: int = 0
    found: dict[int, FoundResource] = {}
    attempts: dict[int, int] = {}  # the last attempt in which each was found, whichever of its answers is the newest
    answered_in: dict[int, int] = {}  # the attempt in which each host last answered
    hosts: Reads = {}
    due: dict[int, int] = {}  # host -> number of direct answers that it sent in this attempt
    arrived: dict[int, dict[int, None]] = {}  # in this attempt, by host
    is_whole: bool = False  # the attempt is complete except for direct answers
    pause_ms: int = AGAIN_MS

    @property
    def short(self) -> list[int]:
        """Hosts with direct answers that have not all arrived."""
        return [host for host, count in self.due.items() if len(self.arrived.get(host, ())) < count]


class AnswerGathering:
    """Requests of our own clients."""

    def __init__(
        self,
        table: AdvertisementTable,
        places: Places,
        timers: Timers,
        requests_max: int,
        *,
        network_time: Callable[[Instant], int],
        time_error: Callable[[Instant], int],
        ask: Callable[[ResourceRequest, Instant, str], None],
        arrived: Callable[[Key], Reads],
        is_settled: Callable[[], bool],
        reply: Callable[[RequestId], tuple[str, str] | None],
    ) -> None:
        self.under_way: dict[RequestId, Gathered] = {}
        self._table = table
        self._places = places
        self._timers = timers
        self._requests_max = requests_max
        self._shares: Shares[RequestId] = Shares()
        self._network_time = network_time
        self._time_error = time_error
        self._ask = ask
        self._arrived = arrived  # hosts whose answers are here, while others are awaited
        self._is_settled = is_settled  # False while the table of advertisements is being fetched
        self._reply = reply  # where direct answers to a request go; None: not known yet
        self._number = 0

    def begin(self, question: ResourceQuestion, answered: Answered, now: Instant) -> RequestId:
        """Send the request. The answer may arrive before this returns. ProtocolError if its holder has too many."""
        if len(self.under_way) >= self._requests_max:
            victim = self._shares.victim(question.holder)
            if victim is None:
                raise ProtocolError(
                    Reason.RESOURCE_REQUESTS_OVER_LIMIT, "too many requests are under way at this broker"
                )
            self._end(self.under_way[victim], now)
        ways = self._places.ways
        assert ways is not None
        self._number += 1
        id = (ways.broker, ways.incarnation, self._number)
        gathered = self.under_way[id] = Gathered(id, question, answered, now, now + question.deadline_ns)
        self._shares.add(question.holder, id)
        self._timers.set(("deadline", id), gathered.ends, lambda now: self._end(gathered, now))
        self._try(gathered, now)
        return id

    def _try(self, gathered: Gathered, now: Instant) -> None:
        question, first = gathered.question, gathered.attempt == 0
        issued = self._network_time(now) + self._time_error(now)  # no clock in the network shows more
        reply = self._reply(gathered.id) if first and question.deliver == DIRECT else None
        deliver = NORMAL if not first or (question.deliver == DIRECT and reply is None) else question.deliver
        for host in gathered.short:
            gathered.hosts.pop(host, None)
        gathered.is_whole = False
        gathered.due = {}
        gathered.arrived.clear()
        lasts = gathered.ends - now + MARGIN_NS
        if deliver == SIMILARITY:
            lasts = max(lasts, question.cache_ns)
        request = ResourceRequest(
            id=gathered.id,
            attempt=gathered.attempt,
            where=question.condition.text,
            issued=issued,
            until=issued + lasts,
            deliver=deliver,
            best=question.best,
            order=question.order,
            max_age=question.max_age_ns if first else 0,
            reply=reply,
        )
        half = (gathered.ends - now) // 2
        if half > AGAIN_MS * NS_PER_MS:
            self._timers.set(("silence", gathered.id), now + half, lambda now: self._again(gathered, now))
        self._ask(request, now, question.holder)

    def _again(self, gathered: Gathered, now: Instant) -> None:
        if gathered.id in self.under_way and now < gathered.ends:
            gathered.attempt += 1
            self._try(gathered, now)

    def found(self, key: Key, found: list[FoundResource]) -> None:
        """Answers arrived."""
        gathered = self.under_way.get(key[0])
        if gathered is None:
            return
        for each in found:
            known = gathered.found.get(each.id)
            if key[1] == gathered.attempt:
                gathered.arrived.setdefault(each.host, {})[each.id] = None
            if key[1] < gathered.answered_in.get(each.host, 0):
                continue  # outdated: its host has answered since
            if known is None or (each.epoch, each.at, each.number) >= (known.epoch, known.at, known.number):
                gathered.found[each.id] = each
            gathered.attempts[each.id] = max(key[1], gathered.attempts.get(each.id, 0))
        if gathered.is_whole and not gathered.short:  # the direct answers arrived after the completion
            self._timers.set(("deadline", gathered.id), gathered.began, lambda now: self._end(gathered, now))

    def is_under_way(self, key: Key) -> bool:
        """True if answers to this attempt are awaited."""
        gathered = self.under_way.get(key[0])
        return gathered is not None and gathered.attempt == key[1]

    def done(self, key: Key, arrival: Arrival, now: Instant) -> None:
        """An attempt is complete, or has lost something."""
        gathered = self.under_way.get(key[0])
        if gathered is None or gathered.attempt != key[1]:
            return
        hosts, lost = arrival.hosts, arrival.lost
        gathered.due = dict(arrival.direct)
        gathered.hosts.update(hosts)
        gathered.answered_in.update(dict.fromkeys(hosts, key[1]))
        if key[1]:
            self._drop_outdated(gathered, key[1])
        if not lost and not self._missing(gathered) and self._is_settled():
            gathered.is_whole = True
            if not gathered.short:
                self._end(gathered, now)
            return
        pause_ns = gathered.pause_ms * NS_PER_MS
        if gathered.attempt == 0 and not lost and gathered.question.deliver == SIMILARITY:
            pause_ns = 0  # the answers that it shared were too old, or not all that it needs
        else:
            gathered.pause_ms *= 2
        self._timers.set(("silence", gathered.id), now + pause_ns, lambda at: self._again(gathered, at))

    def _drop_outdated(self, gathered: Gathered, attempt: int) -> None:
        """Drop what an earlier attempt found if its host has answered since, or no longer offers what matches."""
        hosts = {host.broker for host in self._table.still_overlapping(gathered.question.condition)}
        for id, each in list(gathered.found.items()):
            since = gathered.answered_in.get(each.host, 0)
            if gathered.attempts[id] < (since if each.host in hosts else attempt):
                del gathered.found[id]
        gathered.hosts = {host: as_of for host, as_of in gathered.hosts.items() if host in hosts}

    def withdrawn(self, host: HostingBroker) -> None:
        """A host withdrew advertisements, or restarted: its earlier answers are void if it offers nothing more."""
        for gathered in self.under_way.values():
            old = [id for id, each in gathered.found.items() if each.host == host.broker]
            if not old and host.broker not in gathered.hosts:
                continue
            offers = any(
                each.broker == host.broker for each in self._table.still_overlapping(gathered.question.condition)
            )
            for id in old:
                if not offers or gathered.found[id].incarnation < host.incarnation:
                    del gathered.found[id]
            if not offers:
                gathered.hosts.pop(host.broker, None)

    def _missing(self, gathered: Gathered) -> list[str]:
        hosts = self._table.still_overlapping(gathered.question.condition)
        return [host.name for host in hosts if host.broker not in gathered.hosts]

    def _end(self, gathered: Gathered, now: Instant) -> None:
        if self.under_way.pop(gathered.id, None) is None:
            return
        self._shares.remove(gathered.id)
        self._timers.cancel(("deadline", gathered.id))
        self._timers.cancel(("silence", gathered.id))
        gathered.hosts.update(self._arrived((gathered.id, gathered.attempt)))  # if others were awaited in vain
        for host in gathered.short:
            gathered.hosts.pop(host, None)
        question, missing = gathered.question, self._missing(gathered)
        answer = GatheredAnswer(
            found=best(list(gathered.found.values()), question.best, question.order, self._cost),
            is_complete=not missing and self._is_settled(),
            missing=missing,
            hosts=gathered.hosts,
            attempts=gathered.attempt + 1,
            took_ns=now - gathered.began,
            as_of=min((read.at for read in gathered.hosts.values()), default=self._network_time(now)),
        )
        gathered.answered(answer, now)

    def cancel(self, id: RequestId) -> None:
        """The client no longer waits for it."""
        if self.under_way.pop(id, None) is not None:
            self._shares.remove(id)
            self._timers.cancel(("deadline", id))
            self._timers.cancel(("silence", id))

    def _cost(self, broker: int) -> int:
        host = self._table.hosts.get(broker)
        return COST_FAR if host is None else self._places.cost(host.place)
