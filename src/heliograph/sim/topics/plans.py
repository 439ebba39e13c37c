"""Directories, entities, topics, grants and searches of a scenario, as frozen values.

In:    the tables [topics], [[directory]], [[entity]], [[topic]], [[grant]] and [[search]] of a scenario file.
Out:   one plan for each; their problems as texts.
State: none.
Not here: what entities do (actor.py), the rest of a scenario (sim/scenario.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from heliograph.repository import EVERYBODY
from heliograph.topology.scenario_network import BrokerPlan
from heliograph.topology.toml_tables import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsPlan:
    """What holds for all messages about topics."""

    loss: float = 0.0  # the probability that a message of an entity or a directory is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPlan:
    """A topic directory in a process of its own."""

    name: str
    brokers: tuple[str, ...]  # it is linked to the first that answers
    creates: bool = True
    dies_s: float = 0.0  # when it ends for good; 0: never


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPlan:
    """A party with a certificate."""

    name: str
    brokers: tuple[str, ...]  # that it uses; if one fails, the next
    intrudes: bool = False  # subscribes to every topic that it finds, whatever its rights


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic, and how its owner uses it."""

    name: str
    owner: str
    at_s: float = 3.0
    lifetime_s: int = 3_600
    readers: tuple[str, ...] = (EVERYBODY,)  # entities that may find it
    encrypted: bool = False
    every_s: float = 0.0  # between publications of the owner; 0: none
    withdraw_s: float = 0.0  # 0: never


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPlan:
    """A grant, which its holder uses from then on, also after it was revoked."""

    name: str
    topic: str
    holder: str
    at_s: float = 4.0
    subscribe: bool = True
    discover: bool = True
    delegate: bool = False
    using: str = ""  # the grant that it is derived from; without it, the owner's own
    revoke_s: float = 0.0  # 0: never


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """Searches of an entity, with all grants that it has then."""

    entity: str
    text: str = "plant"  # keywords: every topic has this one, and its own name
    at_s: float = 4.0
    every_s: float = 0.0  # 0: once
    watch: bool = False  # a standing search


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCastPlan:
    """All tables about topics."""

    topics: TopicsPlan | None
    directories: tuple[DirectoryPlan, ...]
    entities: tuple[EntityPlan, ...]
    topic: tuple[TopicPlan, ...]
    grants: tuple[GrantPlan, ...]
    searches: tuple[SearchPlan, ...]

    def grantor(self, grant: GrantPlan) -> str:
        """Who makes a grant: the holder of the one that it is derived from, or the owner of the topic."""
        if grant.using:
            return next(one.holder for one in self.grants if one.name == grant.using)
        return next(one.owner for one in self.topic if one.name == grant.topic)

    def problems(self, brokers: Mapping[str, BrokerPlan]) -> list[str]:
        """All problems with them."""
        entities = [one.name for one in self.entities]
        topics = [one.name for one in self.topic]
        grants = [one.name for one in self.grants]
        found = []
        if self.topics is None:
            if self.directories or self.entities:
                found.append("directory and entity need the table [topics], which may be empty")
        elif not 0 <= self.topics.loss <= 1:
            found.append(f"topics.loss = {self.topics.loss}: a probability is between 0 and 1")
        for number, directory in enumerate(self.directories):
            found += _at(f"directory[{number}]", directory.brokers, brokers)
        for number, entity in enumerate(self.entities):
            found += _at(f"entity[{number}]", entity.brokers, brokers)
        for number, topic in enumerate(self.topic):
            found += _named(f"topic[{number}].owner", topic.owner, entities)
            if not topic.lifetime_s > 0:
                found.append(f"topic[{number}].lifetime_s = {topic.lifetime_s}: must be above 0")
        for number, grant in enumerate(self.grants):
            found += _named(f"grant[{number}].topic", grant.topic, topics)
            found += _named(f"grant[{number}].holder", grant.holder, entities)
            if grant.using:
                found += _named(f"grant[{number}].using", grant.using, grants[:number])
        for number, search in enumerate(self.searches):
            found += _named(f"search[{number}].entity", search.entity, entities)
        return found


def _at(path: str, named: tuple[str, ...], brokers: Mapping[str, BrokerPlan]) -> list[str]:
    found = [f"{path}.brokers has {name!r}: {suggest(name, list(brokers))}" for name in named if name not in brokers]
    if not named:
        found.append(f"{path}.brokers: must name at least one")
    found += [
        f"{path}.brokers has {name!r}, whose auth is not certificate: nobody could prove there who he is"
        for name in named
        if name in brokers and brokers[name].auth != "certificate"
    ]
    return found


def _named(path: str, name: str, known: Collection[str]) -> list[str]:
    return [] if name in known else [f"{path} = {name!r}: {suggest(name, list(known))}"]
