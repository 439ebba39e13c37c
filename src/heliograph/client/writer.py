"""The writer: makes EVENT frames of a program's topics, headers and payloads.

In:    values of the program; the time of publishing; sequence numbers.
Out:   frames, or UsageError for what no broker would accept.
State: a bounded memory of valid topics; the largest payload that the broker accepts.
Not here: keeping frames until they are confirmed (client/outgoing.py).

Most publications have no headers of their own, so the reserved ones are formatted as bytes, without a JSON encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from heliograph.errors import UsageError
from heliograph.model.topics import TOPIC_BYTES_MAX, is_inbox, quoted, topic_fault
from heliograph.wire.frames import BODY_BYTES, HEAD, Flag
from heliograph.wire.limits import DESTINATIONS_MAX, HEAD_BYTES, HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX

HEADERS_ROOM = HEADERS_BYTES_MAX - TOPIC_BYTES_MAX - HEAD_BYTES  # a frame has 64 KiB for everything but its payload
TOPICS_MAX = 4_096  # remembered as valid; beyond it the memory starts from empty
Headers = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_pack = HEAD.pack


class Writer:
    """Writes the EVENT frames of one session."""

    __slots__ = ("_origin", "_topics", "payload_bytes_max")

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._topics: dict[str, bytes] = {}
        self.payload_bytes_max = PAYLOAD_BYTES_MAX  # the broker may accept less

    def limit_payloads(self, bytes_max: int) -> None:
        """The present broker accepts payloads up to this size."""
        self.payload_bytes_max = min(PAYLOAD_BYTES_MAX, bytes_max)

    def topic(self, topic: str) -> bytes:
        """The topic as bytes, as frames carry it."""
        known = self._topics.get(topic)
        return known if known is not None else self._learn(topic)

    def frame(self, topic: bytes, block: bytes, payload: bytes, sequence: int, flags: int = 0) -> bytes:
        """One EVENT."""
        if len(payload) > self.payload_bytes_max:
            raise UsageError(self._too_large(payload))
        topic_length, header_length = len(topic), len(block)
        length = BODY_BYTES + topic_length + header_length + len(payload)
        head = _pack(length, 1, flags, topic_length, self._origin, sequence, header_length)
        return b"".join((head, topic, block, payload))

    def frames(self, topic: bytes, block: bytes, payloads: list[bytes], first: int, flags: int = 0) -> bytes:
        """Consecutive EVENTs that differ only in payload and sequence."""
        self.check_size(payloads)
        topic_length, header_length, origin = len(topic), len(block), self._origin
        inner = BODY_BYTES + topic_length + header_length
        common = topic + block
        parts = [
            _pack(inner + len(payload), 1, flags, topic_length, origin, sequence, header_length) + common + payload
            for sequence, payload in enumerate(payloads, first)
        ]
        return b"".join(parts)

    def linked_frames(
        self,
        topic: bytes,
        block: bytes,
        payloads: list[bytes],
        first: int,
        previous: int,
        link: QualityLink,
        flags: int,
    ) -> bytes:
        """Consecutive EVENTs, each with a header that names its predecessor."""
        topic_length, origin = len(topic), self._origin
        inner = BODY_BYTES + topic_length
        opening = (block[:-1] + b"," if block else b"{") + b'"$q":["%s",' % link.store.encode()
        closing = link.rest + b"]}"
        parts: list[bytes] = []
        for sequence, payload in enumerate(payloads, first):
            headers = b"%s%d%s" % (opening, previous, closing)
            length = inner + len(headers) + len(payload)
            head = _pack(length, 1, flags, topic_length, origin, sequence, len(headers))
            parts += (head, topic, headers, payload)
            previous = sequence
        return b"".join(parts)

    def linked_rows(
        self,
        rows: Sequence[tuple[str, Headers | None]],
        block: bytes,
        payloads: list[bytes],
        first: int,
        previous: int,
        link: QualityLink,
        flags: int,
    ) -> bytes:
        """The same for EVENTs that differ in topic and in headers of their own, which follow those of all."""
        origin = self._origin
        opening = block[:-1] + b"," if block else b"{"
        quality = b'"$q":["%s",' % link.store.encode()
        closing = link.rest + b"]}"
        parts: list[bytes] = []
        own, own_block = None, b""
        for sequence, ((topic, headers), payload) in enumerate(zip(rows, payloads, strict=True), first):
            if headers is not own:
                own, own_block = headers, row_block(headers)
            name = self.topic(topic)
            all_headers = b"%b%b%b%d%b" % (opening, own_block, quality, previous, closing)
            length = BODY_BYTES + len(name) + len(all_headers) + len(payload)
            head = _pack(length, 1, flags, len(name), origin, sequence, len(all_headers))
            parts += (head, name, all_headers, payload)
            previous = sequence
        return b"".join(parts)

    def check_size(self, payloads: list[bytes]) -> None:
        """UsageError if one of them is too large."""
        for payload in payloads:
            if len(payload) > self.payload_bytes_max:
                raise UsageError(self._too_large(payload))

    def _learn(self, topic: str) -> bytes:
        if not isinstance(topic, str):
            raise UsageError(f"a topic is a str, not {type(topic).__name__}")
        name = topic.encode("utf-8", "surrogatepass")  # invalid text is found below
        fault = topic_fault(name)
        if fault is not None:
            raise UsageError(f"{quoted(topic)} is not a topic: {fault}")
        if len(self._topics) >= TOPICS_MAX:
            self._topics.clear()
        self._topics[topic] = name
        return name

    def _too_large(self, payload: bytes) -> str:
        return f"a payload of {len(payload)} bytes is too large: at most {self.payload_bytes_max} are taken"


class QualityLink(NamedTuple):
    """What the header ``$q`` of a reliable publication says besides its predecessor."""

    store: str
    rest: bytes = b""  # of a batch: publisher, number and part, each after a comma


class Stamp(NamedTuple):
    """The time of publishing, in microseconds since 1970; and whether it is network time."""

    time_us: int
    is_synchronised: bool


def plain_block(stamp_us: int, is_synchronised: bool) -> bytes:
    """The headers of a publication that has none of its own; with ``$u`` if its clock is not synchronised."""
    return (b'{"$t":%d}' if is_synchronised else b'{"$t":%d,"$u":true}') % stamp_us


def header_block(
    stamp: Stamp | None,
    headers: Headers | None = None,
    expires_in_ms: int | None = None,
    content_type: str | None = None,
    to: Sequence[str] | None = None,
    reply_to: str | None = None,
) -> tuple[bytes, int]:
    """All headers as JSON, and the flags that go with them."""
    reserved: Headers = {}
    if stamp is not None:
        reserved["$t"] = stamp.time_us
        if not stamp.is_synchronised:
            reserved["$u"] = True
    flags = 0
    if to is not None:
        reserved["$d"] = _destinations(to)
        flags |= Flag.DIRECTED
    if reply_to is not None:
        reserved["$r"] = reply_to
        flags |= Flag.REQUEST
    if expires_in_ms is not None:
        if stamp is None:
            raise UsageError("a publication cannot expire before the session knows what time it is")
        if expires_in_ms <= 0:
            raise UsageError("a publication expires in more than 0 ms")
        reserved["$x"] = stamp.time_us + expires_in_ms * 1_000
        flags |= Flag.EXPIRES
    if content_type is not None:
        reserved["$y"] = content_type
    if headers is not None:
        _check_names(headers)
        reserved.update(headers)
    return (_encoded(reserved) if reserved else b""), int(flags)


def row_block(headers: Headers | None) -> bytes:
    """The headers that one publication of many has of its own: JSON without braces, with a comma behind it."""
    if not headers:
        return b""
    _check_names(headers)
    return _encoded(headers)[1:-1] + b","


def _check_names(headers: Headers) -> None:
    if not isinstance(headers, Mapping):
        raise UsageError(f'headers are a dict, such as {{"unit": "celsius"}}, not {headers!r}')
    for key in headers:
        if not isinstance(key, str) or key.startswith("$"):
            raise UsageError(f"header {key!r}: keys are text, and those that begin with '$' are reserved")


def _encoded(headers: Headers) -> bytes:
    try:
        block = _encode(headers)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"headers must be JSON values: {error}") from None
    if len(block) > HEADERS_ROOM:
        raise UsageError(f"headers of {len(block)} bytes are too large: at most {HEADERS_ROOM} are taken")
    return block


def json_values(values: tuple[str | int, ...]) -> bytes:
    """Values as JSON, separated by commas."""
    return _encode(values)[1:-1]


def _destinations(to: Sequence[str]) -> list[str]:
    if isinstance(to, str) or not 0 < len(to) <= DESTINATIONS_MAX:
        raise UsageError(f"a directed publication names 1 to {DESTINATIONS_MAX} inboxes in a list")
    for inbox in to:
        if not isinstance(inbox, str) or not is_inbox(inbox):
            raise UsageError(f"{inbox!r} is not an inbox: use the value of a client's ``inbox``")
    return list(to)
