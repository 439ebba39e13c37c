"""Settings: one typed TOML file, with the environment and a command's options on top.

In:    where the file may be, a mapping of variables, options.
Out:   Settings, or ConfigError with every problem at once: what the user typed, the value, what is allowed.
State: none.
Not here: the rooms' settings (broker/config.py), keys and their words (config_keys.py), reading (config_sources.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from heliograph.broker.config import AccessConfig, BrokerConfig, LimitsConfig, ListenerConfig, RuleConfig
from heliograph.config_keys import KEYS, LogConfig, TlsConfig, TokensConfig, section_fields
from heliograph.config_sources import Draft, Given, Option, listener_path
from heliograph.errors import ConfigError
from heliograph.trust.tokens import load_tokens

FILE_NAME = "heliograph.toml"
FILE_VARIABLE = "HELIOGRAPH_CONFIG"
FILE_BYTES_MAX = 4 << 20  # ten thousand access rules fit in a quarter of it

_PATHS = ("tls.certificate", "tls.key", "tls.authority", "tokens.file")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an effective value came from."""

    key: str  # "limits.links_max", "listener.main.port", "access.rules[0].effect"
    value: Any
    source: str  # "default", "file", "environment" or "option"
    typed: str = ""  # what the user typed; empty for a default


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a node is told before it starts. Paths are complete."""

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    tokens: TokensConfig = field(default_factory=TokensConfig)
    log: LogConfig = field(default_factory=LogConfig)
    file: Path | None = None  # the settings file, if there is one
    origins: tuple[Origin, ...] = ()  # every key in force, in the order of the file


def find_file(chosen: Path | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    """The settings file: the chosen one, else the variable's, else the one in this folder, else none."""
    if chosen is not None:
        return chosen
    named = environment.get(FILE_VARIABLE, "")
    if named:
        return folder / named
    return folder / FILE_NAME if (folder / FILE_NAME).is_file() else None


def load_settings(
    chosen: Path | None, environment: Mapping[str, str], folder: Path, options: Sequence[Option] = ()
) -> Settings:
    """Find, read and check everything, the token file and the presence of the named files included."""
    file = find_file(chosen, environment, folder)
    text = _read(file, "the settings file") if file is not None else ""
    settings = parse_settings(text, environment, options, file=file, folder=folder)
    return with_tokens(settings)


