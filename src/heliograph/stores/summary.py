"""Summaries: which topics a block of publications has, in few bytes.

In:    runs of publications, one after another; topic filters.
Out:   a summary of them; may they hold a publication that a filter matches? which topics do they have?
State: none, but for the block that is being summarised.
Not here: which runs make a block, and where summaries are kept (summaries.py).

Of a few topics a summary has a list, which is exact. Of more it has a Bloom filter of tokens: each topic, what comes
before each of its slashes, and each level with its place. That may say yes wrongly, never no.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from zlib import crc32

import numpy as np

from heliograph.model.topics import HIDDEN_ROOTS
from heliograph.vault import Position, Run
from heliograph.wire.events import select

LIST_BYTES_MAX = 1 << 10  # of topics; what is longer becomes a Bloom filter, which is shorter than its topics
BLOOM_BYTES_MAX = 8 << 10  # for as many topics as 256 KiB have: about 3 % of the bytes that it saves to read
BLOOM_BYTES_MIN = 64
TOKENS_MAX = 32_768  # with so many half of the answers are wrong: it is not worth the time
ANYTHING = b"\xff"
TOKEN_BITS = 8  # with three bits set per token, 3 % of the answers are wrong, or less
_HEAD = Struct("<QB")  # where the block begins; the form of what follows
_LIST, _BLOOM = 0, 1
_PLACES = [bytes((place,)) for place in range(256)]  # what the token of a level begins with, and no topic does


class FilterProbe:
    """A topic filter, as summaries are asked about it."""

    def __init__(self, pattern: bytes) -> None:
        levels = pattern.split(b"/")
        self.listed = re.compile(_expression(levels), re.MULTILINE)  # finds a topic in a list that the filter matches
        self.tokens = [[_places(token) for token in tokens] for tokens in _tokens_of_filter(levels)]


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """What is known about the topics of the publications at some positions."""

    first: Position
    next: Position
    listed: bytes | None  # the topics with line feeds between, if they are few
    bits: bytes = b""  # otherwise

    @property
    def topics(self) -> list[bytes] | None:
        """All topics, if they are few."""
        return None if self.listed is None else self.listed.split(b"\n")

    def may_hold(self, probe: FilterProbe) -> bool:
        """False if none of the publications has a topic that the filter matches."""
        if self.listed is not None:
            return probe.listed.search(self.listed) is not None
        size = 8 * len(self.bits)
        return any(all(self._has(places, size) for places in tokens) for tokens in probe.tokens)

    def _has(self, places: tuple[int, int], size: int) -> bool:
        first, step = places
        return all(self.bits[at >> 3] >> (at & 7) & 1 for at in ((first + n * step) % size for n in range(3)))

    def value(self) -> bytes:
        """As a vault keeps it, under a key that says where the block ends."""
        form, body = (_BLOOM, self.bits) if self.listed is None else (_LIST, self.listed)
        return _HEAD.pack(self.first, form) + body


def summary_of(value: bytes | None, next: Position) -> TopicSummary | None:
    """What a vault has kept; None if it is damaged, or of a later version."""
    if value is None or len(value) <= _HEAD.size:
        return None
    first, form = _HEAD.unpack_from(value)
    body = value[_HEAD.size :]
    if first >= next or form not in (_LIST, _BLOOM):
        return None
    return TopicSummary(first, next, body) if form == _LIST else TopicSummary(first, next, None, body)


class Block:
    """Runs that follow each other, and the topics in them."""

    def __init__(self) -> None:
        self.first = self.next = 0
        self.bytes = 0
        self._topics: dict[bytes, bool] = {}

    def add(self, run: Run) -> bool:
        """Add a run. False if its bytes are not the publications that it should have: then it begins anew."""
        looked, _, _ = select(run.data, 0, run.count, 1, self._topics, self._note)
        if looked != run.count:
            self.clear()
            return False
        self.first = self.first if self.bytes else run.position
        self.next = run.next
        self.bytes += len(run.data)
        return True

    def _note(self, topic: bytes) -> bool:
        self._topics[topic] = False
        return False

    def clear(self) -> None:
        """Begin anew."""
        self.bytes = 0
        self._topics = {}

    def take(self) -> TopicSummary:
        """The summary of what was added; begins anew."""
        topics, first = self._topics, self.first
        self.clear()
        if sum(map(len, topics)) + len(topics) <= LIST_BYTES_MAX:
            listed = b"\n".join(topics)
            if listed.count(b"\n") == len(topics) - 1:  # valid topics have no line feeds
                return TopicSummary(first, self.next, listed)
        return TopicSummary(first, self.next, None, _bloom(topics))


def _bloom(topics: dict[bytes, bool]) -> bytes:
    """The bits of all tokens of these topics."""
    tokens = np.fromiter(map(crc32, islice(_tokens_of(topics), TOKENS_MAX)), np.uint32)
    if len(tokens) == TOKENS_MAX:
        return ANYTHING
    size = 8 * BLOOM_BYTES_MIN
    while size < TOKEN_BITS * len(tokens) and size < 8 * BLOOM_BYTES_MAX:
        size *= 2
    first, step = tokens & 0xFFFF, tokens >> 16 | 1
    bits = np.zeros(size, np.uint8)
    for number in range(3):
        bits[(first + number * step) % size] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _places(token: bytes) -> tuple[int, int]:
    """Where a token's bits are: the first, and how far the others are from each other."""
    said = crc32(token)
    return said & 0xFFFF, said >> 16 | 1


def _tokens_of(topics: dict[bytes, bool]) -> Iterator[bytes]:
    """Each token once. What is before the last slash of a topic is usually known already, and so is all before that."""
    seen: set[bytes] = set()  # never iterated over
    for topic in topics:
        yield topic
        head, slash, level = topic.rpartition(b"/")
        place = topic.count(b"/")
        while slash:
            token = _PLACES[place & 0xFF] + level
            if token not in seen:
                seen.add(token)
                yield token
            above = head + b"/"
            if above in seen:
                break
            seen.add(above)
            yield above
            head, slash, level = head.rpartition(b"/")
            place -= 1


def _tokens_of_filter(levels: list[bytes]) -> list[list[bytes]]:
    """The tokens of every topic that a filter matches; if there are several lists, all of one of them."""
    wild = next((place for place, level in enumerate(levels) if level in (b"+", b"#")), None)
    if wild is None:
        return [[b"/".join(levels)]]
    head = b"/".join(levels[:wild])
    rest = [_PLACES[at & 0xFF] + level for at, level in enumerate(levels) if at > wild and level not in (b"+", b"#")]
    below = [head + b"/", *rest] if wild else rest
    return [below, [head]] if wild and levels[wild] == b"#" else [below]


def _expression(levels: list[bytes]) -> bytes:
    """A regular expression that finds, in lines of topics, one that a filter matches."""
    hidden = b"|".join(map(re.escape, HIDDEN_ROOTS))
    parts = [b"(?!(?:%b)(?:/|$))" % hidden if levels[0] in (b"+", b"#") else b""]
    for place, level in enumerate(levels):
        if level == b"#":
            parts.append(b"(?:/.*)?" if place else b".*")
        else:
            parts.append((b"/" if place else b"") + (b"[^/\\n]*" if level == b"+" else re.escape(level)))
    return b"^%b$" % b"".join(parts)
