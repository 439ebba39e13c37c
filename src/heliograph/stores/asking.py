"""Asking: publishers are asked for missing publications, ever more rarely, and at last given up.

In:    chains that lack something; time.
Out:   calls that say which publishers are owed a question, and which chains are given up.
State: timers.
Not here: when to ask again (chain.py), the question, which goes with an acknowledgement (intake.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heliograph.machine import Instant, Timers
from heliograph.stores.chain import Chain


class Asking:
    """Asks for what is missing in all chains of a store."""

    def __init__(
        self,
        timers: Timers,
        chains: Mapping[int, Chain],
        owe: Callable[[int], None],
        give_up: Callable[[int, Chain], None],
    ) -> None:
        self._timers = timers
        self._chains = chains
        self._owe = owe
        self._give_up = give_up

    def ask(self, origin: int, chain: Chain, now: Instant) -> None:
        """Publications are missing: ask for them, and again until they arrive or there is no hope."""
        again_at = chain.ask(now)
        if again_at is not None:
            self._owe(origin)
            self.later(origin, again_at)

    def later(self, origin: int, at: Instant) -> None:
        """Look at a chain then, and ask if something is still missing."""
        self._timers.set(("ask", origin), at, lambda now: self._again(origin, now))

    def _again(self, origin: int, now: Instant) -> None:
        chain = self._chains.get(origin)
        if chain is None or not chain.missing:
            return
        if chain.is_hopeless(now):
            self._give_up(origin, chain)
        else:
            self.ask(origin, chain, now)
