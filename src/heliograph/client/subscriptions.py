"""Subscriptions of a session: the client's own numbers, stable over reconnects, with an inbox each.

In:    Subscribe commands; links that come and go; the broker's answers.
Out:   SUBSCRIBE frames to send; which inboxes a delivery goes to.
State: a bounded table, and a bounded memory of which numbers lead to which inboxes.
Not here: queues (client/inbox.py), who awaits an answer (client/requests.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from struct import unpack

from heliograph.client.commands import Request, Subscribe
from heliograph.client.inbox import Inbox
from heliograph.errors import HeliographError, UsageError
from heliograph.model.subscription import Policy
from heliograph.model.topics import filter_fault
from heliograph.wire import bodies

SUBSCRIPTIONS_MAX = 100_000  # as many as a broker takes on one link by default
SETS_MAX = 4_096  # remembered sets of numbers; beyond it the memory starts anew
NUMBER_MAX = (1 << 32) - 1


class Stage(Enum):
    """How far a subscription is with the present link."""

    WANTED = 1  # the broker does not know of it
    ASKED = 2
    IN_FORCE = 3
    ENDING = 4  # the program has ended it, the broker has not confirmed


class Wish:
    """One subscription, as the session keeps it."""

    __slots__ = ("echo", "filter", "inbox", "number", "policy", "request", "stage")

    def __init__(self, number: int, command: Subscribe) -> None:
        self.number = number
        self.filter = command.filter
        self.policy = command.policy
        self.echo = command.echo
        self.request: Request = command.request  # who awaits that it is in force; 0 once it was
        self.stage = Stage.WANTED
        self.inbox = Inbox(number, command.policy, command.inbox_frames_max, command.inbox_bytes_max)

    def body(self) -> bytes:
        """The body of its SUBSCRIBE."""
        return bodies.encode(
            bodies.Subscribe(number=self.number, filter=self.filter, policy=self.policy.value, echo=self.echo)
        )


class Subscriptions:
    """All subscriptions of a session."""

    __slots__ = ("_by_number", "_next_number", "_sets", "news")

    def __init__(self) -> None:
        self._by_number: dict[int, Wish] = {}
        self._next_number = 1
        self._sets: dict[bytes, tuple[Wish, ...]] = {}
        self.news: dict[int, Inbox] = {}  # inboxes with something new since the program last asked

    def add(self, command: Subscribe) -> Wish:
        """Keep a new subscription; UsageError for what no broker would take."""
        _check(command)
        if len(self._by_number) >= SUBSCRIPTIONS_MAX or self._next_number > NUMBER_MAX:
            raise UsageError(f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions")
        wish = Wish(self._next_number, command)
        self._next_number += 1
        self._by_number[wish.number] = wish
        self._sets.clear()
        return wish

    def get(self, number: int) -> Wish | None:
        """The subscription of this number, unless it has ended."""
        return self._by_number.get(number)

    def remove(self, wish: Wish, error: HeliographError | None = None) -> None:
        """It has ended; what is in its inbox can still be read."""
        if self._by_number.pop(wish.number, None) is not None:
            self._sets.clear()
            wish.inbox.end(error)
            self.news[wish.number] = wish.inbox

    def of(self, numbers: bytes) -> tuple[Wish, ...]:
        """The subscriptions that a delivery names; those that have ended meanwhile are left out."""
        known = self._sets.get(numbers)
        if known is None:
            named = unpack(f"<{len(numbers) // 4}I", numbers)
            known = tuple(self._by_number[number] for number in named if number in self._by_number)
            if len(self._sets) >= SETS_MAX:
                self._sets.clear()
            self._sets[numbers] = known
        return known

    def collect_news(self) -> list[Inbox]:
        """Inboxes that got something, or ended, since this was last asked."""
        inboxes = list(self.news.values())
        self.news.clear()
        return inboxes

    def __iter__(self) -> Iterator[Wish]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)


def _check(command: Subscribe) -> None:
    if not isinstance(command.filter, str):
        raise UsageError(f"a topic filter is a str, not {type(command.filter).__name__}")
    fault = filter_fault(command.filter.encode("utf-8", "surrogatepass"))
    if fault is not None:
        raise UsageError(f"{command.filter!r} is not a topic filter: {fault}")
    if not isinstance(command.policy, Policy):
        raise UsageError(f"{command.policy!r} is not a policy: one of {', '.join(Policy)}")
    if command.inbox_frames_max <= 0 or command.inbox_bytes_max <= 0:
        raise UsageError("an inbox has room for at least one publication")
