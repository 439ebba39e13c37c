"""Answers to clients: ordered in slices, and sent in parts that fit in a frame.

In:    rows of an answer, or the static resources found and their order; requests for the next part; time.
Out:   parts as JSON; refusals and forgotten answers, counted.
State: answers that are being ordered, and answers with further parts to fetch, by holder; both bounded.
Not here: which resources are found (table.py, gathering.py), the form of a row (watchers.py).

No request holds up the broker: of a long static answer SLICE_ROWS are handled per wake, and its rows are written when
their part is fetched. The table may change in the meantime; the answer is what it contained when it was asked.

The places are shared among holders: entities, and addresses of clients without credentials. Holders take turns, a slice
each. When all places are taken, the holder that has most gives way: of its answers that are being ordered the newest is
refused, of those with parts to fetch the oldest is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from heliograph.broker.shares import Shares
from heliograph.discovery.resources.ordering import FIRST_TRIED_MAX, NEAR, TOGETHER, Cost, value_key
from heliograph.discovery.resources.table import TableRow, newest_of
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import Instant, LinkId, Timers
from heliograph.wire.frames import Frame
from heliograph.wire.pages import one_page

SLICE_ROWS = 2_000  # of an answer that is being ordered, handled per wake: a few milliseconds
KEPT_MAX = 64  # answers with parts to fetch, of all clients
ORDERED_MAX = 64  # answers that are being ordered

_encode = msgspec.json.Encoder().encode
Row = dict[str, Any]


class Arranged(msgspec.Struct):
    """Static resources in the order of their answer."""

    total: int
    rows: Iterator[TableRow]


Work = Generator[None, None, Arranged]


def arranged(found: list[TableRow], order: str, best: int, cost: Callable[[TableRow], int]) -> Work:
    """Order what was found. Yields after each slice."""
    newest: dict[int, TableRow] = {}
    for start in range(0, len(found), SLICE_ROWS):
        newest_of(found[start : start + SLICE_ROWS], newest)
        yield
    rows = list(newest.values())
    if not order and not best:
        return Arranged(len(rows), iter(rows))
    key = _key(order, best or len(rows), rows, cost)
    runs = []
    for start in range(0, len(rows), SLICE_ROWS):
        runs.append(sorted(rows[start : start + SLICE_ROWS], key=key)[: best or None])
        yield
    total = min(best or len(rows), len(rows))
    return Arranged(total, islice(merge(*runs, key=key), total))


def _key(order: str, count: int, rows: list[TableRow], cost: Callable[[TableRow], int]) -> Callable[[TableRow], Any]:
    name, _, direction = order.partition(" ")
    if name not in ("", NEAR, TOGETHER):
        descends = direction.strip() == "desc"
        return lambda row: value_key(row.fixed.get(name), descends, row.advertised.id)
    hosts: dict[int, int] = {}
    costs: dict[int, int] = {}  # asked once: ways may change while we sort
    for row in rows:
        broker = row.host.broker
        hosts[broker] = hosts.get(broker, 0) + 1
        if broker not in costs:
            costs[broker] = cost(row)
    first = best_company(hosts, costs.__getitem__, count) if name == TOGETHER else None
    return lambda row: (row.host.broker != first, costs[row.host.broker], row.advertised.id)


def best_company(hosts: Mapping[int, int], cost: Cost, count: int) -> int | None:
    """The host whose resources, with the nearest others, are nearest to one another; ``hosts`` says how many each has.

    Greedy, as for dynamic resources (ordering.py): the distance between two hosts is the sum of their costs from here.
    """
    ordered = sorted(hosts, key=lambda host: (cost(host), host))
    least: tuple[int, int] | None = None
    for first in ordered[:FIRST_TRIED_MAX]:
        left, spread = count - hosts[first], 0
        for host in ordered:
            if left <= 0:
                break
            if host != first:
                taken = min(left, hosts[host])
                left, spread = left - taken, spread + taken * (cost(first) + cost(host))
        if least is None or spread < least[0]:
            least = (spread, first)
    return None if least is None else least[1]


class LongAnswer(msgspec.Struct):
    """An answer with rows left to send."""

    asker: LinkId
    rows: Iterator[Row]
    total: int
    sent: int = 0
    left_over: msgspec.Raw | None = None  # a row that did not fit in the last part


class Ordering(NamedTuple):
    """An answer that is being ordered."""

    frame: Frame
    work: Work
    then: Callable[[Frame, Arranged], None]


class ClientAnswers:
    """Sends answers."""

    def __init__(
        self,
        timers: Timers,
        send: Callable[[Frame, bytes], None],
        count: Callable[[Reason], None],
        later: Callable[[Frame, Callable[[], None], Instant], None],
        refuse: Callable[[Frame, Reason, str], None],
    ) -> None:
        self._timers = timers
        self._send = send
        self._count = count
        self._refuse = refuse
        self._later = later  # works for a request that waited: what raises costs only that request
        self._kept: dict[int, LongAnswer] = {}
        self._shares: Shares[int] = Shares()  # of those kept
        self._number = 0
        self._ordering: dict[str, deque[Ordering]] = {}  # by holder; the first is next

    def __len__(self) -> int:
        return len(self._kept) + self._ordered

    @property
    def _ordered(self) -> int:
        return sum(map(len, self._ordering.values()))

    def send(self, frame: Frame, holder: str, rows: Iterable[Row], total: int, said: dict[str, Any]) -> None:
        """Send one package, or its first part."""
        answer = LongAnswer(frame.origin, iter(rows), total)
        self._number += 1
        self._kept[self._number] = answer
        self._shares.add(holder, self._number)
        self._send_part(frame, self._number, answer, said)
        if len(self._kept) > KEPT_MAX:
            most = self._shares.victim("") or next(iter(self._kept))
            self._forget(most)
            self._count(Reason.RESOURCE_REQUESTS_OVER_LIMIT)

    def _forget(self, number: int) -> None:
        del self._kept[number]
        self._shares.remove(number)

    def fetch(self, frame: Frame, number: int, start: int) -> None:
        """Send the next part. Parts are fetched in order, by the client that asked."""
        answer = self._kept.get(number)
        if answer is None or answer.asker != frame.origin or start != answer.sent:
            raise UsageError("this answer is not kept any more; ask again")
        self._send_part(frame, number, answer, {})

    def leave(self, asker: int) -> None:
        """A client disconnected."""
        for number in [number for number, answer in self._kept.items() if answer.asker == asker]:
            self._forget(number)
        left = {
            holder: deque(each for each in some if each.frame.origin != asker)
            for holder, some in self._ordering.items()
        }
        self._ordering = {holder: some for holder, some in left.items() if some}

    def _send_part(self, frame: Frame, number: int, answer: LongAnswer, said: dict[str, Any]) -> None:
        part, answer.left_over = one_page(answer.rows, answer.left_over)
        answer.sent += len(part)
        more = {"answer": number, "start": answer.sent} if answer.left_over is not None else None
        if more is None:
            self._forget(number)
        self._send(frame, _encode({**said, "resources": part, "total": answer.total, "more": more}))

    # -- slices -----------------------------------------------------------------------------------------------------

    def order(self, holder: str, ordering: Ordering, is_short: bool) -> None:
        """Order an answer: a short one now, a long one in slices. ``then`` gets the result."""
        if is_short:
            ordering.then(ordering.frame, _finished(ordering.work))
            return
        if self._ordered >= ORDERED_MAX:
            self._make_room(holder)
        self._ordering.setdefault(holder, deque()).append(ordering)
        self._timers.set("slices", 0, self._go_on)

    def _make_room(self, holder: str) -> None:
        """Refuse the newest answer of the holder that has most; ProtocolError if that is this one."""
        most = max(self._ordering, key=lambda each: len(self._ordering[each]))
        if len(self._ordering[most]) < len(self._ordering.get(holder, ())) + 2:
            raise ProtocolError(Reason.RESOURCE_REQUESTS_OVER_LIMIT, "too many long answers are under way here")
        self._refuse(self._ordering[most].pop().frame, Reason.RESOURCE_REQUESTS_OVER_LIMIT, "others want long answers")

    def _go_on(self, now: Instant) -> None:
        """One slice of one answer. The holders take turns, and the answers of each."""
        if not self._ordering:
            return
        holder = next(iter(self._ordering))
        some = self._ordering.pop(holder)
        ordering = some.popleft()
        if some:
            self._ordering[holder] = some
        self._later(ordering.frame, lambda: self._slice(holder, ordering), now)
        if self._ordering:
            self._timers.set("slices", 0, self._go_on)

    def _slice(self, holder: str, ordering: Ordering) -> None:
        try:
            next(ordering.work)
        except StopIteration as finished:
            ordering.then(ordering.frame, finished.value)
        else:
            self._ordering.setdefault(holder, deque()).append(ordering)


def _finished(work: Work) -> Arranged:
    while True:
        try:
            next(work)
        except StopIteration as finished:
            result: Arranged = finished.value
            return result
