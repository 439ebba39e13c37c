"""Pages that repeat what the code knows say the same, and their examples are valid.

After a change of settings, ``python -m tests.architecture.test_pages`` writes the table of the configuration page anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from heliograph.config.load import parse_settings
from heliograph.config.sections import KEYS, Key
from heliograph.sim.checkers import CHECKERS
from heliograph.sim.scenario import FAULTS
from heliograph.sim.scenario_files import parse
from tests.architecture.house import ROOT

CONFIGURATION = ROOT / "docs" / "reference" / "configuration.md"
SECURITY = ROOT / "docs" / "how-to" / "secure-a-broker.md"
SIMULATION = ROOT / "docs" / "how-to" / "simulate-a-network.md"


def toml_blocks(page: Path) -> list[str]:
    return re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def rows(page: Path) -> list[str]:
    return [line for line in page.read_text("utf-8").splitlines() if line.startswith("| `")]


def row(key: Key) -> str:
    default = "" if key.default is None else f"`{json.dumps(key.default)}`"
    changes = "reload" if key.setting.reloads else "restart"
    meaning, allowed = (text.replace("|", "\\|") for text in (key.meaning, key.allowed))
    return f"| `{key.path}` | {default} | {meaning} | {allowed} | {changes} |"


@pytest.mark.req("O5")
def test_the_configuration_page_has_every_key_with_its_default_and_meaning() -> None:
    assert rows(CONFIGURATION) == [row(key) for key in KEYS.values()]


@pytest.mark.parametrize("page", [CONFIGURATION, SECURITY], ids=lambda page: page.stem)
def test_every_settings_file_on_a_page_is_valid(page: Path) -> None:
    blocks = toml_blocks(page)
    assert blocks
    for block in blocks:
        assert parse_settings(block).origins


def test_the_scenarios_on_the_simulation_page_are_valid() -> None:
    names = [parse(block).scenario.name for block in toml_blocks(SIMULATION)]
    assert names == ["my-plant", "a-store", "a-topic", "two-sites", "three-sites"]


def test_the_simulation_page_has_every_fault_and_every_check() -> None:
    names = [line.split("`")[1] for line in rows(SIMULATION)]
    assert names == [*FAULTS, *CHECKERS]


def write_table() -> None:
    head = [line for line in CONFIGURATION.read_text("utf-8").splitlines() if not line.startswith("| `")]
    CONFIGURATION.write_text("\n".join([*head, *(row(key) for key in KEYS.values())]) + "\n", "utf-8")


if __name__ == "__main__":
    write_table()
