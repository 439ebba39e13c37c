"""Access: whether a peer may do something. Decided in one place, remembered in the route cache.

In:    an identity, a verb ("publish", "subscribe", "ask") and a topic, filter or service name.
Out:   Profile.may and Profile.may_filter; for each link, Profile.is_foreign and Profile.may_hear.
State: profiles, one per distinct set of rules that apply to a peer.
Not here: proving an identity (credentials.py), caching per topic (routes.py).

Rules are tried in the order in which they are written; the first that fits decides. If no rule fits, the default
applies, except that system topics are reserved for brokers and admins, and the service "admin" for admins. Proven
entities may publish to topic directories and to each other's Entity/<entity>, and each may subscribe to its own, which
no rule opens to others; directories may subscribe to what is published to them. A store may subscribe to everything.
Only services of brokers publish on the topics of stores, and of these only stores advertise. Created topics
(Topics/<uuid>/…) depend on grants, which belong to a link (rights.py). As everywhere, a wildcard at the first level of
a rule does not match system topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from heliograph.broker.config import AccessConfig, RuleConfig
from heliograph.matching.topics import TopicTable
from heliograph.model.identity import Identity, Role
from heliograph.model.topics import CREATED_ROOT, ENTITY_ROOT, INBOX_ROOT, covers, created_root, is_system, overlaps

GUARDED_SERVICES = (b"admin",)
STORES_ROOT = b"Services/Stores/"  # stores believe what is published here, so only services of brokers may publish it
ADVERTISEMENT = b"Services/Stores/Advertisement"  # of these topics, only stores may publish this one
WILD = (b"+", b"#")
ALL_ENTITIES = frozenset((Role.BROKER, Role.ADMIN, Role.STORE))  # roles that receive what is sent to any entity
PRIVILEGED = (Role.BROKER, Role.ADMIN, Role.DIRECTORY, Role.STORE)
DISCOVERY_TOPICS = b"Services/Discovery/"  # topic directories: any proven entity may publish below it
OWNERS_TOPIC = b"Services/Discovery/Topics/Owners"  # owners of topics answer there when no directory does
DIRECTORY_TOPICS = (DISCOVERY_TOPICS, b"Services/BrokerDiscoveryNodes/")


class Rule(Struct, frozen=True):
    """One pattern of one line of the access list, as it applies to one peer."""

    verb: str
    pattern: bytes
    allow: bool
    first: bytes  # the pattern's first level


class Profile:
    """What peers with the same applicable rules may do."""

    __slots__ = ("_is_proven", "_rules", "_tables", "default", "heard", "privileges", "spoken")

    def __init__(
        self, rules: tuple[Rule, ...], default: bool, privileges: tuple[Role, ...], is_proven: bool = False
    ) -> None:
        self._is_proven = is_proven
        self._rules = rules
        self.default = default
        self.privileges = privileges
        self._tables: dict[str, TopicTable[int]] = {}
        for number, rule in enumerate(rules):
            self._tables.setdefault(rule.verb, TopicTable()).add(rule.pattern, number)
        self.heard = [(rule.pattern.decode(), rule.allow) for rule in rules if rule.verb == "subscribe"]
        self.spoken = [(rule.pattern.decode(), rule.allow) for rule in rules if rule.verb == "publish"]

    def may(self, verb: str, topic: bytes) -> bool:
        """True if the peer may do this on this topic (or, for "ask", with this service)."""
        table = self._tables.get(verb)
        if table is not None:
            fitting = table.match(topic)
            if fitting:
                return self._rules[min(fitting)].allow
        return self._otherwise(verb, topic)

    def asks_grant(self, verb: str, topic: bytes) -> bool:
        """True if the link needs its own right for this: the topic is a created one, and no rule mentions it."""
        if topic.split(b"/", 1)[0] != CREATED_ROOT or Role.BROKER in self.privileges:
            return False
        table = self._tables.get(verb)
        return table is None or not table.match(topic)

    def is_foreign(self, topic: bytes, identity: Identity) -> bool:
        """True if this topic or filter belongs to another entity than the peer's. No rule opens it: one profile serves
        many entities, so this is asked for each link, as grants are."""
        if topic.split(b"/", 1)[0] != ENTITY_ROOT or not ALL_ENTITIES.isdisjoint(self.privileges):
            return False
        own = b"%b/%b/#" % (ENTITY_ROOT, identity.entity.encode())
        return not (identity.is_proven and covers(own, topic))

    def may_filter(self, pattern: bytes) -> bool:
        """False if a subscription to this filter could never be delivered anything; whether it is another entity's is
        another question (``is_foreign``)."""
        first = pattern.split(b"/", 1)[0]
        wild = first in WILD
        for rule in self._rules:
            if rule.verb != "subscribe" or not (wild or rule.first == first or rule.first in WILD):
                continue  # most rules are about other topics, which the first level shows
            if rule.allow and overlaps(rule.pattern, pattern):
                return True
            if not rule.allow and covers(rule.pattern, pattern):
                return False
        return self._otherwise("subscribe", pattern)

    def may_hear(self, topic: bytes, identity: Identity, has_right: Callable[[bytes], bool]) -> bool:
        """True if a peer with this identity would receive this topic if it subscribed now. ``has_right`` is asked about
        the root of a created topic."""
        if not (self.may("subscribe", topic) and self.may_filter(topic)):
            return False
        return self.is_granted(topic, identity, has_right)

    def may_speak(self, topic: bytes, has_right: Callable[[bytes], bool]) -> bool:
        """True if a peer could publish on this topic now. ``has_right`` is asked about the root of a created topic."""
        if not self.may("publish", topic):
            return False
        if not self.asks_grant("publish", topic):
            return True
        root = created_root(topic)
        return root is not None and has_right(root)

    def is_granted(self, topic: bytes, identity: Identity, has_right: Callable[[bytes], bool]) -> bool:
        """True unless this topic or filter is another entity's, or needs a right that the peer does not have."""
        if self.is_foreign(topic, identity):
            return False
        if not self.asks_grant("subscribe", topic):
            return True
        root = created_root(topic)
        return root is not None and has_right(root)

    def _otherwise(self, verb: str, topic: bytes) -> bool:
        if verb == "ask":
            return topic not in GUARDED_SERVICES or Role.ADMIN in self.privileges
        is_store = Role.STORE in self.privileges
        if is_store and verb == "subscribe":
            return True  # stores keep everything; the rights of their readers are checked on delivery
        if topic.startswith(STORES_ROOT) and verb == "publish":
            return Role.BROKER in self.privileges and (is_store or topic != ADVERTISEMENT)
        if is_system(topic):
            return Role.BROKER in self.privileges or Role.ADMIN in self.privileges or self._may_discover(verb, topic)
        if topic.startswith(INBOX_ROOT + b"/"):
            return True  # a peer that may ask may receive the answers in its own inbox; rules can still deny it
        if topic.split(b"/", 1)[0] == CREATED_ROOT:
            return True  # if the link has a right: asks_grant
        return self.default or Role.ADMIN in self.privileges

    def _may_discover(self, verb: str, topic: bytes) -> bool:
        """Entities and directories may publish to each other. What an entity may receive: ``is_foreign``."""
        if topic.startswith(ENTITY_ROOT + b"/"):
            return self._is_proven
        if Role.DIRECTORY in self.privileges and topic.startswith(DIRECTORY_TOPICS):
            return True
        if verb == "publish":
            return self._is_proven and topic.startswith(DISCOVERY_TOPICS)
        return self._is_proven and topic == OWNERS_TOPIC


