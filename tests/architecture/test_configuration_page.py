"""The configuration page says what the code says."""

from __future__ import annotations

import json
import re

import pytest

from heliograph.config import parse_settings
from heliograph.config_keys import KEYS, Key
from tests.architecture.house import ROOT

PAGE = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")


def row(key: Key) -> str:
    default = "" if key.default is None else f"`{json.dumps(key.default)}`"
    meaning, allowed = (text.replace("|", "\\|") for text in (key.meaning, key.allowed))
    return f"| `{key.path}` | {default} | {meaning} | {allowed} |"


@pytest.mark.req("O5")
def test_the_table_has_every_key_with_its_default_and_meaning() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert rows == [row(key) for key in KEYS.values()]


def test_every_example_on_the_page_is_a_valid_settings_file() -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert examples
    for example in examples:
        assert parse_settings(example).origins
