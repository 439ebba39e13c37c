"""Interests: what other brokers and clusters want, and what we tell them that we want.

In:    our clients' filters as they come and go; other owners' interests as they are told.
Out:   Wishes: whom a topic concerns; Interest bodies to tell.
State: per owner the filters it wants and the number of its last change; two covering sets, our own and our cluster's.
Not here: which way to an owner (map.py), telling neighbours (network.py), local subscriptions (subscriptions.py).
Paper: [grid] §1.2, destinations from interests; [resources] §3.2, covering.

An owner is a broker of our cluster, or another part of a cluster. What a broker tells its cluster is reduced by
covering; what the speaker of a cluster tells the network is the union of its members' interests, reduced again. An
aggregate that is over its limit is widened, never cut: one filter then stands for many.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.errors import ProtocolError, Reason
from heliograph.matching.covering import CoverSet
from heliograph.matching.topics import TopicTable
from heliograph.model.topics import HIDDEN_ROOTS, TOPIC_LEVELS_MAX, filter_fault
from heliograph.wire.network import INTERESTS_PER_BODY_MAX, Interest

OWNERS_MAX = 32_768  # two for each broker of a map
OWNER_FILTERS_MAX = 100_000  # of one owner; a good one has widened long before, of another the rest is not kept
GROUP_NAME_MAX = 128

Group = tuple[bytes, str]
"""A filter and the name of the group that shares it."""


class Owner:
    """One broker or part of a cluster that wants something. In tables it stands for itself."""

    __slots__ = ("age", "broker", "filters", "groups", "pending", "wide")

    def __init__(self, broker: int, wide: bool) -> None:
        self.broker = broker
        self.wide = wide
        self.age = (0, 0)
        self.filters: dict[bytes, None] = {}
        self.groups: dict[Group, None] = {}
        self.pending: list[Interest] = []  # the parts of a snapshot that has not come in full

    @property
    def key(self) -> tuple[int, bool]:
        """Who it is."""
        return (self.broker, self.wide)


class Wish:
    """What stands in the topic table: an owner, and the group if the interest is shared."""

    __slots__ = ("group", "owner", "pattern")

    def __init__(self, owner: Owner, pattern: bytes, group: str | None) -> None:
        self.owner = owner
        self.pattern = pattern
        self.group = group


class Difference:
    """How an owner's wishes changed."""

    __slots__ = ("came", "groups_came", "groups_went", "went")

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.went: list[bytes] = []
        self.groups_came: list[Group] = []
        self.groups_went: list[Group] = []

    def __bool__(self) -> bool:
        return bool(self.came or self.went or self.groups_came or self.groups_went)

    @property
    def patterns(self) -> list[bytes]:
        """Every filter that is touched."""
        return [*self.came, *self.went, *(group[0] for group in [*self.groups_came, *self.groups_went])]