class Access:
    """The access list in force, and the profiles made from it."""

    def __init__(self, config: AccessConfig) -> None:
        self._config = config
        self._profiles: dict[tuple[tuple[Rule, ...], tuple[Role, ...], bool], Profile] = {}

    def profile(self, identity: Identity) -> Profile:
        """The profile of a peer; peers with the same rules share one."""
        rules = tuple(
            _rule(verb, topic.replace("{entity}", identity.entity).encode(), line.effect == "allow")
            for line in self._config.rules
            if _fits(line, identity)
            for verb in line.verbs
            for topic in line.topics
        )
        privileges = _privileges(identity)
        key = (rules, privileges, identity.is_proven)
        profile = self._profiles.get(key)
        if profile is None:
            profile = self._profiles[key] = Profile(
                rules, self._config.default == "allow", privileges, identity.is_proven
            )
        return profile

    def forget(self, profile: Profile) -> None:
        """No peer has this profile any more."""
        for key, known in list(self._profiles.items()):
            if known is profile:
                del self._profiles[key]

    def __len__(self) -> int:
        return len(self._profiles)


def heard_profile(rules: Sequence[tuple[str, bool]], default: bool, identity: Identity) -> Profile:
    """The profile of a reader at another broker, from the rules that this broker's profile calls ``heard``."""
    heard = tuple(_rule("subscribe", pattern.encode(), allow) for pattern, allow in rules)
    return Profile(heard, default, _privileges(identity), identity.is_proven)


def spoken_profile(rules: Sequence[tuple[str, bool]], default: bool, identity: Identity) -> Profile:
    """The same for publishing, from those that it calls ``spoken``."""
    spoken = tuple(_rule("publish", pattern.encode(), allow) for pattern, allow in rules)
    return Profile(spoken, default, _privileges(identity), identity.is_proven)


def _privileges(identity: Identity) -> tuple[Role, ...]:
    return tuple(role for role in PRIVILEGED if identity.has(role))


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
