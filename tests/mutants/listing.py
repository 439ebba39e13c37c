"""The list of planted bugs, read from list.toml.

In:    list.toml.
Out:   Mutant values; the text of a file with its bug planted.
State: none.
Not here: running tests (__main__.py), rules about the list (tests/architecture/test_mutants.py).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heliograph"
LIST = Path(__file__).with_name("list.toml")


class DoesNotApplyError(Exception):
    """The file does not have the text that a mutant replaces, or has it more than once."""


@dataclass(frozen=True)
class Mutant:
    """One small bug, and the test that must notice it."""

    file: str  # below src/heliograph/
    bug: str  # what goes wrong, for people
    old: str  # occurs exactly once in the file
    new: str
    test: str  # a pytest node id; with several parameters one that fails is enough
    kernels: str = "auto"  # "python" where a compiled twin would take the place of the file

    @property
    def folder(self) -> str:
        return str(Path(self.file).parent)

    def planted(self, text: str) -> str:
        """The text of the file, with the bug."""
        count = text.count(self.old)
        if count != 1:
            found = "is gone from" if not count else f"occurs {count} times in"
            raise DoesNotApplyError(
                f"{self.old!r} {found} src/heliograph/{self.file}: update the mutant {self.bug!r} in "
                f"{LIST.relative_to(ROOT)}, so that its text occurs exactly once"
            )
        return text.replace(self.old, self.new)


@cache
def mutants() -> tuple[Mutant, ...]:
    """All of them, in the order of the list."""
    return tuple(Mutant(**row) for row in tomllib.loads(LIST.read_text("utf-8"))["mutant"])
