"""Tracing: finds the path and the recipients of a publication without delivering it.

In:    an order to trace a publication; TRACE and TRACED frames that arrive in parcels like publications.
Out:   the same frames to other brokers; one answer when all have answered or the time is over.
State: traces under way.
Not here: forwarding (routing/forwarding.py), where a topic goes (routing/destinations.py, subscriptions.py).

A TRACE travels in parcels exactly as a publication of its topic would, so the hop prefix records its path. Each broker
that would deliver it answers directly to the broker that asked, with the recipients and with the conditions that the
publication does not meet. The broker that asked adds which remote interests carried it, and why the rest did not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import unpack
from typing import Any

import msgspec

from heliograph.broker.contents import event_of, values_of
from heliograph.broker.routing.interests import RemoteInterest
from heliograph.broker.routing.plans import TTL
from heliograph.broker.routing.ports import Port
from heliograph.broker.routing.routing import Routing
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.routing.targets import Targets
from heliograph.broker.subscriptions import Subscriptions
from heliograph.errors import Reason, UsageError
from heliograph.machine import Instant, Timers
from heliograph.matching.condition import Condition, Event
from heliograph.matching.conditions import refusal
from heliograph.model.subscription import filter_of
from heliograph.model.topics import INBOX_ROOT, topic_fault
from heliograph.wire.frames import BODY_BYTES, HEAD, Frame, Kind

TRACE_MS = 500  # a broker that has not answered by then is left out
TRACES_MAX = 64
LINKS_TOLD_MAX = 100  # of one broker, in one answer
INTERESTS_TOLD_MAX = 200
NUMBERS_TOLD_MAX = 100  # of one link's subscriptions
TEXT_TOLD_MAX = 256  # of a condition, and of what failed: with all these limits, an answer fits a frame
ANSWERS_MAX = 4_096  # to one trace; no network has as many brokers that would deliver one publication

HEX = re.compile(r"[0-9a-f]{16}\Z")
_encode = msgspec.json.Encoder().encode


class Recipients(msgspec.Struct, frozen=True):
    """What one broker answers."""

    broker: str
    cluster: str
    path: list[tuple[str, str]]  # ids, and names as far as that broker knows them
    links: list[dict[str, Any]]
    groups: int
    conditions: list[dict[str, Any]] = []  # conditional subscriptions there


_decode = msgspec.json.Decoder(Recipients).decode


class Trace:
    """A trace that was started here."""

    __slots__ = ("brokers", "done", "interests", "members", "others", "topic")

    def __init__(self, topic: bytes, members: int, others: bool, done: Callable[[dict[str, Any]], None]) -> None:
        self.topic = topic
        self.interests: list[dict[str, Any]] = []  # of other brokers and clusters, with the outcome for each
        self.members = members  # how many brokers of our own cluster will answer
        self.others = others  # whether it goes to other clusters: the number of their answers is not known in advance
        self.done = done
        self.brokers: list[dict[str, Any]] = []


class Tracing:
    """Asks the network where a topic would go, and answers other brokers."""

    def __init__(self, routing: Routing, subscriptions: Subscriptions, timers: Timers) -> None:
        self._view = routing.view
        self._targets_of = routing.destinations.targets_of
        self._forward = routing.forwarding.forward
        self._refuse = routing.refuse
        self._subscriptions = subscriptions
        self._timers = timers
        self._traces: dict[int, Trace] = {}
        self._number = 0

    def start(
        self,
        topic: bytes,
        headers: bytes,
        payload: bytes,
        source: Port,
        done: Callable[[dict[str, Any]], None],
        now: Instant,
    ) -> None:
        """Trace a publication from here; ``done`` gets the answer."""
        fault = topic_fault(topic)
        if fault is not None:
            raise UsageError(f"{topic.decode(errors='replace')!r}: {fault}")
        if len(self._traces) >= TRACES_MAX:
            raise UsageError("too many traces are under way; try again")
        view = self._view
        self._number += 1
        number = self._number
        raw = _frame(Kind.TRACE, topic, view.me, number, payload, headers)
        targets, _ = self._targets_of(topic, False, self._fitting(topic, raw))
        trace = self._traces[number] = Trace(topic, targets.members.bit_count(), bool(targets.parts), done)
        trace.interests = self._interests(topic, raw)
        here = self._recipients(topic, raw, (view.me,))
        if here["links"] or here["groups"] or here["conditions"] or not (targets.members or targets.parts):
            trace.brokers.append(here)
        if targets.members or targets.parts:
            self._forward(source, targets, raw, TTL, (), now)
            at = now + TRACE_MS * NS_PER_MS
            self._timers.set(("trace", number), at, lambda now: self._finish(number, False))
        else:
            self._finish(number, True)

    def receive(self, link: Port, frame: Frame, inside: bool, trace: tuple[int, ...], now: Instant) -> None:
        """A TRACE or TRACED frame that has arrived here."""
        if frame.kind == Kind.TRACED:
            if frame.origin == self._view.me:
                self._answered(frame)
            elif inside:
                self._send_back(link, frame, trace, now)
            return
        if topic_fault(frame.topic) is not None:
            self._refuse(Reason.TOPIC_INVALID)
            return
        if inside:
            targets, _ = self._targets_of(frame.topic, True, self._fitting(frame.topic, frame.raw))
            self._forward(link, Targets(targets.members), frame.raw, TTL - len(trace), trace[:-1], now)
        body = self._recipients(frame.topic, frame.raw, trace)
        if body["links"] or body["groups"] or body["conditions"] or not inside:
            answer = Frame(_frame(Kind.TRACED, frame.topic, frame.origin, frame.sequence, _encode(body)))
            self._send_back(link, answer, (), now)

    def _send_back(self, link: Port, frame: Frame, trace: tuple[int, ...], now: Instant) -> None:
        """Send an answer to the broker that asked, which is found like the inboxes of its sessions."""
        targets, _ = self._targets_of(b"%b/%016x/trace" % (INBOX_ROOT, frame.origin), bool(trace))
        self._forward(link, targets, frame.raw, TTL - len(trace), trace[:-1], now)

    def _answered(self, frame: Frame) -> None:
        trace = self._traces.get(frame.sequence)
        if trace is None or len(trace.brokers) >= ANSWERS_MAX:
            return
        try:
            trace.brokers.append(msgspec.to_builtins(_decode(frame.payload)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._refuse(Reason.BODY_MALFORMED)
            return
        cluster = self._view.map.me.cluster
        near = sum(1 for row in trace.brokers if row["cluster"] == cluster and len(row["path"]) > 1)
        if not trace.others and near >= trace.members:
            self._finish(frame.sequence, True)

    def _finish(self, number: int, complete: bool) -> None:
        trace = self._traces.pop(number, None)
        if trace is None:
            return
        self._timers.cancel(("trace", number))
        near = sum(1 for row in trace.brokers if len(row["path"]) > 1)
        for row in trace.brokers:
            row["path"] = [self._name(*step) for step in row["path"]]
        trace.done(
            {
                "topic": trace.topic.decode(),
                "entry": self._view.map.me.name,
                "complete": complete or near >= trace.members + trace.others,
                "interests": trace.interests,
                "brokers": sorted(trace.brokers, key=lambda row: (len(row["path"]), row["broker"])),
            }
        )

    def _name(self, broker: str, told: str) -> str:
        """The name of a broker on the path: we may know it if the broker that answered does not."""
        if told != broker or not HEX.match(broker):
            return told
        return self._view.name_of(int(broker, 16))

    def _fitting(self, topic: bytes, raw: bytes) -> list[RemoteInterest]:
        """Remote interests whose conditions this publication meets."""
        event = event_of(raw)
        fields = self._view.interests.fields(topic)
        return values_of([entry for field in fields for entry in field.match(event)])

    def _interests(self, topic: bytes, raw: bytes) -> list[dict[str, Any]]:
        """Every remote interest that concerns this topic, with the outcome for this publication."""
        view, event = self._view, event_of(raw)
        remote = view.interests.match(topic)
        remote += values_of([entry for field in view.interests.fields(topic) for entry in field.entries])
        return [
            {
                "of": view.name_of(interest.owner.broker),
                "cluster": interest.owner.wide,
                "filter": filter_of(interest.wanted).decode(),
                "group": interest.group or "",
                **_became(interest.condition, event),
            }
            for interest in remote[:INTERESTS_TOLD_MAX]
            if interest.owner.broker != view.me
        ]

    def _recipients(self, topic: bytes, raw: bytes, path: tuple[int, ...]) -> dict[str, Any]:
        """The recipients of this publication here, and the outcome of each condition."""
        view = self._view
        table = self._subscriptions.local
        route = table.routes[topic]
        if route.content is not None:
            route = route.content.route(raw)
        event = event_of(raw)
        members = [sink for share in route.shares for sink in share.members]
        return {
            "broker": view.map.me.name,
            "cluster": view.map.me.cluster,
            "path": [[f"{broker:016x}", view.name_of(broker)] for broker in path],
            "links": [
                {
                    "link": sink.link.id,
                    "entity": sink.link.identity.entity,
                    "name": sink.link.name,
                    "numbers": list(unpack(f"<{len(sink.numbers) // 4}I", sink.numbers))[:NUMBERS_TOLD_MAX],
                    "shared": sink in members,
                }
                for sink in [*route.sinks, *members][:LINKS_TOLD_MAX]
            ],
            "groups": sum(1 for share in route.shares if share.members),
            "conditions": [
                {
                    "link": local.link.id,
                    "entity": local.link.identity.entity,
                    "number": local.subscription.number,
                    "filter": local.subscription.filter.decode(),
                    **_became(local.condition, event),
                }
                for local in self._subscriptions.conditional(topic)[:LINKS_TOLD_MAX]
            ],
        }


def _became(condition: Condition | None, event: Event) -> dict[str, Any]:
    """A condition, whether the event meets it, and if not, why."""
    if condition is None:
        return {"language": "topic", "where": "", "matches": True, "failed": ""}
    failed = refusal(condition, event)
    where, why = condition.text[:TEXT_TOLD_MAX], (failed or "")[:TEXT_TOLD_MAX]
    return {"language": condition.language, "where": where, "matches": failed is None, "failed": why}


def _frame(kind: Kind, topic: bytes, origin: int, number: int, body: bytes, headers: bytes = b"") -> bytes:
    length = BODY_BYTES + len(topic) + len(headers) + len(body)
    return HEAD.pack(length, kind, 0, len(topic), origin, number, len(headers)) + topic + headers + body
