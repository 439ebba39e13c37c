"""The choice of a search: when there are enough answers, which candidates are pinged, and which one is taken.

In:    candidates, pongs, time.
Out:   pings; finally a SearchResult.
State: the pings under way, and whether parties were asked once more because all candidates were busy.
Not here: what counts as an answer (answers.py), judging (selection.py), measuring (pinging.py), the reasons for people
       (verdicts.py).
Paper: [brokers] §6.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from heliograph.discovery.brokers import networks, selection, verdicts
from heliograph.discovery.brokers.answers import Answers
from heliograph.discovery.brokers.asked import AskedParties
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DiscoveryConfig, written
from heliograph.discovery.brokers.landmark_round import LandmarkRound, finer
from heliograph.discovery.brokers.pinging import Pinging
from heliograph.discovery.brokers.request_sender import RequestSender
from heliograph.discovery.brokers.result import SearchResult, result_of
from heliograph.discovery.brokers.search_log import SearchLog
from heliograph.discovery.brokers.sending import Sending
from heliograph.discovery.restraint import Restraint
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import Reason
from heliograph.machine import Instant, Timers

NS_PER_MS = 1_000_000


class BrokerChoice:
    """From the answers of one search to its result."""

    def __init__(
        self,
        config: DiscoveryConfig,
        secret: bytes,
        answers: Answers,
        parties: AskedParties,
        requests: RequestSender,
        landmark_round: LandmarkRound,
        sending: Sending,
        restraint: Restraint,
        timers: Timers,
        clock: WallTime,
        log: SearchLog,
        *,
        ask_all: Callable[[Instant], None],
        start_over: Callable[[Instant], None],
        over: Callable[[SearchResult, Instant], None],
    ) -> None:
        """``ask_all`` makes a new attempt, ``start_over`` asks again from the start, ``over`` ends the search."""
        self._config = config
        self._secret = secret
        self._answers = answers
        self._candidates = answers.candidates
        self._parties = parties
        self._requests = requests
        self._landmark_round = landmark_round
        self._sending = sending
        self._restraint = restraint
        self._timers = timers
        self._clock = clock
        self._log = log
        self._ask_all = ask_all
        self._start_over = start_over
        self._over = over
        self._pinging: Pinging | None = None
        self._asked_again = False  # to find a broker that is less busy
        self._ended = False

    @property
    def is_pinging(self) -> bool:
        """True once candidates are pinged: then no other party is asked."""
        return self._pinging is not None

    def receive_pong(self, nonce: bytes, now: Instant) -> bool:
        """A pong. Returns False if it answers no ping of ours."""
        return self._pinging is not None and self._pinging.receive(nonce, now)

    # -- collecting -------------------------------------------------------------------------------------------------

    def consider(self, now: Instant) -> None:
        """Begin to choose if there are enough answers; otherwise set when to stop waiting."""
        if self._pinging is not None or not self._candidates:
            return
        marks = self._landmark_round
        wait_ns = marks.wait_ns(now) if marks.active else self._answers.wait_ns(now)
        if wait_ns is not None and not self._answers.enough:
            wait_ns = max(wait_ns, self._log.start + self._config.collect_ms_min * NS_PER_MS - now)
        if wait_ns == 0:
            self._ping_next(now)
        elif wait_ns is not None:
            self._timers.set("patience", now + wait_ns, self._lose_patience)

    def _lose_patience(self, now: Instant) -> None:
        """If all that answered are busy and a known broker has not answered, ask once more."""
        if self._answers.lacking and not self._asked_again and self._pinging is None and not self._ended:
            self._asked_again = True
            self._ask_all(now)
        else:
            self.stop_collecting(now)

    def stop_collecting(self, now: Instant) -> None:
        """Choose among the present candidates."""
        if self._candidates and self._pinging is None and not self._ended:
            self._ping_next(now)

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _ping_next(self, now: Instant) -> None:
        """Ping the best candidates that were not pinged yet; if there are none, ask again."""
        self._timers.cancel("patience")
        self._log.mark("collected", now)
        if self._refuse_several(now):
            return
        candidates = list(self._candidates.values())
        selection.judge(candidates, self._config)
        left = [candidate for candidate in candidates if not candidate.target and candidate.datagrams is not None]
        targets = self._landmark_round.targets(left) if self._pinging is None else []
        if targets:
            self._config = finer(self._config)
        else:
            targets = selection.targets([one for one in left if not one.target], self._config)
        if not targets:
            self._choose_unpinged(now)
            return
        for candidate in targets:
            if candidate.relayed:  # the directory that passed its answer on is proven, and vouches for the address
                for address in filter(None, (candidate.named, candidate.seen)):
                    self._restraint.prove(address)
        attempt = self._requests.attempt.to_bytes(1, "big")
        secret = sha256(self._secret + attempt + len(left).to_bytes(2, "big")).digest()
        self._answers.close()
        send, prove = self._sending.send, self._restraint.prove
        self._pinging = Pinging(targets, self._config, secret, self._timers, send, self._pinged, prove)
        self._pinging.start(now)

    def _refuse_several(self, now: Instant) -> bool:
        """End without a choice if brokers of several networks have answered, and no network was asked for."""
        all_answers = (*self._candidates.values(), *self._answers.late.values())
        refusal = networks.refusal(
            all_answers, self._config, listed=self._parties.has_list, vouched=self._parties.vouched
        )
        if refusal is not None:
            self._finish(refusal, now)
        return refusal is not None

    def _pinged(self, now: Instant) -> None:
        candidates = list(self._candidates.values())
        ranked = selection.rank(candidates, self._config)
        if ranked:
            verdicts.explain(candidates, ranked, self._config)
            self._end(ranked, True, now)
        else:
            self._ping_next(now)  # the first ten have stopped, or their pongs were lost

    def _choose_unpinged(self, now: Instant) -> None:
        """No broker answers pings. Ask again while there is time; otherwise take the best score, as links may still
        work."""
        only_relayed = all(
            candidate.relayed for candidate in self._candidates.values()
        )  # then pings cannot arrive either
        if now < self._log.start + self._config.timeout_ms * NS_PER_MS and not only_relayed:
            self._answers.clear()
            self._pinging = None
            self._start_over(now)
            return
        self._take_estimate(now)

    def _take_estimate(self, now: Instant) -> None:
        candidates = list(self._candidates.values())
        selection.judge(candidates, self._config)
        ranked = sorted(candidates, key=lambda one: (bool(one.loaded), one.pings > 0, -one.score, one.name))
        verdicts.explain_estimate(ranked)
        self._end(ranked, False, now)

    def give_up(self, now: Instant) -> None:
        """Time is up."""
        if self._ended:
            return
        if self._candidates:
            if selection.rank(list(self._candidates.values()), self._config):
                self._pinged(now)
            else:
                self._take_estimate(now)
            return
        if self._parties.reachable:
            self._finish_listed(now)
            return
        what = "no broker answered" if self._parties.asked else "there is no party to ask"
        text = f"{what}; name a directory or a broker, or start one in reach of multicast"
        if self._answers.others:
            others = list(self._answers.others.values())
            text = networks.none_of(self._config.network or "", others, self._config.transports)
        self._finish(SearchResult(reason=Reason.BROKER_NOT_FOUND, text=text), now)

    def take_listed(self, now: Instant) -> None:
        """No party has sent anything for long enough: use a listed broker that accepts links."""
        waited_ns = now - self._log.start
        if self._parties.quiet and not self._ended and waited_ns >= self._config.listed_ms * NS_PER_MS:
            self._finish_listed(now)

    def _finish_listed(self, now: Instant) -> None:
        urls = tuple(f"heliograph://{written(address)}" for address in self._parties.reachable)
        text = "unproven: no party answered the search, but this broker of the static list takes links"
        self._finish(SearchResult(urls=urls, text=text), now)

    def _end(self, ranked: list[Candidate], proven: bool, now: Instant) -> None:
        if self._refuse_several(now):
            return
        rest = [candidate for candidate in self._candidates.values() if candidate not in ranked]
        rest.sort(key=lambda candidate: (not candidate.target, -candidate.score, candidate.name))
        self._finish(result_of(ranked, rest, self._config, self._clock.at(now), self._parties, proven=proven), now)

    def _finish(self, result: SearchResult, now: Instant) -> None:
        self._ended = True
        self._over(result, now)
