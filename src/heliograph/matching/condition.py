"""Conditions: what a subscription asks of an event beyond its topic, in any language.

In:    what a language made of a text (matching/languages/).
Out:   Condition: a necessary box for the index, and a residue for what a box cannot express.
State: none; an Event decodes its headers and parses its document at most once, on first use.
Not here: the index (matching/boxes/), parsing texts (matching/languages/), covering (matching/conditions.py).

All languages share this one form. If a condition is a conjunction of predicates, the box is exact, and covering is
decided on boxes. Otherwise an event matches if it lies in the box and the residue agrees; a residue need not repeat
what the box checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from heliograph.matching.synopses import SYNOPSES, TAG, read_integer, read_tags
from heliograph.model.predicates import Conjunction, Value

CHARACTERS_PER_WEIGHT = 32
PAYLOAD_WEIGHT = 8  # documents are longer than headers

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Event:
    """One publication as conditions see it. Used for one matching; computed values are kept that long."""

    __slots__ = ("_attributes", "_headers", "_tags", "document", "payload", "raw_headers", "topic")

    def __init__(self, topic: bytes, raw_headers: bytes, payload: bytes) -> None:
        self.topic = topic
        self.raw_headers = raw_headers
        self.payload = payload
        self.document: Any = None  # set by languages/xpath.py: the parsed document, or why there is none
        self._headers: dict[str, Any] | None = None
        self._attributes: dict[str, Any] | None = None
        self._tags: dict[str, Value] | None = None

    @property
    def headers(self) -> dict[str, Any]:
        """All headers; a malformed header block reads as empty."""
        if self._headers is None:
            try:
                self._headers = _decode(self.raw_headers) if self.raw_headers else {}
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._headers = {}
        return self._headers

    @property
    def attributes(self) -> dict[str, Any]:
        """What predicates see: the publisher's own headers. Null counts as absent."""
        if self._attributes is None:
            self._attributes = {
                name: value for name, value in self.headers.items() if value is not None and name[:1] != "$"
            }
        return self._attributes

    @property
    def tags(self) -> dict[str, Value]:
        """The tags, under their reserved names."""
        if self._tags is None:
            self._tags = read_tags(self.topic, self.headers)
        return self._tags

    def attributes_with(self, synopses: Iterable[str]) -> dict[str, Any]:
        """What boxes see: the attributes, and those that these synopses of the topic add (``Condition.synopsis``)."""
        seen = self.attributes
        for synopsis in synopses:
            assert synopsis in SYNOPSES
            seen = seen | (read_integer(self.topic) if synopsis == "integer" else self.tags)
        return seen


class Residue(Protocol):
    """The part of a condition that a box cannot express."""

    @property
    def terms(self) -> frozenset[str]:
        """Canonical texts of tests that all have to hold: a residue with a subset of the terms asks for less."""
        ...

    def matches(self, event: Event) -> bool:
        """True if the event matches. Never raises, whatever the event contains, and always takes bounded time."""
        ...


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition. Two with the same language and text are equal."""

    language: str
    text: str  # in the language's canonical form; it can be compiled again
    box: Conjunction = field(default=(), compare=False)  # holds for every event that matches
    residue: Residue | None = field(default=None, compare=False)  # None: the box is exact
    reads_payload: bool = field(default=False, compare=False)

    @property
    def weight(self) -> int:
        """How long the residue takes per event, in units of about 4 µs, estimated from its length; 0 without one."""
        if self.residue is None:
            return 0
        return (PAYLOAD_WEIGHT if self.reads_payload else 1) * (1 + len(self.text) // CHARACTERS_PER_WEIGHT)

    @property
    def synopsis(self) -> str | None:
        """The synopsis of the topic that the box needs (matching/synopses.py), or None."""
        if self.language == "integer":
            return "integer"
        return "tags" if any(predicate.attribute.startswith(TAG) for predicate in self.box) else None
