"""Remarks of commands that run for long: that their broker is away, and back, and what was lost.

In:    notes of a session.
Out:   lines on standard error.
State: whether the broker is away.
Not here: logs of brokers (observe/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.cli.shape import say

if TYPE_CHECKING:
    from heliograph.notes import Note


class Remarks:
    """Tells people about lost and restored links; once each, whatever the number of attempts."""

    def __init__(self) -> None:
        self._away = False

    def heard(self, note: Note) -> None:
        """A note of the session."""
        from heliograph.notes import DialFailed, PublicationsLost, SessionRestored, SessionRoamed

        if isinstance(note, DialFailed) and not self._away:
            self._away = True
            say(f"heliograph: {note.address} cannot be reached ({note.reason.word}); trying again")
        elif isinstance(note, SessionRestored) and self._away:
            self._away = False
            say(f"heliograph: connected to {note.address} again")
        elif isinstance(note, SessionRoamed):
            self._away = False
            say(f"heliograph: moved to {note.new}, because {note.old} is being drained")
        elif isinstance(note, PublicationsLost):
            place = " at the broker" if note.where == "broker" else ""
            say(f"heliograph: {note.frames} publications lost{place}: this side is too slow")
