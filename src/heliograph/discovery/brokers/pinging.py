"""Pinging: measures the round trip to each candidate of a target set.

In:    candidates, pongs, time.
Out:   pings, to several candidates in parallel, one after another to each; when it is over.
State: which pings are under way to which candidates.
Not here: which candidates to ping and which one to take (selection.py).
Paper: [brokers] §6: a ping carries the requester's own timestamp, so no clocks have to agree.

A broker gets its next ping as soon as it has answered the last one; if many are wanted, a few are outstanding at once.
The round is over when the best candidate has answered often enough, and each other has too or has proven to be farther
away, by its answers or by its delay.

A broker may name another host than the one its answer came from (``advertise_host``). Clients dial that host, so it is
pinged; but only after a pong from the address that the answer came from, because otherwise a broker could make us ping
any host. If the named host stays silent and no other candidate is waited for, the distance of the answer's address is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DiscoveryConfig, is_number
from heliograph.discovery.brokers.messages import Ping
from heliograph.discovery.cookies import COOKIE_BYTES
from heliograph.machine import Address, Instant, Timers

NS_PER_MS = 1_000_000
TRIES_MORE = 4  # pings beyond the wanted ones that may get lost
AGAIN_NS_MIN = 25 * NS_PER_MS  # a ping counts as lost after this, or twice the estimate of its round trip
ROUNDS = 4  # if many pings are wanted, enough of them in parallel to finish in this many rounds
NAMED_MAX = 3  # unanswered pings to the host that a broker names, where datagrams may be blocked
AHEAD = 1.5  # a broker is farther if its mean is this many of the best one's round trips, or if it is silent as long …
AHEAD_NS = 3 * NS_PER_MS  # … and this much longer than the best would have been


class Pinging:
    """One round of pings."""

    def __init__(
        self,
        targets: Sequence[Candidate],
        config: DiscoveryConfig,
        secret: bytes,
        timers: Timers,
        send: Callable[[Address, bytes], None],
        over: Callable[[Instant], None],
        prove: Callable[[Address], None],
    ) -> None:
        """``prove`` is called with a host that a broker named and that has answered a ping."""
        self._config = config
        self._pings = config.pings
        self._secret = secret
        self._timers = timers
        self._send = send
        self._over = over
        self._prove = prove
        self._count = 0
        self._open: dict[bytes, tuple[Candidate, Address, Instant]] = {}  # nonce -> candidate, address and instant
        self._unheard: dict[Candidate, int] = {}  # pings to the host that it names, while none came back
        self._named: set[Candidate] = set()  # those that answered at their named host
        self._waiting: dict[Candidate, Instant] = {}  # candidates that owe us an answer, and since when
        self._targets = targets
        self._best: int | None = None  # the lowest mean of those that have answered all pings
        self.ended = False

    def start(self, now: Instant) -> None:
        """Ping all."""
        self._timers.set("pinging", now + self._config.ping_ms * NS_PER_MS, self._end)
        for candidate in self._targets:
            candidate.chosen_to_ping()
            self._ping_some(candidate, now)
        self._look(now)

    def _ping_some(self, candidate: Candidate, now: Instant) -> None:
        for _ in range(max(1, self._pings // ROUNDS)):
            self._ping(candidate, now)

    def receive(self, nonce: bytes, now: Instant) -> bool:
        """A pong. Returns False if it is not one of ours."""
        pinged = self._open.pop(nonce, None)
        if pinged is None:
            return False
        candidate, address, sent = pinged
        if address != candidate.datagrams and address != candidate.named:
            return True  # from an address that is not measured any more
        if address == candidate.named and not candidate.at_named:
            candidate.name_answers()  # late, but it does answer
        if self._is_first_there(candidate, address, now - sent):
            self._ping_some(candidate, now)
            self._look(now)
            return True
        candidate.ponged(now - sent)
        if len(candidate.round_trips_ns) >= self._pings or self._is_farther(candidate):
            self._rest(candidate)
        elif candidate.pings < self._pings or self._waiting.get(candidate) == sent:  # otherwise others are outstanding
            self._ping(candidate, now)
        self._look(now)
        return True

    def _is_first_there(self, candidate: Candidate, address: Address, took_ns: int) -> bool:
        """True if this pong only confirms the address, and measuring begins with the next ping."""
        if candidate.at_named:  # the first ping to a name included the name lookup
            first = candidate not in self._named and not is_number(address[0])
            self._named.add(candidate)
            return first
        if candidate.named is None or candidate.seen_ns is not None or candidate in self._unheard:
            return False
        candidate.answered_where_seen(took_ns)
        self._prove(candidate.named)
        return True

    def _ping(self, candidate: Candidate, now: Instant) -> None:
        address = candidate.datagrams
        if address is None or candidate.pings >= self._pings + TRIES_MORE or self.ended:
            self._rest(candidate)
            return
        self._count += 1
        nonce = sha256(self._secret + self._count.to_bytes(4, "big")).digest()[:COOKIE_BYTES]
        candidate.pinged()
        self._open[nonce] = (candidate, address, now)
        self._waiting[candidate] = now
        self._send(address, messages.write(Ping(now), nonce))
        again = now + max(AGAIN_NS_MIN, 4 * min(candidate.delay.ns, candidate.elapsed_ns))
        if candidate.at_named:  # the answer does not show how far away that host is
            again += (again - now) * self._unheard.get(candidate, 0)
        self._timers.set(("ping", candidate.name), again, lambda now: self._lost(candidate, now))

    def _lost(self, candidate: Candidate, now: Instant) -> None:
        if candidate.at_named and candidate not in self._named:
            self._unheard[candidate] = self._unheard.get(candidate, 0) + 1
            if self._unheard[candidate] >= NAMED_MAX:
                candidate.name_is_silent()
        self._ping(candidate, now)
        self._look(now)

    def _rest(self, candidate: Candidate) -> None:
        """Stop pinging this candidate."""
        self._waiting.pop(candidate, None)
        self._timers.cancel(("ping", candidate.name))

    def _is_farther(self, candidate: Candidate) -> bool:
        """True if its pings so far show that it is not the nearest."""
        shown = candidate.round_trip_ns
        return shown is not None and self._best is not None and shown > AHEAD * self._best

    def _look(self, now: Instant) -> None:
        """End the round if it is over; if only some candidates are still waited for, set when it ends."""
        if self.ended:
            return
        best = self._best = min((trip for trip in map(self._complete, self._targets) if trip is not None), default=None)
        if best is None:
            if not self._waiting:
                self._end(now)
            return
        for candidate in [candidate for candidate in self._waiting if self._is_farther(candidate)]:
            self._rest(candidate)
        limit = int(max(AHEAD * best, best + AHEAD_NS))
        late = [since + limit for since in self._waiting.values()]
        if not late or max(late) <= now:
            self._end(now)
        else:
            self._timers.set("late", max(late), self._look)

    def _complete(self, candidate: Candidate) -> int | None:
        done = len(candidate.round_trips_ns) >= self._pings
        return candidate.round_trip_ns if done and not candidate.loaded else None

    def _end(self, now: Instant) -> None:
        if self.ended:
            return
        self.ended = True
        self._timers.cancel("pinging")
        self._timers.cancel("late")
        for candidate in self._targets:
            self._timers.cancel(("ping", candidate.name))
        if not any(candidate.round_trips_ns for candidate in self._targets):
            for candidate in self._targets:
                candidate.name_is_silent()
        self._over(now)
