"""Interests: what other brokers and clusters want, and what we advertise that we want.

In:    our clients' filters as they come and go; other owners' interests as they are told.
Out:   remote interests that match a topic; Interest bodies to send.
State: per owner what it wants and the number of its last change; what we ourselves and our cluster tell.
Not here: covering (reduced.py), the path to an owner (map.py), telling neighbours (advertising.py), local subscriptions
          (subscriptions.py).
Paper: [grid] §1.2, destinations from interests; [resources] §3.2, covering.

An owner is a broker of our cluster, or another part of a cluster. What a broker tells its cluster is reduced by
covering; what the leader of a cluster tells the network is the union of its members' interests, reduced again. An
aggregate over its limit is widened, never cut: first conditions are left out, then one filter replaces many.

An interest that only listens (a store's, a monitor's) never answers a request. Such interests are a class of their own:
covering and widening stay within a class. Otherwise a store's ``#`` would hide whether its broker has a responder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from heliograph.broker.routing.reduced import TOLD_BYTES_MAX, Reduced, condition_wanted
from heliograph.errors import ProtocolError, Reason
from heliograph.matching.boxes.index import IndexFullError
from heliograph.matching.condition import Condition
from heliograph.matching.contents import ContentTable, Field
from heliograph.matching.topics import TopicTable
from heliograph.model.ages import follows
from heliograph.model.subscription import Conditional, Wanted, filter_of
from heliograph.model.topics import filter_fault
from heliograph.wire.broker_bodies import INTERESTS_PER_BODY_MAX, Interest, Told

OWNERS_MAX = 32_768  # two for each broker of a map
OWNER_FILTERS_MAX = 100_000  # of one owner. A correct owner widens long before; a faulty one is cut off
INTERESTS_BYTES_MAX = 512 << 20  # of all owners: about a million interests; beyond it, new ones are not kept …
INTEREST_BYTES = 600  # … each takes this much besides its filter and condition
PENDING_BYTES_MAX = 128 << 20  # of snapshots that have not arrived in full: more than the largest one …
TOLD_BYTES = 64  # … each interest takes this much besides its text
GROUP_NAME_MAX = 128
T = TypeVar("T")

BODY_BYTES_MAX = 128 << 10  # of filters and conditions in one body: parsing them takes a few tenths of a second

Group = tuple[Wanted, str]
"""A filter, with or without a condition, and the name of the group that shares it."""


class Owner:
    """One broker or part of a cluster that wants something. Compared by identity."""

    __slots__ = ("age", "broker", "filters", "groups", "listening", "pending", "wide")

    def __init__(self, broker: int, wide: bool) -> None:
        self.broker = broker
        self.wide = wide
        self.age = (0, 0)
        self.filters: dict[Wanted, None] = {}
        self.listening: dict[Wanted, None] = {}  # those that only listen
        self.groups: dict[Group, None] = {}
        self.pending: list[Interest] = []  # the parts of a snapshot that has not arrived in full

    @property
    def key(self) -> tuple[int, bool]:
        """Identifies the owner."""
        return (self.broker, self.wide)

    @property
    def count(self) -> int:
        """How many interests it has."""
        return len(self.filters) + len(self.listening) + len(self.groups)


class RemoteInterest:
    """An entry of the tables: an owner, what it wants, and the group if the interest is shared."""

    __slots__ = ("condition", "group", "listens", "owner", "wanted")

    def __init__(
        self, owner: Owner, wanted: Wanted, group: str | None, listens: bool, condition: Condition | None
    ) -> None:
        self.owner = owner
        self.wanted = wanted
        self.group = group
        self.listens = listens  # it answers no request
        self.condition = condition


class Difference:
    """How an owner's interests changed."""

    __slots__ = (
        "came",
        "groups_came",
        "groups_went",
        "is_cut",
        "listening_came",
        "listening_went",
        "patterns",
        "went",
    )

    def __init__(self) -> None:
        self.patterns: dict[bytes, None] = {}  # filters whose cached routes have to be forgotten
        self.came: list[Wanted] = []
        self.went: list[Wanted] = []
        self.listening_came: list[Wanted] = []
        self.listening_went: list[Wanted] = []
        self.groups_came: list[Group] = []
        self.groups_went: list[Group] = []
        self.is_cut = False  # there was no room for everything that came

    def __bool__(self) -> bool:
        alone = self.came or self.went or self.listening_came or self.listening_went
        return bool(alone or self.groups_came or self.groups_went)

    @property
    def wanted(self) -> list[Wanted]:
        """Everything that came or went."""
        alone = [*self.came, *self.went, *self.listening_came, *self.listening_went]
        return [*alone, *(group[0] for group in [*self.groups_came, *self.groups_went])]


