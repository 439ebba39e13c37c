"""The crowd around our broker: subscriptions that match nothing in the run, and one client that keeps changing its own.

In:    the broker's port.
Out:   idle links that hold 10,000 subscriptions, 1,000 of them wild; a Changer that makes 100 changes a second.
State: the links.
Not here: the load itself (flow.py).
"""

from __future__ import annotations

from time import perf_counter

from benchmarks.links import READ_BYTES, Link
from benchmarks.peers.ours import (
    CONFIRMED,
    DELIVERY,
    HEAD,
    PING,
    PONG,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Session,
    control,
)  # fmt: skip
from benchmarks.sinks import MismatchError

LINKS = 10
SUBSCRIPTIONS_PER_LINK = 1_000
LIVE = 40  # subscriptions that the changer holds at a time
UNANSWERED_MAX = 20  # a broker that falls behind is not buried: fewer changes are made, and the result says how many


class Crowd:
    """Subscribers who wait for something else. They share the benchmark's first level, and wildcards its second."""

    def __init__(self, port: int, ca_file: str | None, links: int = LINKS, each: int = SUBSCRIPTIONS_PER_LINK) -> None:
        self._links = [Session(port, ca_file) for _ in range(links)]
        for place, link in enumerate(self._links):
            filters = [_idle_filter(place, number) for number in range(each)]
            link.ask([(SUBSCRIBE, {"number": number, "filter": text}) for number, text in enumerate(filters)])

    def tend(self) -> None:
        """Show that every link is alive, so that the broker keeps it over a long run."""
        for link in self._links:
            link.send_all(control(PING, 7))
        for link in self._links:
            kind = 0
            while kind != PONG:
                kind, number, body = link.receive_frame()
                if kind == PING:
                    link.send_all(control(PONG, number))
                elif kind != PONG:
                    raise MismatchError(f"an idle subscriber received kind {kind}: {body[:100]!r}")

    def close(self) -> None:
        """End the links."""
        for link in self._links:
            link.close()


class Changer:
    """Subscribes and unsubscribes in turn: one filter in ten is wild, half of all overlap the topics in use."""

    def __init__(self, port: int, ca_file: str | None, changes_per_s: int) -> None:
        self.link: Link = Session(port, ca_file)
        self._asked = 0
        self.acts = 0
        self._period = 1 / changes_per_s
        self._due = perf_counter()
        self._made = 0  # subscriptions so far
        self._live: list[int] = []
        self._unread = b""
        self._skip = 0  # bytes of a delivery that are still to come
        self._buffer = memoryview(bytearray(READ_BYTES))
        self.link.loaded()

    def act(self, now: float) -> None:
        """Make the change that is due."""
        if now < self._due or self._asked - self.acts >= UNANSWERED_MAX:
            return
        self._due = max(self._due + self._period, now - 0.1)  # after a short pause the missed ones follow
        self._asked += 1
        if len(self._live) < LIVE:
            self._made += 1
            self._live.append(self._made)
            frame = control(SUBSCRIBE, self._asked, {"number": self._made, "filter": _changing_filter(self._made)})
        else:
            frame = control(UNSUBSCRIBE, self._asked, {"number": self._live.pop(0)})
        if self.link.send(memoryview(frame)) != len(frame):
            raise MismatchError("the broker does not read the link that changes subscriptions")

    def readable(self) -> None:
        """Count confirmations; what the overlapping subscriptions deliver is thrown away."""
        while (count := self.link.receive_into(self._buffer)) is not None:
            self._take(bytes(self._buffer[:count]))
            if not self.link.secure:
                return

    def _take(self, data: bytes) -> None:
        data = self._unread + data
        while data:
            if self._skip:
                skipped = min(self._skip, len(data))
                self._skip -= skipped
                data = data[skipped:]
                continue
            if len(data) < HEAD.size:
                break
            length, kind, _, _, _, number, _ = HEAD.unpack_from(data)
            if kind == PING:
                self.link.send(memoryview(control(PONG, number)))
            elif kind == CONFIRMED:
                self.acts += 1
            elif kind != DELIVERY:
                raise MismatchError(f"a change of subscriptions was answered by kind {kind}: {data[:200]!r}")
            self._skip = length + 4
        self._unread = data


def _idle_filter(place: int, number: int) -> str:
    if number % 10:
        return f"plant/s{place}/{number // 100}/{number}"
    kinds = ("plant/s{0}/+/w{1}", "plant/+/w{0}/{1}/#", "plant/s{0}/w{1}/#", "plant/+/+/w{0}/{1}")
    return kinds[number // 10 % len(kinds)].format(place, number)


def _changing_filter(number: int) -> str:
    group, topic = number * 7 % 100, number * 31 % 1_000
    if number % 10 == 0:  # wild; every second one overlaps one topic in a hundred
        return f"plant/bench/{group:03d}/+" if number % 20 else f"plant/+/c{group}/#"
    return f"plant/bench/{group:03d}/{topic:03d}" if number % 2 else f"plant/c{group}/{topic}"
