"""Conditions: what a subscription asks of an event beyond its topic, in whatever language it was written.

In:    what a language made of a text (matching/languages/).
Out:   Condition: a necessary box for the index, and a residue for what no box can say.
State: none; an Event decodes its headers and parses its document at most once, when somebody looks.
Not here: the index (matching/boxes/), the reading of texts (matching/languages/).

Every language meets the rest of the house in this one form. Where its meaning is a conjunction of predicates the box
says it all, and covering is decided on boxes. Elsewhere the residue decides, the box only spares it events, and two
conditions cover each other only if they are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from heliograph.model.predicates import Conjunction

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Event:
    """One publication as conditions see it. It lives as long as its matching; what it worked out is kept."""

    __slots__ = ("_headers", "document", "payload", "raw_headers", "topic")

    def __init__(self, topic: bytes, raw_headers: bytes, payload: bytes) -> None:
        self.topic = topic
        self.raw_headers = raw_headers
        self.payload = payload
        self.document: Any = None  # kept by the XPath room: the parsed payload, or why there is none
        self._headers: dict[str, Any] | None = None

    @property
    def headers(self) -> dict[str, Any]:
        """All headers; a malformed header block reads as empty."""
        if self._headers is None:
            try:
                self._headers = _decode(self.raw_headers) if self.raw_headers else {}
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._headers = {}
        return self._headers


class Residue(Protocol):
    """What no box can say."""

    def matches(self, event: Event) -> bool:
        """True if the event fits. Never raises for what an event holds, and never takes unbounded time."""
        ...


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition. Two with the same language and text want the same."""

    language: str
    text: str  # in the one form that this language gives to equal wishes
    box: Conjunction = ()  # holds for every event that matches
    residue: Residue | None = field(default=None, compare=False)  # None: the box says it all
    reads_payload: bool = False
