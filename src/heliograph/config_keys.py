"""The keys of the settings file: every one with its type, its default, what it means and what it may be.

In:    the rooms' config dataclasses, which know names, types and defaults; the table below, which knows the words.
Out:   KEYS, by pattern ("limits.links_max", "listener.port", "network.links.host"), for loader and `config explain`.
State: none.
Not here: reading values (config_sources.py), composing and checking them (config.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
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
from heliograph.client.discover import WORDS as DISCOVER_WORDS
from heliograph.client.discover import Discover
from heliograph.config_discovery import WORDS as DISCOVERY_WORDS
from heliograph.config_discovery import DirectorySection, DiscoverySection, JoinConfig
from heliograph.model.identity import NETWORK_WORDS

PREFIX = "HELIOGRAPH_"
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
LISTS = ("access.rules", "network.links")  # written [[…]], numbered in problems and variables; listeners go by name


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The files with which a node proves itself and checks others; a relative path starts at the settings file."""

    certificate: str = ""
    key: str = ""
    authority: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensConfig:
    """Where token digests are kept."""

    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkKeyConfig:
    """Where the network key is kept, so that it stands in no settings file."""

    key_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What is logged, and how it looks."""

    level: str = "info"
    format: str = "text"

    def problems(self, path: str = "log") -> list[str]:
        """Everything wrong with it."""
        found = []
        if self.level not in LOG_LEVELS:
            found.append(f"{path}.level = {self.level!r}: must be one of {', '.join(LOG_LEVELS)}")
        if self.format not in LOG_FORMATS:
            found.append(f"{path}.format = {self.format!r}: must be one of {', '.join(LOG_FORMATS)}")
        return found


@dataclass(frozen=True, slots=True)
class Key:
    """One key a user can set."""

    path: str  # a pattern: without the listener's name or the rule's number
    type: type | None  # int, bool, str, or tuple for a list of texts
    default: Any  # None: there is none
    required: bool  # True: without a value its table makes no sense
    meaning: str
    allowed: str

    @property
    def type_words(self) -> str:
        """The type as a user would say it."""
        return {int: "whole number", bool: "true or false", str: "text"}.get(self.type or tuple, "list of texts")

    @property
    def in_file(self) -> str:
        """The table of the settings file in which the key stands."""
        section = self.path.rpartition(".")[0]
        return f"[[{section}]]" if section == "listener" or section in LISTS else f"[{section}]"

    @property
    def in_environment(self) -> str:
        """The variable that overrides it; NAME stands for a listener's name, N for a rule's or a link's number."""
        section, _, name = self.path.rpartition(".")
        element = "__NAME" if section == "listener" else "__N" if section in LISTS else ""
        return f"{PREFIX}{section.replace('.', '__').upper()}{element}__{name.upper()}"


_ABOVE_0 = "above 0"