class Interests:
    """Everything that is known of what others want."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, bool], Owner] = {}
        self._topics: TopicTable[Wish] = TopicTable()
        self._wishes: dict[tuple[Owner, bytes, str | None], Wish] = {}

    def match(self, topic: bytes) -> list[Wish]:
        """Whom a topic concerns; an owner may come more than once."""
        return self._topics.match(topic)

    def age(self, broker: int, wide: bool) -> tuple[int, int] | None:
        """The number of an owner's last change; None if nothing was heard of it in full."""
        owner = self.owners.get((broker, wide))
        return None if owner is None or owner.age == (0, 0) else owner.age

    def includes(self, speaker: int, topic: bytes) -> bool:
        """True if the part of a cluster for which this broker speaks wants the topic."""
        return any(wish.owner.wide and wish.owner.broker == speaker for wish in self.match(topic))

    def learn(self, interest: Interest) -> Difference | None:
        """Take in what was told, and say how that changed the owner's wishes; None if a change before it is missing."""
        check(interest)
        owner = self.owners.get((interest.owner, interest.wide))
        if owner is None and len(self.owners) >= OWNERS_MAX:
            return Difference()
        if owner is None:
            owner = self.owners[(interest.owner, interest.wide)] = Owner(interest.owner, interest.wide)
        if interest.age <= owner.age:
            return Difference()
        if interest.full:
            return self._replace(owner, interest)
        if interest.incarnation != owner.age[0] or interest.number != owner.age[1] + 1:
            return None
        owner.age = interest.age
        return self._change(owner, interest)

    def _replace(self, owner: Owner, interest: Interest) -> Difference:
        """A snapshot: what it does not name is gone."""
        if owner.pending and owner.pending[0].age != interest.age:
            owner.pending.clear()
        if len(owner.pending) * INTERESTS_PER_BODY_MAX <= OWNER_FILTERS_MAX:
            owner.pending.append(interest)
        if interest.more:
            return Difference()
        filters = dict.fromkeys(text.encode() for part in owner.pending for text in part.add)
        groups = dict.fromkeys((text.encode(), name) for part in owner.pending for text, name in part.add_groups)
        owner.pending.clear()
        owner.age = interest.age
        difference = Difference()
        for pattern in [pattern for pattern in owner.filters if pattern not in filters]:
            self._drop(owner, pattern, None, difference)
        for group in [group for group in owner.groups if group not in groups]:
            self._drop(owner, *group, difference)
        for pattern in filters:
            self._keep(owner, pattern, None, difference)
        for group in groups:
            self._keep(owner, *group, difference)
        return difference

    def _change(self, owner: Owner, interest: Interest) -> Difference:
        difference = Difference()
        for text in interest.remove:
            self._drop(owner, text.encode(), None, difference)
        for text, name in interest.remove_groups:
            self._drop(owner, text.encode(), name, difference)
        for text in interest.add:
            self._keep(owner, text.encode(), None, difference)
        for text, name in interest.add_groups:
            self._keep(owner, text.encode(), name, difference)
        return difference

    def _keep(self, owner: Owner, pattern: bytes, group: str | None, difference: Difference) -> None:
        key = (owner, pattern, group)
        if key in self._wishes or len(owner.filters) + len(owner.groups) >= OWNER_FILTERS_MAX:
            return
        wish = self._wishes[key] = Wish(owner, pattern, group)
        self._topics.add(pattern, wish)
        if group is None:
            owner.filters[pattern] = None
            difference.came.append(pattern)
        else:
            owner.groups[(pattern, group)] = None
            difference.groups_came.append((pattern, group))

    def _drop(self, owner: Owner, pattern: bytes, group: str | None, difference: Difference) -> None:
        wish = self._wishes.pop((owner, pattern, group), None)
        if wish is None:
            return
        self._topics.remove(pattern, wish)
        if group is None:
            del owner.filters[pattern]
            difference.went.append(pattern)
        else:
            del owner.groups[(pattern, group)]
            difference.groups_went.append((pattern, group))

    def forget(self, key: tuple[int, bool]) -> Difference:
        """An owner is gone for good."""
        difference = Difference()
        owner = self.owners.pop(key, None)
        if owner is not None:
            for pattern in list(owner.filters):
                self._drop(owner, pattern, None, difference)
            for group in list(owner.groups):
                self._drop(owner, *group, difference)
        return difference

    def __len__(self) -> int:
        return len(self._wishes)


