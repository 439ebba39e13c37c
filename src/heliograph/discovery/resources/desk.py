"""The desk: carries out and answers the requests of clients to the resource service.

In:    requests of clients, with the requester's identity.
Out:   answers, in parts if they are long; errors, which the session refuses; announcements on System/Resources topics.
State: none; long answers are kept in answers.py.
Not here: the form of requests (calls.py), resource discovery itself (core.py), the pipe (service.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from heliograph.discovery.resources.answers import SLICE_ROWS, Arranged, ClientAnswers, Ordering, arranged
from heliograph.discovery.resources.calls import (
    Call,
    DiscoverCall,
    KeepCall,
    ListCall,
    PartCall,
    RegisterCall,
    RenewCall,
    TablesCall,
    UnwatchCall,
    UpdateCall,
    WatchCall,
    WithdrawCall,
)
from heliograph.discovery.resources.conditions import ResourceCondition, read_condition
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.resources.core import ResourceCore
from heliograph.discovery.resources.direct import DirectLinks
from heliograph.discovery.resources.forwarding import DELIVERIES, SIMILARITY
from heliograph.discovery.resources.gathering import GatheredAnswer, ResourceQuestion
from heliograph.discovery.resources.hosting import Holder, HostedResource
from heliograph.discovery.resources.messages import AdvertisedResource
from heliograph.discovery.resources.ordering import check_order
from heliograph.discovery.resources.watchers import Watchers, described_row, name_of
from heliograph.errors import Reason, UsageError
from heliograph.machine import Instant, LinkId, Timers
from heliograph.model.identity import ANONYMOUS
from heliograph.model.origin import origin_of
from heliograph.wire.frames import Frame
from heliograph.wire.pages import one_page
from heliograph.wire.requests import Asker

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
TOPIC_ROOT = "System/Resources"

_encode = msgspec.json.Encoder().encode


def _holder(asker: Asker) -> Holder:
    """Who has a place for what a client asks."""
    return asker.entity, asker.source if asker.entity == ANONYMOUS.entity else ""


class ResourceAnnouncer:
    """Publishes what happens to the resources hosted here."""

    def __init__(
        self,
        publish: Callable[[bytes, bytes], None],
        network_time: Callable[[Instant], int],
        host: Callable[[], str],
    ) -> None:
        self._publish = publish
        self._network_time = network_time
        self._host = host  # the name of this broker

    def announce(self, hosted: HostedResource, what: str, values: Any, now: Instant) -> None:
        """For all readers of system topics: registered, updated, withdrawn or expired."""
        advertised = hosted.advertised
        body = {
            **{"id": f"{advertised.id:016x}", "name": advertised.name, "what": what, "where": advertised.where},
            **{"model": "static" if advertised.is_static else "dynamic", "values": values},
            **{"owner": hosted.owner, "host": self._host(), "at": self._network_time(now)},
        }
        self._publish(f"{TOPIC_ROOT}/{advertised.id:016x}/{what}".encode(), _encode(body))


class ResourceDesk:
    """Answers clients."""

    def __init__(
        self,
        config: ResourcesConfig,
        core: ResourceCore,
        watchers: Watchers,
        direct: DirectLinks,
        announcer: ResourceAnnouncer,
        timers: Timers,
        *,
        answer: Callable[[Frame, bytes], None],
        refuse: Callable[[Frame, Reason, str], None],
        fail: Callable[[Frame, str, Exception, Instant], None],
        age_ms: Callable[[int, Instant], float],
        address: Callable[[], str],
    ) -> None:
        self._config = config
        self._core = core
        self._watchers = watchers
        self._direct = direct
        self._announcer = announcer
        self._send = answer
        self._fail = fail  # refuses a request that raised
        self._age_ms = age_ms
        self._answers = ClientAnswers(timers, answer, core.count, self._later, refuse)
        self._address = address

    def serve(self, frame: Frame, call: Call, asker: Asker, now: Instant) -> None:
        """A request of a client. What raises ProtocolError or UsageError is refused by the session."""
        self._carry_out(frame, call, asker, now)

    def _later(self, frame: Frame, call: Callable[[], None], now: Instant) -> None:
        """Answer a request that waited. What raises costs this request, and nothing of what made it ready."""
        try:
            call()
        except Exception as error:
            self._fail(frame, "request to resources, later", error, now)

    def _answer(self, frame: Frame, answer: dict[str, Any]) -> None:
        self._send(frame, _encode(answer))

    def _carry_out(self, frame: Frame, call: Call, asker: Asker, now: Instant) -> None:
        match call:
            case RegisterCall():
                self._answer(frame, self._register(call, asker, now))
            case UpdateCall():
                resource = self._owned(call.secret)
                self._core.hosting.update(resource, dict(call.values), call.version, now)
                self._core.hosting.renew(resource, self._lease_ns(call.lease_s), now)
                self._answer(frame, {"ok": True})
            case RenewCall():
                self._core.hosting.renew(self._owned(call.secret), self._lease_ns(call.lease_s), now)
                self._answer(frame, {"ok": True})
            case WithdrawCall():
                self._withdraw(call, now)
                self._answer(frame, {"ok": True})
            case DiscoverCall():
                self._discover(frame, call, asker, now)
            case PartCall():
                self._answers.fetch(frame, call.answer, call.start)
            case WatchCall():
                condition = read_condition(call.where, call.language)
                self._watchers.begin(self._core, frame.origin, call.watch, condition, call.model == "static", now)
                self._answer(frame, {"watch": call.watch})
            case KeepCall() | UnwatchCall():
                self._keep(frame, call, now)
            case ListCall():
                hosted = self._core.hosting.resources
                some = islice(hosted.values(), call.start, None)
                rows, _ = one_page(self._row(each.advertised, each.values) for each in some)
                self._answer(frame, {"total": len(hosted), "resources": rows})
            case TablesCall():
                self._answer(frame, self._tables())

    def _lease_ns(self, lease_s: float) -> int:
        return int(min(lease_s, self._config.lease_s_max) * NS_PER_S)

    @staticmethod
    def _owned(secret: str) -> int:
        """The resource that this secret identifies. Another secret identifies another resource, or none."""
        return origin_of(bytes.fromhex(secret[: len(secret) // 2 * 2]))

    def _register(self, call: RegisterCall, asker: Asker, now: Instant) -> dict[str, Any]:
        condition = read_condition(call.where, call.language)
        resource = self._owned(call.secret)
        advertised = AdvertisedResource(
            *(resource, call.model == "static", condition.text, call.epoch, call.name, call.attached)
        )
        known = self._core.hosting.resources.get(resource)
        lease_ns = self._lease_ns(call.lease_s)
        owner, source = _holder(asker)
        self._core.hosting.register(advertised, owner, lease_ns, now, source, call.values)
        if known is None or known.advertised != advertised:
            self._announcer.announce(self._core.hosting.resources[resource], "registered", None, now)
        if call.values is not None and not advertised.is_static:
            self._core.hosting.update(resource, dict(call.values), call.version, now)
        broker = self._core.places.ways.name if self._core.places.ways is not None else ""
        return {"ok": True, "id": f"{resource:016x}", "broker": broker, "lease_s": lease_ns / NS_PER_S}

    def _withdraw(self, call: WithdrawCall, now: Instant) -> None:
        resource = self._owned(call.secret)
        hosted = self._core.hosting.resources.get(resource)
        self._core.hosting.withdraw(resource)
        assert hosted is not None
        self._announcer.announce(hosted, "withdrawn", None, now)

    @staticmethod
    def _row(advertised: AdvertisedResource, values: Any) -> dict[str, Any]:
        return {
            **{"id": f"{advertised.id:016x}", "name": advertised.name, "where": advertised.where},
            **{"model": "static" if advertised.is_static else "dynamic", "values": values},
        }

    # -- requests ---------------------------------------------------------------------------------------------------

    def _discover(self, frame: Frame, call: DiscoverCall, asker: Asker, now: Instant) -> None:
        condition = read_condition(call.where, call.language)
        holder = " at ".join(filter(None, _holder(asker)))
        check_order(call.order)
        if call.deliver and call.deliver not in DELIVERIES:
            raise UsageError(f"answers are delivered by {', '.join(DELIVERIES)}; not {call.deliver!r}")
        if call.model == "static":
            self._answer_static(frame, condition, call, holder)
            return
        deliver = call.deliver or self._config.deliver
        max_age_s = min(call.max_age_s, self._config.cache_s) if deliver == SIMILARITY else 0
        deadline_ms = self._config.deadline_ms if call.deadline_ms is None else call.deadline_ms
        question = ResourceQuestion(
            condition=condition,
            deliver=deliver,
            best=call.best,
            order=call.order,
            max_age_ns=int(max_age_s * NS_PER_S),
            deadline_ns=deadline_ms * NS_PER_MS,
            cache_ns=self._config.cache_s * NS_PER_S,
            holder=holder,
        )

        def answered(answer: GatheredAnswer, now: Instant) -> None:
            self._later(frame, lambda: self._answer_dynamic(frame, holder, answer, now), now)

        self._core.gathering.begin(question, answered, now)

    def _answer_static(self, frame: Frame, condition: ResourceCondition, call: DiscoverCall, holder: str) -> None:
        found = self._core.static_rows(condition)
        cost = self._core.places.cost
        work = arranged(found, call.order, call.best, lambda row: cost(row.host.place))
        ordering = Ordering(frame, work, lambda frame, answer: self._send_static(frame, holder, answer))
        self._answers.order(holder, ordering, len(found) <= SLICE_ROWS)

    def _send_static(self, frame: Frame, holder: str, answer: Arranged) -> None:
        said = {"complete": self._core.spreading.is_settled, "missing": [], "attempts": 1}
        self._answers.send(frame, holder, map(described_row, answer.rows), answer.total, said)

    def _answer_dynamic(self, frame: Frame, holder: str, answer: GatheredAnswer, now: Instant) -> None:
        rows = (
            {
                **{"id": f"{each.id:016x}", "name": each.name, "host": name_of(self._core, each.host)},
                **{"values": each.values, "age_ms": self._age_ms(each.updated, now)},
            }
            for each in answer.found
        )
        self._answers.send(
            frame,
            holder,
            rows,
            len(answer.found),
            {
                **{"complete": answer.is_complete, "missing": answer.missing, "attempts": answer.attempts},
                **{"took_ms": round(answer.took_ns / NS_PER_MS, 3), "read_ms": self._age_ms(answer.as_of, now)},
                "hosts": [name_of(self._core, host) for host in answer.hosts],
            },
        )

    def leave(self, asker: LinkId) -> None:
        """A client disconnected."""
        self._answers.leave(asker)

    def _keep(self, frame: Frame, call: KeepCall | UnwatchCall, now: Instant) -> None:
        watcher = self._watchers.get(frame.origin, call.watch)
        if watcher is None:
            self._answer(frame, {"known": False})
            return
        if isinstance(call, UnwatchCall):
            self._watchers.end(self._core, watcher)
        elif call.again:
            self._watchers.again(self._core, watcher, now)
        self._answer(frame, {"known": True, "number": watcher.told})

    def _tables(self) -> dict[str, Any]:
        return {**overview(self._core, self._watchers, self._direct), "address": self._address()}


def overview(core: ResourceCore, watchers: Watchers, direct: DirectLinks) -> dict[str, Any]:
    """What a service knows, and its counters."""
    counts = core.forwarding.counts
    return {
        "hosted": len(core.hosting.resources),
        "known": len(core.table),
        "hosts": len(core.table.hosts),
        "requests": len(core.forwarding.known),
        "standing": len(core.standing.requests),
        "watches": len(watchers),
        "watches_begun_anew": watchers.begun_anew,
        "subscription_messages": counts.subscriptions,
        "publication_messages": counts.publications,
        "results": counts.results,
        "completion_messages": counts.completions,
        "shared": counts.shared,
        "matching_operations": core.table.questions,
        "table_checks": core.table.checks,
        "advertisement_messages": core.spreading.frames_told,
        "standing_messages": core.standing.frames_told,
        "state_messages": core.standing.states_told,
        "direct_messages": direct.counts.packages,
        "direct_links": len(direct),
        "direct_links_opened": direct.counts.opened,
        "direct_links_closed": direct.counts.closed,
        "direct_returned": direct.counts.returned,
        "refused": dict(sorted(core.refused.items())),
    }
