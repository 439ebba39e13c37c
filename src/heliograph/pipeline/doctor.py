"""The doctor: checks whether this machine can run the pipeline, and says what to do if not.

In:    this machine: Java, the packages of the extra `spark`, Python.
Out:   examine(): one Diagnosis of one line per check; checks that start no process take a second.
State: none.
Not here: finding Java (java.py), printing (cli/pipeline.py).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from heliograph.errors import UsageError
from heliograph.pipeline.java import find_java

INSTALL = "pip install 'heliograph[spark]'"
ROOM_BYTES_MIN = 1 << 30
Version = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check."""

    about: str
    is_good: bool
    told: str


def examine(version_of: Version = version) -> list[Diagnosis]:
    """Everything that can be checked without starting Spark."""
    return [*_java(), *_packages(version_of), *_room()]


def _java() -> Iterator[Diagnosis]:
    try:
        java = find_java()
    except UsageError as error:
        yield Diagnosis("java", False, str(error))
        return
    yield Diagnosis("java", True, f"Java {java.version}, from {java.found}")


def misfit(version_of: Version = version) -> str | None:
    """What is wrong with the packages that every job needs, in one line; None if they are suitable."""
    needed = ("pyspark", "pandas", "pyarrow")
    bad = (each for each in _packages(version_of) if each.about in needed and not each.is_good)
    return next((each.told for each in bad), None)


def _packages(version_of: Version) -> Iterator[Diagnosis]:
    for name, low, below in (
        ("pyspark", (4, 3), (4, 4)),
        ("pandas", (2, 2), (3,)),
        ("pyarrow", (18,), None),
        ("deltalake", (1, 0), (2,)),
        ("matplotlib", (3,), None),
        ("grpcio", (1,), None),
    ):
        yield _package(name, low, below, version_of)


def _package(name: str, low: tuple[int, ...], below: tuple[int, ...] | None, version_of: Version) -> Diagnosis:
    try:
        found = version_of(name)
    except PackageNotFoundError:
        return Diagnosis(name, False, f"{name} is not installed: {INSTALL}")
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers < low or (below is not None and numbers >= below):
        wanted = f"{_dotted(low)} or newer" + ("" if below is None else f", below {_dotted(below)}")
        return Diagnosis(name, False, f"{name} {found} does not fit; {wanted} is needed: {INSTALL}")
    return Diagnosis(name, True, f"{name} {found}")


def _room() -> Iterator[Diagnosis]:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    enough = free >= ROOM_BYTES_MIN
    told = f"{free >> 30} GiB free in {folder}"
    yield Diagnosis("disk", enough, told if enough else f"{told}: Spark needs 1 GiB there, or set TMPDIR")
    yield Diagnosis("python", True, f"Python {sys.version.split()[0]}, workers run {sys.executable}")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
