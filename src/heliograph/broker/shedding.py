"""Shedding: an overloaded broker asks some of its clients to move to other brokers, and accepts no such clients itself.

In:    samples of the broker's CPU, the number of sessions, new clients; time.
Out:   a GOODBYE with the reason ``overloaded`` and the addresses of others, to a few sessions a second.
State: the smoothed CPU, since when the broker is overloaded, the sessions that can move and when each may be asked.
Not here: the move itself (client/roaming.py), where others are (routing/routing.py), how busy the process is (live/).
Paper: [grid] §1.1, clients can be asked to roam (N8).

Two brokers must not send a client back and forth. Between the low and the high mark, a broker neither asks clients to
move nor accepts clients that were asked to. A client that was asked, or came because it was asked, is left alone for
``rest_s``. A client that finds no other broker stays. So this broker need not know the load of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from heliograph.broker.config import LoadConfig
from heliograph.broker.links import Link, Links
from heliograph.broker.routing.ports import READY
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox, Timers
from heliograph.notes import SheddingEnded, SheddingStarted
from heliograph.wire.bodies import MOVE, Hello, goodbye
from heliograph.wire.frames import Kind, control

SMOOTHING = 0.2  # of each sample: a second of 100 % raises the smoothed CPU by a fifth of the difference
TICK_NS = NS_PER_S = 1_000_000_000
PART = 100  # one in this many sessions is asked per tick, so that the effect on the load can be observed
ASKED_MAX = 64  # … and at most this many
LOOKS_MAX = 256  # sessions examined per tick
OTHERS_MAX = 4  # addresses given to one session
GRACE_MS = 20_000  # for the move; a client that does not move keeps its link


class Shedding:
    """Decides when this broker is overloaded, and which clients it asks to move."""

    def __init__(
        self,
        config: LoadConfig,
        links: Links,
        outbox: Outbox,
        timers: Timers,
        crowd: Callable[[], int],
        others: Callable[[], list[str]],
    ) -> None:
        self._config = config
        self._links = links
        self._outbox = outbox
        self._timers = timers
        self._crowd = crowd  # the number of sessions, in per mille of the limit
        self._others = others  # addresses of other brokers, nearest first
        self._cpu = 0.0
        self._over_since: Instant | None = None
        self._ticks = False
        self._mobile: deque[Link] = deque()  # sessions that can move, the next to examine first
        self.is_active = False
        self.asked = 0
        self.taken = 0  # clients that came because another broker asked them to

    def reload(self, config: LoadConfig) -> None:
        """Put new marks in force."""
        self._config = config

    # -- inputs -------------------------------------------------------------------------------------------------

    def sampled(self, cpu_permille: int, now: Instant) -> None:
        """How much of its one core the broker used lately."""
        self._cpu += SMOOTHING * (min(1_000, max(0, cpu_permille)) - self._cpu)
        self._look(now)

    def check(self, hello: Hello) -> None:
        """ProtocolError if another broker asked this client to move here, and this broker is not idle enough."""
        if hello.moved and self._is_above(low=True):
            raise ProtocolError(Reason.OVERLOADED, "this broker is overloaded")

    def welcomed(self, link: Link, hello: Hello, now: Instant) -> None:
        """A session begins."""
        if hello.moved:
            self.taken += 1
            link.rest(now + self._config.rest_s * NS_PER_S)
        if MOVE in hello.features or MOVE in hello.needs:
            self._mobile.append(link)
        self._look(now)

    def left(self, link: Link) -> None:
        """A session ends. Dead links are dropped when their turn comes, and here if there are too many."""
        if len(self._mobile) > 2 * len(self._links.by_id) + LOOKS_MAX:
            self._mobile = deque(link for link in self._mobile if link.state == READY)

    def report(self) -> dict[str, Any]:
        """For the overview."""
        return {
            "cpu_permille": round(self._cpu),
            "shedding": self.is_active,
            "asked_to_move": self.asked,
            "taken_over_load": self.taken,
        }

    # -- deciding -----------------------------------------------------------------------------------------------

    def _is_above(self, *, low: bool) -> bool:
        config = self._config
        cpu = config.cpu_permille_low if low else config.cpu_permille_high
        crowd = config.links_permille_low if low else config.links_permille_high
        return self._cpu >= cpu or self._crowd() >= crowd

    def _look(self, now: Instant) -> None:
        """The load changed: start the timer if it is above the high mark."""
        if not self._ticks and self._config.shed and self._is_above(low=False):
            self._ticks = True
            self._over_since = now
            self._timers.set("shed", now + TICK_NS, self._tick)

    def _tick(self, now: Instant) -> None:
        if not self._config.shed or not self._is_above(low=self.is_active):
            self._end()
            return
        assert self._over_since is not None
        if not self.is_active and now - self._over_since >= self._config.overloaded_s * NS_PER_S:
            self.is_active = True
            self._outbox.note(SheddingStarted(round(self._cpu), self._crowd()))
        if self.is_active:
            self._ask_some(now)
        self._timers.set("shed", now + TICK_NS, self._tick)

    def _end(self) -> None:
        self._ticks, self._over_since = False, None
        if self.is_active:
            self.is_active = False
            self._outbox.note(SheddingEnded(self.asked))

    def _ask_some(self, now: Instant) -> None:
        """Ask the busiest of the sessions whose turn it is. Their address lists begin with different brokers, so that
        the load is spread."""
        others = self._others()
        if not others:
            return
        most = min(ASKED_MAX, -(-len(self._mobile) // PART))
        candidates = self._next(now)
        candidates.sort(key=lambda link: link.bytes_in + link.deliveries, reverse=True)
        for link in candidates[:most]:
            first = self.asked % len(others)
            told = [*others[first:], *others[:first]][:OTHERS_MAX]
            link.rest(now + self._config.rest_s * NS_PER_S)
            self.asked += 1
            body = goodbye(Reason.OVERLOADED, "this broker is busy; others may serve you better", GRACE_MS, told)
            self._links.put(link, control(Kind.GOODBYE, 0, body))

    def _next(self, now: Instant) -> list[Link]:
        """Sessions that may be asked now, among the next ones in turn."""
        found = []
        for _ in range(min(LOOKS_MAX, len(self._mobile))):
            link = self._mobile.popleft()
            if link.state != READY:
                continue
            self._mobile.append(link)
            if now >= link.rests_until and not link.pressed:
                found.append(link)
        return found
