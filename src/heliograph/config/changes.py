"""Changes: which keys a reload found changed, and which of them it can take.

In:    the settings at the start, those of the last reload, and the new ones.
Out:   the keys that are in force now, and those that wait for a restart: every changed key is in one of the two.
State: none.
Not here: putting settings in force (live/node.py, the machines), which keys a reload takes (the rooms' dataclasses).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from heliograph.config.load import Settings
from heliograph.config.sections import KEYS, LISTS

LISTENER = "listener"
_ELEMENT = re.compile(r"\[\d+\].*")


class Changes(NamedTuple):
    """The changed keys. A list of tables, such as the access rules or the listeners, counts as one key."""

    taken: tuple[str, ...]  # since the last reload
    restart: tuple[str, ...]  # since the start


def changes(started: Settings, before: Settings, now: Settings, *, fixed: Collection[str] = ()) -> Changes:
    """What a reload did. ``fixed`` are sections and keys of which it took nothing, whatever their kind."""

    def takes(key: str) -> bool:
        return _reloads(key) and key not in fixed and key.partition(".")[0] not in fixed

    return Changes(
        tuple(key for key in changed_keys(before, now) if takes(key)),
        tuple(key for key in changed_keys(started, now) if not takes(key)),
    )


def changed_keys(before: Settings, now: Settings) -> list[str]:
    """The keys whose values differ, in the order of the settings."""
    old, new = _values(before), _values(now)
    return [key for key in dict.fromkeys((*new, *old)) if old.get(key) != new.get(key)]


def _values(settings: Settings) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for origin in settings.origins:
        key = LISTENER if origin.key.startswith(f"{LISTENER}.") else _ELEMENT.sub("", origin.key)
        found.setdefault(key, []).append((origin.key, origin.value))
    return found


def _reloads(key: str) -> bool:
    if key == LISTENER:
        return False
    return key in LISTS or KEYS[key].setting.reloads
