"""A reload says of every changed key whether it took it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.config.changes import changes
from heliograph.config.load import Origin, Settings, parse_settings
from heliograph.config.sections import KEYS, LISTS

STARTED = parse_settings("")


def with_key(key: str) -> Settings:
    """The settings of the start with another value of this key."""
    kept = tuple(origin for origin in STARTED.origins if origin.key != key)
    return replace(STARTED, origins=(*kept, Origin(key, object(), "file")))


def plain_keys() -> list[str]:
    return [key for key in KEYS if not any(key.startswith(f"{path}.") for path in (*LISTS, "listener"))]


@pytest.mark.req("O5")
def test_every_changed_key_is_taken_or_waits_for_a_restart() -> None:
    for key in plain_keys():
        found = changes(STARTED, STARTED, with_key(key))
        assert found.taken + found.restart == (key,)
        assert bool(found.taken) is KEYS[key].setting.reloads
        assert changes(STARTED, STARTED, with_key(key), fixed=[key.partition(".")[0]]) == ((), (key,))


@pytest.mark.req("O5")
def test_rules_and_listeners_count_as_one_key() -> None:
    rules = parse_settings('[[access.rules]]\neffect = "deny"\n[[listener]]\nname = "b"\n[broker]\nname = "x"\n')
    assert changes(STARTED, STARTED, rules) == (("access.rules",), ("broker.name", "listener"))
    again = parse_settings('[[access.rules]]\neffect = "allow"\n[[listener]]\nname = "b"\n[broker]\nname = "x"\n')
    assert changes(STARTED, rules, again) == (("access.rules",), ("broker.name", "listener"))


@pytest.mark.req("O5")
def test_what_was_taken_is_told_once_and_what_waits_until_the_restart() -> None:
    now = parse_settings("[limits]\nlinks_max = 9\n[broker]\nname = 'x'\n")
    assert changes(STARTED, now, now) == ((), ("broker.name",))
    assert changes(STARTED, now, STARTED) == (("limits.links_max",), ())