class Interests:
    """Everything that is known of what others want."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, bool], Owner] = {}
        self._topics: TopicTable[RemoteInterest] = TopicTable()
        self._contents: ContentTable[RemoteInterest] = ContentTable()
        self._remote: dict[tuple[Owner, Wanted, str | None, bool], RemoteInterest] = {}
        self._bytes = 0  # of all interests
        self._pending_bytes = 0
        self._pending: dict[Owner, int] = {}  # owners whose snapshot has not arrived in full, with its bytes so far

    def match(self, topic: bytes) -> list[RemoteInterest]:
        """The interests that match a topic without looking at content; an owner may occur more than once."""
        return self._topics.match(topic)

    def fields(self, topic: bytes) -> tuple[Field[RemoteInterest], ...]:
        """The fields of this topic: where conditions on a publication's content are looked up."""
        return self._contents.fields(topic)

    def age(self, broker: int, wide: bool) -> tuple[int, int] | None:
        """The number of an owner's last change; None if no full snapshot is known."""
        owner = self.owners.get((broker, wide))
        return None if owner is None or owner.age == (0, 0) else owner.age

    def includes(self, leader: int, topic: bytes) -> bool:
        """True if the part of a cluster that this broker leads wants the topic."""
        return any(remote.owner.wide and remote.owner.broker == leader for remote in self.match(topic))

    def learn(self, interest: Interest) -> Difference | None:
        """Learn what was told. Returns how the owner's interests changed; None if an earlier change is missing."""
        check(interest)
        owner = self.owners.get((interest.owner, interest.wide))
        if owner is None and len(self.owners) >= OWNERS_MAX:
            difference = Difference()
            difference.is_cut = True
            return difference
        if owner is None:
            owner = self.owners[(interest.owner, interest.wide)] = Owner(interest.owner, interest.wide)
        if interest.age <= owner.age:
            return Difference()
        if interest.full:
            return self._replace(owner, interest)
        if not follows(owner.age, interest.age):
            return None
        owner.age = interest.age
        return self._change(owner, interest)

    def _replace(self, owner: Owner, interest: Interest) -> Difference | None:
        """A snapshot: what it does not name is removed. None if parts of it are missing."""
        if owner.pending and owner.pending[0].age != interest.age:
            self._drop_pending(owner)
        is_long = len(owner.pending) * INTERESTS_PER_BODY_MAX > OWNER_FILTERS_MAX
        if not is_long:
            self._add_pending(owner, interest)
        if interest.more:
            return Difference()
        filters = dict.fromkeys(heard(told) for part in owner.pending for told in part.add)
        listening = dict.fromkeys(heard(told) for part in owner.pending for told in part.add_listening)
        groups = dict.fromkeys((heard(told), name) for part in owner.pending for told, name in part.add_groups)
        self._drop_pending(owner)
        if len(filters) + len(listening) + len(groups) < interest.total and not is_long:
            return None
        owner.age = interest.age
        difference = Difference()
        for wanted in [wanted for wanted in owner.filters if wanted not in filters]:
            self._drop(owner, wanted, None, difference)
        for wanted in [wanted for wanted in owner.listening if wanted not in listening]:
            self._drop(owner, wanted, None, difference, listens=True)
        for group in [group for group in owner.groups if group not in groups]:
            self._drop(owner, *group, difference)
        for wanted in filters:
            self._keep(owner, wanted, None, difference)
        for wanted in listening:
            self._keep(owner, wanted, None, difference, listens=True)
        for group in groups:
            self._keep(owner, *group, difference)
        return difference

    def _add_pending(self, owner: Owner, part: Interest) -> None:
        """Keep a part of a snapshot. If there is no room, the oldest pending snapshots are dropped and asked for
        again."""
        owner.pending.append(part)
        size = size_of(part) + INTEREST_BYTES + TOLD_BYTES * told_in(part)
        self._pending[owner] = self._pending.get(owner, 0) + size
        self._pending_bytes += size
        while self._pending_bytes > PENDING_BYTES_MAX:
            self._drop_pending(next(iter(self._pending)))

    def _drop_pending(self, owner: Owner) -> None:
        owner.pending.clear()
        self._pending_bytes -= self._pending.pop(owner, 0)

    def _change(self, owner: Owner, interest: Interest) -> Difference:
        difference = Difference()
        for told in interest.remove:
            self._drop(owner, heard(told), None, difference)
        for told in interest.remove_listening:
            self._drop(owner, heard(told), None, difference, listens=True)
        for told, name in interest.remove_groups:
            self._drop(owner, heard(told), name, difference)
        for told in interest.add:
            self._keep(owner, heard(told), None, difference)
        for told in interest.add_listening:
            self._keep(owner, heard(told), None, difference, listens=True)
        for told, name in interest.add_groups:
            self._keep(owner, heard(told), name, difference)
        return difference

    def _keep(
        self, owner: Owner, wanted: Wanted, group: str | None, difference: Difference, listens: bool = False
    ) -> None:
        key = (owner, wanted, group, listens)
        if key in self._remote:
            return
        size = INTEREST_BYTES + _size(wanted)
        if owner.count >= OWNER_FILTERS_MAX or self._bytes + size > INTERESTS_BYTES_MAX:
            difference.is_cut = True
            return
        self._bytes += size
        condition = condition_wanted(wanted)
        remote = self._remote[key] = RemoteInterest(owner, wanted, group, listens, condition)
        self._enter(remote, difference)
        if listens:
            owner.listening[wanted] = None
            difference.listening_came.append(wanted)
        elif group is None:
            owner.filters[wanted] = None
            difference.came.append(wanted)
        else:
            owner.groups[(wanted, group)] = None
            difference.groups_came.append((wanted, group))

    def _enter(self, remote: RemoteInterest, difference: Difference) -> None:
        """Put an interest into its table. If the index has no room for its condition, only its filter is used."""
        pattern = filter_of(remote.wanted)
        if remote.condition is not None:
            try:
                if self._contents.add(pattern, remote.condition, remote):
                    difference.patterns[pattern] = None
                return
            except IndexFullError:
                remote.condition = None
        self._topics.add(pattern, remote)
        difference.patterns[pattern] = None

    def _drop(
        self, owner: Owner, wanted: Wanted, group: str | None, difference: Difference, listens: bool = False
    ) -> None:
        remote = self._remote.pop((owner, wanted, group, listens), None)
        if remote is None:
            return
        self._bytes -= INTEREST_BYTES + _size(wanted)
        pattern = filter_of(wanted)
        if remote.condition is None:
            self._topics.remove(pattern, remote)
            difference.patterns[pattern] = None
        elif self._contents.remove(pattern, remote.condition, remote):
            difference.patterns[pattern] = None
        if listens:
            del owner.listening[wanted]
            difference.listening_went.append(wanted)
        elif group is None:
            del owner.filters[wanted]
            difference.went.append(wanted)
        else:
            del owner.groups[(wanted, group)]
            difference.groups_went.append((wanted, group))

    def forget(self, key: tuple[int, bool]) -> Difference:
        """An owner is gone for good."""
        difference = Difference()
        owner = self.owners.pop(key, None)
        if owner is not None:
            self._drop_pending(owner)
            for wanted in list(owner.filters):
                self._drop(owner, wanted, None, difference)
            for wanted in list(owner.listening):
                self._drop(owner, wanted, None, difference, listens=True)
            for group in list(owner.groups):
                self._drop(owner, *group, difference)
        return difference

    def __len__(self) -> int:
        return len(self._remote)


