"""The changeover: moves a destination from one path to another without reordering anything.

In:    ``begin`` (new paths were computed), ``release_all`` (a link is gone, here or elsewhere), ``arrive`` (a MARK has
       reached us), ``receive`` (a MARKED); what ``Plans`` sends to the detour (holds.py).
Out:   holds, while a destination has to wait; MARK and MARKED frames; what was held back, sent on.
State: what is held back; the marks that members of our cluster must answer.
Not here: which path is shortest (map.py), what goes where (plans.py), parcels (parcels.py).
Paper: [grid] §1.2; N11, publisher order.

A destination is a member of our cluster, or another part of a cluster. When its next hop changes, a MARK is sent along
the old path, after the last parcel, and everything that follows for this destination is held back. The destination
answers with MARKED. A broker at which a part is entered first passes the MARK on to those members that it has sent
something to. The answer shows that everything on the old path has arrived, so what was held back follows on the new
path. Brokers on the path do the same for their own changes, and MARKs are held back like publications, so changes in
several places can be combined.

While brokers have different views for a moment, they may wait for each other. So two things are never held back:
parcels that have been here before, which are older than what is held back, and parcels from the old next hop. Remaining
cycles and lost MARKs end by a time limit. When a link is gone nothing waits: the MARK may never arrive. Publications
that are delivered out of order because of that are counted at their destination (``late``).
"""

from __future__ import annotations

from typing import Any

from heliograph.broker.routing.holds import Hold, Holds
from heliograph.broker.routing.map import Paths
from heliograph.broker.routing.plans import TTL, Plans
from heliograph.broker.routing.ports import HopSink, LinkWriter, Port, Sink
from heliograph.broker.routing.targets import TargetedRun, Targets
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.broker.routing.way_back import way_back
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Timers
from heliograph.notes import ChangeoverCut
from heliograph.wire import broker_bodies as wire
from heliograph.wire.frames import Frame, Kind, control

HOLD_NS = 5_000_000_000  # nothing is held back for longer. A busy computer answers after a second or two; with a limit
# below that, publications would overtake others. A MARK is lost only if an overloaded link drops its backlog.
GATHER_NS = 5_000_000  # after a first answer, wait for others, so that a run for many destinations is one parcel
HELD_BYTES_MAX = 8 << 20  # held back for all destinations, as much as for one slow link; beyond it, all is sent on …
HELD_RUNS_MAX = 16_384  # … or at this many runs, which take 10 to 20 ms to send
GATHERS_MAX = 4_096  # MARKs that wait for our members: one from every broker of a large network …
GATHERS_PER_NEIGHBOUR_MAX = 1_024  # … of which one neighbour may use this many


class Gather:
    """A MARK that members of our cluster have to answer before we do."""

    __slots__ = ("mark", "number", "source", "waiting", "way")

    def __init__(self, mark: wire.Mark, number: int, way: list[int], source: Port, waiting: dict[int, None]) -> None:
        self.mark = mark
        self.number = number  # the requester's number for it
        self.way = way
        self.source = source
        self.waiting = waiting  # members that have not answered


