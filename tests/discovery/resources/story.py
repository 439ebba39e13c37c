"""A random story of resource discovery, and the oracle that judges it.

In:    a seed.
Out:   what went wrong, in words; nothing if all went well.
State: what every resource's values were, and when.
Not here: the services (net.py).

The oracle judges each resource by itself, because hosts are read at different moments and no answer is a snapshot. The
time that counts is from the request to its answer. It begins earlier only by the age that the request allows, no
earlier than the answer says that hosts were read, and not at all for a resource at the requester's own broker. A
resource that fitted during all of this time is in the answer, unless the answer names its host broker as missing; one
that never fitted in it is not; its values are some that it had in it, and the answer tells when it got them; nothing is
there twice. A watcher that was told everything knows in the end what fits. A lease that ends is noticed within a tick
of the service.

A resource that its owner moves to another broker is excused in three cases, which are counted:
- "on the move": it moved in the time of the answer, or so shortly before that not every broker knew. It may be missing.
- "old host": no connected network has lasted long enough since the move for its old host to hear of it. The old host
  has it, with the values it had there.
- "orphan": it ended at its new host before the old one could hear of the move. Then no broker can tell the old host,
  which has it until the lease there ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.resources.core import TICK_NS
from heliograph.discovery.resources.forwarding import DIRECT, NORMAL, SIMILARITY
from heliograph.discovery.resources.gathering import GatheredAnswer, ResourceQuestion
from heliograph.discovery.resources.messages import RequestId, ResourceState
from heliograph.discovery.resources.watching import WatchState
from tests.discovery.resources.net import EPOCH, MS, SECOND, Edge, Net, Node

CACHE_S = 3
FOREVER = 1 << 60
SETTLES = SECOND // 2  # a move is known everywhere after this, where no link is down


@dataclass
class Past:
    """One resource: where it is, and its values from when on; None: not there."""

    host: str
    where: str
    history: list[tuple[int, dict[str, Any] | None]] = field(default_factory=list)
    told: bool = False  # whether it has told values
    version: int = 0
    epoch: int = 1
    last: dict[str, Any] = field(default_factory=dict)  # its last values, which its owner remembers
    moved: list[tuple[int, str]] = field(default_factory=list)  # when it left which broker
    expires: int = FOREVER
    lapsed: bool = False  # it ended with its lease
    advertised: list[tuple[int, str, tuple[int, int]]] = field(default_factory=list)  # when, where, and as which change

    def told_as(self, instant: int) -> tuple[str, tuple[int, int]]:
        """At this time: its host, and the change of that host's advertisements with which it was told."""
        found = ((where, age) for at, where, age in reversed(self.advertised) if at <= instant)
        return next(found, ("", (FOREVER, 0)))

    @property
    def is_there(self) -> bool:
        return bool(self.history) and self.history[-1][1] is not None

    def is_moving(self, start: int, end: int) -> bool:
        """True if it moved in this time, or so shortly before that not every broker knows."""
        return any(start - SETTLES <= left <= end for left, _ in self.moved)


@dataclass
class Asked:
    """One request of the story."""

    at: str
    where: str
    issued: int
    max_age: int
    deadline: int
    answers: list[GatheredAnswer] = field(default_factory=list)
    answered: int = 0
    known: dict[str, tuple[int, int]] = field(default_factory=dict)  # hosting brokers in the table, and how new it was


@dataclass
class Watch:
    """One continuous request of the story."""

    at: str
    where: str
    id: RequestId
    state: WatchState = field(default_factory=WatchState)


