"""Watching: what a watcher was told, and which of it is new.

In:    states and snapshots, repeated, out of order across brokers, or again after a move.
Out:   changes: appeared, changed, stopped (it does not fit any more), vanished; each once.
State: the last known state of each resource. It can be saved and resumed.
Not here: the sender (watchers.py), reading its news (news.py), asking again (live/resources.py).

States are ordered by the owner's epoch, then by the host broker's incarnation and count of changes. A snapshot lists
what matches at some hosts up to a given change: a resource that it does not name does not match, unless it is newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.errors import UsageError

APPEARED, CHANGED, STOPPED, VANISHED = "appeared", "changed", "stopped", "vanished"
ANEW = "anew"


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A change of a watched resource."""

    kind: str  # appeared, changed, stopped, vanished; or anew: some were lost, and all that match follow as appeared
    id: str  # empty if it begins anew, as are name and host
    name: str
    host: str  # the broker that hosts it
    values: dict[str, Any] | None  # None: it has reported none, or it is gone
    age_ms: float = 0.0


@dataclass(slots=True)
class WatchedResource:
    """The last known state of one resource."""

    host: str
    name: str
    stamp: tuple[int, int, int]  # epoch, incarnation of the host, its count of changes
    values: dict[str, Any] | None
    fits: bool


@dataclass(slots=True)
class WatchState:
    """Everything that one watcher was told. Resources that do not match are kept too, to recognise old states."""

    resources: dict[str, WatchedResource] = field(default_factory=dict)
    forgotten_max: int = 10_000
    lives: dict[str, int] = field(default_factory=dict)  # host -> its latest incarnation

    def state(self, told: Mapping[str, Any]) -> list[ResourceChange]:
        """The state of one resource: ``values`` None and ``gone`` for one that was removed, ``fits`` otherwise."""
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
        """What matches at these hosts, at their incarnation and count of changes; ``missing``: hosts without an answer.

        The resources of all other hosts have vanished: those hosts no longer advertise anything that may match.
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
        """That host, in this incarnation, has nothing more that may match; its states from earlier ones are void."""
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
        """Limit how many resources that do not match are remembered; the oldest is forgotten first."""
        if len(self.resources) <= self.forgotten_max:
            return
        for id in [id for id, known in self.resources.items() if not known.fits][: self.forgotten_max // 10]:
            del self.resources[id]

    # -- saving -------------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """JSON values from which the watch can be resumed."""
        return {
            id: [known.host, known.name, list(known.stamp), known.values, known.fits]
            for id, known in self.resources.items()
        }

    @classmethod
    def resumed(cls, saved: Mapping[str, Any]) -> WatchState:
        """A watch that continues from a saved state. UsageError if that is not what ``saved`` returned."""
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