class Changeover:
    """Changes paths without reordering."""

    def __init__(
        self, view: View, holds: Holds, plans: Plans, teller: Teller, links: LinkWriter, timers: Timers
    ) -> None:
        self._view = view
        self._holds = holds
        self._plans = plans
        self._teller = teller
        self._links = links
        self._timers = timers
        self._held: list[TargetedRun] = []
        self._held_bytes = 0
        self._marked: dict[int, int] = {}  # number of a MARK of ours -> destination
        self._gathers: dict[int, Gather] = {}  # number of the MARK to our members -> what it is for
        self._number = 0
        self._is_gathering = False  # a timer runs that will release the answered holds
        self._counts = dict.fromkeys(("changes", "answered", "timed_out", "overflowed", "released"), 0)
        self._held_bytes_most = 0
        self._longest_ns = 0
        self._unroutable = 0

    def report(self) -> dict[str, Any]:
        """What was changed, how it ended, and what is held back."""
        return {
            **self._counts,  # all but the first: how holds ended
            "holding": len(self._holds.changing),
            "held_bytes": self._held_bytes,
            "held_bytes_most": self._held_bytes_most,
            "longest_us": self._longest_ns // 1_000,
            "unroutable": self._unroutable,
        }

    # -- changing a path --------------------------------------------------------------------------------------------

    def begin(self, before: Paths, now: Instant) -> None:
        """Paths changed and none was lost: mark the old paths that were in use."""
        paths = self._view.paths
        for broker, member in paths.cluster.items():
            if broker in before.cluster and broker != self._view.me:
                self._change(broker, broker, Targets(1 << member.slot), before.steps[broker], now)
        for leader, gateway in paths.parts.items():
            name = leader if leader in before.parts else before.leaders.get(gateway, leader)
            self._change(leader, name, Targets(0, (name,)), before.next_to_part(name), now)

    def _change(self, destination: int, name: int, targets: Targets, old: int | None, now: Instant) -> None:
        """Mark the old path of a destination, which may have had another name, if something may be under way on it."""
        view = self._view
        step = self._step_to(destination)
        neighbour = None if old is None else view.neighbours.get(old)
        if destination in self._holds.changing or step in (None, old) or neighbour is None or neighbour.suspected:
            return
        if not (self._plans.is_used(name, now) or self._plans.is_used(destination, now)):
            return
        assert step is not None
        number = self._next_number()
        self._holds.changing[destination] = Hold(number, neighbour.broker, step, now)
        self._marked[number] = destination
        self._counts["changes"] += 1
        sink = HopSink(neighbour, targets, TTL, view.epoch, (view.me,))
        self._links.deliver(neighbour.link, sink, self._mark(number), now)
        self._timers.set(("hold over", now), now + HOLD_NS, self._look_for_overdue)

    def _step_to(self, destination: int) -> int | None:
        paths = self._view.paths
        return paths.steps.get(destination) if destination in paths.cluster else paths.next_to_part(destination)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _mark(self, number: int) -> bytes:
        view = self._view
        return control(Kind.MARK, number, wire.encode(wire.Mark(view.me, view.paths.leader)))

    # -- holding back ---------------------------------------------------------------------------------------------

    def hold_back(self, sink: Sink, frames: bytes, now: Instant) -> None:
        """Keep a run for those of its targets that have to wait. Their hold may have ended since the sink was made."""
        assert isinstance(sink, HopSink)
        self._send(sink.run(frames, self._view.me), now)
        if self._held_bytes > HELD_BYTES_MAX or len(self._held) > HELD_RUNS_MAX:
            self._release([each for each in self._holds.changing if self._holds.waits(each)], "overflowed", now)

    def _send(self, run: TargetedRun, now: Instant) -> None:
        """Send a run to its targets, but keep it for those that have to wait."""
        waiting, free = self._plans.sort(run.targets, self._holds.waits)
        if waiting is not None:
            self._held.append(TargetedRun(waiting, run.ttl, run.trace, run.frames))
            self._held_bytes += len(run.frames)
            self._held_bytes_most = max(self._held_bytes_most, self._held_bytes)
        if free is not None:
            run = TargetedRun(free, run.ttl, run.trace, run.frames)
            self._unroutable += self._plans.send(run, self._holds.detour.link, now)

    # -- the end of a hold ----------------------------------------------------------------------------------------

    def _look_for_overdue(self, now: Instant) -> None:
        overdue = [
            each for each, hold in self._holds.changing.items() if now - hold.since >= HOLD_NS and not hold.is_answered
        ]
        if overdue:
            self._release(overdue, "timed_out", now)

    def _look_for_answers(self, now: Instant) -> None:
        self._is_gathering = False
        answered = [each for each, hold in self._holds.changing.items() if hold.is_answered]
        if answered:
            self._release(answered, "answered", now)

    def release_all(self, now: Instant) -> None:
        """A link is gone: use the remaining paths at once, and let no other broker wait for our members."""
        for hold in self._holds.changing.values():
            hold.lose()
        if self._holds.changing:
            self._release(list(self._holds.changing), "released", now)
        for number in list(self._gathers):
            self._end_gather(number)

    def _release(self, destinations: list[int], how: str, now: Instant) -> None:
        """These need not wait any longer. What was held back is sent first; then their paths may change again."""
        for destination in destinations:
            hold = self._holds.changing[destination]
            hold.end()
            del self._marked[hold.number]
            self._longest_ns = max(self._longest_ns, now - hold.since)
            self._counts["answered" if hold.is_answered else how] += 1
        self._plans.forget_ways(self._view.paths, now)
        held, self._held, self._held_bytes = self._held, [], 0
        for run in held:
            self._send(run, now)
        if how in ("timed_out", "overflowed"):
            self._teller.note(ChangeoverCut(how, len(destinations), len(held)))
        ended = {destination: self._holds.changing.pop(destination) for destination in destinations}
        if any(hold.step != self._step_to(destination) for destination, hold in ended.items()):
            self._plans.forget_ways(self._view.paths, now)
            for destination, hold in ended.items():
                self._change_again(destination, hold, now)

    def _change_again(self, destination: int, hold: Hold, now: Instant) -> None:
        paths = self._view.paths
        if destination in paths.cluster:
            targets = Targets(1 << paths.cluster[destination].slot)
        else:
            targets = Targets(0, (destination,))
        self._change(destination, destination, targets, hold.step, now)

    # -- marks of others ------------------------------------------------------------------------------------------

    def arrive(self, link: Port, frame: Frame, inside: bool, trace: tuple[int, ...], now: Instant) -> None:
        """A MARK has arrived; ``inside``: it came from another cluster, so our members must first get what came before
        it."""
        try:
            mark = wire.decode_mark(frame.payload)
        except ProtocolError as error:  # do not blame the neighbour that relayed it
            self._links.count(error.reason)
            return
        view = self._view
        way = list(trace[:-1])
        waiting = self._plans.members_in_use(now) if inside else {}
        if not waiting:
            self._answer(mark, frame.sequence, way)
            return
        if self._has_too_many(link):
            self._teller.refuse(Reason.REQUESTS_OVER_LIMIT)
            return
        number = self._next_number()
        self._gathers[number] = Gather(mark, frame.sequence, way, link, waiting)
        self._timers.set(("gather", number), now + HOLD_NS, lambda _: self._drop_gather(number))
        mask = sum(1 << view.paths.cluster[broker].slot for broker in waiting)
        self._send(TargetedRun(Targets(mask), TTL, (), self._mark(number)), now)

    def _has_too_many(self, link: Port) -> bool:
        if len(self._gathers) < GATHERS_PER_NEIGHBOUR_MAX:
            return False
        of_link = sum(gather.source is link for gather in self._gathers.values())
        return len(self._gathers) >= GATHERS_MAX or of_link >= GATHERS_PER_NEIGHBOUR_MAX

    def _drop_gather(self, number: int) -> None:
        """A member has not answered. The requester has stopped waiting by now."""
        self._gathers.pop(number, None)

    def _end_gather(self, number: int) -> None:
        gather = self._gathers.pop(number)
        self._timers.cancel(("gather", number))
        self._answer(gather.mark, gather.number, gather.way)

    def _answer(self, mark: wire.Mark, number: int, way: list[int]) -> None:
        self._pass_on(wire.Marked(mark.broker, mark.leader, self._view.me, TTL, way), number)

    def _pass_on(self, answer: wire.Marked, number: int) -> None:
        """Send an answer back the way its MARK came; if that is unknown or the link is gone, by the shortest path."""
        neighbour, way = way_back(self._view, answer.broker, answer.way)
        if neighbour is None:
            neighbour = self._view.neighbours.get(self._view.paths.next_to_part(answer.leader) or 0)
        if neighbour is not None and answer.ttl > 0:
            body = wire.Marked(answer.broker, answer.leader, answer.by, answer.ttl - 1, way)
            self._links.put(neighbour.link, control(Kind.MARKED, number, wire.encode(body)))

    def receive(self, link: Port, frame: Frame, now: Instant) -> None:
        """A MARKED, for us or to be passed on. It is ignored if no hold waits for it any more."""
        answer = wire.decode_marked(frame.payload)
        if answer.broker != self._view.me:
            self._pass_on(answer, frame.sequence)
            return
        number = frame.sequence
        destination = self._marked.get(number)
        if destination is not None:
            self._answered(destination, now)
        gather = self._gathers.get(number)
        if gather is not None:
            gather.waiting.pop(answer.by, None)
            if not gather.waiting:
                self._end_gather(number)

    def _answered(self, destination: int, now: Instant) -> None:
        self._holds.changing[destination].answer()
        if all(hold.is_answered for hold in self._holds.changing.values()):
            self._look_for_answers(now)
        elif not self._is_gathering:
            self._is_gathering = True
            self._timers.set("answered", now + GATHER_NS, self._look_for_answers)
