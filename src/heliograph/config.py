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
from heliograph.client.discover import Discover
from heliograph.config_discovery import DirectorySection, DiscoverySection, JoinConfig, is_loopback
from heliograph.config_keys import KEYS, LISTS, LogConfig, NetworkKeyConfig, TlsConfig, TokensConfig, section_fields
from heliograph.config_sources import Draft, Given, Option, listener_path
from heliograph.errors import ConfigError, UnreadableError
from heliograph.trust.network_key import KEY_BYTES_MAX, key_fault, key_of
from heliograph.trust.tokens import load_tokens

FILE_NAME = "heliograph.toml"
FILE_VARIABLE = "HELIOGRAPH_CONFIG"
FILE_BYTES_MAX = 4 << 20  # ten thousand access rules fit in a quarter of it

_PATHS = ("tls.certificate", "tls.key", "tls.authority", "tokens.file", "network.key_file", "directory.token_file")
_OTHERS = 0o077  # the rights of everybody but a file's owner
_STAND_IN = {"access.rules.effect": "deny", "network.links.host": "missing"}  # so that checks can go on without it


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
    network: NetworkKeyConfig = field(default_factory=NetworkKeyConfig)
    join: JoinConfig = field(default_factory=JoinConfig)
    discovery: DiscoverySection = field(default_factory=DiscoverySection)
    directory: DirectorySection = field(default_factory=DirectorySection)
    discover: Discover = field(default_factory=Discover)
    directory_token: str = field(default="", repr=False)  # what is in directory.token_file
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
    """Find, read and check everything, the token file, the network key and the presence of named files included."""
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
    """Settings from the text of a file; nothing is read from disk, and any text gives Settings or ConfigError."""
    draft = Draft()
    draft.read_file(text)
    draft.problems = [_in_file(problem, file) for problem in draft.problems]
    draft.read_environment(environment or {})
    draft.read_options(options)
    if not draft.listeners:
        draft.listeners.append({})
    problems = draft.problems
    for path in _PATHS:
        _complete(draft.values, path, file.parent if file is not None else folder, folder)
    for list_path, elements in draft.lists.items():
        for number, element in enumerate(elements):
            is_in_file = all(given.source == "file" for given in element.values())
            for problem in _missing(list_path, number, element):
                problems.append(_in_file(problem, file if is_in_file else None))
    network = _section(draft.values, "network")
    tls = TlsConfig(**_section(draft.values, "tls"))
    settings = Settings(
        broker=BrokerConfig(
            listeners=tuple(ListenerConfig(**_plain(listener)) for listener in draft.listeners),
            limits=LimitsConfig(**_section(draft.values, "limits")),
            access=AccessConfig(
                rules=tuple(RuleConfig(**_plain(rule)) for rule in draft.lists["access.rules"]),
                **_section(draft.values, "access"),
            ),
            network=NetworkConfig(
                links=tuple(LinkConfig(**_plain(link)) for link in draft.lists["network.links"]),
                certified=bool(tls.certificate and tls.key and tls.authority),
                dials_secure=bool(tls.certificate or tls.key or tls.authority),
                **{name: value for name, value in network.items() if name not in ("key_file", "join")},
            ),
            load=LoadConfig(**_section(draft.values, "load")),
            time=TimeConfig(**_section(draft.values, "time")),
            **_section(draft.values, "broker"),
        ),
        tls=tls,
        tokens=TokensConfig(**_section(draft.values, "tokens")),
        network=NetworkKeyConfig(key_file=network.get("key_file", "")),
        join=JoinConfig(join=network.get("join", False)),
        discovery=DiscoverySection(**_section(draft.values, "discovery")),
        directory=DirectorySection(**_section(draft.values, "directory")),
        discover=Discover(**_section(draft.values, "discover")),
        log=LogConfig(**_section(draft.values, "log")),
        file=file,
        origins=tuple(_origins(draft)),
    )
    problems += [_with_origin(problem, settings) for problem in _checks(settings)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return settings


def load_discover(file: Path | None, environment: Mapping[str, str]) -> Discover:
    """What the section [discover] and its variables say to a client; the rest of the file does not matter to it."""
    draft = Draft()
    if file is not None:
        draft.read_file(_read(file, "the settings file"), only="discover")
        draft.problems = [_in_file(problem, file) for problem in draft.problems]
    draft.read_environment(environment)
    options = Discover(**_section(draft.values, "discover"))
    problems = draft.problems + options.problems()
    if problems:
        raise ConfigError(problems)
    return options


def with_files(settings: Settings) -> Settings:
    """The settings with the token file's records and the network key, after a look at all files that they name."""
    problems = []
    for path in _PATHS:
        section, name = path.split(".")
        value = getattr(getattr(settings, section), name)
        if value and not Path(value).is_file():
            problems.append(_with_origin(f"{path} = {value!r}: there is no such file", settings))
    if problems:
        raise UnreadableError(problems)
    broker = settings.broker
    if settings.network.key_file:
        broker = replace(broker, network=replace(broker.network, key=_network_key(settings)))
    if settings.tokens.file:
        records = load_tokens(_read(Path(settings.tokens.file), "tokens.file"), settings.tokens.file)
        broker = replace(broker, tokens=records)
    token = ""
    if settings.directory.token_file:
        token = _read(Path(settings.directory.token_file), "directory.token_file").strip()
    return replace(settings, broker=broker, directory_token=token)


def _network_key(settings: Settings) -> bytes:
    file = Path(settings.network.key_file)
    told = f"network.key_file = {str(file)!r}"
    try:
        if file.stat().st_mode & _OTHERS:
            raise ConfigError([_with_origin(f"{told}: others can read this key; run: chmod 600 {file}", settings)])
        with file.open("rb") as opened:
            key = key_of(opened.read(KEY_BYTES_MAX + 2))
    except OSError as error:
        raise UnreadableError([f"{told} cannot be read: {error.strerror or error}"]) from None
    fault = key_fault(key)
    if fault is not None:
        raise ConfigError([_with_origin(f"{told}: {fault}; `heliograph network key` makes one", settings)])
    return key


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
    return found + list(_link_problems(settings)) + list(_discovery_problems(settings))


def _discovery_problems(settings: Settings) -> Iterator[str]:
    """What is wrong with finding brokers and being found."""
    tls, discovery, directory = settings.tls, settings.discovery, settings.directory
    certified = tls.certificate and tls.key and tls.authority
    yield from discovery.problems()
    yield from directory.problems()
    yield from settings.discover.problems()
    far = [text for text in discovery.directories if not is_loopback(text.rpartition(":")[0].strip("[]"))]
    if discovery.enabled and far and is_loopback(discovery.host):
        yield (
            f"discovery.directories has {far[0]!r}, but discovery.host = {discovery.host!r} reaches this machine only; "
            "set discovery.host to an address of the network, or use discovery.directory_links"
        )
    if discovery.policy == "credential" and not tls.authority:
        yield "discovery.policy = 'credential' needs tls.authority, which signed the requesters' certificates"
    if directory.private and not tls.authority:
        yield "directory.private = true needs tls.authority, which signed the requesters' certificates"
    if directory.links_secure and not certified:
        yield "directory.links_secure = true needs tls.certificate, tls.key and tls.authority"
    if directory.enabled and any(listener.name == "bdn" for listener in settings.broker.listeners):
        yield "listener.bdn.name = 'bdn': the listener of the directory in this process is called so; choose another"
    away = [link for link in directory.links if not is_loopback(link.rpartition(":")[0].strip("[]"))]
    if directory.token_file and away and not directory.links_secure:
        yield f"directory.links has {away[0]!r}: the token would cross the network in clear; set directory.links_secure"
    if settings.join.join and not (settings.network.key_file or certified):
        yield (
            "network.join = true: brokers prove themselves to each other; set network.key_file "
            "(`heliograph network key` makes it), or tls.certificate, tls.key and tls.authority"
        )


def _link_problems(settings: Settings) -> Iterator[str]:
    """What is wrong with the links to other brokers."""
    network = settings.broker.network
    links = network.links
    addresses = [(link.host, link.port) for link in links]
    for number, link in enumerate(links):
        path = f"network.links[{number}]"
        if not link.host.strip():
            yield f"{path}.host = {link.host!r}: must be an address or host name"
        if not 1 <= link.port <= 65_535:
            yield f"{path}.port = {link.port}: must be between 1 and 65535"
        if addresses.index((link.host, link.port)) != number:
            yield f"{path}: there is a link to {link.host}:{link.port} already"
    faults: dict[str, int] = {}  # and the first link that has it
    for number, link in enumerate(links):
        fault = network.link_fault(link, keyed=bool(settings.network.key_file))
        if fault is not None:
            faults.setdefault(fault, number)
    for fault, number in faults.items():
        yield f"network.links[{number}].host: {fault}"


def _origins(draft: Draft) -> Iterator[Origin]:
    yield from _origins_of("broker", "broker", draft.values, "broker.")
    for number, listener in enumerate(draft.listeners):
        yield from _origins_of("listener", listener_path(listener, number), listener, "")
    yield from _origins_of("limits", "limits", draft.values, "limits.")
    for section in ("access", "network", "discovery", "directory", "discover", "load", "time", "tls", "tokens", "log"):
        yield from _origins_of(section, section, draft.values, f"{section}.")
        for path in LISTS:
            if path.startswith(f"{section}."):
                for number, element in enumerate(draft.lists[path]):
                    yield from _origins_of(path, f"{path}[{number}]", element, "")


def _origins_of(section: str, path: str, values: Mapping[str, Given], prefix: str) -> Iterator[Origin]:
    for known in section_fields(section):
        given = values.get(prefix + known.name)
        if given is None:
            yield Origin(f"{path}.{known.name}", KEYS[f"{section}.{known.name}"].default, "default")
        else:
            yield Origin(f"{path}.{known.name}", given.value, given.source, given.typed)


def _with_origin(problem: str, settings: Settings) -> str:
    """Say where a problem comes from: the variables and options that the user typed, or else the file."""
    words = {word.rstrip(":;,") for word in problem.split()}
    table = problem.split()[0].rstrip(":") + "."
    concerned = [each for each in settings.origins if each.key in words or each.key.startswith(table)]
    typed = [each.typed for each in concerned if each.source in ("environment", "option") and each.key in words]
    if typed:
        return f"{problem} (from {', '.join(typed)})"
    return _in_file(problem, settings.file if any(each.source == "file" for each in concerned) else None)


def _in_file(problem: str, file: Path | None) -> str:
    """A problem of what stands in this file."""
    return f"{file}: {problem}" if file is not None else problem


def _complete(values: dict[str, Given], path: str, beside_file: Path, folder: Path) -> None:
    given = values.get(path)
    if given is not None and given.value:
        base = beside_file if given.source == "file" else folder
        values[path] = replace(given, value=str(base / given.value))


def _section(values: Mapping[str, Given], section: str) -> dict[str, Any]:
    start = f"{section}."
    return {key.removeprefix(start): given.value for key, given in values.items() if key.startswith(start)}


def _missing(path: str, number: int, element: dict[str, Given]) -> Iterator[str]:
    """What a table must have and does not, with something put in its place so that the other checks can go on."""
    for known in section_fields(path):
        key = KEYS[f"{path}.{known.name}"]
        if key.required and known.name not in element:
            yield f"{path}[{number}].{known.name} is missing: must be {key.allowed}"
            element[known.name] = Given(_STAND_IN[key.path], "default", "")


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
