"""Resources and requests of a scenario, as frozen values.

In:    the tables [[resource]] and [[discovery]] of a scenario file.
Out:   ResourcePlan and DiscoveryPlan; their problems as texts.
State: none.
Not here: what owners and requesters do (party.py), the rest of a scenario (sim/scenario.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.forwarding import DELIVERIES
from heliograph.errors import ConditionError
from heliograph.topology.toml_tables import suggest

Drawn = tuple[int | float | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePlan:
    """A resource, with an owner that keeps it registered."""

    name: str
    brokers: tuple[str, ...]  # where it is registered; if one fails, the next
    where: str  # the ranges of its values
    static: bool = False
    values: dict[str, Drawn] = field(default_factory=dict)  # each update draws from these: [least, most], or texts
    every_s: float = 0.0  # between updates; 0: only the first
    from_s: float = 2.0
    until_s: float = 0.0  # when it is withdrawn; 0: never
    lease_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryPlan:
    """A requester."""

    name: str
    brokers: tuple[str, ...]
    where: str = "true"
    model: str = "dynamic"
    deliver: str = "similarity"
    best: int = 0
    order: str = ""
    max_age_s: float = 0.0
    deadline_s: float = 2.0
    watch: bool = False  # a continuous request
    at_s: float = 4.0
    every_s: float = 0.0  # interval; 0: once
    expect: tuple[str, ...] | None = None  # the resources that every answer has, or that a watcher knows at the end


def resource_problems(plan: ResourcePlan, brokers: Mapping[str, object], path: str) -> list[str]:
    """All problems with it."""
    return _party_problems(plan.brokers, plan.where, brokers, path)


def discovery_problems(plan: DiscoveryPlan, brokers: Mapping[str, object], path: str) -> list[str]:
    """All problems with it."""
    found = _party_problems(plan.brokers, plan.where, brokers, path)
    if plan.model not in ("static", "dynamic"):
        found.append(f"{path}.model = {plan.model!r}: must be static or dynamic")
    if plan.deliver not in DELIVERIES:
        found.append(f"{path}.deliver = {plan.deliver!r}: must be one of {', '.join(DELIVERIES)}")
    return found


def _party_problems(named: tuple[str, ...], where: str, brokers: Mapping[str, object], path: str) -> list[str]:
    found = [f"{path}.brokers has {name!r}: {suggest(name, list(brokers))}" for name in named if name not in brokers]
    if not named:
        found.append(f"{path}.brokers: must name at least one")
    try:
        read_condition(where)
    except ConditionError as error:
        found.append(f"{path}.where = {where!r}: {error}")
    return found
