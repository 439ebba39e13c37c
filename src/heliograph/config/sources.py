"""Sources of settings: a TOML document, environment variables, options of a command.

In:    the text of a file, a mapping of variables, options; all of them untrusted.
Out:   Draft: the given values, each with its source, typed by its key; and all problems found.
State: a Draft while it is filled.
Not here: which keys exist (sections.py), finding the file, defaults and checks across keys (load.py).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from heliograph.config.sections import KEYS, LISTS, PREFIX, SECTIONS, Key, keys_of
from heliograph.model.identity import entity_is_valid
from heliograph.model.places import ELSEWHERE, has_password, masked
from heliograph.model.spelling import nearest

# Variables of commands, which are not settings.
SURE = 0.8  # how similar a name must be if there is no section to go by
OTHER_VARIABLES = (
    "HELIOGRAPH_BDNS",
    "HELIOGRAPH_CONFIG",
    "HELIOGRAPH_DIRECTORY",
    "HELIOGRAPH_URL",
    "HELIOGRAPH_NETWORK",
    "HELIOGRAPH_DEFAULT_PORT",
    "HELIOGRAPH_ENTITY",
    "HELIOGRAPH_TOKEN_FILE",
    "HELIOGRAPH_AUTHORITY",
    "HELIOGRAPH_CERTIFICATE",
    "HELIOGRAPH_KEY",
    "HELIOGRAPH_KERNELS",
    "HELIOGRAPH_RUNTIME_DIR",
    "HELIOGRAPH_STATE_DIR",
)
_INT_MAX = 2**63 - 1  # TOML's own range; larger numbers are mistakes
_SHOWN_MAX = 60
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Given(Struct, frozen=True):
    """A value from one of the sources."""

    value: Any
    source: str  # "file", "environment" or "option"
    typed: str  # the key in the file, the variable or the option, as the user typed it


class Option(Struct, frozen=True):
    """A value from the command line.

    ``listener.port`` and similar keys mean the only listener; ``network.links.host`` begins a new link, to which the
    following options belong.
    """

    key: str
    text: str
    typed: str  # "--listen"


class Draft(Struct):
    """The values given so far. Later sources replace earlier ones, key by key."""

    values: dict[str, Given] = field(default_factory=dict)
    listeners: list[dict[str, Given]] = field(default_factory=list)
    lists: dict[str, list[dict[str, Given]]] = field(default_factory=lambda: {path: [] for path in LISTS})
    problems: list[str] = field(default_factory=list)

    def read_file(self, text: str, only: str = "") -> None:
        """Read everything from a TOML document, or only one section."""
        try:
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: also a number with too many digits
            self.problems.append(f"not TOML: {error}")
            return
        for section, content in document.items():
            if only and section != only:
                continue
            if section == "listener":
                self.listeners = self._elements("listener", content, "listener")
            elif section not in SECTIONS:
                self._unknown(
                    shown(section, quote=False), section, [name for name in SECTIONS if "." not in name], "section"
                )
            elif not isinstance(content, dict):
                self.problems.append(f"{section} = {shown(content)}: must be a table, written [{section}]")
            else:
                lists = _lists_in(section)
                for name in lists:
                    if name in content:
                        path = f"{section}.{name}"
                        self.lists[path] = self._elements(path, content[name], path)
                plain = {name: value for name, value in content.items() if name not in lists}
                self._table(section, plain, section, self.values, f"{section}.")

    def read_environment(self, variables: Mapping[str, str]) -> None:
        """Read every variable that begins with HELIOGRAPH_, sorted, so that new rules are appended in order."""
        for variable in sorted(variables, key=_by_number):
            if variable.startswith(PREFIX) and variable not in OTHER_VARIABLES:
                self._variable(variable, variables[variable])

    def read_options(self, options: Iterable[Option]) -> None:
        """Read the options of the command line."""
        for option in options:
            section, _, name = option.key.rpartition(".")
            if section in LISTS:
                into = self.lists[section]
                if KEYS[option.key].required:
                    into.append({})
                self._put(into[-1], name, KEYS[option.key], option.text, "option", option.typed)
            elif section != "listener":
                self._put(self.values, option.key, KEYS[option.key], option.text, "option", option.typed)
            elif len(self.listeners) > 1:
                names = ", ".join(listener_path(each, number) for number, each in enumerate(self.listeners))
                self.problems.append(f"{option.typed}: there are several listeners ({names}); set them in the file")
            else:
                self._put(self._listener(0), name, KEYS[option.key], option.text, "option", option.typed)

    def _elements(self, section: str, content: Any, typed: str) -> list[dict[str, Given]]:
        if not isinstance(content, list) or not all(isinstance(element, dict) for element in content):
            self.problems.append(f"{typed} = {shown(content)}: must be written as [[{section}]] tables")
            return []
        found = []
        for number, element in enumerate(content):
            given: dict[str, Given] = {}
            where = f"{typed}[{number}]"
            name = element.get("name", KEYS["listener.name"].default)
            if section == "listener" and isinstance(name, str) and entity_is_valid(name):
                where = f"listener.{name}"
            self._table(section, element, where, given, "")
            found.append(given)
        return found

    def _table(self, section: str, content: dict[str, Any], typed: str, into: dict[str, Given], prefix: str) -> None:
        known = [key.name for key in keys_of(section)]
        for name, value in content.items():
            if name not in known:
                choices = known + _lists_in(section)
                self._unknown(f"{typed}.{shown(name, quote=False)}", name, choices, "key")
                continue
            key, path = KEYS[f"{section}.{name}"], f"{typed}.{name}"
            fault = _fault(key, value)
            if fault is None:
                into[prefix + name] = Given(tuple(value) if isinstance(value, list) else value, "file", path)
            else:
                self.problems.append(f"{path} = {shown(value)}: {fault}")

    def _variable(self, variable: str, text: str) -> None:
        parts = variable.removeprefix(PREFIX).lower().split("__")
        if len(parts) == 3 and parts[0] == "listener":
            self._listener_variable(variable, parts[1], parts[2], text)
        elif len(parts) == 4 and ".".join(parts[:2]) in LISTS:
            self._element_variable(variable, ".".join(parts[:2]), parts[2], parts[3], text)
        elif len(parts) == 2 and f"{parts[0]}.{parts[1]}" in KEYS and parts[0] != "listener":
            path = f"{parts[0]}.{parts[1]}"
            self._put(self.values, path, KEYS[path], text, "environment", variable)
        else:
            self._unknown_variable(variable)

    def _listener_variable(self, variable: str, label: str, name: str, text: str) -> None:
        if not self.listeners:
            self._listener(0)
        paths = [listener_path(each, number) for number, each in enumerate(self.listeners)]
        known = [_as_variable(path.removeprefix("listener.")) for path in paths]
        if label not in known:
            self._unknown(variable, label, known, "listener")
        elif f"listener.{name}" not in KEYS:
            self._unknown_variable(variable, [f"{PREFIX}LISTENER__{label.upper()}__"])
        else:
            into = self.listeners[known.index(label)]
            self._put(into, name, KEYS[f"listener.{name}"], text, "environment", variable)

    def _element_variable(self, variable: str, path: str, number: str, name: str, text: str) -> None:
        known = self.lists[path]
        if f"{path}.{name}" not in KEYS:
            self._unknown_variable(variable, [f"{variable.rpartition('__')[0]}__"])
            return
        if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) <= len(known)):
            what = path.rpartition(".")[2]
            self.problems.append(f"{variable}: the {what} are numbered 0 to {len(known)}, where the last is a new one")
            return
        if int(number) == len(known):
            known.append({})
        self._put(known[int(number)], name, KEYS[f"{path}.{name}"], text, "environment", variable)

    def _listener(self, number: int) -> dict[str, Given]:
        while len(self.listeners) <= number:
            self.listeners.append({})
        return self.listeners[number]

    def _put(self, into: dict[str, Given], name: str, key: Key, text: str, source: str, typed: str) -> None:
        if source == "option" and key.setting.is_place and has_password(text):
            self.problems.append(
                f"{typed} = {shown(masked(text))}: all users of this machine can see a password in an argument; "
                f"{ELSEWHERE}, or set {key.path} in the settings file, or {key.in_environment}"
            )
            return
        value = _from_text(key, text)
        fault = _fault(key, value)
        if fault is None:
            into[name] = Given(tuple(value) if isinstance(value, list) else value, source, typed)
        else:
            self.problems.append(f"{typed} = {shown(text)}: {fault}")

    def _unknown(self, typed: str, name: str, choices: list[str], what: str) -> None:
        near = nearest(name, choices)
        hint = f"did you mean {near!r}?" if near else f"there is {', '.join(choices)}"
        self.problems.append(f"{typed}: unknown {what}; {hint}")

    def _unknown_variable(self, variable: str, starts: Iterable[str] = ()) -> None:
        choices = [start + key.name.upper() for start in starts for key in KEYS.values()]
        if choices:
            near = nearest(variable, choices)
            hint = f"did you mean {near}?" if near else "`heliograph config explain` lists all keys"
        else:
            hint = _variable_hint(variable)
        self.problems.append(f"{shown(variable, quote=False)}: unknown variable; {hint}")


def _variable_hint(variable: str) -> str:
    """What to write instead: a section is guessed from sections, a key from the keys of its section."""
    section, _, name = variable.removeprefix(PREFIX).lower().rpartition("__")
    if not section:
        keys = sorted(key.in_environment for key in KEYS.values() if key.name == name)
        if keys:
            return f"write it with its section: {', '.join(keys)}"
        known = [*(key.in_environment for key in KEYS.values()), *OTHER_VARIABLES]
        other = nearest(name, [each.removeprefix(PREFIX).lower() for each in known], near=SURE)
        return f"did you mean {PREFIX}{other.upper()}?" if other else "`heliograph config explain` lists all keys"
    sections = {key.in_environment.removeprefix(PREFIX).lower().rpartition("__")[0] for key in KEYS.values()}
    meant = section if section in sections else nearest(section, sorted(sections))
    if meant is None:
        return "`heliograph config explain` lists all keys"
    start = f"{PREFIX}{meant.upper()}__"
    near = nearest(name, [key.name for key in KEYS.values() if key.in_environment.startswith(start)])
    if near is not None:
        return f"did you mean {start}{near.upper()}?"
    return f"no key of {meant} has such a name; `heliograph config explain {meant.partition('__')[0]}` lists them"


def listener_path(listener: Mapping[str, Given], number: int) -> str:
    """A listener's path in problems: with its name if that is valid, else with its number."""
    name = str(listener["name"].value) if "name" in listener else str(KEYS["listener.name"].default)
    return f"listener.{name}" if entity_is_valid(name) else f"listener[{number}]"