class AdvertisedInterests:
    """What one owner (we ourselves, or our part of the cluster) tells others that it wants: reduced, numbered, bounded.

    The limit holds for each class: for interests that may answer requests, and for those that only listen.
    """

    __slots__ = ("_answering", "_groups", "_listening", "age", "broker", "wide")

    def __init__(self, broker: int, wide: bool, incarnation: int, filters_max: int, number: int = 0) -> None:
        self.broker = broker
        self.wide = wide
        self.age = (incarnation, number)
        self._answering = Reduced(filters_max)
        self._listening = Reduced(filters_max)
        self._groups: dict[Group, int] = {}

    def renew(self, incarnation: int) -> None:
        """Use a newer incarnation from now on."""
        self.age = (incarnation, self.age[1])

    def number_from(self, number: int) -> None:
        """Continue numbering at least from this number."""
        self.age = (self.age[0], max(self.age[1], number))

    @property
    def filters(self) -> dict[Wanted, int]:
        """The interests that may answer requests, as last told, and how many each represents."""
        return self._answering.filters

    @property
    def listening(self) -> dict[Wanted, int]:
        """The same of those that only listen."""
        return self._listening.filters

    @property
    def is_settled(self) -> bool:
        """False if there is more to tell: then call ``change`` again, without arguments."""
        return self._answering.is_settled and self._listening.is_settled

    @property
    def widened(self) -> bool:
        """True if some filters are told in a wider form."""
        return self._answering.widened or self._listening.widened

    def change(
        self,
        add: Iterable[Wanted] = (),
        remove: Iterable[Wanted] = (),
        add_groups: Iterable[Group] = (),
        remove_groups: Iterable[Group] = (),
        add_listening: Iterable[Wanted] = (),
        remove_listening: Iterable[Wanted] = (),
    ) -> Difference | None:
        """Filters and groups came or went. Returns the resulting change of what is told, as far as it is settled; None
        if there is none."""
        difference = Difference()
        came, went = self._answering.change(add, remove)
        difference.came, difference.went = list(came), list(went)
        if add_listening or remove_listening or not self._listening.is_settled:
            came, went = self._listening.change(add_listening, remove_listening)
            difference.listening_came, difference.listening_went = list(came), list(went)
        difference.groups_came, difference.groups_went = self._change_groups(add_groups, remove_groups)
        if not difference:
            return None
        self.age = (self.age[0], self.age[1] + 1)
        return difference

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
        """The last change as bodies: the change itself or, if that is long, a full snapshot."""
        if len(difference.wanted) > INTERESTS_PER_BODY_MAX or sum(map(_size, difference.wanted)) > BODY_BYTES_MAX:
            return self.snapshot()
        return [
            Interest(
                owner=self.broker,
                wide=self.wide,
                incarnation=self.age[0],
                number=self.age[1],
                add=[tell(wanted) for wanted in difference.came],
                remove=[tell(wanted) for wanted in difference.went],
                add_listening=[tell(wanted) for wanted in difference.listening_came],
                remove_listening=[tell(wanted) for wanted in difference.listening_went],
                add_groups=[(tell(wanted), name) for wanted, name in difference.groups_came],
                remove_groups=[(tell(wanted), name) for wanted, name in difference.groups_went],
            )
        ]

    @property
    def groups(self) -> list[Group]:
        """The groups that were told."""
        return list(self._groups)

    def snapshot(self) -> list[Interest]:
        """A full snapshot, for a broker that knows none of it."""
        return snapshot_of(self.broker, self.wide, self.age, list(self.filters), self.groups, list(self.listening))


