"""Steps: how much slow work one read may still do before the rest of it waits for the next wake.

In:    the beginning of a read; what each piece of slow work takes.
Out:   whether there is time left.
State: one number.
Not here: what waits, and when it goes on (reading.py); what a piece of work takes (the part that does it).

A step is about sixteen microseconds: resolving a topic, a control frame. This is how rule 8 of machine.py is kept.
"""

from __future__ import annotations

STEPS_MAX = 64  # in one read: topics that are worked out, control frames; about a millisecond


class Steps:
    """The time of the present read."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def renew(self, steps: int = STEPS_MAX) -> None:
        """A read begins."""
        self.left = steps

    def spend(self, steps: int) -> None:
        """Something took this many steps."""
        self.left -= steps
