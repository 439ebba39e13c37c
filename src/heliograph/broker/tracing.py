"""Tracing: the way a publication would go and who would get it, without delivering it.

In:    an order to trace a topic; TRACE and TRACED frames that arrive in parcels like publications.
Out:   the same frames to other brokers; one answer when all have answered or the time is over.
State: traces under way.
Not here: forwarding (routing/parcels.py), whom a topic concerns (routing/network.py, subscriptions.py).

A TRACE travels in parcels exactly as a publication of its topic would, so the hop prefix records its way. Each broker
that would deliver says to whom, straight back to the broker that asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import unpack
from typing import Any

import msgspec

from heliograph.broker.links import Link
from heliograph.broker.routing.neighbours import Targets
from heliograph.broker.routing.network import TTL, Network
from heliograph.broker.routing.parcels import Parcels
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.subscriptions import Subscriptions
from heliograph.errors import UsageError
from heliograph.machine import Instant, Timers
from heliograph.model.topics import INBOX_ROOT, topic_fault
from heliograph.wire.frames import BODY_BYTES, HEAD, Frame, Kind

TRACE_MS = 500  # a broker that has not answered by then is left out
TRACES_MAX = 64
LINKS_TOLD_MAX = 100  # of one broker, in one answer

HEX = re.compile(r"[0-9a-f]{16}\Z")
_encode = msgspec.json.Encoder().encode


class Recipients(msgspec.Struct, frozen=True):
    """What one broker answers."""

    broker: str
    cluster: str
    path: list[tuple[str, str]]  # id and name, as far as it is known there
    links: list[dict[str, Any]]
    groups: int


_decode = msgspec.json.Decoder(Recipients).decode


class Trace:
    """A trace that was started here."""

    __slots__ = ("brokers", "done", "members", "others", "topic")

    def __init__(self, topic: bytes, members: int, others: bool, done: Callable[[dict[str, Any]], None]) -> None:
        self.topic = topic
        self.members = members  # how many brokers of our own cluster will answer
        self.others = others  # whether other clusters are concerned, whose answers cannot be counted beforehand
        self.done = done
        self.brokers: list[dict[str, Any]] = []


class Tracing:
    """Asks the network where a topic would go, and answers others who ask."""

    def __init__(self, network: Network, parcels: Parcels, subscriptions: Subscriptions, timers: Timers) -> None:
        self._network = network
        self._parcels = parcels
        self._subscriptions = subscriptions
        self._timers = timers
        self._traces: dict[int, Trace] = {}
        self._number = 0

    def start(self, topic: bytes, source: Link, done: Callable[[dict[str, Any]], None], now: Instant) -> None:
        """Trace a topic from here; ``done`` gets the answer."""
        fault = topic_fault(topic)
        if fault is not None:
            raise UsageError(f"{topic.decode(errors='replace')!r}: {fault}")
        if len(self._traces) >= TRACES_MAX:
            raise UsageError("too many traces are under way; try again")
        network = self._network
        targets, _ = network.targets_of(topic, False)
        self._number += 1
        number = self._number
        trace = self._traces[number] = Trace(topic, targets.members.bit_count(), bool(targets.parts), done)
        here = self._recipients(topic, (network.me,))
        if here["links"] or here["groups"] or not (targets.members or targets.parts):
            trace.brokers.append(here)
        raw = _frame(Kind.TRACE, topic, network.me, number, b"")
        if targets.members or targets.parts:
            self._parcels.forward(source, targets, raw, TTL, (), now)
            at = now + TRACE_MS * NS_PER_MS
            self._timers.set(("trace", number), at, lambda now: self._finish(number, False))
        else:
            self._finish(number, True)

    def receive(self, link: Link, frame: Frame, inside: bool, trace: tuple[int, ...], now: Instant) -> None:
        """A TRACE or TRACED frame that has arrived here."""
        if frame.kind == Kind.TRACED:
            if frame.origin == self._network.me:
                self._answered(frame)
            elif inside:
                self._send_back(link, frame, trace, now)
            return
        if topic_fault(frame.topic) is not None:
            return
        if inside:
            targets, _ = self._network.targets_of(frame.topic, True)
            self._parcels.forward(link, Targets(targets.members), frame.raw, TTL - len(trace), trace[:-1], now)
        body = self._recipients(frame.topic, trace)
        if body["links"] or body["groups"] or not inside:
            answer = Frame(_frame(Kind.TRACED, frame.topic, frame.origin, frame.sequence, _encode(body)))
            self._send_back(link, answer, (), now)

    def _send_back(self, link: Link, frame: Frame, trace: tuple[int, ...], now: Instant) -> None:
        """Toward the broker that asked, which is found like the inboxes of its sessions."""
        targets, _ = self._network.targets_of(b"%b/%016x/trace" % (INBOX_ROOT, frame.origin), bool(trace))
        self._parcels.forward(link, targets, frame.raw, TTL - len(trace), trace[:-1], now)

    def _answered(self, frame: Frame) -> None:
        trace = self._traces.get(frame.sequence)
        if trace is None:
            return
        try:
            trace.brokers.append(msgspec.to_builtins(_decode(frame.payload)))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        cluster = self._network.map.me.cluster
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
                "entry": self._network.map.me.name,
                "complete": complete or near >= trace.members + trace.others,
                "brokers": sorted(trace.brokers, key=lambda row: (len(row["path"]), row["broker"])),
            }
        )

    def _name(self, broker: str, told: str) -> str:
        """A broker on the way: who passed it may not know its name, and we may."""
        if told != broker or not HEX.match(broker):
            return told
        return self._network.name_of(int(broker, 16))

    def _recipients(self, topic: bytes, path: tuple[int, ...]) -> dict[str, Any]:
        """Who would get a topic here."""
        network = self._network
        table = self._subscriptions.local
        route = table.routes[topic]
        members = [sink for share in route.shares for sink in share.members]
        return {
            "broker": network.map.me.name,
            "cluster": network.map.me.cluster,
            "path": [[f"{broker:016x}", network.name_of(broker)] for broker in path],
            "links": [
                {
                    "link": sink.link.id,
                    "entity": sink.link.identity.entity,
                    "name": sink.link.name,
                    "numbers": list(unpack(f"<{len(sink.numbers) // 4}I", sink.numbers)),
                    "shared": sink in members,
                }
                for sink in [*route.sinks, *members][:LINKS_TOLD_MAX]
            ],
            "groups": sum(1 for share in route.shares if share.members),
        }


def _frame(kind: Kind, topic: bytes, origin: int, number: int, body: bytes) -> bytes:
    length = BODY_BYTES + len(topic) + len(body)
    return HEAD.pack(length, kind, 0, len(topic), origin, number, 0) + topic + body
