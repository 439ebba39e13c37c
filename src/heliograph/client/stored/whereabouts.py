"""Whereabouts: which store serves which topic, according to the service `stores` of the broker.

In:    topics of reliable publications; answers of the service; lines that come into use.
Out:   the store for a topic, or the error that says why there is none.
State: a bounded memory of topics, which expires; requests under way.
Not here: publishing (reliable.py), stores for a reader (readings.py).

The answer that no store serves a topic is questioned for a moment: a broker that is asked for the first time may not
know its stores yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.client.stored.calls import StoreCalls
from heliograph.errors import HeliographError, NotConnectedError, Reason, RefusedError
from heliograph.machine import Instant, Timers
from heliograph.model.topics import quoted
from heliograph.wire.stores import FindStores, StoreAdvertisement, StoresFound

TOPICS_MAX = 4_096  # remembered; beyond it the memory starts from empty
FRESH_NS = 10_000_000_000  # then the service is asked again; the old answer is valid until the new one is there
DOUBT_NS = 2_000_000_000  # how long the answer "none" is questioned
AGAIN_NS = 100_000_000

Told = Callable[[StoreAdvertisement | None, HeliographError | None, Instant], None]


class Whereabouts:
    """Finds the stores of reliable publications."""

    def __init__(self, calls: StoreCalls, timers: Timers) -> None:
        self._calls = calls
        self._timers = timers
        self._known: dict[str, tuple[StoreAdvertisement, Instant]] = {}
        self._asked: dict[str, tuple[Instant, list[Told]]] = {}  # since when, and what to call with the answer

    def find(self, topic: str, now: Instant, told: Told) -> StoreAdvertisement | None:
        """The store for a topic, if it is known; otherwise ``told`` is called once, later."""
        known = self._known.get(topic)
        if known is None:
            self._ask(topic, now, told)
            return None
        if known[1] <= now and topic not in self._asked:
            self._ask(topic, now, None)
        return known[0]

    def forget(self, store: str) -> None:
        """This store does not answer: ask again when its topics are next needed."""
        for topic in [topic for topic, known in self._known.items() if known[0].store == store]:
            del self._known[topic]

    def resume(self, now: Instant) -> None:
        """There is a broker: repeat the requests that have no answer."""
        for topic in list(self._asked):
            self._send(topic, now)

    def _ask(self, topic: str, now: Instant, told: Told | None) -> None:
        waiting = self._asked.get(topic)
        if waiting is None:
            self._asked[topic] = (now, [] if told is None else [told])
            self._send(topic, now)
        elif told is not None:
            waiting[1].append(told)

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
            if len(self._known) >= TOPICS_MAX:
                self._known.clear()
            self._known[topic] = (answer.stores[0], now + FRESH_NS)
            self._settle(topic, answer.stores[0], None, now)
        elif now - self._asked[topic][0] >= DOUBT_NS:
            self._known.pop(topic, None)
            self._settle(topic, None, no_store(topic), now)
        else:
            self._timers.set(("find store", topic), now + AGAIN_NS, lambda now: self._send(topic, now))

    def _failed(self, topic: str, error: HeliographError, now: Instant) -> None:
        if isinstance(error, NotConnectedError):
            return  # the next broker will be asked
        if isinstance(error, RefusedError) and error.reason is Reason.TIME_OUT:
            self._timers.set(("find store", topic), now + AGAIN_NS, lambda now: self._send(topic, now))
        elif topic in self._asked:
            self._settle(topic, None, error, now)

    def _settle(
        self, topic: str, store: StoreAdvertisement | None, error: HeliographError | None, now: Instant
    ) -> None:
        _, waiting = self._asked.pop(topic)
        for told in waiting:
            told(store, error, now)


def no_store(what: str) -> RefusedError:
    """The error if no store serves a topic or filter."""
    text = f"no store serves {quoted(what)}; run one that does: heliograph store run --pattern {quoted(what)}"
    return RefusedError(Reason.STORE_MISSING, text)