def parse_settings(
    text: str,
    environment: Mapping[str, str] | None = None,
    options: Iterable[Option] = (),
    *,
    file: Path | None = None,
    folder: Path = Path(),
) -> Settings:
    """Settings from the text of a file; nothing is read from disk, and any text gives Settings or ConfigError."""
    draft = Draft()
    draft.read_file(text)
    draft.read_environment(environment or {})
    draft.read_options(options)
    if not draft.listeners:
        draft.listeners.append({})
    problems = [_in_file(problem, file) for problem in draft.problems]
    for path in _PATHS:
        _complete(draft.values, path, file.parent if file is not None else folder, folder)
    for number, rule in enumerate(draft.rules):
        if "effect" not in rule:
            problems.append(f"access.rules[{number}].effect is missing: {_allowed('access.rules.effect')}")
            rule["effect"] = Given("deny", "default", "")
    settings = Settings(
        broker=BrokerConfig(
            listeners=tuple(ListenerConfig(**_plain(listener)) for listener in draft.listeners),
            limits=LimitsConfig(**_section(draft.values, "limits")),
            access=AccessConfig(
                rules=tuple(RuleConfig(**_plain(rule)) for rule in draft.rules), **_section(draft.values, "access")
            ),
            **_section(draft.values, "broker"),
        ),
        tls=TlsConfig(**_section(draft.values, "tls")),
        tokens=TokensConfig(**_section(draft.values, "tokens")),
        log=LogConfig(**_section(draft.values, "log")),
        file=file,
        origins=tuple(_origins(draft)),
    )
    problems += [_with_origin(problem, settings.origins) for problem in _checks(settings)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return settings


def with_tokens(settings: Settings) -> Settings:
    """The settings with the token file's records, after a look at all files that they name."""
    problems = []
    for path in _PATHS:
        section, name = path.split(".")
        value = getattr(getattr(settings, section), name)
        if value and not Path(value).is_file():
            problems.append(_with_origin(f"{path} = {value!r}: there is no such file", settings.origins))
    if problems:
        raise ConfigError(problems)
    if not settings.tokens.file:
        return settings
    records = load_tokens(_read(Path(settings.tokens.file), "tokens.file"), settings.tokens.file)
    return replace(settings, broker=replace(settings.broker, tokens=records))


def _checks(settings: Settings) -> list[str]:
    """What is wrong across keys, though every value has its type."""
    found = settings.broker.problems() + settings.log.problems()
    for number, listener in enumerate(settings.broker.listeners):
        path = settings.broker.listener_path(number)
        if listener.secure and not (settings.tls.certificate and settings.tls.key):
            found.append(f"{path}.secure = true needs tls.certificate and tls.key (`heliograph ca issue` makes them)")
        if listener.secure and listener.auth in ("certificate", "any") and not settings.tls.authority:
            found.append(f"{path}.auth = {listener.auth!r} needs tls.authority, which signed the peers' certificates")
        if listener.auth == "token" and not settings.tokens.file:
            found.append(f"{path}.auth = 'token' needs tokens.file (`heliograph token add` makes it)")
    return found


def _origins(draft: Draft) -> Iterator[Origin]:
    yield from _origins_of("broker", "broker", draft.values, "broker.")
    for number, listener in enumerate(draft.listeners):
        yield from _origins_of("listener", listener_path(listener, number), listener, "")
    yield from _origins_of("limits", "limits", draft.values, "limits.")
    yield from _origins_of("access", "access", draft.values, "access.")
    for number, rule in enumerate(draft.rules):
        yield from _origins_of("access.rules", f"access.rules[{number}]", rule, "")
    for section in ("tls", "tokens", "log"):
        yield from _origins_of(section, section, draft.values, f"{section}.")


def _origins_of(section: str, path: str, values: Mapping[str, Given], prefix: str) -> Iterator[Origin]:
    for known in section_fields(section):
        given = values.get(prefix + known.name)
        if given is None:
            yield Origin(f"{path}.{known.name}", KEYS[f"{section}.{known.name}"].default, "default")
        else:
            yield Origin(f"{path}.{known.name}", given.value, given.source, given.typed)


def _with_origin(problem: str, origins: Iterable[Origin]) -> str:
    """Name the variables and options behind a problem: its own path is the file's, which is not what the user typed."""
    words = {word.rstrip(":;,") for word in problem.split()}
    typed = [each.typed for each in origins if each.source in ("environment", "option") and each.key in words]
    return f"{problem} (from {', '.join(typed)})" if typed else problem


def _in_file(problem: str, file: Path | None) -> str:
    """A document that is no TOML at all has no key to name, so name the file."""
    return f"{file}: {problem}" if file is not None and problem.startswith("not TOML") else problem


def _complete(values: dict[str, Given], path: str, beside_file: Path, folder: Path) -> None:
    given = values.get(path)
    if given is not None and given.value:
        base = beside_file if given.source == "file" else folder
        values[path] = replace(given, value=str(base / given.value))


def _section(values: Mapping[str, Given], section: str) -> dict[str, Any]:
    start = f"{section}."
    return {key.removeprefix(start): given.value for key, given in values.items() if key.startswith(start)}


def _plain(values: Mapping[str, Given]) -> dict[str, Any]:
    return {name: given.value for name, given in values.items()}


def _allowed(key: str) -> str:
    return f"must be {KEYS[key].allowed}"


def _read(file: Path, what: str) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError([f"{what} {file} is larger than {FILE_BYTES_MAX} bytes"])
        return data.decode()
    except OSError as error:
        raise ConfigError([f"{what} {file} cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{what} {file} is not UTF-8: {error.reason} at byte {error.start}"]) from None
