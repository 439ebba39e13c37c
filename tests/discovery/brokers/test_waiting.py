"""How long a search waits where somebody stays silent: never longer than it can learn something."""

from __future__ import annotations

import pytest

from heliograph.client.discover import Discover
from heliograph.discovery.brokers.config import SOCKET, DiscoveryConfig
from heliograph.discovery.brokers.messages import MessageKind, Usage
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.errors import Reason
from heliograph.machine import Effects, Peer, SocketOpened
from tests.discovery.brokers.stage import NO_MULTICAST
from tests.discovery.brokers.test_search import Talk

MS = 1_000_000
LISTED = ("198.51.100.1", 4717)


class Listing:
    """A search that knows two listed brokers and nobody else."""

    def __init__(self) -> None:
        brokers = ("198.51.100.1:4717", "198.51.100.2:4717")
        self.config = DiscoveryConfig(brokers=brokers, multicast=NO_MULTICAST, listed_ms=100, timeout_ms=300)
        self.search = BrokerSearch(self.config, seed=1)
        self.now = 1_000 * MS
        self.search.clock(10**18, self.now)
        self.search.tell(SocketOpened(SOCKET, ("192.0.2.7", 40_000)), self.now)
        self.start = self.take()

    def take(self) -> Effects:
        return self.search.take()

    def wait(self, ms: int) -> None:
        self.now += ms * MS
        self.search.wake(self.now)

    def attach(self, ticket: int) -> Effects:
        self.search.attach(9, Peer("tcp", "198.51.100.2:4717", ticket=ticket), self.now)
        return self.take()


def test_a_listed_broker_that_takes_links_and_answers_no_searches_is_taken_soon() -> None:
    listing = Listing()
    tickets = {(dial.host, dial.port): ticket for ticket, dial in listing.start.dials}
    listing.search.failed(tickets[LISTED], Reason.DIAL_FAILED, listing.now)
    effects = listing.attach(tickets["198.51.100.2", 4717])
    assert effects.hangups == [(9, Reason.GOODBYE)]
    listing.wait(99)
    assert listing.search.result is None
    listing.wait(1)
    result = listing.search.result
    assert result is not None
    assert result.urls == ("heliograph://198.51.100.2:4717",)
    assert not result.proven
    assert "listed broker 198.51.100.2:4717: takes links, but answers no searches" in result.tried


def test_a_listed_broker_that_takes_no_links_is_no_reason_to_end() -> None:
    listing = Listing()
    for ticket, _ in listing.start.dials:
        listing.search.failed(ticket, Reason.DIAL_FAILED, listing.now)
    listing.wait(200)
    assert listing.search.result is None
    listing.wait(400)
    assert listing.search.result is not None
    assert not listing.search.result.found


def test_a_listed_broker_that_starts_during_the_search_is_found() -> None:
    listing = Listing()
    for ticket, _ in listing.start.dials:
        listing.search.failed(ticket, Reason.DIAL_FAILED, listing.now)
    listing.wait(200)
    tickets = {(dial.host, dial.port): ticket for ticket, dial in listing.take().dials}
    listing.attach(tickets["198.51.100.2", 4717])
    result = listing.search.result
    assert result is not None
    assert result.urls == ("heliograph://198.51.100.2:4717",)


def test_on_one_computer_it_is_a_tenth_of_a_second_and_elsewhere_the_time_out() -> None:
    assert Discover().config((), (), ()).listed_ms == 100
    assert Discover(timeout_ms=60).config((), (), ()).listed_ms == 60
    away = Discover(bdns=("192.0.2.1:4719",), timeout_ms=3_000)
    assert away.config((), (), ()).listed_ms == 3_000


@pytest.mark.req("B11")
def test_if_all_are_busy_and_one_that_is_known_stays_silent_it_is_asked_for_once_more_and_then_done_without() -> None:
    talk = Talk()
    talk.acknowledge(brokers=2)
    talk.wait(20)
    talk.answer(0, usage=Usage(cpu_permille=990))
    talk.said()
    waited, asked, pinged = 0, 0, False
    while not pinged:
        talk.wait(10)
        waited += 10
        said = [message.kind for _, message in talk.said()]
        asked += said.count(MessageKind.REQUEST)
        pinged = MessageKind.PING in said
    assert asked == 1
    assert waited == 2 * talk.config.fallback_ms
