"""The landmark round: the second round of a search in a network with more brokers than can answer.

In:    landmarks that a directory named, pongs, time; how many near brokers the directory asked; the candidates.
Out:   one more request, with the requester's distances; how long to wait for near brokers; which of them to ping.
State: one measurement, and how often the directory was asked with it.
Not here: choosing near brokers (landmarks.py), writing requests (search.py), pinging (pinging.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from heliograph.discovery.brokers import selection
from heliograph.discovery.brokers.asked import DIRECTORY, AskedParty
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DiscoveryConfig, address_of
from heliograph.discovery.brokers.measuring import COMMON_MIN, PINGS, Measuring, apart
from heliograph.discovery.brokers.messages import Acknowledgement
from heliograph.machine import Instant, Timers

NS_PER_MS = 1_000_000
AGAIN_NS_MIN = 60 * NS_PER_MS  # before asking again when no near broker answers; or three round trips to the directory
TRIES_MAX = 3
QUICK_NS = 5 * NS_PER_MS  # a broker that answered within this is near enough: no second round
PINGS_MIN = 16  # of each target: the nearest of thousands differ little


class LandmarkRound:
    """Uses the landmarks of the first directory that names some."""

    def __init__(
        self,
        config: DiscoveryConfig,
        candidates: Mapping[str, Candidate],
        measuring: Measuring,
        timers: Timers,
        ask: Callable[[AskedParty, Instant], int],
        spread: Callable[[Instant], None],
    ) -> None:
        """``ask`` sends a new attempt to one party and returns its number, ``spread`` sends one to all parties."""
        self._config = config
        self._candidates = candidates
        self._measuring = measuring
        self._timers = timers
        self._ask_one = ask
        self._spread = spread
        self._ask: AskedParty | None = None
        self._attempt: int | None = None  # the first attempt that asked for near brokers
        self._asked = 0  # the number of brokers to which the directory sent it
        self._asked_at: Instant = 0
        self._tries = 0
        self._distances: dict[str, int] = {}
        self.active = False  # the choice is waiting for near brokers
        self.begun = False

    def acknowledged(self, ask: AskedParty, said: Acknowledgement, now: Instant) -> None:
        """A directory that knows many brokers named landmarks, or sent the request to the near ones."""
        if said.attempt == self._attempt:
            self._asked = max(self._asked, said.asked)
        landmarks = [address for text in said.landmarks if (address := address_of(text)) is not None]
        if landmarks and not self.begun and ask.how == DIRECTORY:  # other parties must not make us ping
            self.begun, self._ask = True, ask
            self.active = all(candidate.elapsed_ns >= QUICK_NS for candidate in self._candidates.values())
            if self.active:
                self._measuring.start(landmarks, now)

    def measured(self, now: Instant) -> None:
        """The measurement has finished."""
        self._distances = self._measuring.distances
        if len(self._distances) >= COMMON_MIN:
            self._ask_near(now)
        else:
            self._give_up(now)

    def _ask_near(self, now: Instant) -> None:
        if not self.active or self._answers():
            return
        if self._tries >= TRIES_MAX:
            self._give_up(now)
            return
        assert self._ask is not None
        self._tries += 1
        attempt = self._ask_one(self._ask, now)
        if self._attempt is None:
            self._attempt, self._asked_at = attempt, now
        again = now + max(AGAIN_NS_MIN, 3 * (self._ask.round_trip_ns or 0))
        self._timers.set("near", again, self._ask_near)

    def _give_up(self, now: Instant) -> None:
        """The landmarks did not help: let the network spread the request."""
        self.active = False
        self._spread(now)

    def distances_for(self, ask: AskedParty) -> dict[str, int]:
        """The distances that a request to this party carries."""
        return self._distances if self.active and ask is self._ask else {}

    def _answers(self) -> int:
        """How many brokers answered because they are near."""
        first = self._attempt
        return sum(first is not None and one.response.attempt >= first for one in self._candidates.values())

    def wait_ns(self, now: Instant) -> int | None:
        """How long to wait for others: as long again as it took so far. None: until one has answered."""
        answers = self._answers()
        if not answers:
            return None
        if 0 < self._asked <= answers:
            return 0
        return max(self._config.patience_ms_min * NS_PER_MS, int(self._config.patience * (now - self._asked_at)))

    def targets(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates to ping. The landmarks, which were already pinged, count among them."""
        if not self._distances:
            return []
        for candidate in candidates:
            took = self._measuring.took(candidate.source)
            if took and not candidate.target:
                candidate.measured_as_landmark(took, PINGS)
            far = apart(self._distances, candidate.response.distances)
            candidate.compared(None if far is None else int(far * 1_000))
        pinged = sum(candidate.target for candidate in candidates)
        return selection.nearest(candidates, self._config.targets_max - pinged)


def finer(config: DiscoveryConfig) -> DiscoveryConfig:
    """Settings for near targets: more pings each, so that the range of equally near ones is a quarter as wide."""
    return replace(
        config,
        pings=max(PINGS_MIN, config.pings),
        tie_ratio=1 + (config.tie_ratio - 1) / 4,
        tie_us=config.tie_us // 4,
    )
