"""STORED frames: from a store to one session, wherever in the network it is.

In:    STORED frames from stores at this broker and, in parcels, from stores elsewhere.
Out:   the same frames to the session that they name, without publications that it may not receive; parcels.
State: counters.
Not here: what a store sends (stores/), the layout (wire/stores.py), which peer is a store (access.py, sessions.py).

The broker where a frame enters takes it from its own store only, as no other party could show that the store's id in it
is its own. The receiver's broker checks each topic, so that no client
reads from a store what it may not receive live. A store knows what the reader may hear (hearings.py) and looks for
matches in that alone; a frame or notice from before the reader's rights became less is dropped. A frame for a session
that does not keep up is dropped and counted: the reader notices and asks again.
"""

from __future__ import annotations

from heliograph.broker.hot import frames_of
from heliograph.broker.links import Link, Links
from heliograph.broker.routing.plans import TTL
from heliograph.broker.routing.ports import Port
from heliograph.broker.routing.routing import Routing
from heliograph.broker.sessions import Sessions
from heliograph.broker.subscriptions import Subscriptions
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant
from heliograph.model.identity import Role
from heliograph.model.topics import is_inbox
from heliograph.wire.events import select
from heliograph.wire.frames import SCAN, Frame
from heliograph.wire.limits import HEAD_BYTES
from heliograph.wire.stores import StoredFlag, span, span_of, stored

NOT_READINGS = StoredFlag.ANSWER | StoredFlag.ACK


class StoredFrames:
    """Passes STORED frames on."""

    def __init__(self, links: Links, sessions: Sessions, subscriptions: Subscriptions, routing: Routing) -> None:
        self._links = links
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._routing = routing
        self._inbox = routing.advertising.inbox
        self.dropped = 0  # for sessions that did not keep up
        self.stale = 0  # chosen when the receiver could hear more
        self.withheld = 0  # publications that the receiver may not have

    def receive(self, link: Link, frame: Frame, now: Instant) -> None:
        """A frame from a store at this broker."""
        if not (link.is_pipe and link.identity.has(Role.STORE)):
            raise ProtocolError(Reason.ROLE_MISSING, "only the store of this broker may send this")
        if not is_inbox(frame.topic.decode(errors="replace")):
            raise ProtocolError(Reason.BODY_MALFORMED, "not for an inbox")
        self._pass(link, frame, False, now)

    def arrive(self, link: Port, frame: Frame, inside: bool, now: Instant) -> None:
        """A frame from a store elsewhere; if ``inside``, it may be for another member of this cluster."""
        if not is_inbox(frame.topic.decode(errors="replace")):
            self._links.count(Reason.BODY_MALFORMED)
        elif inside or frame.topic.startswith(self._inbox + b"/"):
            self._pass(link, frame, True, now)

    def _pass(self, link: Port, frame: Frame, inside: bool, now: Instant) -> None:
        inbox = frame.topic
        if inbox.startswith(self._inbox + b"/"):
            receiver = self._sessions.by_origin(int(inbox.rsplit(b"/", 1)[1], 16))
            if receiver is not None:
                self._hand_over(receiver, frame)
            return
        targets, _ = self._routing.destinations.targets_of(inbox, inside)
        if targets.members or targets.parts:
            self._routing.forwarding.forward(link, targets, frame.raw, TTL, (), now)

    def _hand_over(self, receiver: Link, frame: Frame) -> None:
        raw = frame.raw
        if not frame.flags & NOT_READINGS and frame.sequence != receiver.hears_as_of:
            self.stale += 1
            return
        if not frame.flags:
            if receiver.backlog_bytes + len(raw) > self._links.limits.queue_bytes_max // 2:
                self.dropped += 1
                return
            try:
                raw = self._allowed(receiver, frame)
            except ProtocolError as error:
                self._links.count(error.reason)
                return
        self._links.put(receiver, raw)

    def _allowed(self, receiver: Link, frame: Frame) -> bytes:
        """The frame without publications that the receiver may not have. ProtocolError if it is malformed."""
        channel, before, after, offsets = span_of(frame)
        payload = frame.payload
        known: dict[bytes, bool] = {}

        def ask(topic: bytes) -> bool:
            known[topic] = allowed = self._subscriptions.may_hear(receiver, topic)
            return allowed

        looked, size, _ = select(payload, 0, len(offsets), len(payload) + 1, known, ask)
        if looked == len(offsets) and size == len(payload):
            return frame.raw
        ends = frames_of(payload, 0)
        if len(ends) != len(offsets):
            raise ProtocolError(Reason.BODY_MALFORMED, "a stored frame needs one offset per publication")
        last, allowed, start = b"", True, 0
        withheld: list[int] = []
        for number, end in enumerate(ends):
            if end - start < HEAD_BYTES:
                raise ProtocolError(Reason.BODY_MALFORMED, "a stored frame contains something other than publications")
            topic = payload[start + HEAD_BYTES : start + HEAD_BYTES + (SCAN.unpack_from(payload, start)[1] >> 16)]
            start = end
            if topic != last:
                last, allowed = topic, known[topic] if topic in known else ask(topic)
            if not allowed:
                withheld.append(number)
        if not withheld:
            return frame.raw
        self.withheld += len(withheld)
        left = dict.fromkeys(range(len(ends)))
        for number in withheld:
            del left[number]
        kept = b"".join(payload[ends[number - 1] if number else 0 : ends[number]] for number in left)
        headers = span(channel, before, after, [offsets[number] for number in left])
        return stored(frame.topic, frame.origin, frame.sequence, kept, headers)
