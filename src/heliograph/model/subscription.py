"""Subscriptions: what a client asked for, and what happens when the client is slow.

In:    a SUBSCRIBE frame's body, or the program's call.
Out:   Subscription and Policy; Wanted: a filter, with or without a condition.
State: none.
Not here: tables of them (matching/), carrying out a policy (broker/links.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Policy(StrEnum):
    """What happens to a publication for a link that does not keep up."""

    DROP_OLDEST = "drop_oldest"  # the oldest queued publication is dropped and counted
    DISCONNECT = "disconnect"  # the subscriber loses its link rather than a publication
    HOLD = "hold"  # publishers that opted in wait; publications of others are treated as drop_oldest

    @property
    def is_strict(self) -> bool:
        """True if a subscriber whose link was ended because it was too slow is told, rather than subscribed again."""
        return self is not Policy.DROP_OLDEST


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription of one client, under the client's own number."""

    number: int
    filter: bytes
    policy: Policy = Policy.DROP_OLDEST
    echo: bool = True  # False: without publications of this same session
    group: str = ""  # if set, shared with others of the same group and filter; each publication goes to one of them
    language: str = "topic"  # of ``where``
    where: str = ""  # the condition, in the language's canonical form
    listens: bool = False  # it answers no request, as a store or a monitor

    @property
    def wanted(self) -> Wanted:
        """The filter of this subscription, with its condition if it has one."""
        return Conditional(self.filter, self.language, self.where) if self.where else self.filter


class Conditional(NamedTuple):
    """A topic filter, and a condition on the publications that it matches."""

    filter: bytes
    language: str
    where: str


Wanted = bytes | Conditional
"""A topic filter alone, or with a condition."""


def filter_of(wanted: Wanted) -> bytes:
    """The topic filter of what is wanted."""
    return wanted if isinstance(wanted, bytes) else wanted.filter
