"""The advertisement sender: tells directories regularly where a responder's broker is, and when it stops.

In:    changes of the broker's status, directories that were found or announced; time.
Out:   broker advertisements and withdrawals: by datagram, on links to directories, on topics.
State: when the last one left; whether the broker was withdrawn.
Not here: what an advertisement says and which directories get it (advertisement.py), links (uplinks.py).
Paper: [brokers] §2.2 to §2.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.advertisement import Advertiser
from heliograph.discovery.brokers.config import SOCKET
from heliograph.discovery.brokers.messages import BrokerAdvertisement
from heliograph.discovery.brokers.signing import Signing
from heliograph.discovery.brokers.status import BrokerStatus
from heliograph.discovery.brokers.uplinks import Uplinks
from heliograph.discovery.cookies import Cookies
from heliograph.machine import Instant, Outbox, Timers
from heliograph.services.broker_session import BrokerSession


class AdvertisementSender:
    """Sends the advertisements of one broker, once it has a session with the broker and knows its ports."""

    def __init__(
        self,
        advertiser: Advertiser,
        status: BrokerStatus,
        signing: Signing,
        cookies: Cookies,
        uplinks: Uplinks,
        outbox: Outbox,
        timers: Timers,
        counts: Counter[str],
        session: Callable[[], BrokerSession | None],
        topics: tuple[bytes, ...],
    ) -> None:
        """``cookies`` are those that directories present to us later; ``session`` is the session with the broker, if
        any."""
        self._advertiser = advertiser
        self._status = status
        self._signing = signing
        self._cookies = cookies
        self._uplinks = uplinks
        self._outbox = outbox
        self._timers = timers
        self._counts = counts
        self._session = session
        self._topics = topics
        self._advertised_at: Instant = 0
        self.withdrawn = False  # the broker is stopping and accepts no more clients

    def advertise(self, now: Instant) -> None:
        """Send an advertisement to every directory, and set when the next one is due."""
        self._timers.set("advertise", now + self._advertiser.wait_ns(now), self.advertise)
        session = self._session()
        if self._status.ports and session is not None and not self.withdrawn:
            self._advertised_at = now
            self._send(self._advertiser.next(self._status), session, now)
            self._counts["advertised"] += 1

    def withdraw(self, now: Instant) -> None:
        """The broker is draining or stopping: tell the directories, so that they send no clients here."""
        if self.withdrawn:
            return
        self.withdrawn = True
        if self._counts["advertised"]:
            session = self._session()
            assert session is not None
            self._send(self._advertiser.next(self._status, withdrawn=True), session, now)

    def _send(self, advertisement: BrokerAdvertisement, session: BrokerSession, now: Instant) -> None:
        message = self._signing.message(advertisement)
        for address in self._advertiser.directories(now):
            cookie = self._cookies.of(address, self._advertised_at)  # a withdrawal carries the last cookie sent
            self._outbox.datagrams.append((SOCKET, address, messages.pack(replace(message, cookie=cookie))))
        data = messages.pack(message, pad=False)
        self._uplinks.say_to_all(data)
        for topic in self._topics:
            session.publish(topic, data)
