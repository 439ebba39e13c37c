"""Watching: what a watcher was told, and what of it is news.

In:    states and snapshots, repeated, out of order across brokers, or again after a move.
Out:   changes: appeared, changed, stopped (it does not fit any more), vanished; each once.
State: per resource what was told last. It can be saved and taken up again.
Not here: who tells (watchers.py), asking again (live/resources.py).

A state is newer by its owner's epoch, then by its host broker's incarnation and count of changes. A snapshot says what
fits at some hosts, and up to which change it knows: what it does not name does not fit, unless it is newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.errors import UsageError

APPEARED, CHANGED, STOPPED, VANISHED = "appeared", "changed", "stopped", "vanished"


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """Something happened to a resource that is watched."""

    kind: str  # appeared, changed, stopped or vanished
    id: str
    name: str
    host: str  # the broker that hosts it
    values: dict[str, Any] | None  # None: it has told none, or it is gone
    age_ms: float = 0.0


@dataclass(slots=True)
class WatchedResource:
    """What was told of one resource."""

    host: str
    name: str
    stamp: tuple[int, int, int]  # epoch, incarnation of the host, its count of changes
    values: dict[str, Any] | None
    fits: bool


@dataclass(slots=True)
class WatchState:
    """Everything that one watcher was told. What does not fit is remembered too, so that old news is known as such."""

    resources: dict[str, WatchedResource] = field(default_factory=dict)
    forgotten_max: int = 10_000
    lives: dict[str, int] = field(default_factory=dict)  # hosts that began another life

    def state(self, told: Mapping[str, Any]) -> list[ResourceChange]:
        """One resource's state: ``values`` None and ``gone`` for one that is no more, ``fits`` otherwise."""
        id, stamp = str(told["id"]), _stamp(told)
        known = self.resources.get(id)
        if stamp[1] < self.lives.get(str(told["host"]), 0):
            return []
        if (
            known is not None
            and stamp <= known.stamp
            and not (stamp == known.stamp and told["fits"] and not known.fits)
        ):
            return []
        before = known is not None and known.fits
        same = known is not None and known.values == told["values"] and known.host == told["host"]
        self.resources[id] = WatchedResource(
            str(told["host"]), str(told["name"]), stamp, told["values"], bool(told["fits"])
        )
        self._bound()
        if told["fits"]:
            if before and same:
                return []
            return [self._change(CHANGED if before else APPEARED, id, told.get("age_ms", 0.0))]
        if not before:
            return []
        return [self._change(VANISHED if told.get("gone") else STOPPED, id, 0.0)]

    def snapshot(
        self, resources: Iterable[Mapping[str, Any]], hosts: Mapping[str, tuple[int, int]], missing: Iterable[str] = ()
    ) -> list[ResourceChange]:
        """What fits at these hosts, as of their incarnation and count of changes; ``missing``: hosts that did not say.

        What other hosts had has vanished: nothing that may fit is advertised by them any more.
        """
        changes: list[ResourceChange] = []
        named: dict[str, None] = {}
        for told in resources:
            named[str(told["id"])] = None
            changes += self.state({**told, "fits": True})
        silent = dict.fromkeys(missing)
        for id, known in list(self.resources.items()):
            if not known.fits or id in named or known.host in silent:
                continue
            as_of = hosts.get(known.host)
            if as_of is None or known.stamp[1] < as_of[0]:
                changes.append(self._end(id, known, VANISHED, known.stamp))
            elif known.stamp[1:] <= tuple(as_of):
                changes.append(self._end(id, known, STOPPED, (known.stamp[0], *as_of)))
        return changes

    def emptied(self, host: str, incarnation: int) -> list[ResourceChange]:
        """That host, in this life, has nothing more that may fit; what it said in an earlier one is void."""
        self.lives[host] = max(incarnation, self.lives.get(host, 0))
        return [
            self._end(id, known, VANISHED, known.stamp)
            for id, known in self.resources.items()
            if known.fits and known.host == host
        ]

    def _end(self, id: str, known: WatchedResource, kind: str, stamp: tuple[int, int, int]) -> ResourceChange:
        known.fits = False
        known.stamp = stamp
        return self._change(kind, id, 0.0)

    def _change(self, kind: str, id: str, age_ms: float) -> ResourceChange:
        known = self.resources[id]
        values = known.values if kind in (APPEARED, CHANGED) else None
        return ResourceChange(kind, id, known.name, known.host, values, age_ms)

    def _bound(self) -> None:
        """What does not fit is remembered within bounds, the oldest is forgotten first."""
        if len(self.resources) <= self.forgotten_max:
            return
        for id in [id for id, known in self.resources.items() if not known.fits][: self.forgotten_max // 10]:
            del self.resources[id]

    # -- saving -------------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """As JSON values, to be taken up again later."""
        return {
            id: [known.host, known.name, list(known.stamp), known.values, known.fits]
            for id, known in self.resources.items()
        }

    @classmethod
    def resumed(cls, saved: Mapping[str, Any]) -> WatchState:
        """A watch that goes on from what was saved. UsageError if that is not what ``saved`` returned."""
        try:
            found = {
                str(id): WatchedResource(str(host), str(name), (int(a), int(b), int(c)), values, bool(fits))
                for id, (host, name, (a, b, c), values, fits) in saved.items()
            }
        except (TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"this is no saved watch: {error}") from None
        return cls(found)


def _stamp(told: Mapping[str, Any]) -> tuple[int, int, int]:
    return (int(told["epoch"]), int(told["incarnation"]), int(told["number"]))
