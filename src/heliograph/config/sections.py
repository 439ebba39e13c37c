"""The keys of the settings file, each with its type, default, meaning and allowed values.

In:    the rooms' config dataclasses, whose fields have all of that; the list of services, each with a section.
Out:   SECTIONS and KEYS, by pattern ("limits.links_max", "listener.port", "network.links.host").
State: none.
Not here: the meaning of a key (the dataclass of the room that uses it), reading values (sources.py), checks (load.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from heliograph.broker.config import (
    AccessConfig,
    BrokerConfig,
    LimitsConfig,
    LinkConfig,
    ListenerConfig,
    LoadConfig,
    NetworkConfig,
    RuleConfig,
    TimeConfig,
)
from heliograph.client.discover import SECTION as SEARCH
from heliograph.client.discover import Discover
from heliograph.model.settings import Setting, settings_of
from heliograph.node import SERVICES
from heliograph.observe.log import LogConfig
from heliograph.trust.config import TlsConfig, TokensConfig

PREFIX = "HELIOGRAPH_"
UNITS = {"ms": "milliseconds", "s": "seconds", "bytes": "bytes", "permille": "thousandths"}  # names end in their unit
LISTS = ("access.rules", "network.links")  # written [[…]], numbered in problems and variables; listeners have names

SECTIONS: dict[str, type] = {
    "broker": BrokerConfig,
    "listener": ListenerConfig,
    "limits": LimitsConfig,
    "access": AccessConfig,
    "access.rules": RuleConfig,
    "network": NetworkConfig,
    "network.links": LinkConfig,
    "load": LoadConfig,
    "time": TimeConfig,
    **{service.name: service.config for service in SERVICES if any(settings_of(service.config))},
    SEARCH: Discover,
    "tls": TlsConfig,
    "tokens": TokensConfig,
    "log": LogConfig,
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key that a user can set."""

    path: str  # a pattern: without the listener's name or the rule's number
    type: type  # int, bool, str, or tuple for a list of texts
    given_default: Any  # MISSING: no default
    setting: Setting

    @property
    def section(self) -> str:
        """Its section."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its name in its section."""
        return self.path.rpartition(".")[2]

    @property
    def required(self) -> bool:
        """True if its table makes no sense without it."""
        return self.given_default is MISSING

    @property
    def default(self) -> Any:
        """Its default; None if it has none."""
        return None if self.required else self.given_default

    @property
    def meaning(self) -> str:
        """Its purpose."""
        return self.setting.meaning

    @property
    def allowed(self) -> str:
        """The allowed values."""
        allowed = self.setting.allowed_text
        if self.type is bool:
            return f"true or false; {allowed}" if allowed else "true or false"
        return allowed

    @property
    def unit(self) -> str:
        """The unit of a number, from its name; empty if it has none."""
        parts = self.name.split("_")
        return next((unit for part, unit in UNITS.items() if part in parts), "") if self.type is int else ""

    @property
    def type_name(self) -> str:
        """The type in user's terms."""
        return {int: "whole number", bool: "true or false", str: "text"}.get(self.type, "list of texts")

    @property
    def in_file(self) -> str:
        """Its table in the settings file."""
        return f"[[{self.section}]]" if self.section == "listener" or self.section in LISTS else f"[{self.section}]"

    @property
    def in_environment(self) -> str:
        """The variable that overrides it; NAME is replaced by a listener's name, N by a rule's or a link's number."""
        element = "__NAME" if self.section == "listener" else "__N" if self.section in LISTS else ""
        return f"{PREFIX}{self.section.replace('.', '__').upper()}{element}__{self.name.upper()}"


def keys_of(section: str) -> list[Key]:
    """The keys of a section."""
    return _BY_SECTION[section]


def _keys() -> Iterator[Key]:
    for section, config in SECTIONS.items():
        for known in settings_of(config):
            hint = _hints_of(known.owner)[known.field.name]
            yield Key(f"{section}.{known.name}", _plain_type(hint), known.default, known.setting)


@cache
def _hints_of(owner: type) -> dict[str, Any]:
    return get_type_hints(owner)


def _plain_type(hint: Any) -> type:
    """int, bool and str as they are; an optional type without None; everything else is a list of texts."""
    given = [part for part in get_args(hint) if part is not type(None)]
    if type(None) in get_args(hint) and len(given) == 1:
        hint = given[0]
    return hint if hint in (int, bool, str) else tuple


KEYS: dict[str, Key] = {key.path: key for key in _keys()}
_BY_SECTION = {section: [key for key in KEYS.values() if key.section == section] for section in SECTIONS}
