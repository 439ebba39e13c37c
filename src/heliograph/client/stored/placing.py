"""Placing: which store's chain a reliable publication goes to, in the program's order for each store.

In:    commands; that the store of a topic is known, or that there is none.
Out:   commands with their stores; commands that fail together.
State: the commands whose store is not known, and those behind them that may be for the same store.
Not here: finding stores (whereabouts.py), chains and time-outs (reliable.py).

While the store of a topic is looked for, only commands for stores whose patterns match that topic wait behind it: no
other store can be the one.
"""

from __future__ import annotations

from collections import deque

from heliograph.client.commands import PublishReliably
from heliograph.client.stored.whereabouts import Whereabouts
from heliograph.machine import Instant
from heliograph.model.topics import matches
from heliograph.wire.stores import StoreAdvertisement

LOOKUPS_MAX = 16  # topics whose stores are looked for at once; what is published behind them waits


class Placing:
    """The commands of a session that have no place in a chain yet."""

    def __init__(self, whereabouts: Whereabouts) -> None:
        self._whereabouts = whereabouts
        self._waiting: deque[PublishReliably] = deque()  # in the program's order; the first has no known store
        self._unsure: dict[str, None] = {}  # topics of these whose stores are looked for

    def add(self, command: PublishReliably, now: Instant) -> StoreAdvertisement | None:
        """The store of a command; None if the command waits here."""
        store = self._store_of(command, now) if len(self._unsure) < LOOKUPS_MAX else None
        if store is None:
            self._waiting.append(command)
        return store

    def review(self, now: Instant) -> list[tuple[PublishReliably, StoreAdvertisement]]:
        """The commands whose store is known now."""
        placed, kept = [], []
        self._unsure.clear()
        while self._waiting and len(self._unsure) < LOOKUPS_MAX:
            command = self._waiting.popleft()
            store = self._store_of(command, now)
            if store is None:
                kept.append(command)
            else:
                placed.append((command, store))
        self._waiting.extendleft(reversed(kept))
        return placed

    def remove(self, topic: str, since: PublishReliably | None = None) -> list[PublishReliably]:
        """Remove the commands on a topic without a store: all, or a certain one and those behind it."""
        start = 0 if since is None else self._waiting.index(since)
        removed = {
            command: None for command in list(self._waiting)[start:] if command.topic == topic and not command.store
        }
        if since is not None:
            removed[since] = None
        self._waiting = deque(command for command in self._waiting if command not in removed)
        return list(removed)

    def clear(self) -> None:
        """The session has ended."""
        self._waiting.clear()
        self._unsure.clear()

    def _store_of(self, command: PublishReliably, now: Instant) -> StoreAdvertisement | None:
        """The store of a command whose turn it is; None if it is not known, or if the command has to wait its turn."""
        store = command.store or self._whereabouts.find(command.topic, now)
        if store is None:
            self._unsure[command.topic] = None
        elif any(_serves(store, topic) for topic in self._unsure):
            return None
        return store


def _serves(store: StoreAdvertisement, topic: str) -> bool:
    return any(matches(pattern.encode(), topic.encode()) for pattern in store.patterns)
