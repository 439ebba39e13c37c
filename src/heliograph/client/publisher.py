"""The publisher: numbers a program's publications and keeps them until a broker has confirmed them.

In:    publications of the program; confirmations; the present broker's limits.
Out:   runs of EVENT frames in ``outgoing``, from where the line in use takes them (client/lines.py).
State: the writer and the unconfirmed publications; whether the session still publishes.
Not here: frames (client/writer.py), keeping and repeating them (client/outgoing.py).

A program may call ``publish`` directly; its publications are sent with the session's next ``take``.
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.client import commands
from heliograph.client.outgoing import Outgoing, too_much
from heliograph.client.refusals import Losses
from heliograph.client.requests import OpenRequests
from heliograph.client.timing import SessionTime
from heliograph.client.writer import (
    Headers,
    QualityLink,
    Stamp,
    Writer,
    header_block,
    json_values,
    plain_block,
    row_block,
)
from heliograph.errors import HeliographError, UsageError
from heliograph.machine import Instant
from heliograph.wire.bodies import Welcome
from heliograph.wire.limits import PAYLOAD_BYTES_MAX
from heliograph.wire.stores import StoreAdvertisement


class Publisher:
    """Publishes for one session."""

    __slots__ = ("_closed", "_losses", "_requests", "_time", "_writer", "outgoing")

    def __init__(
        self, origin: int, outgoing: Outgoing, time: SessionTime, losses: Losses, requests: OpenRequests
    ) -> None:
        self.outgoing = outgoing
        self._writer = Writer(origin)
        self._time = time
        self._losses = losses
        self._requests = requests
        self._closed = ""  # why the session no longer publishes

    @property
    def has_room(self) -> bool:
        """False: wait until the broker has confirmed something."""
        return self.outgoing.bytes < self.outgoing.bytes_max

    def publish(
        self,
        topic: str,
        payload: bytes,
        now: Instant,
        headers: Headers | None = None,
        expires_in_ms: int | None = None,
        content_type: str | None = None,
        to: Sequence[str] | None = None,
    ) -> bool:
        """Gather one publication for the next take. False if there is no room; it is then counted as lost."""
        outgoing = self.outgoing
        if outgoing.bytes >= outgoing.bytes_max or self._closed:
            return self._no_room(1, now)
        name = self._writer.topic(topic)
        flags = 0
        plain = headers is None and expires_in_ms is None and content_type is None and to is None
        time = self._time
        if plain and time.ahead_ns is not None:
            block = plain_block((now + time.ahead_ns) // 1_000, time.is_synchronised)
        else:
            block, flags = header_block(self.stamp(now), headers, expires_in_ms, content_type, to)
        outgoing.add(self._writer.frame(name, block, payload, outgoing.assigned + 1, flags))
        return True

    def publish_batch(
        self,
        topic: str,
        payloads: list[bytes],
        now: Instant,
        headers: Headers | None = None,
        expires_in_ms: int | None = None,
        content_type: str | None = None,
    ) -> bool:
        """Gather many publications on one topic, all or none of them."""
        outgoing = self.outgoing
        if outgoing.bytes >= outgoing.bytes_max or self._closed:
            return self._no_room(len(payloads), now)
        if not payloads:
            return True
        name = self._writer.topic(topic)
        block, flags = header_block(self.stamp(now), headers, expires_in_ms, content_type)
        outgoing.add(self._writer.frames(name, block, payloads, outgoing.assigned + 1, flags), len(payloads))
        return True

    def check(self, command: commands.PublishReliably) -> None:
        """UsageError for what no broker would accept."""
        self._writer.check_size(command.payloads)
        header_block(None, command.headers, None, command.content_type)
        for topic, headers in [(command.topic, None)] if command.rows is None else command.rows:
            self._writer.topic(topic)
            if headers is not None:
                row_block(headers)

    def publish_linked(
        self, command: commands.PublishReliably, store: StoreAdvertisement, previous: int, now: Instant
    ) -> tuple[int, bytes]:
        """Publish along a store's chain; returns the first sequence and the frames. The caller has checked for room."""
        outgoing, writer = self.outgoing, self._writer
        writer.check_size(command.payloads)
        to = None if command.part is None else [store.inbox]
        rest = b"" if command.part is None else b"," + json_values(command.part)
        block, flags = header_block(self.stamp(now), command.headers, command.expires_in_ms, command.content_type, to)
        first, link = outgoing.assigned + 1, QualityLink(store.store, rest)
        if command.rows is None:
            topic = writer.topic(command.topic)
            run = writer.linked_frames(topic, block, command.payloads, first, previous, link, flags)
        else:
            run = writer.linked_rows(command.rows, block, command.payloads, first, previous, link, flags)
        outgoing.add(run, len(command.payloads))
        return first, run

    def request_frame(self, command: commands.Inquire, reply_to: str, now: Instant) -> bytes:
        """The next publication, as a request to other clients; the caller adds it to ``outgoing``, or does not."""
        block, flags = header_block(self.stamp(now), command.headers, None, command.content_type, None, reply_to)
        topic = self._writer.topic(command.topic)
        return self._writer.frame(topic, block, command.payload, self.outgoing.assigned + 1, flags)

    def stamp(self, now: Instant) -> Stamp | None:
        """The time stamp for something published now; None if the session does not know the time yet."""
        stamp_us = self._time.stamp_us(now)
        return None if stamp_us is None else Stamp(stamp_us, self._time.is_synchronised)

    def _no_room(self, publications: int, now: Instant) -> bool:
        if self._closed:
            raise UsageError(f"the session no longer publishes: {self._closed}")
        self._losses.add("outgoing", publications, now)
        return False

    # -- commands -----------------------------------------------------------------------------------------------

    def tell_publish(self, command: commands.Publish, now: Instant) -> None:
        """Publish; without room the request is refused."""
        given = (command.headers, command.expires_in_ms, command.content_type, command.to)
        if not self.publish(command.topic, command.payload, now, *given):
            self._requests.refuse(command.request, too_much())

    def tell_batch(self, command: commands.PublishBatch, now: Instant) -> None:
        """Publish all of them; without room the request is refused."""
        given = (command.headers, command.expires_in_ms, command.content_type)
        if not self.publish_batch(command.topic, command.payloads, now, *given):
            self._requests.refuse(command.request, too_much())

    # -- brokers that come and go ---------------------------------------------------------------------------------

    def resume(self, welcome: Welcome, seen: int) -> int:
        """Publish at this broker, which has everything up to ``seen``; returns how many publications are repeated."""
        self._writer.limit_payloads(welcome.limits.get("payload_bytes_max", PAYLOAD_BYTES_MAX))
        return self.outgoing.rewind(seen)

    def close(self, error: HeliographError | None = None) -> None:
        """Stop publishing: the session drains or has ended."""
        self._closed = str(error or "") or "it was closed"
