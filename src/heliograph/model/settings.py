"""Settings as data: what a key of the settings file means, what it may be, and what is wrong with a value.

In:    fields of config dataclasses, each made by ``setting``.
Out:   Setting (the metadata of a field), Problem (a fault with its key), and checks of values by their metadata.
State: none.
Not here: which sections there are, and reading values (config/); checks across keys (the dataclass itself).

A key is defined once, in the dataclass of the package that uses it. A field that was not made by ``setting`` is not a
key: the node computes it, or reads it from a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final

PORT_MAX: Final = 65_535
FREE_PORT: Final = "0 takes a free port"
PLAIN_NAME: Final = "letters, digits and . _ @ -"
PATH: Final = "a path; relative to the settings file"

_SETTING = "setting"
_PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the value of a key, or with several together."""

    key: str  # as a user types it: "limits.links_max", "listener.main.port", or a whole section: "network"
    said: str  # what follows the key in the text
    others: tuple[str, ...] = ()  # other keys that are part of the problem

    def __str__(self) -> str:
        return self.key + self.said

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that is part of the problem."""
        return (self.key, *self.others)


def wrong(key: str, value: object, fault: str, *others: str) -> Problem:
    """A value that a key may not have."""
    return Problem(key, f" = {value!r}: {fault}", others)


def has_wrong(key: str, element: object, fault: str) -> Problem:
    """A list with an element that it may not have."""
    return Problem(key, f" has {element!r}: {fault}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The metadata of a key: everything but its name, type and default."""

    meaning: str
    allowed: str  # for people
    note: str  # a remark on what is allowed
    least: float | None
    most: float | None
    choices: tuple[str, ...]
    reloads: bool  # False: a new value takes effect after a restart
    is_file: bool  # the path of a file that must exist
    is_place: bool  # a folder or the URL of a database (places.py), whose password is never shown

    @property
    def allowed_text(self) -> str:
        """What the value may be; empty if only its type limits it."""
        text = self.allowed or _joined(self.choices) or self._bounds
        return "; ".join(part for part in (text, self.note) if part)

    @property
    def _bounds(self) -> str:
        if self.most is not None:
            return f"{self.least} to {self.most}"
        if self.least is None:
            return ""
        return "above 0" if self.least == 1 else f"{self.least} or more"

    def fault(self, value: Any) -> str | None:
        """Why the key may not have this value, or None. The value has the right type."""
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if self.least is None or (value >= self.least and (self.most is None or value <= self.most)):
            return None
        if self.most is not None:
            return f"must be between {self.least} and {self.most}" + (f" ({self.note})" if self.note else "")
        return "must be above 0" if self.least == 1 else f"must be at least {self.least}"


def setting(
    default: Any,
    meaning: str,
    *,
    allowed: str = "",
    note: str = "",
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    reloads: bool = True,
    is_file: bool = False,
    is_place: bool = False,
) -> Any:
    """A field of a config dataclass that is a key of the settings file. ``MISSING`` as default: it must be given."""
    known = Setting(
        meaning=meaning,
        allowed=allowed,
        note=note,
        least=least,
        most=most,
        choices=choices,
        reloads=reloads,
        is_file=is_file,
        is_place=is_place,
    )
    return field(default=default, metadata={_SETTING: known}, repr=not is_place)


def same_as(config: type, name: str) -> Any:
    """A field with the default and the metadata of another config's field."""
    known = next(each for each in fields(config) if each.name == name)
    return field(default=known.default, metadata=known.metadata)


def flat(config: type) -> Any:
    """A field that holds another config, whose keys are in the same section: ``group`` of ``multicast`` is
    ``multicast_group``, and ``enabled`` is ``multicast`` itself.
    """
    return field(default_factory=config, metadata={_PREFIX: True})


@dataclass(frozen=True, slots=True)
class SettingField:
    """A key of a config dataclass."""

    name: str  # of the key in its section
    attributes: tuple[str, ...]  # the path to its value in the config
    field: Field[Any]
    setting: Setting
    owner: type

    @property
    def default(self) -> Any:
        """Its default; MISSING if it must be given."""
        return self.field.default

    def value_in(self, config: Any) -> Any:
        """Its value."""
        for attribute in self.attributes:
            config = getattr(config, attribute)
        return config


def settings_of(config: type) -> Iterator[SettingField]:
    """The keys of a config dataclass, in its order."""
    for each in fields(config):
        if _SETTING in each.metadata:
            yield SettingField(each.name, (each.name,), each, each.metadata[_SETTING], config)
        elif _PREFIX in each.metadata:
            assert each.default_factory is not MISSING
            inner = each.default_factory
            assert isinstance(inner, type)
            for known in settings_of(inner):
                name = each.name if known.name == "enabled" else f"{each.name}_{known.name}"
                yield SettingField(name, (each.name, *known.attributes), known.field, known.setting, known.owner)


def composed(config: type, values: dict[str, Any], **more: Any) -> Any:
    """An instance from values by key; ``more`` are fields that are not keys."""
    inner: dict[str, dict[str, Any]] = {}
    for known in settings_of(config):
        if known.name not in values:
            continue
        if len(known.attributes) == 1:
            more[known.name] = values[known.name]
        else:
            inner.setdefault(known.attributes[0], {})[known.attributes[1]] = values[known.name]
    for each in fields(config):
        if each.name in inner:
            assert each.default_factory is not MISSING
            more[each.name] = each.default_factory(**inner[each.name])
    return config(**more)


def check(config: Any, path: str) -> list[Problem]:
    """Every value that is outside the bounds of its key."""
    found = []
    for known in settings_of(type(config)):
        value = known.value_in(config)
        fault = None if value is None else known.setting.fault(value)
        if fault is not None:
            found.append(wrong(f"{path}.{known.name}", value, fault))
    return found


def restart_needed(config: Any, started: Any, path: str) -> list[str]:
    """The keys that differ from those at the start, and that only a restart can change."""
    return [
        f"{path}.{known.name}"
        for known in settings_of(type(config))
        if not known.setting.reloads and known.value_in(config) != known.value_in(started)
    ]


def fixed(started: Any) -> dict[str, Any]:
    """The values of the keys that only a restart can change."""
    return {known.name: known.value_in(started) for known in settings_of(type(started)) if not known.setting.reloads}


def _joined(choices: tuple[str, ...]) -> str:
    *most, last = choices or ("",)
    return f"{', '.join(most)} or {last}" if most else last