# One line per key: what it means, what it may be. A test compares this table with the dataclasses.
WORDS: dict[str, tuple[str, str]] = {
    "broker.name": ("the broker's name in logs, reports and its welcome", "letters, digits and . _ @ -"),
    "listener.name": (
        "the listener's name in logs, problems and variable names",
        "letters, digits and . _ @ -; each listener its own",
    ),
    "listener.host": (
        "the address to listen on; 127.0.0.1 is reachable from this machine only, 0.0.0.0 from everywhere",
        "an address or host name of this machine",
    ),
    "listener.port": ("the TCP port to listen on", "0 to 65535; 0 takes a free port"),
    "listener.secure": ("speak TLS 1.3; needs tls.certificate and tls.key", "true or false"),
    "listener.auth": (
        "what a peer must show: nothing, a token, a certificate (mutual TLS), or any one of the two",
        "none, token, certificate or any; certificate and any need secure = true",
    ),
    "listener.announce": (
        "where other brokers, and clients that they send, find this listener; without it, its own address or, where "
        "that is 0.0.0.0 or ::, the address from which this machine reaches others",
        "an address or host name, without a port",
    ),
    "listener.allow_open": (
        "anyone who reaches this address may use it, and that is meant; needed for auth = none beyond this machine",
        "true or false",
    ),
    "limits.links_max": ("how many links at once", _ABOVE_0),
    "limits.links_unproven_max": (
        "how many links may be in their handshake at once; if more come, addresses that have most of them lose some",
        _ABOVE_0,
    ),
    "limits.links_per_source_max": (
        "how many links without a token or certificate one address may have; an IPv6 address counts as its /64",
        _ABOVE_0,
    ),
    "limits.handshake_ms": ("how long a new link has until its HELLO is complete", _ABOVE_0),
    "limits.handshake_bytes": ("how much a link may send before it is welcomed", _ABOVE_0),
    "limits.payload_bytes_max": ("the largest payload of a publication", "1 to 1048576, which is what a frame carries"),
    "limits.subscriptions_max": ("how many subscriptions in all", _ABOVE_0),
    "limits.subscriptions_per_link_max": ("how many subscriptions one link may have", _ABOVE_0),
    "limits.queue_bytes_max": ("how much waits for one slow link before its policy acts", _ABOVE_0),
    "limits.queue_frames_max": ("how many publications wait for one slow link before its policy acts", _ABOVE_0),
    "limits.hold_bytes": (
        "a queue this long holds publishers that opted in",
        "above 0 and not above limits.queue_bytes_max",
    ),
    "limits.hold_ms_max": ("a consumer that holds others and takes nothing for so long loses its link", _ABOVE_0),
    "limits.keep_alive_ms_min": (
        "the shortest keep-alive a client may ask for",
        "above 0 and not above limits.keep_alive_ms_max",
    ),
    "limits.keep_alive_ms_max": ("the longest keep-alive a client may ask for", _ABOVE_0),
    "limits.routes_max": ("how many topics' routes are remembered per access profile", _ABOVE_0),
    "limits.origins_max": ("how many publisher sessions are remembered to drop duplicates", _ABOVE_0),
    "limits.origin_horizon_ms": ("how long a publisher session is remembered after its last link ended", _ABOVE_0),
    "limits.gaps_max": ("how many missing sequence spans are remembered per publisher session", _ABOVE_0),
    "limits.drain_grace_ms": ("how long clients have to leave when the broker drains", _ABOVE_0),
    "access.default": ("what happens on ordinary topics that no rule fits", "allow or deny"),
    "access.rules.effect": ("what the rule does; the first rule that fits decides", "allow or deny"),
    "access.rules.verbs": ("the actions the rule is about", "any of publish, subscribe, ask"),
    "access.rules.topics": (
        "the topic filters the rule is about; {entity} stands for the peer's entity id. For ask: service names",
        "topic filters, with + and # as wildcards",
    ),
    "access.rules.who": (
        "whom the rule is about",
        "*, an entity id, a prefix such as sensor-*, or role:client|broker|admin",
    ),
    "network.name": (
        "the network to which this broker belongs; brokers of other networks do not link to it, and clients ask for it "
        "by this name",
        "empty (a network without a name), or " + NETWORK_WORDS,
    ),
    "network.cluster": (
        "the group of brokers to which this one belongs; brokers of a cluster know each other in full",
        "letters, digits and . _ @ -",
    ),
    "network.slot": (
        "the broker's place in its cluster; without one a free place is taken and settled with the others",
        "0 to 63; each broker of a cluster its own",
    ),
    "network.heartbeat_ms": ("how often brokers say on a link that they are there", "above 0"),
    "network.suspect_ms": (
        "a linked broker that is silent for so long is suspected, and ways around it are taken",
        "above network.heartbeat_ms",
    ),
    "network.dead_ms": ("a linked broker that is silent for so long loses its link", "above network.suspect_ms"),
    "network.forget_ms": (
        "what is known of brokers that are out of reach for so long is forgotten",
        "above network.dead_ms",
    ),
    "network.interests_max": (
        "how many filters a broker, or a cluster, tells others that it wants; beyond it they are widened",
        "16 or more",
    ),
    "network.key_file": (
        "the network key, made by `heliograph network key`: brokers that have it let each other in",
        "a path, relative to the settings file; readable by its owner only",
    ),
    "network.links.host": ("another broker, to which a link is kept", "an address or host name"),
    "network.links.port": ("the other broker's port", "1 to 65535"),
    "network.links.secure": (
        "dial it with TLS 1.3; with tls.certificate brokers prove themselves without a network key",
        "true or false",
    ),
    "load.shed": ("ask some clients to move to other brokers while this one is overloaded", "true or false"),
    "load.cpu_permille_high": (
        "the broker is overloaded while it uses more of one core than this, smoothed",
        "above load.cpu_permille_low, at most 1000",
    ),
    "load.cpu_permille_low": (
        "below this it asks nobody any more, and takes clients that other brokers asked to move",
        "above 0 and below load.cpu_permille_high",
    ),
    "load.links_permille_high": (
        "the same for client sessions, as a part of limits.links_max",
        "above load.links_permille_low, at most 1000",
    ),
    "load.links_permille_low": ("… and below this no longer", "above 0 and below load.links_permille_high"),
    "load.overloaded_s": ("how long the broker must be overloaded before it asks anyone", "1 to 86400"),
    "load.rest_s": ("a session that was asked to move, or has moved, is not asked again for so long", "1 to 86400"),
    "time.servers": (
        "NTP servers to ask for the time; without any, brokers agree on the clock of one of them",
        "each HOST or HOST:PORT, IPv4 or a name; at most 16",
    ),
    "time.poll_s": ("how often NTP servers are asked", "16 to 3600"),
    "tls.certificate": (
        "the node's certificate, made by `heliograph ca issue`",
        "a path to a PEM file; relative to the settings file",
    ),
    "tls.key": (
        "the certificate's private key, readable by its owner only",
        "a path to a PEM file; relative to the settings file",
    ),
    "tls.authority": (
        "the authority whose certificates are accepted, made by `heliograph ca init`",
        "a path to a PEM file; relative to the settings file",
    ),
    "tokens.file": ("the token file, made by `heliograph token add`", "a path; relative to the settings file"),
    "log.level": ("the quietest lines that are still logged", ", ".join(LOG_LEVELS)),
    "log.format": ("text to be read, or one JSON object per line", ", ".join(LOG_FORMATS)),
    **DISCOVERY_WORDS,
    **DISCOVER_WORDS,
}

