"""Subscriptions of a session: numbered by the client, stable over reconnects, with an inbox each.

In:    Subscribe commands; what the program has read; the ends of subscriptions.
Out:   bodies of SUBSCRIBE frames; which inboxes a delivery goes to; which inboxes are full.
State: a bounded table, and a bounded memory of which numbers lead to which inboxes.
Not here: queues (client/inbox.py), asking a broker for them (client/subscription_requests.py), which request awaits
          an answer (client/requests.py).

Two inboxes do not belong to subscriptions of the program: ``answers`` (number 0) gets publications to the session's own
inbox topic, once the program has made a request; ``directed`` gets publications that name this session as a
destination.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack

from heliograph.client.commands import Request, Subscribe, Taken
from heliograph.client.inbox import Inbox
from heliograph.errors import HeliographError, UsageError
from heliograph.machine import Instant
from heliograph.model.subscription import Policy
from heliograph.model.topics import filter_fault, quoted
from heliograph.wire import bodies

SUBSCRIPTIONS_MAX = 100_000  # the default limit of a broker per link
SETS_MAX = 4_096  # remembered sets of numbers; beyond it the memory starts from empty
NUMBER_MAX = (1 << 32) - 1
ANSWERS = 0  # the number of the subscription to the session's own inbox topic
DIRECTED = -1  # publications that name this session as a destination have no subscription number
DIRECTED_FRAMES_MAX = 4_096
DIRECTED_BYTES_MAX = 16 << 20


class LocalSubscription:
    """One subscription, as the session keeps it."""

    __slots__ = (
        "cut_at",
        "echo",
        "ending",
        "filter",
        "group",
        "inbox",
        "language",
        "listens",
        "number",
        "policy",
        "request",
        "where",
        "wide",
    )

    def __init__(self, number: int, command: Subscribe, inbox: Inbox | None = None) -> None:
        self.number = number
        self.filter = command.filter  # empty: the session's own inbox topic at the present broker
        self.policy = command.policy
        self.echo = command.echo
        self.group = command.group
        self.wide = command.wide
        self.where = command.where
        self.language = command.language
        self.listens = command.listens
        self.request: Request = command.request  # waits until it is in force; 0 afterwards
        self.ending = False  # the program has ended it, the broker has not confirmed that
        self.cut_at = ""  # the broker with which its link was lost; its next WELCOME says whether we were too slow
        bounds = (command.inbox_frames_max, command.inbox_bytes_max)
        self.inbox = inbox if inbox is not None else Inbox(number, command.policy, *bounds)

    def end(self) -> None:
        """The program has ended it; the broker has been told."""
        self.ending = True

    def cut(self, broker: str) -> None:
        """Its link to this broker was lost without a GOODBYE; empty: that broker has explained it."""
        self.cut_at = broker

    def take_request(self) -> Request:
        """The request that waits for it; 0 if none, and from the second call on."""
        request, self.request = self.request, 0
        return request

    def body(self, own_inbox: str) -> bytes:
        """The body of its SUBSCRIBE. Only the first broker has to tell all brokers before it confirms."""
        return bodies.encode(
            bodies.Subscribe(
                number=self.number,
                filter=self.filter or f"{own_inbox}/#",
                policy=self.policy.value,
                echo=self.echo,
                group=self.group,
                wide=self.wide and self.request != 0,
                language=self.language,
                where=self.where,
                listens=self.listens,
            )
        )


class LocalSubscriptions:
    """All subscriptions of a session."""

    __slots__ = ("_by_number", "_next_number", "_sets", "answers", "directed", "news", "pressing")

    def __init__(self) -> None:
        self._by_number: dict[int, LocalSubscription] = {}
        self._next_number = 1
        self._sets: dict[bytes, tuple[LocalSubscription, ...]] = {}
        self.answers: LocalSubscription | None = None
        self.directed = Inbox(DIRECTED, Policy.DROP_OLDEST, DIRECTED_FRAMES_MAX, DIRECTED_BYTES_MAX)
        self.news: dict[int, Inbox] = {}  # inboxes with something new since the last call
        self.pressing: dict[int, LocalSubscription] = {}  # subscriptions whose inbox is full

    def add(self, command: Subscribe) -> LocalSubscription:
        """Keep a new subscription; UsageError for what no broker would accept."""
        _check(command)
        if len(self._by_number) >= SUBSCRIPTIONS_MAX or self._next_number > NUMBER_MAX // 2:
            raise UsageError(f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions")
        subscription = LocalSubscription(self._next_number, command)
        self._next_number += 1
        self._by_number[subscription.number] = subscription
        self._sets.clear()
        return subscription

    def listen(self, inbox: Inbox) -> LocalSubscription:
        """Subscribe to the session's own inbox topic."""
        self._sets.clear()
        self.answers = LocalSubscription(ANSWERS, Subscribe(0, ""), inbox)
        return self.answers

    def get(self, number: int) -> LocalSubscription | None:
        """The subscription of this number, unless it has ended."""
        return self._by_number.get(number) if number != ANSWERS else self.answers

    def remove(self, subscription: LocalSubscription, error: HeliographError | None = None) -> None:
        """The subscription has ended; what is in its inbox can still be read."""
        self.pressing.pop(subscription.number, None)
        if subscription is self.answers:
            self.answers = None
            self._sets.clear()
            if error is not None:
                subscription.inbox.end(error)  # fails the requests whose answers would come there
        elif self._by_number.pop(subscription.number, None) is not None:
            self._sets.clear()
            subscription.inbox.end(error)
            self.news[subscription.number] = subscription.inbox

    def end(self, error: HeliographError | None) -> None:
        """The session has ended, with all subscriptions."""
        for subscription in self:
            self.remove(subscription, error)
        self.directed.end(error)
        self.news[DIRECTED] = self.directed

    def of(self, numbers: bytes) -> tuple[LocalSubscription, ...]:
        """The subscriptions that a delivery names, without those that have ended meanwhile."""
        known = self._sets.get(numbers)
        if known is None:
            named = unpack(f"<{len(numbers) // 4}I", numbers)
            known = tuple(subscription for number in named if (subscription := self.get(number)) is not None)
            if len(self._sets) >= SETS_MAX:
                self._sets.clear()
            self._sets[numbers] = known
        return known

    def cut(self, numbers: set[int], broker: str) -> bool:
        """The link on which these were in force is lost without a GOODBYE. True if one of them must not lose anything:
        then this broker has to be asked first whether it ended the link because we were too slow."""
        strict = [each for each in self if each.policy.is_strict and each.number in numbers]
        for subscription in strict:
            subscription.cut(broker)
        return bool(strict)

    def explained(self, broker: str, error: HeliographError | None) -> None:
        """This broker welcomes us again. ``error``: it had ended the link because we were too slow, so the
        subscriptions that must not lose anything end."""
        for subscription in self:
            if subscription.cut_at == broker:
                subscription.cut("")
                if error is not None:
                    self.remove(subscription, error)

    def taken(self, command: Taken, now: Instant) -> None:
        """The program has read from an inbox: if it was full, it may have room again."""
        subscription = self.pressing.get(command.number)
        if subscription is not None and subscription.inbox.is_half_empty():
            subscription.inbox.relax()
            del self.pressing[command.number]

    def abandon(self, subscription: LocalSubscription) -> None:
        """The program will not read any more: the inbox must not hold the link."""
        subscription.inbox.abandon()
        self.pressing.pop(subscription.number, None)

    def collect_news(self) -> list[Inbox]:
        """Inboxes that got something, or ended, since the last call."""
        inboxes = list(self.news.values())
        self.news.clear()
        return inboxes

    def everything(self) -> list[LocalSubscription]:
        """Everything to ask a broker for: the program's subscriptions and the session's own."""
        subscriptions = list(self._by_number.values())
        return subscriptions if self.answers is None else [self.answers, *subscriptions]

    def __iter__(self) -> Iterator[LocalSubscription]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)


def _check(command: Subscribe) -> None:
    if not isinstance(command.filter, str):
        raise UsageError(f"a topic filter is a str, not {type(command.filter).__name__}")
    fault = filter_fault(command.filter.encode("utf-8", "surrogatepass"))
    if fault is not None:
        raise UsageError(f"{quoted(command.filter)} is not a topic filter: {fault}")
    if not isinstance(command.policy, Policy):
        raise UsageError(f"{command.policy!r} is not a policy: one of {', '.join(Policy)}")
    if not isinstance(command.group, str):
        raise UsageError(f"a group is named by a str, not {type(command.group).__name__}")
    for text in (command.where, command.language):
        if not isinstance(text, str):
            raise UsageError(f"a condition and its language are str, not {type(text).__name__}")
    if command.group and command.listens:
        raise UsageError("a member of a group answers requests: listens is for subscriptions without a group")
    if command.inbox_frames_max <= 0 or command.inbox_bytes_max <= 0:
        raise UsageError("an inbox has room for at least one publication")