class Voice:
    """What one owner (we ourselves, or our part of the cluster) says that it wants: reduced, numbered, bounded.

    While there are too many filters, all are told with their first ``_depth`` levels only; the depth is found anew when
    the limit is passed again, or when there are so few that they can be told as they are.
    """

    __slots__ = ("_covers", "_depth", "_filters_max", "_groups", "age", "broker", "filters", "wide")

    def __init__(self, broker: int, wide: bool, incarnation: int, filters_max: int) -> None:
        self.broker = broker
        self.wide = wide
        self.age = (incarnation, 0)
        self.filters: dict[bytes, int] = {}  # as they were told last, and how many filters each stands for
        self._covers = CoverSet()
        self._groups: dict[Group, int] = {}
        self._filters_max = filters_max
        self._depth = TOPIC_LEVELS_MAX

    @property
    def widened(self) -> bool:
        """True if some filters are told in a wider form than they are."""
        return self._depth < TOPIC_LEVELS_MAX

    def change(
        self,
        add: Iterable[bytes] = (),
        remove: Iterable[bytes] = (),
        add_groups: Iterable[Group] = (),
        remove_groups: Iterable[Group] = (),
    ) -> Difference | None:
        """Filters and groups came or went; how that changes what is told, if it does."""
        difference = Difference()
        came, went = self._change_filters(add, remove)
        difference.came, difference.went = list(came), list(went)
        difference.groups_came, difference.groups_went = self._change_groups(add_groups, remove_groups)
        if not difference:
            return None
        self.age = (self.age[0], self.age[1] + 1)
        return difference

    def _change_filters(self, add: Iterable[bytes], remove: Iterable[bytes]) -> tuple[dict[bytes, None], ...]:
        came: dict[bytes, None] = {}
        went: dict[bytes, None] = {}
        for pattern in remove:
            self._count(self._covers.remove(pattern), came, went)
        for pattern in add:
            self._count(self._covers.add(pattern), came, went)
        roots = len(self._covers.roots)
        if len(self.filters) > self._filters_max or (self.widened and 2 * roots <= self._filters_max):
            return self._find_depth(came, went)
        return came, went

    def _count(self, change: tuple[list[bytes], list[bytes]], came: dict[bytes, None], went: dict[bytes, None]) -> None:
        """Add a change of roots to what is to be told; what came and went again need not be told."""
        filters = self.filters
        for root in change[1]:
            told = widen(root, self._depth)
            filters[told] -= 1
            if not filters[told]:
                del filters[told]
                if told in came:
                    del came[told]
                else:
                    went[told] = None
        for root in change[0]:
            told = widen(root, self._depth)
            if told not in filters:
                filters[told] = 0
                if told in went:
                    del went[told]
                else:
                    came[told] = None
            filters[told] += 1

    def _find_depth(self, came: dict[bytes, None], went: dict[bytes, None]) -> tuple[dict[bytes, None], ...]:
        """Tell as many levels as the limit lets us. Returns what came and went against what was told before."""
        before = dict.fromkeys(pattern for pattern in self.filters if pattern not in came)
        before.update(went)
        depth = TOPIC_LEVELS_MAX
        while True:
            self.filters = {}
            for root in self._covers.roots:
                told = widen(root, depth)
                self.filters[told] = self.filters.get(told, 0) + 1
            if len(self.filters) <= self._filters_max or depth == 0:
                break
            depth = min(depth, max(pattern.count(b"/") + 1 for pattern in self.filters)) - 1
        self._depth = depth
        new = dict.fromkeys(pattern for pattern in self.filters if pattern not in before)
        return new, dict.fromkeys(pattern for pattern in before if pattern not in self.filters)

    def _change_groups(self, add: Iterable[Group], remove: Iterable[Group]) -> tuple[list[Group], list[Group]]:
        came: dict[Group, None] = {}
        went: dict[Group, None] = {}
        for group in remove:
            self._groups[group] -= 1
            if not self._groups[group]:
                del self._groups[group]
                went[group] = None
        for group in add:
            if group not in self._groups:
                self._groups[group] = 0
                if group in went:
                    del went[group]
                else:
                    came[group] = None
            self._groups[group] += 1
        return list(came), list(went)

    def bodies(self, difference: Difference) -> list[Interest]:
        """The last change as it is told: the change itself or, where that is long, everything anew."""
        if len(difference.patterns) > INTERESTS_PER_BODY_MAX:
            return self.snapshot()
        return [
            Interest(
                owner=self.broker,
                wide=self.wide,
                incarnation=self.age[0],
                number=self.age[1],
                add=[pattern.decode() for pattern in difference.came],
                remove=[pattern.decode() for pattern in difference.went],
                add_groups=[(pattern.decode(), name) for pattern, name in difference.groups_came],
                remove_groups=[(pattern.decode(), name) for pattern, name in difference.groups_went],
            )
        ]

    @property
    def groups(self) -> list[Group]:
        """The groups that were told."""
        return list(self._groups)

    def snapshot(self) -> list[Interest]:
        """All of it, for somebody who knows nothing."""
        return snapshot_of(self.broker, self.wide, self.age, list(self.filters), self.groups)


def snapshot_of(
    broker: int, wide: bool, age: tuple[int, int], filters: list[bytes], groups: list[Group]
) -> list[Interest]:
    """Everything an owner wants, in as many bodies as it takes."""
    size = INTERESTS_PER_BODY_MAX
    count = max(1, -(-max(len(filters), len(groups)) // size))
    return [
        Interest(
            owner=broker,
            wide=wide,
            incarnation=age[0],
            number=age[1],
            full=True,
            more=part < count - 1,
            add=[pattern.decode() for pattern in filters[part * size : (part + 1) * size]],
            add_groups=[(pattern.decode(), name) for pattern, name in groups[part * size : (part + 1) * size]],
        )
        for part in range(count)
    ]


def widen(pattern: bytes, depth: int) -> bytes:
    """A filter that covers this one and has at most ``depth`` levels before a '#'."""
    levels = pattern.split(b"/")
    if levels[0] in HIDDEN_ROOTS:
        depth = max(depth, 1)  # '#' alone does not see system topics
    if len(levels) <= depth:
        return pattern
    return b"/".join([*levels[:depth], b"#"])


def check(interest: Interest) -> None:
    """Refuse what a good broker would not tell."""
    texts = [*interest.add, *interest.remove]
    for text, name in [*interest.add_groups, *interest.remove_groups]:
        texts.append(text)
        if not name or len(name) > GROUP_NAME_MAX or not name.isprintable():
            raise ProtocolError(Reason.BODY_MALFORMED, "a group needs a printable name")
    for text in texts:
        fault = filter_fault(text.encode("utf-8", "surrogatepass"))
        if fault is not None:
            raise ProtocolError(Reason.FILTER_INVALID, fault)
