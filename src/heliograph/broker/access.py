"""Access: may this peer do that? One question, asked in one place, remembered in the route cache.

In:    an identity, a verb ("publish", "subscribe", "ask") and a topic, filter or service name.
Out:   Profile.may and Profile.may_filter.
State: profiles, one per distinct set of rules that fit somebody.
Not here: proving an identity (credentials.py), caching per topic (routes.py).

Rules are tried in the order they are written; the first that fits decides. What no rule fits follows the default,
except that system topics are for brokers and admins, and the service "admin" is for admins. A store may hear
everything, and nobody else may advertise one. A wildcard at the first level of a rule does not reach system topics, as
everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.broker.config import AccessConfig, RuleConfig
from heliograph.matching.topics import TopicTable
from heliograph.model.identity import Identity, Role
from heliograph.model.topics import INBOX_ROOT, covers, is_system, overlaps

GUARDED_SERVICES = (b"admin",)
STORES_ROOT = b"Services/Stores/"
ADVERTISEMENT = b"Services/Stores/Advertisement"  # by stores alone
WILD = (b"+", b"#")


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern of one line of the access list, as it applies to one peer."""

    verb: str
    pattern: bytes
    allow: bool
    first: bytes  # the pattern's first level


class Profile:
    """What peers with the same applicable rules may do."""

    __slots__ = ("_default", "_rules", "_tables", "privileges")

    def __init__(self, rules: tuple[Rule, ...], default: bool, privileges: tuple[Role, ...]) -> None:
        self._rules = rules
        self._default = default
        self.privileges = privileges
        self._tables: dict[str, TopicTable[int]] = {}
        for number, rule in enumerate(rules):
            self._tables.setdefault(rule.verb, TopicTable()).add(rule.pattern, number)

    def may(self, verb: str, topic: bytes) -> bool:
        """True if the peer may do this on this topic (or, for "ask", with this service)."""
        table = self._tables.get(verb)
        if table is not None:
            fitting = table.match(topic)
            if fitting:
                return self._rules[min(fitting)].allow
        return self._otherwise(verb, topic)

    def may_filter(self, pattern: bytes) -> bool:
        """False if a subscription to this filter could never be delivered anything."""
        first = pattern.split(b"/", 1)[0]
        wild = first in WILD
        for rule in self._rules:
            if rule.verb != "subscribe" or not (wild or rule.first == first or rule.first in WILD):
                continue  # most rules speak of other topics: their first level tells
            if rule.allow and overlaps(rule.pattern, pattern):
                return True
            if not rule.allow and covers(rule.pattern, pattern):
                return False
        return self._otherwise("subscribe", pattern)

    def _otherwise(self, verb: str, topic: bytes) -> bool:
        if verb == "ask":
            return topic not in GUARDED_SERVICES or Role.ADMIN in self.privileges
        is_store = Role.STORE in self.privileges
        if is_store and verb == "subscribe":
            return True  # it keeps what others may hear; who reads from it is asked again
        if topic == ADVERTISEMENT and verb == "publish":
            return is_store
        if is_system(topic):
            return self.privileges not in ((), (Role.STORE,)) or (is_store and topic.startswith(STORES_ROOT))
        if topic.startswith(INBOX_ROOT + b"/"):
            return True  # who may ask may be answered, and hears it in its own inbox; rules can still deny it
        return self._default or Role.ADMIN in self.privileges


class Access:
    """The access list in force, and the profiles made from it."""

    def __init__(self, config: AccessConfig) -> None:
        self._config = config
        self._profiles: dict[tuple[tuple[Rule, ...], tuple[Role, ...]], Profile] = {}

    def profile(self, identity: Identity) -> Profile:
        """The profile of a peer; peers to whom the same rules apply share one."""
        rules = tuple(
            _rule(verb, topic.replace("{entity}", identity.entity).encode(), line.effect == "allow")
            for line in self._config.rules
            if _fits(line, identity)
            for verb in line.verbs
            for topic in line.topics
        )
        privileges = tuple(role for role in (Role.BROKER, Role.ADMIN, Role.STORE) if identity.has(role))
        profile = self._profiles.get((rules, privileges))
        if profile is None:
            profile = Profile(rules, self._config.default == "allow", privileges)
            self._profiles[(rules, privileges)] = profile
        return profile

    def forget(self, profile: Profile) -> None:
        """Nobody has this profile any more."""
        for key, known in list(self._profiles.items()):
            if known is profile:
                del self._profiles[key]

    def __len__(self) -> int:
        return len(self._profiles)


def _rule(verb: str, pattern: bytes, allow: bool) -> Rule:
    return Rule(verb, pattern, allow, pattern.split(b"/", 1)[0])


def _fits(line: RuleConfig, identity: Identity) -> bool:
    for who in line.who:
        if who == "*" or who == identity.entity:
            return True
        if who.startswith("role:") and Role(who[5:]) in identity.roles:
            return True
        if who.endswith("*") and identity.entity.startswith(who[:-1]):
            return True
    return False
