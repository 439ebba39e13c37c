"""How many examples a property gets: what it asks for, scaled by the profile of the run.

In:    a count, as for `make test`; the profile (conftest.py).
Out:   hypothesis settings: a sixth of that for `make quick`, ten times as many for `make soak`.
State: none.
Not here: the profiles themselves.
"""

from __future__ import annotations

from hypothesis import settings

USUAL = 60  # examples of a property that asks for no count, in `make test`


def examples(count: int) -> settings:
    """Put it above ``@given``."""
    return settings(max_examples=max(5, count * settings.default.max_examples // USUAL))