def snapshot_of(
    broker: int,
    wide: bool,
    age: tuple[int, int],
    filters: list[Wanted],
    groups: list[Group],
    listening: Sequence[Wanted] = (),
) -> list[Interest]:
    """Everything an owner wants, in as many bodies as it takes."""
    alone = [*((wanted, False) for wanted in filters), *((wanted, True) for wanted in listening)]
    parts = _portions(alone, lambda one: _size(one[0]))
    group_parts = _portions(groups, lambda group: _size(group[0]))
    count = max(1, len(parts), len(group_parts))
    return [
        Interest(
            owner=broker,
            wide=wide,
            incarnation=age[0],
            number=age[1],
            full=True,
            more=part < count - 1,
            total=len(alone) + len(groups) if part == count - 1 > 0 else 0,
            add=[tell(wanted) for wanted, listens in _portion(parts, part) if not listens],
            add_listening=[tell(wanted) for wanted, listens in _portion(parts, part) if listens],
            add_groups=[(tell(wanted), name) for wanted, name in _portion(group_parts, part)],
        )
        for part in range(count)
    ]


def _portions(items: list[T], size: Callable[[T], int]) -> list[list[T]]:
    """Cut a list so that each piece fits a body."""
    portions: list[list[T]] = []
    room = 0
    for item in items:
        room -= size(item)
        if room < 0 or len(portions[-1]) >= INTERESTS_PER_BODY_MAX:
            portions.append([])
            room = BODY_BYTES_MAX - size(item)
        portions[-1].append(item)
    return portions


