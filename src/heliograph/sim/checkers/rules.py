"""Access rules in their simplest form: the slow twin of broker/access.py, for checkers.

In:    a scenario: brokers with rules, clients with entities and roles.
Out:   may this client publish on, or receive, this topic at its broker?
State: none.
Not here: the broker's own, cached answer (broker/access.py), which shares no code with this.
"""

from __future__ import annotations

from heliograph.broker.config import RuleConfig
from heliograph.model.topics import SYSTEM_ROOTS, matches
from heliograph.sim.scenario import Scenario
from heliograph.topology.scenario_network import client_names, filled, home

PRIVILEGED = ("admin", "broker")


class Person:
    """A client as its broker knows it."""

    def __init__(self, broker: str, entity: str, roles: tuple[str, ...]) -> None:
        self.broker = broker
        self.entity = entity
        self.roles = roles


def people(scenario: Scenario) -> dict[str, Person]:
    """Every client by its name."""
    found = {}
    for group, plan in scenario.topology.clients.items():
        for number, name in enumerate(client_names(group, plan), 1):
            broker = home(scenario.topology, plan, number)
            proven = scenario.topology.brokers[broker].auth == "certificate"
            entity = filled(plan.entity, number, 0) if proven else "anonymous"
            found[name] = Person(broker, entity, plan.roles if proven else ("client",))
    return found


def may(scenario: Scenario, person: Person, verb: str, topic: str) -> bool:
    """The first matching rule decides; otherwise system topics are for admins and brokers; otherwise the default."""
    access = scenario.topology.brokers[person.broker].access
    for rule in access.rules:
        if verb in rule.verbs and _is_about(rule, person) and _covers(rule, person, topic):
            return rule.effect == "allow"
    if topic.split("/", 1)[0].encode() in SYSTEM_ROOTS:
        return any(role in PRIVILEGED for role in person.roles)
    return access.default == "allow" or "admin" in person.roles


def _is_about(rule: RuleConfig, person: Person) -> bool:
    for who in rule.who:
        if who.startswith("role:"):
            fits = who[5:] in person.roles
        elif who.endswith("*"):
            fits = person.entity.startswith(who[:-1])
        else:
            fits = who == person.entity
        if fits:
            return True
    return False


def _covers(rule: RuleConfig, person: Person, topic: str) -> bool:
    return any(matches(each.replace("{entity}", person.entity).encode(), topic.encode()) for each in rule.topics)
