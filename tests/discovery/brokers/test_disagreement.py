"""Directories that disagree: what they know is joined, and none of them ends a search for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import SOCKET, DirectoryConfig, DiscoveryConfig, ResponderConfig
from heliograph.discovery.brokers.messages import (
    Acknowledgement,
    Challenge,
    DiscoveryRequest,
    DiscoveryResponse,
    MessageKind,
    mark_of,
)
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.machine import Address, SocketOpened
from tests.discovery.brokers.stage import NO_MULTICAST, Plan, Stage

MS = 1_000_000
ONE: Address = ("192.0.2.100", 4719)
TWO: Address = ("192.0.2.101", 4719)


class Talk:
    """A search that asks two directories, driven by hand."""

    def __init__(self) -> None:
        config = DiscoveryConfig(directories=("192.0.2.100:4719", "192.0.2.101:4719"), multicast=NO_MULTICAST)
        self.search = BrokerSearch(config, seed=1)
        self.now = 1_000 * MS
        self.search.clock(10**18, self.now)
        self.search.tell(SocketOpened(SOCKET, ("192.0.2.7", 40_000)), self.now)
        asked = {to: messages.unpack(data) for _, to, data in self.search.take().datagrams}
        self.nonces = {to: message.cookie for to, message in asked.items()}
        self.id = messages.decode(DiscoveryRequest, asked[ONE].body).id

    def hear(self, source: Address, data: bytes) -> None:
        self.search.receive_datagram(SOCKET, source, data, self.now)

    def challenge(self, directory: Address) -> None:
        self.hear(directory, messages.write(Challenge(self.id, self.nonces[directory]), bytes(range(16))))

    def acknowledge(self, directory: Address, names: Sequence[str] = (), **more: Any) -> None:
        listed = b"".join(map(mark_of, names))
        body = Acknowledgement(self.id, 1, "bdn", **({"brokers": len(names), "listed": listed} | more))
        self.hear(directory, messages.write(body, bytes(range(16))))

    def answer(self, name: str) -> None:
        body = DiscoveryResponse(self.id, 1, name, ports={"tcp": 4717, "udp": 4717})
        self.hear((f"host-of-{name}", 4717), messages.write(body))

    def pings_after(self, ms: float) -> list[str]:
        """Who is pinged within that time: nobody before the search has all it waits for."""
        pinged: list[str] = []
        for _ in range(int(ms)):
            pinged += self.pinged()
            self.now += MS
            self.search.wake(self.now)
        return pinged + self.pinged()

    def pinged(self) -> list[str]:
        sent = self.search.take().datagrams
        return [
            to[0].removeprefix("host-of-") for _, to, data in sent if messages.unpack(data).kind is MessageKind.PING
        ]


@pytest.mark.req("B1")
@pytest.mark.req("B11")
@pytest.mark.parametrize("slow", ["bdn", "bdn2"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_nearest_broker_is_found_though_only_the_slower_directory_knows_it(slow: str, seed: int) -> None:
    fast = "bdn2" if slow == "bdn" else "bdn"
    plans = [
        Plan(name, near_ms, (), ResponderConfig(directories=(f"{directory}:4719",), multicast=NO_MULTICAST))
        for name, near_ms, directory in (("far", 15, fast), ("near", 2, slow))
    ]
    directories = [DirectoryConfig(), DirectoryConfig(name="bdn2")]
    stage = Stage(plans, seed=seed, directories=directories, directory_ms={fast: 0.5, slow: 40.0})
    both = DiscoveryConfig(directories=("bdn:4719", "bdn2:4719"), multicast=NO_MULTICAST)
    result = stage.find(both)
    assert result.broker == "near"
    assert len(result.findings) == 2
    assert result.times_ms["total"] < 400


@pytest.mark.req("B11")
def test_what_two_directories_list_is_joined() -> None:
    for second, waited_for in ((["b0", "b1"], 0), (["b1"], 0), (["b1", "b2"], 1), ([], 0)):
        talk = Talk()
        for directory, names in ((ONE, ["b0", "b1"]), (TWO, second)):
            talk.challenge(directory)
            talk.acknowledge(directory, names)
        talk.answer("b0")
        assert talk.pinged() == []
        talk.answer("b1")
        assert talk.pinged() == ([] if waited_for else ["b0", "b1"])
        if waited_for:
            talk.answer("b2")
            assert talk.pinged() == ["b0", "b1", "b2"]


@pytest.mark.req("B11")
def test_a_directory_that_claims_one_broker_ends_nothing_while_another_is_expected() -> None:
    talk = Talk()
    talk.challenge(ONE)
    talk.acknowledge(ONE, ["b0"])
    talk.answer("b0")
    assert talk.pings_after(50) == []  # the other one has said nothing yet
    talk.challenge(TWO)
    assert talk.pings_after(50) == []  # now it has, and it knows more than that it is there
    talk.acknowledge(TWO, ["b0", "b1"])
    assert talk.pings_after(10) == []
    talk.answer("b1")
    assert talk.pinged() == ["b0", "b1"]


@pytest.mark.req("B11")
def test_claims_that_list_nobody_are_added_up() -> None:
    talk = Talk()
    for directory in (ONE, TWO):
        talk.challenge(directory)
        talk.acknowledge(directory, brokers=1)
    talk.answer("b0")
    assert talk.pinged() == []
    talk.answer("b1")
    assert talk.pinged() == ["b0", "b1"]


@pytest.mark.req("B11")
def test_a_directory_that_claims_a_thousand_brokers_does_no_harm() -> None:
    for claim in ({"brokers": 1_000}, {"brokers": 1_000, "listed": bytes(range(256))}):
        talk = Talk()
        talk.challenge(ONE)
        talk.acknowledge(ONE, ["b0"])
        talk.challenge(TWO)
        talk.acknowledge(TWO, **claim)
        talk.answer("b0")
        assert talk.pings_after(talk.search._config.patience_ms_min + 1) == ["b0"]


@pytest.mark.req("B11")
def test_directories_are_waited_for_within_a_bound() -> None:
    silent = Talk()
    silent.challenge(ONE)
    silent.acknowledge(ONE, ["b0"])
    silent.answer("b0")
    assert silent.pings_after(95) == []
    assert silent.pings_after(10) == ["b0"]

    stuck = Talk()  # it sent its challenge after 30 ms, and then nothing more
    stuck.pings_after(30)
    for directory in (ONE, TWO):
        stuck.challenge(directory)
    stuck.acknowledge(ONE, ["b0"])
    stuck.answer("b0")
    assert stuck.pings_after(60) == []
    assert stuck.pings_after(10) == ["b0"]


def test_where_the_only_directory_is_silent_nobody_waits_for_it() -> None:
    talk = Talk()
    talk.answer("b0")
    assert talk.pings_after(6) == ["b0"]
