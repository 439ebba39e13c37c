"""How many examples a property gets: a count, scaled by the profile of the run.

In:    a count; the profile (conftest.py).
Out:   hypothesis settings: two thirds of that for `make test`, a sixth for `make quick`, ten times it for `make soak`.
State: none.
Not here: the profiles themselves.
"""

from __future__ import annotations

from hypothesis import settings

USUAL = 60  # what a property gets that asks for no count, before it is scaled


def examples(count: int) -> settings:
    """Put it above ``@given``."""
    return settings(max_examples=max(5, count * settings.default.max_examples // USUAL))
