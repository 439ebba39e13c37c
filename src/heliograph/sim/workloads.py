"""Workloads: the programs of simulated clients. They publish, subscribe, read, come and go.

In:    the workloads of a scenario for one client; its session's outcomes and inboxes.
Out:   commands to the session; entries in the journal about everything a user would notice.
State: open requests, subscriptions, how much was published.
Not here: the session itself (client/session.py), judging what happened (checkers/).

A payload begins with 16 bytes that name its publisher, session and number, so that a reader can identify a publication
without inspecting any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from heliograph.client.commands import Close, Drain, Flush, Inquire, Publish, Subscribe, Taken, Unsubscribe
from heliograph.client.inbox import Inbox
from heliograph.errors import RefusedError
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.sim.flows import MARK
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.scenario import Drawn, Workload
from heliograph.sim.seat import Seat
from heliograph.sim.world import World
from heliograph.topology.scenario_network import ClientPlan, Range, filled

INQUIRY_MS = 500  # a request waits this long for its answer


class Program:
    """What one client does, over all its sessions."""

    def __init__(
        self, world: World, host: Host, plan: ClientPlan, workloads: list[Workload], names: list[str], duration_s: float
    ) -> None:
        self.host = host
        self.published = 0
        self._world = world
        self._plan = plan
        self._workloads = workloads
        self._names = names  # of all clients, by their number in payloads
        self._index = names.index(host.name)
        self._n = int(host.name.rpartition("-")[2]) if plan.count > 1 else 1
        self._end = int(duration_s * SECOND)
        self._random: Random = world.random(f"workload/{host.name}")
        self._filler = self._random.randbytes(4096)
        self._subscriptions = 0  # counted over all sessions
        self._inquiries = 0
        self._begin_session()
        host.call_at_start(self._start)
        world.loop.at(self._drawn(plan.join_s), self._join, host)

    def _begin_session(self) -> None:
        self._requests = 0
        self._awaited: dict[int, Callable[[Any], None]] = {}
        self._inboxes: dict[int, tuple[int, Inbox, Workload]] = {}  # the session's number -> ours, inbox, workload
        self._unflushed = 0
        self._leaving = False
        self._session: Any = None  # set by _start

    # Coming and going.

    def _join(self, host: Host, _instant: int) -> None:
        if not host.up:
            self._world.start(host)

    def _start(self) -> None:
        """The host has begun a session: subscribe, and plan the publications."""
        self._begin_session()
        self._seat = self.host.seats[0]
        self._session = self._seat.machine
        self._seat.call_after_take(self._look)
        now = self._world.loop.now
        for workload in self._workloads:
            for chosen in _choices(workload):
                for _ in range(workload.each):
                    self._subscribe(workload, chosen)
            if workload.publish or workload.request:
                first = max(now, int(workload.from_s * SECOND))
                self._later(first - now + self._gap(workload), self._burst, workload)
            if workload.change_s is not None:
                self._later(self._drawn(workload.change_s), self._change, workload)
        if self._plan.stay_s is not None:
            self._later(self._drawn(self._plan.stay_s), self._leave, None)

    def _leave(self, _: None) -> None:
        """End the session, in an orderly way or not; a new one starts later if the scenario says so."""
        self._world.journal.write("leaving", self.host.name)
        self._leaving = True
        self._inboxes.clear()
        self._tell(
            Drain(self._request(lambda _: None)) if self._random.random() < 0.5 else Close(self._request(_nothing))
        )
        if self._plan.away_s is not None:
            at = self._world.loop.now + max(SECOND, self._drawn(self._plan.away_s))
            if at < self._end:
                self._world.loop.at(at, self._join, self.host)

    # Subscribing.

    def _subscribe(self, workload: Workload, chosen: tuple[str, str]) -> None:
        self._subscriptions += 1
        ours = self._subscriptions
        k = 1 + self._random.randrange(workload.spread)
        wanted, where = (filled(text, self._n, k) for text in chosen)
        self._world.journal.write(
            "subscribing", self.host.name, ours, wanted, workload.policy, workload.echo, where, workload.listens
        )

        def answered(outcome: Any) -> None:
            if self._leaving:
                return
            if outcome.error is not None:
                self._refused("subscribe", ours, outcome.error)
                return
            number = outcome.value
            self._inboxes[number] = (ours, self._session.inbox(number), workload)
            self._world.journal.write("subscribed", self.host.name, ours)
            if workload.reads_per_s:
                self._later(int(SECOND / workload.reads_per_s), self._read_one, number)
            else:
                self._read_all(number)

        request = self._request(answered)
        command = Subscribe(
            request,
            wanted,
            Policy(workload.policy),
            workload.echo,
            inbox_frames_max=workload.inbox_frames_max,
            where=where,
            language=workload.language if where else "topic",
            listens=workload.listens,
        )
        self._tell(command)

    def _change(self, workload: Workload) -> None:
        """End one subscription of this workload and make another, until the scenario ends."""
        if self._world.loop.now >= self._end:
            return
        mine = [number for number, (_, _, made_by) in self._inboxes.items() if made_by is workload]
        if mine:
            number = self._random.choice(mine)
            ours = self._inboxes.pop(number)[0]
            self._world.journal.write("unsubscribing", self.host.name, ours)
            self._tell(Unsubscribe(self._request(_nothing), number))
            self._subscribe(workload, self._random.choice(_choices(workload)))
        assert workload.change_s is not None
        self._later(self._drawn(workload.change_s), self._change, workload)

    def _subscribe_again(self, number: int) -> None:
        """The broker ended a subscription, as this program was too slow: make another, and read nothing more of it."""
        ours, _, workload = self._inboxes.pop(number)
        self._world.journal.write("unsubscribing", self.host.name, ours)
        self._subscribe(workload, self._random.choice(_choices(workload)))

    def _read_one(self, number: int) -> None:
        """A slow program takes one publication, and reads again after a while. At the end it reads without pauses."""
        if number not in self._inboxes:
            return
        ours, inbox, workload = self._inboxes[number]
        if self._world.loop.now >= self._end:
            self._read_all(number)
            return
        publication = inbox.take()
        if publication is not None:
            self._received(ours, publication)
            self._tell(Taken(number))
        self._later(int(SECOND / workload.reads_per_s), self._read_one, number)

    def _read_all(self, number: int) -> None:
        ours, inbox, _ = self._inboxes[number]
        pressing = inbox.pressing
        for publication in inbox.take_all():
            self._received(ours, publication)
        if pressing:
            self._tell(Taken(number))

    def _received(self, ours: int, publication: Publication) -> None:
        payload = publication.payload
        publisher, session, number = "", 0, 0
        if len(payload) >= MARK.size:
            index, session, number = MARK.unpack_from(payload)
            publisher = self._names[index] if index < len(self._names) else ""
        self._world.journal.write(
            "received",
            self.host.name,
            ours,
            publisher,
            session,
            number,
            publication.topic,
            payload,
            publication.headers,
        )

    # Publishing.

    def _burst(self, workload: Workload) -> None:
        now = self._world.loop.now
        if now >= self._end or (workload.until_s is not None and now >= workload.until_s * SECOND):
            self._flush()
            return
        if self._session.publisher.has_room:
            for _ in range(workload.burst):
                (self._inquire if workload.request else self._publish)(workload)
            if self._unflushed >= workload.flush_every:
                self._flush()
        self._later(self._gap(workload), self._burst, workload)

    def _publish(self, workload: Workload) -> None:
        draw = self._random.random
        self.published += 1
        self._unflushed += 1
        topic = workload.publish[int(draw() * len(workload.publish))]
        if "{" in topic:
            topic = filled(topic, self._n, 1 + int(draw() * workload.spread))
        least, most = workload.size_bytes
        size = least + int(draw() * (most - least + 1)) - MARK.size
        payload = MARK.pack(self._index, self.host.incarnation, self.published) + self._fill(size)
        headers = {name: self._header(values) for name, values in workload.headers.items()}
        self._world.journal.write("published", self.host.name, self.published, topic, payload, headers)
        self._tell(Publish(topic, payload, headers or None))

    def _inquire(self, workload: Workload) -> None:
        """Send a request. Nobody answers it: what counts is whether its broker says at once that nobody can."""
        self._inquiries += 1
        number = self._inquiries
        topic = filled(self._random.choice(workload.request), self._n, 1 + self._random.randrange(workload.spread))
        self._world.journal.write("inquired", self.host.name, number, topic)

        def answered(outcome: Any) -> None:
            if not self._leaving:
                self._world.journal.write("unanswered", self.host.name, number, outcome.error.reason.word)

        self._tell(Inquire(self._request(answered), topic, b"", ms_max=INQUIRY_MS))

    def _header(self, drawn_from: Drawn) -> int | float | str:
        least, most = drawn_from[0], drawn_from[-1]
        if isinstance(least, int) and isinstance(most, int):
            return self._random.randint(least, most)
        if isinstance(least, str) or isinstance(most, str):
            return self._random.choice(drawn_from)
        return self._random.uniform(least, most)

    def _fill(self, size: int) -> bytes:
        start = self.published & 0xFF
        if size + start <= len(self._filler):
            return self._filler[start : start + size]
        return (self._filler * (size // len(self._filler) + 2))[start : start + size]

    def _flush(self) -> None:
        self._unflushed = 0
        number = self.published

        def answered(outcome: Any) -> None:
            # A refused publication is reported with the next flush; the allowed ones are confirmed all the same.
            if outcome.error is None or isinstance(outcome.error, RefusedError):
                self._world.journal.write("flushed", self.host.name, number)
            if outcome.error is not None:
                self._refused("publish", 0, outcome.error)

        self._tell(Flush(self._request(answered)))

    # The session's side.

    def _look(self) -> None:
        """After every take: handle outcomes of requests, and read inboxes."""
        session = self._session
        for outcome in session.collect():
            self._awaited.pop(outcome.request)(outcome)
        for inbox in session.collect_news():
            known = self._inboxes.get(inbox.number)
            if known is not None and inbox.error is not None:
                self._subscribe_again(inbox.number)
            elif known is not None and (not known[2].reads_per_s or self._world.loop.now >= self._end):
                self._read_all(inbox.number)

    def _request(self, answered: Callable[[Any], None]) -> int:
        self._requests += 1
        self._awaited[self._requests] = answered
        return self._requests

    def _tell(self, command: Any) -> None:
        self.host.tell(self._seat, command)

    def _refused(self, what: str, subject: int, error: Exception) -> None:
        self._world.journal.write("refused", self.host.name, what, subject, str(error))

    # Time.

    def _later(self, after: int, call: Callable[[Any], None], subject: Any) -> None:
        """Call it then, if this session still exists."""
        loop = self._world.loop
        loop.at(loop.now + after, self._due, (self._seat, call, subject))

    def _due(self, planned: tuple[Seat, Callable[[Any], None], Any], _instant: int) -> None:
        seat, call, subject = planned
        if not seat.gone and not self._leaving:
            call(subject)

    def _gap(self, workload: Workload) -> int:
        mean = SECOND / workload.rate_per_s
        return max(1, int(mean if workload.even else self._random.expovariate(1.0) * mean))

    def _drawn(self, given: Range) -> int:
        return int(self._random.uniform(*given) * SECOND)


def _choices(workload: Workload) -> list[tuple[str, str]]:
    """The subscriptions of a workload: every filter with every condition, if there are any."""
    return [(pattern, where) for pattern in workload.subscribe for where in workload.where or ("",)]


def _nothing(_outcome: Any) -> None:
    pass
