"""The reader: takes DELIVERY frames apart into publications.

In:    whole DELIVERY frames of a broker, any content.
Out:   the subscription numbers, the link's count of lost publications, and the publications that are new.
State: a bounded memory of topics; per origin which sequences came, so that duplicates (after a reconnect, or from both
       brokers during a move) are dropped.
Not here: cutting the stream (wire/splitter.py), queues (client/inbox.py).

A publication comes once for all plain subscriptions together, and once more for each shared subscription for which
this session was chosen. So each shared subscription has a memory of its own.

A malformed delivery is the broker's fault and ends the link. A bad publication inside a good delivery is its
publisher's fault: it is discarded and counted, and the broker that relayed it keeps its link.
"""

from __future__ import annotations

from heliograph.broker.routing.seen import Seen
from heliograph.errors import ProtocolError, Reason
from heliograph.model.publication import Publication
from heliograph.wire.frames import BODY_BYTES, HEAD, SCAN, Kind
from heliograph.wire.limits import HEAD_BYTES, SUBSCRIPTIONS_PER_DELIVERY_MAX

TOPICS_MAX = 16_384  # decoded topics remembered; beyond it the memory starts from empty
ORIGINS_MAX = 4_096  # publishers remembered; the oldest is forgotten first
GAPS_MAX = 256  # per publisher, as a subscriber sees only some of its numbers
NUMBER_BYTES = 4

_unpack = SCAN.unpack_from


class DeliveryReader:
    """Reads the deliveries of one session, over all its links."""

    __slots__ = ("_seen", "_topics", "discarded", "duplicates", "received")

    def __init__(self) -> None:
        self._topics: dict[bytes, str] = {}
        self._seen: dict[int | tuple[int, int], Seen] = {}  # by origin, or by shared subscription and origin
        self.received = 0
        self.duplicates = 0
        self.discarded = 0

    def read(self, frame: bytes, start: int, share: int = 0) -> list[Publication]:
        """The new publications of a delivery, from ``start`` on; ``share``: for this shared subscription."""
        size = len(frame)
        publications: list[Publication] = []
        find = self._topics.get
        origin_before, seen = -1, None
        while start < size:
            if start + HEAD_BYTES > size:
                raise ProtocolError(Reason.FRAME_TOO_SHORT, "a delivery ends within a publication")
            length, word, origin, sequence, header_length = _unpack(frame, start)
            end = start + 4 + length
            if word & 0xFF != 1 or length < BODY_BYTES or end > size:
                raise ProtocolError(Reason.FRAME_TOO_SHORT, "a delivery consists of whole publications only")
            top = start + HEAD_BYTES + (word >> 16)
            body = top + header_length
            if body > end:
                self.discarded += 1
                start = end
                continue
            name = frame[start + HEAD_BYTES : top]
            topic = find(name) or self._learn(name)
            if origin != origin_before or seen is None:
                seen = self._seen_of((share, origin) if share else origin)
                origin_before = origin
            if topic is None:
                self.discarded += 1
            elif sequence == seen.next:
                seen.next = sequence + 1
                publications.append(
                    Publication(topic, frame[body:end], origin, sequence, frame[top:body], word >> 8 & 0xFF)
                )
            elif seen.admit(sequence):
                publications.append(
                    Publication(topic, frame[body:end], origin, sequence, frame[top:body], word >> 8 & 0xFF)
                )
            else:
                self.duplicates += 1
            start = end
        self.received += len(publications)
        return publications

    def _learn(self, name: bytes) -> str | None:
        """A topic as text; None if it is not valid."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return None
        if not topic:
            return None
        if len(self._topics) >= TOPICS_MAX:
            self._topics.clear()
        self._topics[name] = topic
        return topic

    def _seen_of(self, key: int | tuple[int, int]) -> Seen:
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= ORIGINS_MAX:
                del self._seen[next(iter(self._seen))]
            seen = self._seen[key] = Seen(key if isinstance(key, int) else key[1], GAPS_MAX)
        return seen


def prefix_of(frame: bytes) -> tuple[bytes, int, int]:
    """The packed subscription numbers, what the link has lost so far, and where the publications begin."""
    length, kind, flags, topic_length, lost, _, numbers_length = HEAD.unpack_from(frame)
    assert kind == Kind.DELIVERY
    assert length + 4 == len(frame)
    start = HEAD_BYTES + numbers_length
    if flags or topic_length or start > len(frame):
        raise ProtocolError(Reason.HEADERS_OVER_FRAME, "the prefix of a delivery does not fit it")
    if numbers_length % NUMBER_BYTES or numbers_length > NUMBER_BYTES * SUBSCRIPTIONS_PER_DELIVERY_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, "a delivery names its subscriptions in four bytes each")
    return frame[HEAD_BYTES:start], lost, start
