"""Whereabouts: which store serves which topic, according to the service `stores` of the broker.

In:    topics of reliable publications; answers of the service; lines that come into use.
Out:   the store for a topic, or the error that says why there is none.
State: a bounded memory of topics, which expires; the stores that were used within the last hour; requests under way.
Not here: publishing (reliable.py), stores for a reader (readings.py).

The answer that no store serves a topic is questioned for a moment: a broker that is asked for the first time may not
know its stores yet. A topic that had a store within the last hour, according to the broker or to this session, keeps it
while it is away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from heliograph.client.stored.calls import StoreCalls
from heliograph.errors import HeliographError, NotConnectedError, Reason, RefusedError
from heliograph.machine import Instant, Timers
from heliograph.model.topics import quoted
from heliograph.stores.known import AWAY_NS, serving
from heliograph.wire.stores import FindStores, StoreAdvertisement, StoresFound

TOPICS_MAX = 4_096  # remembered; beyond it the memory starts from empty
STORES_MAX = 256  # used within the last hour; beyond it the one that was used first is forgotten
FRESH_NS = 10_000_000_000  # then the service is asked again; the old answer is valid until the new one is there
FRESH_AWAY_NS = 1_000_000_000  # the same for a store that is away
DOUBT_NS = 2_000_000_000  # how long the answer "none" is questioned
AGAIN_NS = 100_000_000
PASSING = (Reason.TIME_OUT, Reason.STORES_OVER_LIMIT)

Told = Callable[[str, HeliographError | None, Instant], None]
"""Called with a topic whose store is known now, or with the error if it has none."""


class Whereabout(NamedTuple):
    """The store of a topic."""

    store: StoreAdvertisement
    until: Instant  # how long this is not asked again
    is_away: bool


class Whereabouts:
    """Finds the stores of reliable publications."""

    def __init__(self, calls: StoreCalls, timers: Timers, told: Told) -> None:
        self._calls = calls
        self._timers = timers
        self._told = told
        self._known: dict[str, Whereabout] = {}
        self._used: dict[str, tuple[StoreAdvertisement, Instant]] = {}  # by id, and until when it is remembered
        self._asked: dict[str, Instant] = {}  # since when

    def find(self, topic: str, now: Instant) -> StoreAdvertisement | None:
        """The store for a topic, if it is known; otherwise the owner is told later."""
        known = self._known.get(topic)
        if (known is None or known.until <= now) and topic not in self._asked:
            self._asked[topic] = now
            self._send(topic, now)
        return None if known is None else known.store

    def use(self, store: StoreAdvertisement, now: Instant) -> None:
        """This store is there: its topics keep it for an hour while it is away."""
        self._used.pop(store.store, None)
        if len(self._used) >= STORES_MAX:
            del self._used[next(iter(self._used))]
        self._used[store.store] = (store, now + AWAY_NS)

    def doubt(self, store: str) -> None:
        """This store does not answer: ask again when its topics are next needed."""
        for topic in [topic for topic, at in self._known.items() if at.store.store == store and not at.is_away]:
            del self._known[topic]

    def forget(self, store: str) -> None:
        """This store will not come back."""
        self._used.pop(store, None)
        for topic in [topic for topic, at in self._known.items() if at.store.store == store]:
            del self._known[topic]

    def resume(self, now: Instant) -> None:
        """There is a broker: repeat the requests that have no answer."""
        for topic in list(self._asked):
            self._send(topic, now)

    def _send(self, topic: str, now: Instant) -> None:
        if topic in self._asked:
            self._calls.ask(
                FindStores(topic=topic),
                StoresFound,
                lambda answer, now: self._answered(topic, answer, now),
                lambda error, now: self._failed(topic, error, now),
            )

    def _answered(self, topic: str, answer: Any, now: Instant) -> None:
        if topic not in self._asked:
            return
        if answer.stores:
            self.use(answer.stores[0], now)
            self._place(topic, Whereabout(answer.stores[0], now + FRESH_NS, False), now)
            return
        away = answer.away or self._remembered(topic, now)
        if away:
            self._place(topic, Whereabout(away[0], now + FRESH_AWAY_NS, True), now)
        elif now - self._asked[topic] >= DOUBT_NS:
            self._known.pop(topic, None)
            self._settle(topic, no_store(topic), now)
        else:
            self._again(topic, now)

    def _remembered(self, topic: str, now: Instant) -> list[StoreAdvertisement]:
        """Stores that this session used for such topics, the best first."""
        return serving([store for store, until in self._used.values() if now < until], topic)

    def _place(self, topic: str, place: Whereabout, now: Instant) -> None:
        if topic not in self._known and len(self._known) >= TOPICS_MAX:
            self._known.clear()
        self._known[topic] = place
        self._settle(topic, None, now)

    def _failed(self, topic: str, error: HeliographError, now: Instant) -> None:
        if isinstance(error, NotConnectedError):
            return  # the next broker will be asked
        if isinstance(error, RefusedError) and error.reason in PASSING:
            self._again(topic, now)
        elif topic in self._asked:
            self._settle(topic, error, now)

    def _again(self, topic: str, now: Instant) -> None:
        self._timers.set(("find store", topic), now + AGAIN_NS, lambda now: self._send(topic, now))

    def _settle(self, topic: str, error: HeliographError | None, now: Instant) -> None:
        del self._asked[topic]
        self._told(topic, error, now)


def no_store(what: str) -> RefusedError:
    """The error if no store serves a topic or filter."""
    text = f"no store serves {quoted(what)}; run one that does: heliograph store run --pattern {quoted(what)}"
    return RefusedError(Reason.STORE_MISSING, text)
