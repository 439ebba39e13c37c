"""Broker pings: proves that known brokers are where they say, and measures how far each is from the directory.

In:    accepted advertisements, pongs, time.
Out:   pings; landmarks for brokers to measure.
State: when to ping which broker; the measurements are kept with the known brokers.
Not here: the table of brokers (known.py), which brokers are landmarks (landmarks.py).
"""

from __future__ import annotations

from heapq import heappop, heappush

from heliograph.discovery.brokers.config import DirectoryConfig
from heliograph.discovery.brokers.directory_output import DirectoryOutput
from heliograph.discovery.brokers.known import KnownBrokers
from heliograph.discovery.brokers.known_broker import KnownBroker
from heliograph.discovery.brokers.messages import Landmarks, Ping, Pong
from heliograph.discovery.cookies import Cookies
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Address, Instant
from heliograph.model.chance import Seed

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
TICK_NS = 50 * NS_PER_MS  # how often we look for pings that are due
AGAIN_NS = 500 * NS_PER_MS  # after a ping that was not answered
AGAIN_MAX = 16  # … this many times; then the address counts as unproven, and gets one ping per broker advertisement


class BrokerPings:
    """The pings of one directory."""

    def __init__(self, config: DirectoryConfig, seed: Seed, known: KnownBrokers, output: DirectoryOutput) -> None:
        self._config = config
        self._cookies = Cookies(seed, "ping")
        self._known = known
        self._output = output
        self._due: list[tuple[Instant, int, KnownBroker]] = []  # when to ping; a heap, one entry per proven broker
        self._turns = 0  # entries made so far; of two at the same instant the older comes first

    def reload(self, config: DirectoryConfig) -> None:
        """Put new settings in force."""
        self._config = config

    def prove(self, known: KnownBroker, now: Instant) -> None:
        """Ping a broker that has not answered yet: once per broker advertisement, which was no shorter than a ping.

        The advertisement may have come from a forged address, so nothing is repeated before there is an answer. If the
        ping is lost, the next advertisement causes another: a broker renews soon while no directory pings it.
        """
        waits = known.pinged_at is not None and now - known.pinged_at < AGAIN_NS
        if known.is_within_reach and not known.proven and not waits:
            self._ping(known, now)

    def _ping(self, known: KnownBroker, now: Instant) -> None:
        if known.pinged_at is not None:
            self._known.missed(known)
        known.pinged(now)
        cookie = b"" if known.address is None else self._cookies.of(known.address, now)
        self._output.tell(known, Ping(now), cookie)

    def receive(self, source: Address, cookie: bytes, pong: Pong, now: Instant) -> list[KnownBroker]:
        """A pong by datagram: returns the brokers that it proves. ProtocolError if it answers no ping of ours."""
        there = [known for known in self._known.at(source) if known.advertisement.broker == pong.broker]
        if not there or not self._cookies.is_right(source, cookie, now):
            raise ProtocolError(Reason.SENDER_UNPROVEN, "a pong without a ping")
        for known in there:
            self.ponged(known, pong, now)
        return there

    def ponged(self, known: KnownBroker, pong: Pong, now: Instant) -> None:
        """This broker answered a ping."""
        if known.pinged_at == pong.sent_ns and self._known.get(known.key) is known:
            self._known.ponged(known, now - pong.sent_ns, now)
            if not known.queued:
                known.queue(True)
                self._remind(known, now + self._config.ping_ms * NS_PER_MS)

    def _remind(self, known: KnownBroker, at: Instant) -> None:
        self._turns += 1
        heappush(self._due, (at, self._turns, known))

    def ping_due(self, now: Instant) -> None:
        """Ping the brokers that are due, a limited number at once."""
        most = max(1, self._config.pings_per_s * TICK_NS // NS_PER_S)
        while self._due and self._due[0][0] <= now and most:
            _, _, known = heappop(self._due)
            if self._known.get(known.key) is known:  # otherwise it was forgotten in the meantime
                most -= self._look_after(known, now)

    def _look_after(self, known: KnownBroker, now: Instant) -> bool:
        """Ping a proven broker again if it is due, sooner if it did not answer. Returns True if anything was sent.

        Landmarks are sent only from here: if all brokers measured at once, the landmarks would appear far away.
        """
        if known.misses >= AGAIN_MAX:
            self._known.doubt(known)
        if not known.proven:
            known.queue(False)  # its next advertisement gets the next ping
            return False
        next_at = known.ponged_at + self._config.ping_ms * NS_PER_MS
        rests = known.pinged_at is None and now < next_at
        if not rests:
            self._ping(known, now)
        told = self._tell_landmarks(known, now)
        self._remind(known, max(now + AGAIN_NS, next_at) if rests else now + AGAIN_NS)
        return told or not rests

    def _tell_landmarks(self, known: KnownBroker, now: Instant) -> bool:
        """Ask a broker to measure its distances if it is due. Returns True if it was asked."""
        if not self._known.landmarks.is_to_be_told(known, now):
            return False
        landmarks = self._known.landmarks.addresses
        known.told_of(landmarks, now)
        self._output.tell(known, Landmarks(landmarks), known.cookie)
        return True
