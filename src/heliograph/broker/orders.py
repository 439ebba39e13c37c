"""Orders and reports: what the broker's own services ask of it.

In:    requests to "broker" on a pipe; the outcome of reloading settings.
Out:   answers on the pipe; drain, reload, links added and removed; reports in plain values.
State: reloads under way.
Not here: access rights (access.py, before a service passes a request on), the services (services/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.broker.commands import LoadSettings, Reload
from heliograph.broker.config import DEFAULT_PORT, BrokerConfig, LinkConfig
from heliograph.broker.expelled import Expelled
from heliograph.broker.links import Link, Links
from heliograph.broker.observations import Observations
from heliograph.broker.publications import Publications
from heliograph.broker.requests import ServiceAnswers
from heliograph.broker.rights import Right
from heliograph.broker.routing.map_report import describe, reach
from heliograph.broker.routing.parcels import Parcels
from heliograph.broker.routing.peering import Peering
from heliograph.broker.routing.ports import READY
from heliograph.broker.routing.routing import Routing
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.sessions import Sessions
from heliograph.broker.shedding import Shedding
from heliograph.broker.subscriptions import Subscriptions
from heliograph.broker.tracing import Tracing
from heliograph.broker.ways import ServiceWays
from heliograph.errors import Reason, UsageError
from heliograph.machine import Instant, Outbox, Ticket
from heliograph.notes import ReloadFailed
from heliograph.wire.pages import one_page
from heliograph.wire.requests import UNREADABLE

ROWS_MAX = 500  # rows of a report in one answer; fewer if they are large
GRACE_MS_MAX = 86_400_000
TIME_SHOWN = ("synchronised", "reference", "stratum", "ahead_of_wall_ns", "error_ns")  # in the overview

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Orders:
    """Carries out the orders of services and answers their questions."""

    def __init__(
        self,
        config: BrokerConfig,
        incarnation: int,
        links: Links,
        sessions: Sessions,
        subscriptions: Subscriptions,
        routing: Routing,
        peering: Peering,
        parcels: Parcels,
        publications: Publications,
        tracing: Tracing,
        shedding: Shedding,
        observations: Observations,
        answers: ServiceAnswers,
        ways: ServiceWays,
        expelled: Expelled,
        outbox: Outbox,
        *,
        time: Callable[[], dict[str, Any]],
        time_us: Callable[[], int],
        reload: Callable[[Reload], list[str]],
    ) -> None:
        self._config = config  # the one in force
        self._incarnation = incarnation
        self._links = links
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._routing = routing
        self._peering = peering
        self._parcels = parcels
        self._publications = publications
        self._tracing = tracing
        self._shedding = shedding
        self._observations = observations
        self._answers = answers
        self._ways = ways
        self._expelled = expelled
        self._outbox = outbox
        self._time = time
        self._time_us = time_us
        self._put_in_force = reload  # returns what needs a restart
        self._addresses: tuple[str, ...] = ()  # where clients dial this broker
        self._reloads: dict[Ticket, tuple[Link, int]] = {}

    def reload(self, config: BrokerConfig) -> None:
        """These settings are in force from now on."""
        self._config = config

    def listen(self, addresses: tuple[str, ...]) -> None:
        """The addresses at which clients can dial this broker."""
        self._addresses = addresses

    def receive(self, pipe: Link, number: int, body: bytes, now: Instant) -> None:
        """A request to the broker itself, from one of its services."""
        try:
            self._carry_out(pipe, number, _read(body), now)
        except UsageError as error:
            self._answers.refuse(pipe, b"broker", number, Reason.QUESTION_UNKNOWN, str(error))

    def _carry_out(self, pipe: Link, number: int, order: dict[str, Any], now: Instant) -> None:
        match order.get("do"):
            case "report":
                self._answers.answer_order(pipe, number, self._page(order))
            case "attend":
                self._answers.answer_order(pipe, number, {"ok": True})
                self._ways.attend(pipe)
            case "observe":
                self._answers.answer_order(pipe, number, self._observed(order))
            case "drain":
                grace_ms = order.get("grace_ms")
                if grace_ms is not None and not (isinstance(grace_ms, int) and 0 <= grace_ms <= GRACE_MS_MAX):
                    raise UsageError("grace_ms must be a number of milliseconds, at most a day")
                self._answers.answer_order(pipe, number, {"ok": True})
                self._sessions.drain(grace_ms, now)
            case "reload":
                self._reloads[self._outbox.job(LoadSettings())] = (pipe, number)
            case "trace":
                self._trace(pipe, number, order, now)
            case "link":
                link = _link_config(order)
                fault = self._config.network.link_fault(link, keyed=bool(self._config.network.key))
                if fault is not None:
                    self._answers.refuse(pipe, b"broker", number, Reason.CONFIG_INVALID, f"{link.address}: {fault}")
                    return
                self._peering.aim(link, now)
                self._answers.answer_order(pipe, number, {"ok": True})
            case "unlink":
                if not self._peering.drop(_link_config(order)):
                    raise UsageError(
                        "no link is kept to that address; `heliograph broker link list` shows those that are"
                    )
                self._answers.answer_order(pipe, number, {"ok": True})
            case "allow" | "forbid":
                self._answers.answer_order(pipe, number, self._change_rights(order, now))
            case "expel":
                ended = self._expelled.add(str(serial) for serial in order.get("serials", ()))
                self._answers.answer_order(pipe, number, {"ok": True, "ended": ended})
            case other:
                raise UsageError(
                    f"a broker cannot {other!r}; it can report, attend, observe, trace, drain, reload, link, unlink, "
                    "allow, forbid and expel"
                )

    def _observed(self, order: dict[str, Any]) -> dict[str, Any]:
        """What happened since a number, for the monitor."""
        after = order.get("after", 0)
        if not isinstance(after, int) or after < 0:
            raise UsageError("after must be a number from 0")
        self._observations.sample_next()
        self._parcels.forget_ways()  # so that the next parcel is read by Arrivals, shortcut or not
        return self._observations.after(after)

    def _change_rights(self, order: dict[str, Any], now: Instant) -> dict[str, Any]:
        """A decision of the service "rights": a link may use a created topic, or grants are no longer valid."""
        rights = self._subscriptions.rights
        if order["do"] == "forbid":
            ended = rights.forbid(map(str, order.get("grants", ())))
            ended += sum(rights.forbid_root(str(root).encode()) for root in order.get("roots", ()))
            return {"ok": True, "ended": ended}
        link = self._links.by_id.get(order["link"])
        if link is None or link.state != READY:
            return {"ok": False, "reason": "the link is gone"}
        right = Right(
            order["publish"],
            order["subscribe"],
            now + order["ms"] * NS_PER_MS,
            tuple(order["grants"]),
            tuple(order.get("serials", ())),
        )
        ok = rights.allow(link.id, order["root"].encode(), right, now)
        link.told.clear()
        if not right.subscribe:  # perhaps it was true before
            self._subscriptions.hearings.renew(link)
        return {"ok": ok, "reason": "" if ok else Reason.RIGHTS_OVER_LIMIT.word}

    def _trace(self, pipe: Link, number: int, order: dict[str, Any], now: Instant) -> None:
        topic = str(order.get("topic", "")).encode("utf-8", "surrogatepass")
        headers = order.get("headers", {})
        if not isinstance(headers, dict):
            raise UsageError("headers must be a JSON object")
        raw = msgspec.json.encode(headers) if headers else b""
        payload = str(order.get("payload", "")).encode("utf-8", "surrogatepass")
        self._tracing.start(topic, raw, payload, pipe, lambda found: self._answer((pipe, number), found), now)

    def _page(self, order: dict[str, Any]) -> Any:
        """A report that fits one frame: of a long list, the rows that were asked for."""
        answer = self.report(str(order.get("question", "overview")))
        if not isinstance(answer, list):
            return answer
        start, count = order.get("start", 0), order.get("count", ROWS_MAX)
        if not (isinstance(start, int) and isinstance(count, int) and start >= 0 and count > 0):
            raise UsageError("start must be a number from 0, count a number from 1")
        rows, _ = one_page(iter(answer[start : start + count]), rows_max=ROWS_MAX)
        return {"start": start, "total": len(answer), "rows": rows}

    def done(self, ticket: Ticket, loaded: Reload) -> bool:
        """Settings were loaded; False if the ticket is not ours."""
        asked = self._reloads.pop(ticket, None)
        if asked is None:
            return False
        restart, config = self._put_in_force(loaded), loaded.config
        counts = {"rules": len(config.access.rules), "tokens": len(config.tokens), "links": len(config.network.links)}
        self._answer(asked, {"ok": True, **counts, "taken": loaded.taken, "restart": restart})
        return True

    def failed(self, ticket: Ticket, reason: Reason) -> bool:
        """Settings could not be loaded; False if the ticket is not ours."""
        asked = self._reloads.pop(ticket, None)
        if asked is None:
            return False
        self._outbox.note(ReloadFailed([reason.word]))
        self._answer(asked, {"ok": False, "reason": reason.word})
        return True

    def _answer(self, asked: tuple[Link, int], answer: dict[str, Any]) -> None:
        if asked[0].state == READY:
            self._answers.answer_order(*asked, answer)

    def report(self, question: str) -> Any:
        """What the broker knows: overview, usage, links, subscriptions, map, time, routes or limits."""
        match question:
            case "overview":
                return self._overview()
            case "usage":
                return self._usage()
            case "links":
                return [_describe(link) for link in self._links.by_id.values()]
            case "subscriptions":
                return self._subscriptions.report()
            case "map":
                return describe(self._routing, self._peering)
            case "time":
                return self._time()
            case "routes":
                return {"cached": self._subscriptions.routes_cached, "max": self._config.limits.routes_max}
            case "limits":
                return {name: getattr(self._config.limits, name) for name in self._config.limits.__slots__}
        raise UsageError(
            f"no report is called {question[:64]!r}; "
            "ask for overview, usage, links, subscriptions, map, time, routes or limits"
        )

    def _usage(self) -> dict[str, Any]:
        """How busy this broker is and how large its network is. Called every second, so it must be cheap."""
        sessions = self._sessions.clients
        return {
            "broker": self._config.name,
            "network": self._routing.network_name,
            "addresses": list(self._addresses),
            "connections": sessions,
            "links": len(self._routing.view.neighbours),
            "full": sessions >= self._sessions.links_max,
            "draining": self._sessions.draining,
            **reach(self._routing, self._peering),
            "time": self._time(),
            "time_us": self._time_us(),
        }

    def _name_of(self, reference: str | None) -> str | None:
        """The broker whose clock is the reference, by its name if the map has it."""
        if reference is None or reference == "UTC":
            return reference
        broker, known = int(reference, 16), self._routing.view.map
        record = known.members.get(broker) or known.gateways.get(broker)
        return self._config.name if broker == self._routing.view.me else reference if record is None else record.name

    def _overview(self) -> dict[str, Any]:
        links = [link for link in self._links.by_id.values() if not link.is_pipe]
        own = sum(len(link.subscriptions) for link in self._links.by_id.values() if link.is_pipe)
        origins = self._sessions.origins
        counts = origins.counts()
        time = self._time()
        return {
            "broker": self._config.name,
            "network": self._routing.network_name,
            "incarnation": self._incarnation,
            "links": len(links),
            "sessions": sum(1 for link in links if link.state == READY),
            "subscriptions": self._subscriptions.count - own,  # of clients
            "publications": counts.accepted,
            "duplicates": counts.duplicates,
            "late": counts.late,
            "origins": len(origins),
            "origins_forgotten": origins.forgotten,
            "denied": self._publications.denied,
            "expired": self._publications.expired,
            "rights": len(self._subscriptions.rights),
            "expelled": len(self._expelled),
            "shares_lost": self._publications.shares_lost,
            "dropped": self._links.drops.frames,
            "dropped_bytes": self._links.drops.bytes,
            "backlog_bytes": sum(link.backlog_bytes for link in links),
            "backlog_frames": sum(link.backlog_frames for link in links),
            "parcels_forwarded": self._parcels.forwarded + self._routing.forwarding.forwarded,
            "parcels_arrived": self._parcels.arrived,
            "parcels_replanned": self._routing.forwarding.replanned,
            "parcels_unroutable": self._parcels.unroutable + self._routing.forwarding.unroutable,
            "changeover": self._routing.changeover.report(),
            "eddies": self._routing.eddies.report(),
            "neighbours": len(self._routing.view.neighbours),
            "routes_cached": self._subscriptions.routes_cached,
            "refused": dict(sorted(self._links.refused.items())),
            "time": {name: time[name] for name in TIME_SHOWN} | {"reference": self._name_of(time["reference"])},
            "load": self._shedding.report(),
            "draining": self._sessions.draining,
            "time_us": self._time_us(),
        }


def _read(body: bytes) -> dict[str, Any]:
    try:
        return _decode(body)
    except UNREADABLE as error:
        raise UsageError(str(error)) from None


def _link_config(order: dict[str, Any]) -> LinkConfig:
    host, port, secure = order.get("host"), order.get("port", DEFAULT_PORT), order.get("secure", False)
    if not isinstance(host, str) or not host or not isinstance(port, int) or not 0 < port < 65_536:
        raise UsageError("a link needs a host and a port between 1 and 65535")
    return LinkConfig(host=host, port=port, secure=secure is True)


def _describe(link: Link) -> dict[str, Any]:
    return {
        "link": link.id,
        "address": link.peer.address,
        "transport": link.peer.transport,
        "listener": link.peer.listener,
        "entity": link.identity.entity,
        "roles": [role.value for role in link.identity.roles],
        "proof": link.identity.proof,
        "name": link.name,
        "service": link.service,
        "neighbour": link.neighbour.name if link.neighbour is not None else "",
        "ready": link.state == READY,
        "subscriptions": len(link.subscriptions),
        "publications": link.seen.accepted if link.seen is not None else 0,
        "bytes_in": link.bytes_in,
        "deliveries": link.deliveries,
        "dropped": link.dropped,
        "dropped_bytes": link.dropped_bytes,
        "backlog_bytes": link.backlog_bytes,
        "backlog_frames": link.backlog_frames,
        "pressed": link.pressed,
        "held": link.is_held,
        "holds": len(link.holding),
    }
