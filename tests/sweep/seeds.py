"""Which seeds of each shipped scenario are played by `make test` and by `make sweep`.

In:    seeds.toml.
Out:   lists of seeds, by scenario.
State: none.
Not here: playing them (__main__.py, tests/sim/).
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

from heliograph.cli.simulate import parse_seeds

FILE = Path(__file__).with_name("seeds.toml")


@cache
def listed() -> dict[str, dict[str, list[int]]]:
    """For each scenario: the seeds for the tests and for the sweep, in the order of the file."""
    text = FILE.read_text("utf-8")
    return {
        name: {kind: read(seeds) for kind, seeds in row.items()} for name, row in tomllib.loads(text)["seeds"].items()
    }


def seeds_of(scenario: str, kind: Literal["test", "sweep"] = "test") -> list[int]:
    """The seeds of one scenario."""
    return listed()[scenario][kind]


def read(text: str) -> list[int]:
    """``1..3, 394`` as 1, 2, 3 and 394."""
    pieces = [piece.strip() for piece in text.split(",")]
    ranges = [parse_seeds(piece if ".." in piece else f"{piece}..{piece}") for piece in pieces]
    return [seed for each in ranges for seed in each]
