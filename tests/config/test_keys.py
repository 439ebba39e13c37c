"""Keys: each has words, a type and a default, and each can be set by the environment."""

from __future__ import annotations

import pytest

from heliograph.config.load import parse_settings
from heliograph.config.sections import KEYS

pytestmark = pytest.mark.req("O5")


def test_every_key_says_what_it_means_and_what_it_may_be() -> None:
    assert all(key.meaning and key.allowed for key in KEYS.values())


def test_only_what_a_table_makes_no_sense_without_must_be_given() -> None:
    assert [path for path, key in KEYS.items() if key.required] == ["access.rules.effect", "network.links.host"]


@pytest.mark.parametrize("path", KEYS)
def test_every_key_can_be_given_by_the_environment(path: str) -> None:
    key = KEYS[path]
    value = {
        "access.rules.effect": "allow",
        "network.links.host": "b.example.org",
        "network.slot": 7,
        "discovery.port": 4800,
        "search.timeout_ms": 500,
        "search.network": "plant",
    }.get(path, key.default)
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    variable = key.in_environment.replace("__NAME__", "__MAIN__", 1 if path.startswith("listener") else 0)
    variable = variable.replace("__N__", "__0__")
    environment = {variable: text, "HELIOGRAPH_NETWORK__KEY_FILE": "network.key"}
    if path.startswith("access.rules."):
        environment["HELIOGRAPH_ACCESS__RULES__0__EFFECT"] = "allow"
    if path.startswith("network.links."):
        environment["HELIOGRAPH_NETWORK__LINKS__0__HOST"] = "b.example.org"
    environment[variable] = text

    origins = {origin.typed: origin for origin in parse_settings("", environment).origins}

    assert origins[variable].source == "environment"
    assert origins[variable].value == value
    assert type(origins[variable].value) is type(value)