class Story:
    """One network, and what happens to it."""

    def __init__(self, seed: int, *, tree: bool, faults: bool, brokers: int = 8) -> None:
        self.random = random = Random(f"{seed}/{tree}/{faults}")
        names = [f"b{number}" for number in range(random.randint(3, brokers))]
        edges: list[Edge] = [(random.choice(names[:place]), names[place]) for place in range(1, len(names))]
        if not tree:
            for _ in range(random.randint(1, len(names))):
                one, other = random.sample(names, 2)
                if (one, other) not in edges and (other, one) not in edges:
                    edges.append((one, other))
        self.names, self.faults = names, faults
        self.net = Net(names, edges, seed, ResourcesConfig(cache_s=CACHE_S, forget_s=3_600))
        self.net.delay_ms = (1, random.choice((1, 5, 20)))
        self.past: dict[int, Past] = {}
        self.asked: list[Asked] = []
        self.watches: list[Watch] = []
        self._watch_number = 0
        self.down: list[Edge] = []
        self.net.direct_faults = faults
        self.net.on_told = self._told
        self.net.on_stirred = self._stirred
        self.net.on_emptied = self._emptied
        self.problems: list[str] = []
        self.excused: Counter[str] = Counter()
        self._whole: list[tuple[int, int]] = []  # the times in which no link was down
        self._whole_since: int | None = 0

    # -- what happens ---------------------------------------------------------------------------------------------

    def play(self, steps: int = 60) -> list[str]:
        for _ in range(self.random.randint(2, 6)):
            self._register()
        for _ in range(3):
            self._update()
        self.net.run(1)
        for _ in range(2):
            self._watch()
        actions = [self._ask] * 10 + [self._update] * 5 + [self._register, self._withdraw, self._watch, self._pause]
        actions += [self._move, self._best]
        if self.faults:
            actions += [self._cut, self._mend, self._mend, self._crash]
        for _ in range(steps):
            self._expire()
            self.random.choice(actions)()
            self.net.run(self.random.choice((0, 0.001, 0.005, 0.02, 0.1)))
        self._expire()
        while self.down:
            self._mend()
        self.net.run(5)
        self._expire()
        self.net.run(1)
        self._judge_watches()
        for asked in self.asked:
            self._judge(asked)
        return self.problems

    def _note_links(self) -> None:
        """Write down since when no link is down, or until when."""
        if self.down and self._whole_since is not None:
            self._whole.append((self._whole_since, self.net.now))
            self._whole_since = None
        elif not self.down and self._whole_since is None:
            self._whole_since = self.net.now

    def _heard_by(self, left: int) -> int:
        """When all brokers have heard of a move at this time: once no link was down for a while."""
        for since, until in [*self._whole, (FOREVER if self._whole_since is None else self._whole_since, FOREVER)]:
            if until - max(since, left) >= SETTLES:
                return max(since, left) + SETTLES
        return FOREVER

    def _may_have(self, past: Past, host: str, start: int, condition: Any) -> str:
        """Why this old host of a resource may still have it, from this time on; nothing if it may not."""
        for left, old in past.moved:
            if old != host or not any(self._fits(condition, past, each) for each in self._values(past, left - 1, left)):
                continue
            heard = self._heard_by(left)
            if start <= heard:
                return "old host"
            if any(left <= at <= heard and values is None for at, values in past.history):
                return "orphan"
        return ""

    def _condition(self) -> str:
        a = self.random.randint(0, 3)
        text = f"a >= {a}"
        if self.random.random() < 0.4:
            text += f" and a <= {a + self.random.randint(0, 3)}"
        if self.random.random() < 0.3:
            text += f" and b >= {self.random.randint(0, 2)}"
        return text

    def _register(self) -> None:
        id = len(self.past) + 1
        low = self.random.randint(0, 2)
        where = f"a >= {low} and a <= {low + self.random.randint(1, 4)} and b >= 0 and b <= 3"
        host = self.random.choice(self.names)
        lease_s = self.random.choice((3_600, 3_600, 1))
        self.past[id] = Past(host, where, expires=self.net.now + lease_s * SECOND)
        self.net.register(host, id, where, lease_s=lease_s)
        self._advertise(self.past[id])
        self.past[id].history.append((self.net.now, {}))

    def _advertise(self, past: Past) -> None:
        node = self.net.nodes[past.host]
        node.core.flush()
        host = node.core.table.hosts.get(self.net.ids[past.host])
        age = (node.incarnation, 1) if host is None else host.age  # a broker that has just started tells it later
        past.advertised.append((self.net.now, past.host, age))

    def _expire(self) -> None:
        """Write down which leases are over."""
        for past in self.past.values():
            if past.is_there and past.expires <= self.net.now:
                past.history.append((past.expires, None))
                past.lapsed = True

    def _move(self) -> None:
        """An owner attaches its resource at another broker, with its last values."""
        there = self._there()
        if there:
            self._attach(self.random.choice(there))

    def _attach(self, id: int) -> None:
        past = self.past[id]
        values = past.history[-1][1] or past.last
        past.epoch += 1
        past.moved.append((self.net.now, past.host))
        past.host, past.expires = self.random.choice(self.names), FOREVER
        self.net.register(past.host, id, past.where, epoch=past.epoch)
        self._advertise(past)
        if values:
            past.version += 1
            self.net.update(past.host, id, past.version, **values)
        past.history.append((self.net.now, values or {}))

    def _there(self) -> list[int]:
        return [id for id, past in self.past.items() if past.is_there]

    def _update(self) -> None:
        there = self._there()
        if not there:
            return
        id = self.random.choice(there)
        past = self.past[id]
        low, high = (each.value for each in read_condition(past.where).conjunction[:2])
        values = {"a": self.random.randint(int(low), int(high)), "b": self.random.randint(0, 3)}
        past.version += 1
        self.net.update(past.host, id, past.version, **values)
        past.history.append((self.net.now, values))
        past.last = values

    def _withdraw(self) -> None:
        there = self._there()
        if len(there) > 2:
            id = self.random.choice(there)
            self.net.nodes[self.past[id].host].core.hosting.withdraw(id)
            self.past[id].history.append((self.net.now, None))

    def _ask(self) -> None:
        at, where = self.random.choice(self.names), self._condition()
        deliver = self.random.choice((SIMILARITY, SIMILARITY, SIMILARITY, NORMAL, DIRECT))
        max_age = 0 if deliver != SIMILARITY else self.random.choice((0, 0, 1, CACHE_S)) * SECOND
        asked = Asked(at, where, self.net.now, max_age, self.net.now + 2 * SECOND)
        hosts = self.net.nodes[at].core.table.still_overlapping(read_condition(where))
        asked.known = {host.name: host.age for host in hosts}
        self.asked.append(asked)
        question = ResourceQuestion(
            read_condition(where),
            deliver,
            max_age_ns=max_age,
            deadline_ns=2 * SECOND,
            cache_ns=CACHE_S * SECOND,
        )

        def answered(answer: GatheredAnswer, now: int) -> None:
            asked.answers.append(answer)
            asked.answered = now

        self.net.nodes[at].core.gathering.begin(question, answered, self.net.now)

    def _best(self) -> None:
        """The best k of a whole network, while nothing changes: exactly those that an oracle takes."""
        at, where = self.random.choice(self.names), self._condition()
        best, order = self.random.randint(1, 4), self.random.choice(("a", "a desc", "b"))
        deliver = self.random.choice((SIMILARITY, NORMAL, DIRECT))
        answers: list[GatheredAnswer] = []
        if self.down:
            return
        self._expire()
        self.net.run(1)
        self._expire()
        self.net.run(1)
        fitting = [
            (past.history[-1][1], id)
            for id, past in self.past.items()
            if past.is_there and self._fits(read_condition(where), past, past.history[-1][1])
        ]
        question = ResourceQuestion(
            *(read_condition(where), deliver, best, order, 0, 2 * SECOND, CACHE_S * SECOND),
        )
        began = self.net.now
        self.net.nodes[at].core.gathering.begin(question, lambda answer, now: answers.append(answer), self.net.now)
        self.net.run(2.5)
        name, descends = order[0], order.endswith("desc")

        def key(each: tuple[dict[str, Any] | None, int]) -> tuple[bool, int, int]:
            value = (each[0] or {}).get(name)
            return (value is None, 0 if value is None else -value if descends else value, each[1])

        wanted = [id for _, id in sorted(fitting, key=key)[:best]]
        got = [each.id for each in answers[0].found] if answers else []
        names = {number: name for name, number in self.net.ids.items()}
        for each in answers[0].found if answers else ():
            if not self.past[each.id].is_there and self._excuses(
                each.id, names[each.host], began, read_condition(where)
            ):
                return
        if not answers or (answers[0].is_complete and got != wanted):
            self.problems.append(f"the best {best} by {order} of {where} at {at} are {wanted}, not {got}; {answers}")

    def _excuses(self, id: int, host: str, start: int, condition: Any) -> bool:
        reason = self._may_have(self.past[id], host, start, condition)
        if reason:
            self.excused[reason] += 1
        return bool(reason)

    def _pause(self) -> None:
        self.net.run(self.random.choice((0.5, 1, CACHE_S + 1)))

    def _cut(self) -> None:
        if self.net.edges:
            edge = self.random.choice(list(self.net.edges))
            self.net.cut(edge)
            self.down.append(edge)
            self._note_links()
            self.net.reroute()

    def _mend(self) -> None:
        if self.down:
            edge = self.down.pop(self.random.randrange(len(self.down)))
            self.net.mend(edge)
            self._note_links()
            self.net.reroute()

    def _crash(self) -> None:
        """A broker dies with its resources and its clients; owners attach elsewhere."""
        name = self.random.choice(self.names)
        for edge in self.net.crash(name):
            self.down.append(edge)
        self._note_links()
        for id, past in self.past.items():
            if past.host == name and past.is_there:
                past.history.append((self.net.now, None))
                if self.random.random() < 0.5:
                    self._attach(id)
        self.asked = [asked for asked in self.asked if asked.at != name or asked.answers]
        self.watches = [watch for watch in self.watches if watch.at != name]
        self.net.reroute()

    # -- watchers -------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        at, where = self.random.choice(self.names), self._condition()
        node = self.net.nodes[at]
        self._watch_number += 1
        id = (self.net.ids[at], node.incarnation, 1_000_000 + self._watch_number)
        watch = Watch(at, where, id)
        self.watches.append(watch)
        node.core.standing.add(0, id, where)
        self._snapshot(watch)

    def _snapshot(self, watch: Watch) -> None:
        node = self.net.nodes[watch.at]
        question = ResourceQuestion(read_condition(watch.where), NORMAL, deadline_ns=2 * SECOND)

        def answered(answer: GatheredAnswer, now: int) -> None:
            if watch not in self.watches:
                return
            told = [
                {
                    **{"id": str(each.id), "host": str(each.host), "name": each.name, "epoch": each.epoch},
                    **{"incarnation": each.incarnation, "number": each.number, "values": each.values},
                }
                for each in answer.found
            ]
            hosts = {str(host): as_of for host, as_of in answer.hosts.items()}
            watch.state.snapshot(told, hosts, [str(self.net.ids[name]) for name in answer.missing])
            if answer.missing or not answer.is_complete:
                self.net.at(now + 200 * MS, lambda: self._snapshot(watch) if watch in self.watches else None)

        node.core.gathering.begin(question, answered, self.net.now)

    def _told(self, node: Node, id: RequestId, state: ResourceState) -> None:
        for watch in self.watches:
            if watch.id == id:
                fits = state.values is not None and read_condition(watch.where).has(state.values)
                watch.state.state(
                    {
                        **{"id": str(state.id), "host": str(state.host), "name": state.name, "epoch": state.epoch},
                        **{"incarnation": state.incarnation, "number": state.number, "values": state.values},
                        **{"fits": fits, "gone": state.values is None},
                    }
                )

    def _stirred(self, node: Node, id: RequestId) -> None:
        for watch in self.watches:
            if watch.id == id:
                self.net.at(self.net.now + 50 * MS, lambda watch=watch: self._snapshot(watch))  # type: ignore[misc]

    def _emptied(self, node: Node, id: RequestId, host: str, life: int) -> None:
        for watch in self.watches:
            if watch.id == id:
                watch.state.emptied(host, life)

    def _judge_watches(self) -> None:
        for watch in self.watches:
            knows = {int(id): each.values for id, each in watch.state.resources.items() if each.fits and each.values}
            fits = {
                id: past.history[-1][1]
                for id, past in self.past.items()
                if past.is_there and past.history[-1][1] and read_condition(watch.where).has(past.history[-1][1])
            }
            names = {str(number): name for name, number in self.net.ids.items()}
            for id in [id for id in knows if id not in fits]:
                host = names[watch.state.resources[str(id)].host]
                if self._excuses(id, host, self.net.now, read_condition(watch.where)):
                    del knows[id]
            if knows != fits:
                self.problems.append(f"a watcher of {watch.where} at {watch.at} knows {knows}, and {fits} fit")

    # -- the oracle -----------------------------------------------------------------------------------------------

    def _judge(self, asked: Asked) -> None:
        if len(asked.answers) != 1:
            self.problems.append(f"{asked.where} at {asked.at} got {len(asked.answers)} answers")
            return
        (answer,) = asked.answers
        names = [each.id for each in answer.found]
        if len(set(names)) != len(names):
            self.problems.append(f"{asked.where} at {asked.at}: a resource twice: {names}")
        condition = read_condition(asked.where)
        rows = {each.id: each for each in answer.found}
        for id, past in self.past.items():
            start = self._start(past, asked, answer)
            fitted = [self._fits(condition, past, values) for values in self._values(past, start, asked.answered)]
            is_there = id in names
            if fitted and all(fitted) and not is_there and self._is_due(past, asked, answer):
                lasted = f"from {start} to {asked.answered}"
                self.problems.append(
                    f"{asked.where} at {asked.at} misses {id} at {past.host}, which fitted {lasted}; {answer}"
                )
            if is_there and not any(fitted) and not self._is_excused(id, answer, start, condition):
                self.problems.append(
                    f"{asked.where} at {asked.at} has {id} at {past.host}, which never fitted; {answer}"
                )
            elif is_there and any(fitted) and rows[id].epoch == past.epoch and not past.moved:
                values = rows[id].values or {}
                had = [at + EPOCH for at, each in self._had(past, start, asked.answered) if each == values]
                if rows[id].updated not in had:
                    self.problems.append(f"{asked.where} at {asked.at}: {rows[id]} was {past.history}")

    def _start(self, past: Past, asked: Asked, answer: GatheredAnswer) -> int:
        """From when on a resource counts."""
        if past.host == asked.at and not past.moved:
            return asked.issued
        return max(0, asked.issued - asked.max_age, min(asked.issued, answer.as_of - EPOCH))

    def _is_excused(self, id: int, answer: GatheredAnswer, start: int, condition: Any) -> bool:
        host = next(each.host for each in answer.found if each.id == id)
        names = {number: name for name, number in self.net.ids.items()}
        return self._excuses(id, names[host], start, condition)

    def _is_due(self, past: Past, asked: Asked, answer: GatheredAnswer) -> bool:
        """A host that is missing, or whose advertisement had not reached the requester, need not have answered."""
        host, age = past.told_as(asked.issued)
        if host in answer.missing or asked.known.get(host, (0, 0)) < age or not answer.is_complete:
            return False
        if past.is_moving(self._start(past, asked, answer), asked.answered):
            self.excused["on the move"] += 1
            return False
        return True

    @staticmethod
    def _values(past: Past, start: int, end: int) -> list[dict[str, Any] | None]:
        """What its values were in this time, None included for when it was not there."""
        return [values for _, values in Story._had(past, start, end)]

    @staticmethod
    def _had(past: Past, start: int, end: int) -> list[tuple[int, dict[str, Any] | None]]:
        """The same, each with the time from which on it had them."""
        found: list[tuple[int, dict[str, Any] | None]] = []
        history = [(0, None), *past.history, (FOREVER, None)]
        for (begins, values), (ends, _) in pairwise(history):
            late = TICK_NS if past.lapsed and ends == past.expires else 0
            if begins <= end and ends + late >= start:
                found.append((begins, values))
        return found

    @staticmethod
    def _fits(condition: Any, past: Past, values: dict[str, Any] | None) -> bool:
        if values is None:
            return False
        if not values:  # it has told nothing yet, and is said to be such
            return bool(condition.overlaps(read_condition(past.where)))
        return bool(condition.has(values))
