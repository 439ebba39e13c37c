"""Scripts: what one entity of a scenario does; and the words that entities and checkers share.

In:    the plans of a scenario that concern one entity.
Out:   Script, Leaked, Row.
State: none.
Not here: doing it (actor.py, rights_user.py), the tables of a scenario (plans.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from heliograph.sim.topics.plans import EntityPlan, GrantPlan, SearchPlan, TopicPlan

Write = Callable[..., None]
"""Writes an entry of the journal."""

Row = tuple[str, str, str, str]
"""A found topic: its name in the scenario, its UUID, its proven owner (or why there is none), and who told of it."""


@dataclass(frozen=True, slots=True)
class Leaked:
    """Told to every entity: a publication on an encrypted topic, as if somebody had copied it on its way."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one entity does."""

    entity: EntityPlan
    topics: tuple[TopicPlan, ...]  # that it owns
    grants: tuple[GrantPlan, ...]  # that it makes
    searches: tuple[SearchPlan, ...]
    ends_s: float  # after this it begins nothing more, except publications
    quiet_s: float  # and after this none of these
