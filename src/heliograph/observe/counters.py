"""Counters: how often each kind of note happened, and for which reason.

In:    notes, with the name of the machine that made them.
Out:   ``report()``: plain JSON values.
State: one number per (machine, kind, reason). It is bounded, as kinds and reasons are.
Not here: traffic (each machine counts its own and shows it in ``report``).
"""

from __future__ import annotations

from heliograph.errors import Reason
from heliograph.notes import Note
from heliograph.observe.log import kind_of


class Counters:
    """Counts notes."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}

    def heard(self, machine: str, note: Note) -> None:
        """Count a note, passed on by the driver."""
        reason = getattr(note, "reason", None)
        key = (machine, kind_of(note), reason.word if isinstance(reason, Reason) else "")
        self._counts[key] = self._counts.get(key, 0) + 1

    def count(self, kind: str, reason: Reason | None = None) -> int:
        """How often a kind of note occurred at any machine; with a reason, only for that reason."""
        return sum(
            count
            for (_, one, word), count in self._counts.items()
            if one == kind and (reason is None or word == reason.word)
        )

    def report(self) -> list[dict[str, str | int]]:
        """All counters, sorted."""
        return [
            {"machine": machine, "note": kind, "reason": word, "count": count}
            for (machine, kind, word), count in sorted(self._counts.items())
        ]
