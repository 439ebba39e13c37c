"""The oracle: which client gets which publication, and what is wrong with what the clients got.

In:    the clients' interests, all publications, and each client's deliveries in the order in which they came.
Out:   the expected deliveries; a Verdict that counts lost, repeated, extra and misordered ones.
State: none.
Not here: conditions (workload.py has one function for each), frames (client.py).

A client has a stream of deliveries for its plain subscriptions together, and one for each group of which it is a
member. A publication is expected once in the plain stream, and once among all members of a group. In each stream the
publications of one publisher keep their order, across topics: a delivery is misordered if a later publication of the
same publisher came before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.independent.client import Delivery, Publication
from tests.independent.workload import Draft, Interest

Id = tuple[int, int]  # origin and sequence


@dataclass
class Verdict:
    """Counts of one run, and the first few details of what was wrong."""

    sent: int = 0
    expected: int = 0
    lost: int = 0
    twice: int = 0  # to one client
    shared: int = 0  # to several members of a group
    extra: int = 0
    misordered: int = 0
    details: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> tuple[int, int, int, int, int]:
        return self.lost, self.twice, self.shared, self.extra, self.misordered

    def say(self, detail: str) -> None:
        if len(self.details) < 20:
            self.details.append(detail)


@dataclass(frozen=True)
class Subscriber:
    """A client as the oracle sees it: its subscriptions by number."""

    name: str
    origin: int
    interests: Mapping[int, Interest]


@dataclass(frozen=True)
class Expectation:
    """Deliveries to single clients, with the subscription numbers, and to one member of a group each."""

    single: Mapping[tuple[str, Id], tuple[int, ...]]
    shared: frozenset[tuple[str, Id]]

    def __len__(self) -> int:
        return len(self.single) + len(self.shared)


def matches(pattern: Sequence[str], levels: Sequence[str]) -> bool:
    """Whether a filter matches a topic, both as levels."""
    if not pattern:
        return not levels
    if pattern[0] == "#":
        return True
    return bool(levels) and pattern[0] in ("+", levels[0]) and matches(pattern[1:], levels[1:])


def wants(interest: Interest, draft: Draft) -> bool:
    return matches(interest.filter.split("/"), draft.topic.split("/")) and interest.fits(draft)


def expect(subscribers: Iterable[Subscriber], publications: Sequence[Publication]) -> Expectation:
    single: dict[tuple[str, Id], tuple[int, ...]] = {}
    shared: set[tuple[str, Id]] = set()
    for subscriber in subscribers:
        for one in publications:
            numbers = []
            for number, interest in subscriber.interests.items():
                if (subscriber.origin == one.origin and not interest.echo) or not wants(interest, one.draft):
                    continue
                if interest.group:
                    shared.add((interest.group, (one.origin, one.sequence)))
                else:
                    numbers.append(number)
            if numbers:
                single[subscriber.name, (one.origin, one.sequence)] = tuple(sorted(numbers))
    return Expectation(single, frozenset(shared))


def judge(
    subscribers: Sequence[Subscriber],
    publications: Sequence[Publication],
    deliveries: Mapping[str, Sequence[Delivery]],
    expectation: Expectation | None = None,
) -> Verdict:
    """Compare what came with what was expected. Deliveries of other publications than these are left out."""
    due = expectation or expect(subscribers, publications)
    frames = {(one.origin, one.sequence): one.raw for one in publications}
    verdict = Verdict(sent=len(publications), expected=len(due))
    single: set[tuple[str, Id]] = set()
    shared: Counter[tuple[str, Id]] = Counter()
    for subscriber in subscribers:
        streams: dict[str, list[Id]] = {}
        for one in deliveries[subscriber.name]:
            key = (one.origin, one.sequence)
            if key not in frames:
                continue
            if frames[key] != one.raw or not one.numbers:
                verdict.extra += 1
                verdict.say(f"{subscriber.name} got {key} with other bytes, or for no subscription")
            for stream in _streams(verdict, subscriber, one, due):
                streams.setdefault(stream, []).append(key)
        for stream, came in streams.items():
            _judge_order(verdict, f"{subscriber.name} {stream}".strip(), came)
            kept = dict.fromkeys(came)
            verdict.twice += len(came) - len(kept)
            if stream:
                shared.update((stream, key) for key in kept)
            else:
                single.update((subscriber.name, key) for key in kept)
    for (group, key), count in shared.items():
        if count > 1:
            verdict.shared += count - 1
            verdict.say(f"{count} members of {group} got {key}")
    for where in [*sorted(due.single.keys() - single), *sorted(due.shared - shared.keys())]:
        verdict.lost += 1
        verdict.say(f"{where} did not come")
    return verdict


def _streams(verdict: Verdict, subscriber: Subscriber, one: Delivery, due: Expectation) -> list[str]:
    """In which streams a delivery is: the groups by their names, "" for the plain subscriptions."""
    key = (one.origin, one.sequence)
    groups = [subscriber.interests[number].group for number in one.numbers if subscriber.interests[number].group]
    numbers = tuple(number for number in one.numbers if not subscriber.interests[number].group)
    if numbers and due.single.get((subscriber.name, key)) != numbers:
        verdict.extra += 1
        verdict.say(f"{subscriber.name} got {key} for {numbers}, not {due.single.get((subscriber.name, key))}")
    for group in groups:
        if (group, key) not in due.shared:
            verdict.extra += 1
            verdict.say(f"{subscriber.name} of {group} got {key}, which the group does not want")
    return [*groups, ""] if numbers else groups


def _judge_order(verdict: Verdict, stream: str, came: Sequence[Id]) -> None:
    highest: dict[int, int] = {}
    for origin, sequence in came:
        before = highest.get(origin, 0)
        if sequence < before:  # an equal one is a repetition, and is counted as that
            verdict.misordered += 1
            verdict.say(f"{stream} got {sequence} of {origin:016x} after {before}")
        highest[origin] = max(before, sequence)
