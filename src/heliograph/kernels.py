"""Kernels: which form of the inner loops this process was told to use.

In:    the environment variable HELIOGRAPH_KERNELS: native, numpy or python; unset or auto: the best there is.
Out:   wanted().
State: none.
Not here: what there is, and which is the best (matching/boxes/engines.py).
"""

from __future__ import annotations

import os

from heliograph.errors import UsageError

VARIABLE = "HELIOGRAPH_KERNELS"
NAMES = ("native", "numpy", "python")


def wanted() -> str | None:
    """The name that was asked for; None if there is none."""
    name = os.environ.get(VARIABLE, "auto")
    if name in ("auto", ""):
        return None
    if name not in NAMES:
        raise UsageError(f"{VARIABLE} is {name!r}; it can be auto, {', '.join(NAMES)}")
    return name
