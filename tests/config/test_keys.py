"""Keys: each has words, a type and a default, and each can be set by the environment."""

from __future__ import annotations

import pytest

from heliograph.config import parse_settings
from heliograph.config_keys import KEYS, WORDS

pytestmark = pytest.mark.req("O5")


def test_every_key_has_words_and_every_word_a_key() -> None:
    assert set(WORDS) == set(KEYS)
    assert all(key.meaning and key.allowed for key in KEYS.values())


def test_only_the_effect_of_a_rule_has_no_default() -> None:
    assert [path for path, key in KEYS.items() if key.default is None] == ["access.rules.effect"]


@pytest.mark.parametrize("path", KEYS)
def test_every_key_can_be_given_by_the_environment(path: str) -> None:
    key = KEYS[path]
    default = key.default if key.default is not None else "allow"
    text = ",".join(default) if isinstance(default, tuple) else str(default)
    variable = key.in_environment.replace("__NAME__", "__MAIN__", 1 if path.startswith("listener") else 0)
    variable = variable.replace("__N__", "__0__")
    environment = {variable: text}
    if path.startswith("access.rules."):
        environment["HELIOGRAPH_ACCESS__RULES__0__EFFECT"] = "allow"

    origins = {origin.typed: origin for origin in parse_settings("", environment).origins}

    assert origins[variable].source == "environment"
    assert origins[variable].value == default
    assert type(origins[variable].value) is type(default)