def _portion(portions: list[list[T]], number: int) -> list[T]:
    return portions[number] if number < len(portions) else []


def _size(wanted: Wanted) -> int:
    return len(wanted) if isinstance(wanted, bytes) else len(wanted.filter) + 4 * len(wanted.where)


def tell(wanted: Wanted) -> Told:
    """The form on the wire."""
    if isinstance(wanted, bytes):
        return wanted.decode()
    return (wanted.filter.decode(), wanted.language, wanted.where)


def heard(told: Told) -> Wanted:
    """The form in the tables."""
    return told.encode() if isinstance(told, str) else Conditional(told[0].encode(), told[1], told[2])


def told_in(interest: Interest) -> int:
    """How many interests of a snapshot are in this body."""
    return len(interest.add) + len(interest.add_listening) + len(interest.add_groups)


def _alone_in(interest: Interest) -> list[Told]:
    """The interests of a body that belong to no group."""
    return [*interest.add, *interest.remove, *interest.add_listening, *interest.remove_listening]


def size_of(interest: Interest) -> int:
    """The size of a body, as ``_size`` counts it."""
    told = [*_alone_in(interest), *(group[0] for group in [*interest.add_groups, *interest.remove_groups])]
    return sum(len(one) if isinstance(one, str) else len(one[0]) + 4 * len(one[2]) for one in told)


def check(interest: Interest) -> None:
    """ProtocolError if a correct broker would not have sent this."""
    if size_of(interest) > 2 * BODY_BYTES_MAX:  # filters, and as much again for groups
        raise ProtocolError(Reason.BODY_MALFORMED, f"more than {2 * BODY_BYTES_MAX} bytes of interests in one body")
    everything = _alone_in(interest)
    for told, name in [*interest.add_groups, *interest.remove_groups]:
        everything.append(told)
        if not name or len(name) > GROUP_NAME_MAX or not name.isprintable():
            raise ProtocolError(Reason.BODY_MALFORMED, "a group needs a printable name")
    for told in everything:
        text = told if isinstance(told, str) else told[0]
        fault = filter_fault(text.encode("utf-8", "surrogatepass"))
        if fault is not None:
            raise ProtocolError(Reason.FILTER_INVALID, fault)
        if not isinstance(told, str) and len(told[1]) + len(told[2]) > TOLD_BYTES_MAX:
            raise ProtocolError(Reason.CONDITION_OVER_LIMIT, f"a condition of more than {TOLD_BYTES_MAX} characters")
