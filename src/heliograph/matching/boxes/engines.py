"""Engines: which form of table an index uses.

In:    a name, or none for the best engine that is installed.
Out:   small(), large(), in_use(); how many entries a small table holds.
State: none.
Not here: the tables (table.py, native.py), when an index changes from one to the other (index.py).

All engines give the same answers, with ids in the same order. Loading numpy takes a tenth of a second: a program that
must not pause calls ``large()`` once in advance.
"""

from __future__ import annotations

from importlib.util import find_spec

from heliograph import kernels
from heliograph.errors import UsageError
from heliograph.matching.boxes.ints import INTS
from heliograph.matching.boxes.table import Engine, Table

SMALL_MAX = {"native": 128, "numpy": 2_048, "python": 0}
"""For each engine, the number of entries up to which Python integers are as fast, or cheaper."""


def small() -> Table:
    """An empty table of Python integers."""
    return Table(INTS)


def large(name: str) -> Engine:
    """An empty table for many entries."""
    if name == "native":
        from heliograph.matching.boxes.native import NativeTable

        return NativeTable()
    if name == "numpy":
        from heliograph.matching.boxes.arrays import ARRAYS

        return Table(ARRAYS)
    return small()


def in_use(asked: str | None = None) -> str:
    """The name of the engine for large tables: the one asked for, the one in the environment, or the best installed."""
    name = asked or kernels.wanted()
    if name is None:
        return next(name for name in kernels.NAMES if is_there(name))
    if name not in kernels.NAMES:
        raise UsageError(f"no engine is called {name!r}; there are {', '.join(kernels.NAMES)}")
    if not is_there(name):
        raise UsageError(f"{name} kernels were asked for and are not installed; leave {kernels.VARIABLE} unset")
    return name


def is_there(name: str) -> bool:
    """True if this installation has the engine."""
    if name == "native":
        try:
            import heliograph.matching.boxes._kernels  # noqa: F401
        except ImportError:
            return False
        return True
    return name == "python" or find_spec("numpy") is not None
