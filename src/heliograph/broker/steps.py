"""Steps: how much slow work one read may still do before the rest of it waits for the next wake.

In:    the beginning of a read; the steps that each piece of slow work takes.
Out:   whether there is time left.
State: one number.
Not here: what waits, and when it continues (reading.py); how long a piece of work takes (the part that does it).

A step is about sixteen microseconds: resolving a topic, or a control frame. This is how rule 8 of machine.py is kept.
"""

from __future__ import annotations

STEPS_MAX = 64  # in one read: topics resolved, control frames; about a millisecond


class Steps:
    """The steps left in the current read."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def renew(self, steps: int = STEPS_MAX) -> None:
        """A read begins."""
        self.left = steps

    def spend(self, steps: int) -> None:
        """Something took this many steps."""
        self.left -= steps
