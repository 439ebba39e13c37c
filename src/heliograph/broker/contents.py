"""Contents: the route of a publication, where that depends on more than its topic.

In:    EVENT frames of topics with conditional subscriptions.
Out:   the route of each.
State: per topic the routes made so far, by the conditions that matched; bounded.
Not here: the tables of subscriptions and interests (subscriptions.py, routing/interests.py), matching
          (matching/contents.py).

An event's headers are decoded here and nowhere else in a broker, and only for such topics. Publications that meet the
same conditions have the same route, so sinks are made only once for each combination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from heliograph.matching.condition import Event
from heliograph.matching.contents import Entry, Field, V
from heliograph.wire.frames import HEAD
from heliograph.wire.limits import HEAD_BYTES

ROUTES_MAX = 1_024  # remembered combinations per topic
RESIDUES_PER_STEP = 4  # the weight of residues that takes as long as one step of a read (STEPS_MAX)

H = TypeVar("H")  # entries of local subscriptions
T = TypeVar("T")  # remote interests
R = TypeVar("R")  # a route


class Content(Generic[H, T, R]):
    """What one topic's route depends on: local and remote conditions, and how a route is made of those that match."""

    __slots__ = ("_build", "_here", "_routes", "_there")

    def __init__(
        self, here: tuple[Field[H], ...], there: tuple[Field[T], ...], build: Callable[[list[H], list[T]], R]
    ) -> None:
        self._here = here
        self._there = there
        self._build = (
            build  # the route for these local subscriptions and remote interests, besides those of the topic alone
        )
        self._routes: dict[tuple[tuple[int, ...], tuple[int, ...]], R] = {}

    @property
    def steps(self) -> int:
        """How many steps of a read one publication takes."""
        residues = sum(field.residues for field in self._here) + sum(field.residues for field in self._there)
        return 1 + residues // RESIDUES_PER_STEP

    def route(self, raw: bytes) -> R:
        """The route of this frame."""
        event = event_of(raw)
        here = [entry for field in self._here for entry in field.match(event)]
        there = [entry for field in self._there for entry in field.match(event)]
        key = (tuple([entry.number for entry in here]), tuple([entry.number for entry in there]))
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            route = self._routes[key] = self._build(values_of(here), values_of(there))
        return route


def values_of(entries: list[Entry[V]]) -> list[V]:
    """All values of these entries."""
    return [value for entry in entries for value in entry.values]


def event_of(raw: bytes) -> Event:
    """A frame as conditions see it."""
    _, _, _, topic_length, _, _, header_length = HEAD.unpack_from(raw)
    headers_at = HEAD_BYTES + topic_length
    payload_at = headers_at + header_length
    return Event(raw[HEAD_BYTES:headers_at], raw[headers_at:payload_at], raw[payload_at:])
