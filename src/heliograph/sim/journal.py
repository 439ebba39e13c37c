"""The journal: what happened in a world, line by line. Checkers and people see the world through it.

In:    entries from hosts, faults and the workload.
Out:   the entries, passed at once to watchers of their kind, and later as text.
State: the newest entries (all of them, if asked for) and a count per kind.
Not here: judging what happened (checkers/), bytes (digest.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from heliograph.notes import Note
from heliograph.sim.loop import SECOND, Loop

ENTRIES_MAX = 20_000  # kept to show the lines before a failure

KINDS = {
    "started": "a host began to run",
    "crashed": "a host lost everything in its memory",
    "stopped": "a host ended by itself",
    "attached": "a host has a new link",
    "detached": "a host lost a link",
    "hung_up": "a machine ended a link",
    "note": "a machine observed something",
    "fault": "a fault struck",
    "healed": "a fault was over",
    "damaged": "records of a log on a host's disk can no longer be read",
    "linked": "an operator added a link between brokers",
    "unlinked": "an operator removed a link between brokers",
    "disturbed": "a fault struck brokers or their links: their maps may be wrong from now on",
    "settled": "no such fault is active, and the map of every broker agrees with the world",
    "carried": "a broker sent a publication to another broker (only where a checker asks for it)",
    "reached": "a broker or a client was given a publication by a peer (only where a checker asks for it)",
    "measured": "a checker measured something",
    "published": "a client's program published",
    "flushed": "a broker confirmed what a client had published",
    "received": "a client's program read a publication",
    "subscribing": "a client's program asked for publications",
    "subscribed": "a subscription is in force",
    "unsubscribing": "a client's program ended a subscription",
    "inquired": "a client's program sent a request to the subscribers of a topic",
    "unanswered": "its request got no answer, and why",
    "refused": "a request of a client was refused",
    "restored": "a client is back with all its subscriptions",
    "leaving": "a client's program says goodbye",
    "lost": "a client was told that it lost publications, by a broker or by its own full inbox",
    "acknowledged": "a store told a publisher that a publication is durable",
    "taken": "a durable subscriber took a publication from a store",
    "missed": "a store told a durable subscriber that positions of its log cannot be read",
    "owned": "the owner of a resource has new values for it, or withdraws it",
    "held": "a broker has taken these values of a resource, or its withdrawal",
    "attended": "a broker took a registration, or refused it",
    "asked": "a requester asked for resources",
    "answered": "it got its answer",
    "watched": "a watcher was told of a change",
    "creating": "an entity began to create a topic",
    "created": "a directory acknowledged that it keeps the topic",
    "withdrawing": "the owner of a topic began to withdraw it",
    "withdrawn": "a directory confirmed that it is gone",
    "granted": "a grant was made and handed to its holder",
    "revoking": "the entity that made a grant began to revoke it",
    "revoked": "a broker took the revocation of a grant or a topic",
    "allowed": "a broker let the holder of a grant use its topic",
    "sent": "the owner of a topic published on it",
    "read": "an entity got a publication on a created topic, and perhaps could open it",
    "leaked": "an entity tried to open a copy of an encrypted publication",
    "sought": "an entity began to search for topics",
    "found": "its search ended",
    "noticed": "a standing search was told of a topic",
    "died": "a topic directory ended for good",
    "datagram_dropped": "a machine sent a datagram that could not leave: no such socket, or too large",
    "datagram_lost": "a datagram did not arrive",
}

Watcher = Callable[..., None]


class Journal:
    """Entries are (instant, step, kind, who, details); watchers of a kind are called with (who, *details)."""

    def __init__(self, loop: Loop, *, keep_all: bool = False) -> None:
        self.entries: deque[tuple[int, int, str, str, tuple[Any, ...]]] = deque(
            maxlen=None if keep_all else ENTRIES_MAX
        )
        self.counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._loop = loop
        self._watchers: dict[str, list[Watcher]] = {kind: [] for kind in KINDS}

    @property
    def instant(self) -> int:
        """The present virtual instant."""
        return self._loop.now

    @property
    def step(self) -> int:
        """How many inputs machines have had so far."""
        return self._loop.step

    def watch(self, kind: str, watcher: Watcher) -> None:
        """Call this with every entry of the kind."""
        self._watchers[kind].append(watcher)

    def write(self, kind: str, who: str, *details: Any) -> None:
        """Write an entry."""
        loop = self._loop
        self.counts[kind] += 1
        self.entries.append((loop.now, loop.step, kind, who, details))
        for watcher in self._watchers[kind]:
            watcher(who, *details)

    def lines(self, last: int | None = None, step: int | None = None) -> Iterator[str]:
        """The entries as text, oldest first: all, or only the ``last``, or those up to ``step``."""
        entries = list(self.entries)
        if step is not None:
            entries = [entry for entry in entries if entry[1] <= step]
        for instant, at_step, kind, who, details in entries if last is None else entries[-last:]:
            shown = " ".join(map(_shown, details))
            yield f"{instant / SECOND:12.6f} {at_step:>8}  {who:<14} {kind:<13} {shown}".rstrip()


def _shown(detail: Any) -> str:
    if isinstance(detail, bytes):
        return f"{len(detail)}B"
    if isinstance(detail, Note):
        detail = detail.repeatable
        fields = " ".join(f"{name}={_shown(getattr(detail, name))}" for name in detail.__struct_fields__)
        return f"{detail.__struct_config__.tag} {fields}"
    return str(detail) if detail != {} else ""  # most publications have no headers