def _lists_in(section: str) -> list[str]:
    """The names of a section's lists of tables."""
    return [path.rpartition(".")[2] for path in LISTS if path.startswith(f"{section}.")]


def shown(value: Any, *, quote: bool = True) -> str:
    """A value as shown in a problem: one line of limited length, whatever it is."""
    try:
        text = repr(value) if quote or not str(value).isprintable() else str(value)
    except (ValueError, RecursionError):  # a number with thousands of digits, a table a thousand levels deep
        return "(too long to show)"
    text = {"True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


def _as_variable(name: str) -> str:
    """A listener's name as it appears in a variable: web-1 becomes WEB_1."""
    return "".join(char if char.isalnum() else "_" for char in name.lower())


def _by_number(variable: str) -> list[tuple[int, str]]:
    """Sorts RULES__2 before RULES__10."""
    return [(len(part) if part.isdigit() else 0, part) for part in variable.split("__")]


def _from_text(key: Key, text: str) -> Any:
    """The value of a text; the text itself if it cannot be read, so that the check refuses it."""
    plain = text.strip()
    if key.type is int:
        try:
            return int(plain)
        except ValueError:
            return text
    if key.type is bool:
        return True if plain.lower() in _TRUE else False if plain.lower() in _FALSE else text
    if key.type is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _fault(key: Key, value: Any) -> str | None:
    """Why this value does not have the key's type, or None."""
    allowed = f"must be a {key.type_name}" + (f" ({key.allowed})" if key.allowed and key.type is not bool else "")
    if key.type is int:
        return None if type(value) is int and -_INT_MAX <= value <= _INT_MAX else allowed
    if key.type is bool:
        return None if isinstance(value, bool) else "must be true or false"
    if key.type is str:
        return None if _is_text(value) else allowed
    return (
        None
        if isinstance(value, list) and (value or key.default == ()) and all(_is_text(part) for part in value)
        else f"{allowed}, not empty"
    )


def _is_text(value: Any) -> bool:
    """True for text without undecodable bytes (from the environment) and without NUL, which no path may contain."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
