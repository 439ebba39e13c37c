"""Settings: finds, reads, combines and checks the settings of a node.

In:    where the file may be, environment variables, options.
Out:   Settings, or ConfigError with all problems at once: the key, its value, what is allowed, where it came from.
State: none.
Not here: keys and their meaning (the rooms' dataclasses, sections.py), reading one source (sources.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

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
from heliograph.config.sections import KEYS, LISTS, SECTIONS, keys_of
from heliograph.config.sources import Draft, Given, Option, listener_path
from heliograph.errors import ConfigError, UnreadableError
from heliograph.model.places import masked
from heliograph.model.settings import Problem, composed, wrong
from heliograph.node import SERVICES
from heliograph.observe.log import LogConfig
from heliograph.services.declared import Configured
from heliograph.trust.config import TlsConfig, TokensConfig
from heliograph.trust.network_key import KEY_BYTES_MAX, key_fault, key_of
from heliograph.trust.tokens import load_tokens

FILE_NAME = "heliograph.toml"
FILE_VARIABLE = "HELIOGRAPH_CONFIG"
FILE_BYTES_MAX = 4 << 20  # ten thousand access rules need a quarter of it

_OTHERS = 0o077  # the permissions of all users except a file's owner
_STAND_IN = {"access.rules.effect": "deny", "network.links.host": "missing"}  # so that checks can continue without it
_Config = TypeVar("_Config")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an effective value came from."""

    key: str  # "limits.links_max", "listener.main.port", "access.rules[0].effect"
    value: Any
    source: str  # "default", "file", "environment" or "option"
    typed: str = ""  # what the user typed; empty for a default

    @property
    def shown(self) -> Any:
        """The value without passwords."""
        known = KEYS.get(self.key)
        return masked(self.value) if known is not None and known.setting.is_place else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a node. Paths are complete."""

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    services: tuple[Configured, ...] = ()  # every service that has settings, enabled or not
    search: Discover = field(default_factory=Discover)
    tls: TlsConfig = field(default_factory=TlsConfig)
    tokens: TokensConfig = field(default_factory=TokensConfig)
    log: LogConfig = field(default_factory=LogConfig)
    file: Path | None = None  # the settings file, if there is one
    origins: tuple[Origin, ...] = ()  # every key in force, in the order of the file

    def of(self, config: type[_Config]) -> _Config:
        """The settings of this kind, which belong to one service."""
        found = next(each.config for each in self.services if each.service.config is config)
        assert isinstance(found, config)
        return found

    @property
    def wanted(self) -> tuple[Any, ...]:
        """The settings of the services that the broker has enabled."""
        return tuple(each.config for each in self.services if each.service.is_wanted(each.config))


def find_file(chosen: Path | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    """The settings file: the chosen one, else that of the variable, else the one in this folder, else none."""
    if chosen is not None:
        return chosen
    named = environment.get(FILE_VARIABLE, "")
    if named:
        return folder / named
    return folder / FILE_NAME if (folder / FILE_NAME).is_file() else None


def load_settings(
    chosen: Path | None, environment: Mapping[str, str], folder: Path, options: Sequence[Option] = ()
) -> Settings:
    """Find, read and check everything, including the token file, the network key and whether named files exist."""
    file = find_file(chosen, environment, folder)
    text = _read(file, "the settings file") if file is not None else ""
    settings = parse_settings(text, environment, options, file=file, folder=folder)
    return with_files(settings)


def parse_settings(
    text: str,
    environment: Mapping[str, str] | None = None,
    options: Iterable[Option] = (),
    *,
    file: Path | None = None,
    folder: Path = Path(),
) -> Settings:
    """Settings from the text of a file. Nothing is read from disk; any text gives Settings or ConfigError."""
    draft = Draft()
    draft.read_file(text)
    problems = [_in_file(problem, file) for problem in draft.problems]
    draft.problems.clear()
    draft.read_environment(environment or {})
    draft.read_options(options)
    problems += draft.problems
    if not draft.listeners:
        draft.listeners.append({})
    _complete_paths(draft.values, file.parent if file is not None else folder, folder)
    problems += _fill_in(draft, file)
    settings = _composed(draft, file)
    problems += [_with_origin(problem, settings) for problem in _problems(settings)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return settings


def load_search(file: Path | None, environment: Mapping[str, str]) -> Discover:
    """The search options of a client, from the section [search] and variables; the rest of the file is ignored."""
    draft = Draft()
    if file is not None:
        draft.read_file(_read(file, "the settings file"), only=SEARCH)
    problems = [_in_file(problem, file) for problem in draft.problems]
    draft.problems.clear()
    draft.read_environment(environment)
    options: Discover = composed(Discover, _values(draft, SEARCH))
    problems += [*draft.problems, *map(str, options.problems())]
    if problems:
        raise ConfigError(problems)
    return options


def with_files(settings: Settings) -> Settings:
    """The settings with the records of the token file and the network key; all named files are checked."""
    problems = []
    for origin in settings.origins:
        known = KEYS.get(origin.key)
        if known is not None and known.setting.is_file and origin.value and not Path(origin.value).is_file():
            problems.append(_with_origin(wrong(origin.key, origin.value, "there is no such file"), settings))
    if problems:
        raise UnreadableError(problems)
    broker = settings.broker
    if broker.network.key_file:
        broker = replace(broker, network=replace(broker.network, key=_network_key(settings)))
    if settings.tokens.file:
        records = load_tokens(_read(Path(settings.tokens.file), "tokens.file"), settings.tokens.file)
        broker = replace(broker, tokens=records)
    services = tuple(
        Configured(each.service, each.service.with_files(each.config, lambda key, path: _read(Path(path), key)))
        for each in settings.services
    )
    return replace(settings, broker=broker, services=services)


def exposed_passwords(settings: Settings) -> list[str]:
    """The keys whose values have a password, if they are in a settings file that other users can read."""
    if settings.file is None or not settings.file.stat().st_mode & _OTHERS:
        return []
    return [each.key for each in settings.origins if each.source == "file" and each.shown != each.value]


def _composed(draft: Draft, file: Path | None) -> Settings:
    tls: TlsConfig = composed(TlsConfig, _values(draft, "tls"))
    rules = tuple(composed(RuleConfig, _plain(rule)) for rule in draft.lists["access.rules"])
    links = tuple(composed(LinkConfig, _plain(link)) for link in draft.lists["network.links"])
    return Settings(
        broker=composed(
            BrokerConfig,
            _values(draft, "broker"),
            listeners=tuple(composed(ListenerConfig, _plain(listener)) for listener in draft.listeners),
            limits=composed(LimitsConfig, _values(draft, "limits")),
            access=composed(AccessConfig, _values(draft, "access"), rules=rules),
            network=composed(
                NetworkConfig,
                _values(draft, "network"),
                links=links,
                certified=tls.is_complete,
                dials_secure=tls.is_used,
            ),
            load=composed(LoadConfig, _values(draft, "load")),
            time=composed(TimeConfig, _values(draft, "time")),
        ),
        services=tuple(
            Configured(service, composed(service.config, _values(draft, service.name)))
            for service in SERVICES
            if service.name in SECTIONS
        ),
        search=composed(Discover, _values(draft, SEARCH)),
        tls=tls,
        tokens=composed(TokensConfig, _values(draft, "tokens")),
        log=composed(LogConfig, _values(draft, "log")),
        file=file,
        origins=tuple(_origins(draft)),
    )


def _network_key(settings: Settings) -> bytes:
    path = settings.broker.network.key_file
    file = Path(path)

    def fault(text: str) -> ConfigError:
        return ConfigError([_with_origin(wrong("network.key_file", path, text), settings)])

    try:
        if file.stat().st_mode & _OTHERS:
            raise fault(f"others can read this key; run: chmod 600 {file}")
        with file.open("rb") as opened:
            key = key_of(opened.read(KEY_BYTES_MAX + 2))
    except OSError as error:
        raise UnreadableError([f"network.key_file = {path!r} cannot be read: {error.strerror or error}"]) from None
    found = key_fault(key)
    if found is not None:
        raise fault(f"{found}; `heliograph network key` makes one")
    return key


def _problems(settings: Settings) -> Iterator[Problem]:
    """Problems beyond the types of single values."""
    broker, tls = settings.broker, settings.tls
    yield from broker.problems()
    yield from settings.log.problems()
    for number, listener in enumerate(broker.listeners):
        yield from _listener_problems(listener, broker.listener_path(number), settings)
    yield from broker.network.link_problems()
    for each in settings.services:
        yield from each.config.problems(each.name)
        yield from each.service.problems(each.config, broker, tls)
    yield from settings.search.problems()
    if broker.network.join and not (broker.network.key_file or tls.is_complete):
        said = (
            " = true: brokers prove themselves to each other; set network.key_file "
            "(`heliograph network key` makes it), or tls.certificate, tls.key and tls.authority"
        )
        yield Problem("network.join", said, ("network.key_file",))


def _listener_problems(listener: ListenerConfig, path: str, settings: Settings) -> Iterator[Problem]:
    tls, auth = settings.tls, f"{path}.auth"
    if listener.secure and not (tls.certificate and tls.key):
        said = " = true needs tls.certificate and tls.key (`heliograph ca issue` makes them)"
        yield Problem(f"{path}.secure", said, ("tls.certificate", "tls.key"))
    if listener.secure and listener.auth in ("certificate", "any") and not tls.authority:
        said = f" = {listener.auth!r} needs tls.authority, which signed the peers' certificates"
        yield Problem(auth, said, ("tls.authority",))
    if listener.auth == "token" and not settings.tokens.file:
        said = " = 'token' needs tokens.file (`heliograph token add` makes it)"
        yield Problem(auth, said, ("tokens.file",))


def _origins(draft: Draft) -> Iterator[Origin]:
    for section in SECTIONS:
        if section == "listener":
            for number, listener in enumerate(draft.listeners):
                yield from _origins_of(section, listener_path(listener, number), listener)
        elif section in LISTS:
            for number, element in enumerate(draft.lists[section]):
                yield from _origins_of(section, f"{section}[{number}]", element)
        else:
            yield from _origins_of(section, section, _given(draft, section))


def _origins_of(section: str, path: str, values: Mapping[str, Given]) -> Iterator[Origin]:
    for key in keys_of(section):
        given = values.get(key.name)
        if given is None:
            yield Origin(f"{path}.{key.name}", key.default, "default")
        else:
            yield Origin(f"{path}.{key.name}", given.value, given.source, given.typed)


def _with_origin(problem: Problem, settings: Settings) -> str:
    """Tell where a problem comes from: the variables and options that the user typed, else the file."""
    section = f"{problem.key}."
    concerned = [each for each in settings.origins if each.key in problem.keys or each.key.startswith(section)]
    typed = [each.typed for each in concerned if each.source in ("environment", "option") and each.key in problem.keys]
    if typed:
        return f"{problem} (from {', '.join(typed)})"
    return _in_file(str(problem), settings.file if any(each.source == "file" for each in concerned) else None)


def _in_file(problem: str, file: Path | None) -> str:
    """A problem with the content of this file."""
    return f"{file}: {problem}" if file is not None else problem


def _complete_paths(values: dict[str, Given], beside_file: Path, folder: Path) -> None:
    """Resolve relative paths: those in the file start beside it, all others in the current folder."""
    for path, given in values.items():
        if KEYS[path].setting.is_file and given.value:
            base = beside_file if given.source == "file" else folder
            values[path] = structs.replace(given, value=str(base / given.value))


def _fill_in(draft: Draft, file: Path | None) -> Iterator[str]:
    """Report required values that are missing, and fill in others so that checks can continue."""
    for path, elements in draft.lists.items():
        for number, element in enumerate(elements):
            is_in_file = all(given.source == "file" for given in element.values())
            for key in keys_of(path):
                if key.required and key.name not in element:
                    problem = f"{path}[{number}].{key.name} is missing: must be {key.allowed}"
                    yield _in_file(problem, file if is_in_file else None)
                    element[key.name] = Given(_STAND_IN[key.path], "default", "")


def _given(draft: Draft, section: str) -> dict[str, Given]:
    start = f"{section}."
    return {path.removeprefix(start): given for path, given in draft.values.items() if path.startswith(start)}


def _values(draft: Draft, section: str) -> dict[str, Any]:
    return _plain(_given(draft, section))


def _plain(values: Mapping[str, Given]) -> dict[str, Any]:
    return {name: given.value for name, given in values.items()}


def _read(file: Path, what: str) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError([f"{what} {file} is larger than {FILE_BYTES_MAX} bytes"])
        return data.decode()
    except OSError as error:
        raise UnreadableError([f"{what} {file} cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{what} {file} is not UTF-8: {error.reason} at byte {error.start}"]) from None
