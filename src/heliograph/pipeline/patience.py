"""Patience: a broker or store that restarts does not end a query.

In:    something to ask a broker or store, that may be asked again.
Out:   its answer; after some time without one, the last error.
State: none.
Not here: readers that are open, which continue by themselves (client/stored/readings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TypeVar

from heliograph.client.stored.readings import PASSING
from heliograph.errors import NotConnectedError, Reason, RefusedError

PATIENCE_S = 120  # by default; then a query fails, instead of waiting for ever
PAUSE_S = 0.25

_T = TypeVar("_T")


def patiently(ask: Callable[[], _T], seconds: float) -> _T:
    """What ``ask`` returns, which is called again while a broker or store is away."""
    until = monotonic() + seconds
    while True:
        try:
            return ask()
        except (RefusedError, NotConnectedError) as error:
            if not is_away(error) or monotonic() >= until:
                raise
        sleep(PAUSE_S)


@contextmanager
def without_those_away() -> Iterator[None]:
    """Do something with a broker or store, unless it is away."""
    try:
        yield
    except (RefusedError, NotConnectedError) as error:
        if not is_away(error):
            raise


def is_away(error: RefusedError | NotConnectedError) -> bool:
    """True if a broker or store does not answer now, and may later."""
    return isinstance(error, NotConnectedError) or error.reason in (*PASSING, Reason.STORE_MISSING)
