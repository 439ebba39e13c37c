"""Scenario files: TOML that is readable for people who do not know the code.

In:    TOML: [scenario], [network], [datagrams], [hosts], [topology], [[workload]], [[fault]], [checks], and the tables
       of stores, resources and topics; or the name of a scenario that comes with Heliograph.
Out:   a Scenario; or ConfigError with all problems at once.
State: none.
Not here: the values of a scenario (scenario.py), reading TOML tables into values (topology/toml_tables.py).
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

from heliograph.errors import ConfigError, UnreadableError
from heliograph.sim.checkers import CHECKERS
from heliograph.sim.scenario import Scenario
from heliograph.topology.toml_tables import others, read_table, suggest


def parse(text: str) -> Scenario:
    """A scenario from TOML text."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"not TOML: {error}"]) from None
    problems: list[str] = []
    scenario = read_table(Scenario, document, "", problems)
    if scenario is not None:
        problems += others(scenario.problems(list(CHECKERS)), problems)
    if scenario is None or problems:
        raise ConfigError(problems)
    return scenario


def load(name: str) -> Scenario:
    """A scenario from a file, or by name one of those that come with Heliograph."""
    path = Path(name)
    try:
        if path.suffix == ".toml" or path.exists():
            return _parse_file(path)
        if name in shipped():
            return parse(files("heliograph.sim").joinpath("scenarios", f"{name}.toml").read_text("utf-8"))
    except OSError as error:
        raise UnreadableError([f"{name} cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{name} is not UTF-8: {error.reason} at byte {error.start}"]) from None
    raise UnreadableError([f"{name}: no such file, and no scenario of that name; {suggest(name, shipped())}"])


def _parse_file(path: Path) -> Scenario:
    try:
        return parse(path.read_text("utf-8"))
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from None


def shipped() -> list[str]:
    """The names of the scenarios that come with Heliograph."""
    found = files("heliograph.sim").joinpath("scenarios").iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in found if entry.name.endswith(".toml"))