SECTIONS: dict[str, tuple[type, ...]] = {
    "broker": (BrokerConfig,),
    "listener": (ListenerConfig,),
    "limits": (LimitsConfig,),
    "access": (AccessConfig,),
    "access.rules": (RuleConfig,),
    "network": (NetworkConfig, NetworkKeyConfig, JoinConfig),
    "network.links": (LinkConfig,),
    "load": (LoadConfig,),
    "time": (TimeConfig,),
    "discovery": (DiscoverySection,),
    "directory": (DirectorySection,),
    "discover": (Discover,),
    "tls": (TlsConfig,),
    "tokens": (TokensConfig,),
    "log": (LogConfig,),
}
_COMPOSED = {
    "broker": ("name",),
    "access": ("default",),
    "network": (
        "name",
        "cluster",
        "slot",
        "heartbeat_ms",
        "suspect_ms",
        "dead_ms",
        "forget_ms",
        "interests_max",
        "key_file",
        "join",
    ),
}  # the rest of these are sections of their own, or not a user's


def section_fields(section: str) -> list[Field[Any]]:
    """The fields of a section that a user can set."""
    known = [field for part in SECTIONS[section] for field in fields(part)]
    return [field for field in known if section not in _COMPOSED or field.name in _COMPOSED[section]]


def _keys() -> Iterator[Key]:
    for section, parts in SECTIONS.items():
        hints = {name: hint for part in parts for name, hint in get_type_hints(part).items()}
        for field in section_fields(section):
            path = f"{section}.{field.name}"
            default = None if field.default is MISSING else field.default
            meaning, allowed = WORDS.get(path, ("", ""))
            yield Key(path, _plain_type(hints[field.name]), default, field.default is MISSING, meaning, allowed)


def _plain_type(hint: Any) -> type:
    """int, bool and str as they are; what may be None as what it is otherwise; everything else is a list of texts."""
    given = [part for part in get_args(hint) if part is not type(None)]
    if type(None) in get_args(hint) and len(given) == 1:
        hint = given[0]
    return hint if hint in (int, bool, str) else tuple


KEYS: dict[str, Key] = {key.path: key for key in _keys()}
