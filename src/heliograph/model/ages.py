"""Ages: the numbers under which an owner tells its changes to every broker, and how a receiver compares them.

In:    an incarnation and the number of a change in it, known or told.
Out:   whether a change follows directly, and whether an offer contains something that we lack.
State: none.
Not here: what is told: interests (broker/routing/interests.py), resource advertisements (discovery/resources/table.py).

An owner numbers its changes. A receiver applies a change only if it follows the last one that it knows. After a gap it
asks for a snapshot. On a new link both sides offer what they have, by owner and age, and ask for what they lack.
"""

from __future__ import annotations

Age = tuple[int, int]
"""The owner's incarnation, and the number of its change in it. The greater one is newer."""


def follows(known: Age, told: Age) -> bool:
    """True if no change is missing between these two."""
    return told == (known[0], known[1] + 1)


def lacks(ours: Age | None, theirs: Age) -> bool:
    """True if theirs is newer than ours, or we know none."""
    return ours is None or theirs > ours
