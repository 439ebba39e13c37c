"""Nobody can use us to flood somebody else: an address that has proven nothing gets at most three times what it sent.

Every kind of datagram, to every machine that has a socket, with minutes of time after it. The sender may forge the
source of its datagrams, knows the id of a search (it hears the multicast group), and sees what is sent to its own
address; what is sent to others it does not see.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.broker.config import DEFAULT_PORT, AccessConfig, ListenerConfig, RuleConfig
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import (
    DIRECTORY_PORT,
    GROUP,
    GROUP_PORT,
    GROUP_SOCKET,
    SOCKET,
    DirectoryConfig,
    DiscoveryConfig,
    ResponderConfig,
)
from heliograph.discovery.brokers.directory import Directory
from heliograph.discovery.brokers.messages import (
    GROUP_BYTES,
    NO_COOKIE,
    REQUEST_TOPIC,
    Acknowledgement,
    Announcement,
    BrokerAdvertisement,
    Certificate,
    CertificateRequest,
    Challenge,
    DiscoveryRequest,
    DiscoveryResponse,
    Landmarks,
    Message,
    MessageBody,
    MessageKind,
    Ping,
    Pong,
    Relay,
    Spread,
)
from heliograph.discovery.brokers.responder import Responder
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.discovery.restraint import FACTOR, STRANGERS_MAX, Restraint
from heliograph.machine import Address, Effects, Instant, Outbox, SocketName, SocketOpened
from heliograph.model.origin import origin_of
from heliograph.node import DIRECTORY, build_alone
from heliograph.timekeeping.sntp import Servers
from heliograph.wire.frames import Frame, Kind, control, event
from heliograph.wire.splitter import Splitter
from tests.discovery.brokers.stage import Stage, star
from tests.discovery.brokers.test_live import running
from tests.examples import examples
from tests.live.machines import LOOPS
from tests.sim.machines import add, dial, heard, it, send, write

pytestmark = pytest.mark.req("B10")

S = 1_000_000_000
ID = bytes(range(16))
OWN: Address = ("203.0.113.66", 4717)  # the sender's
VICTIMS: list[Address] = [("198.51.100.1", 4717), ("198.51.100.1", 53), ("198.51.100.2", 4717)]
NAMED: Address = ("192.0.2.100", 4719)  # a directory that the settings name
LISTED: Address = ("192.0.2.101", 4717)
SOURCES = [*VICTIMS, OWN, NAMED, LISTED]


class Hears(Protocol):
    """What the machines have in common here."""

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None: ...
    def wake(self, now: Instant) -> None: ...
    def take(self) -> Effects: ...


@dataclass(frozen=True)
class Shot:
    """One forged datagram, and how long nothing happens after it."""

    source: Address
    body: MessageBody
    cookie: int = 0  # 0: none; 1: wrong; 2: the last one that was sent to OWN
    flags: int = 0
    group: bool = False
    wait_s: float = 0.0


class Range:
    """A machine that is shot at. Victims stay silent."""

    def __init__(self, machine: Hears) -> None:
        self._machine = machine
        self._now = 5 * S
        self._stolen = NO_COOKIE
        self.came: Counter[Address] = Counter()
        self.went: Counter[Address] = Counter()
        self._take()

    def fire(self, shot: Shot) -> None:
        cookie = (NO_COOKIE, b"w" * 16, self._stolen)[shot.cookie]
        kind = messages.KINDS[type(shot.body)]
        data = messages.pack(Message(kind, shot.flags, cookie, messages.encode(shot.body)))
        if shot.group:
            data = data.ljust(GROUP_BYTES, b"\0")
        self.came[shot.source] += len(data)
        door = GROUP_SOCKET if shot.group else SOCKET
        self._machine.receive_datagram(door, shot.source, data, self._now)
        self._take()
        self.wait(shot.wait_s)

    def wait(self, seconds: float) -> None:
        end = self._now + int(seconds * S)
        while (wake_at := self._take()) is not None and wake_at <= end:
            self._now = max(self._now, wake_at)
            self._machine.wake(self._now)
        self._now = end

    def _take(self) -> Instant | None:
        effects = self._machine.take()
        for _, address, data in effects.datagrams:
            self.went[address] += len(data)
            if address == OWN:
                self._stolen = messages.unpack(data).cookie
        for victim in VICTIMS:
            assert self.went[victim] <= FACTOR * self.came[victim], (victim, self.went, self.came)
        return effects.wake_at

    def play(self, shots: Sequence[Shot], minutes: float) -> None:
        for shot in shots:
            self.fire(shot)
        self.wait(60 * minutes)


hosts = st.sampled_from(["", *sorted({host for host, _ in VICTIMS}), OWN[0]])
addresses = st.sampled_from([f"{host}:{port}" for host, port in SOURCES])
ports = st.sampled_from([{"udp": 4717, "tcp": 4717}, {"udp": 53, "tcp": 1}, {}])


def bodies(id: bytes, shown: Sequence[bytes] = (b"",)) -> st.SearchStrategy[MessageBody]:
    """Every kind, with fields that matter."""
    ids, attempts = st.sampled_from([id, bytes(16)]), st.integers(1, 3)
    names, bools = st.sampled_from(["b0", "b1", "b2"]), st.booleans()
    responses = st.builds(
        DiscoveryResponse, ids, attempts, names, host=hosts, ports=ports, island=names, brokers=st.integers(1, 5)
    )
    relayed = responses.map(lambda body: messages.write(body, pad=False))
    requests = st.builds(DiscoveryRequest, ids, attempts, host=hosts, port=st.just(53), relay=bools, measures=bools)
    asked = requests.map(lambda body: messages.write(body, pad=False))
    numbers = st.integers(0, 2)
    return st.one_of(
        st.builds(
            BrokerAdvertisement,
            *(names, numbers, numbers, st.sampled_from([1, 30, 86_400])),
            *(hosts, ports, st.just("main"), st.just("main")),
            withdrawn=bools,
        ),
        requests,
        st.builds(Challenge, ids, st.sampled_from(list(shown))),
        st.builds(Acknowledgement, ids, attempts, landmarks=st.lists(addresses, max_size=8)),
        responses,
        st.builds(Ping, numbers),
        st.builds(Pong, st.integers(5 * S, 5 * S + 1), names),
        st.builds(Announcement, names, hosts, st.just(53), st.just(86_400)),
        st.builds(Spread, asked, hosts, st.just(53), names, addresses, bools),
        st.builds(Relay, ids, relayed, hosts),
        st.builds(CertificateRequest, st.binary(min_size=32, max_size=32)),
        st.builds(Certificate, st.binary(max_size=64)),
        st.builds(Landmarks, st.lists(addresses, max_size=8)),
    )


def volleys(id: bytes = ID, shown: Sequence[bytes] = (b"",)) -> st.SearchStrategy[list[Shot]]:
    """Some shots, one after the other."""
    waits = st.sampled_from([0.0, 0.0, 0.003, 0.3, 5.0, 40.0])
    shot = st.builds(
        Shot, st.sampled_from(SOURCES), bodies(id, shown), st.integers(0, 2), st.just(0), st.booleans(), waits
    )
    return st.lists(shot, max_size=12)


def a_directory() -> Directory:
    directory = Directory(DirectoryConfig(), seed=1)
    directory.clock(10**18, 5 * S)
    return directory


def a_responder() -> Responder:
    config = ResponderConfig(directories=(f"{NAMED[0]}:{NAMED[1]}",))
    responder = Responder(config, "b0", seed=1, incarnation=1)
    responder.clock(10**18, 5 * S)
    responder.tell(SocketOpened(SOCKET, ("127.0.0.1", 4717)), 5 * S)
    return responder


def a_finder() -> BrokerSearch:
    config = DiscoveryConfig(directories=(f"{NAMED[0]}:{NAMED[1]}",), brokers=(f"{LISTED[0]}:{LISTED[1]}",))
    search = BrokerSearch(config, seed=1)
    search.clock(10**18, 5 * S)
    search.tell(SocketOpened(SOCKET, ("192.0.2.7", 40_000)), 5 * S)
    return search


def told_to_the_group() -> tuple[bytes, bytes]:
    """What everybody on the LAN knows of the search's search: its id and what it shows the group first."""
    for _, address, data in a_finder().take().datagrams:
        if address == (GROUP, GROUP_PORT):
            message = messages.unpack(data)
            return messages.decode(DiscoveryRequest, message.body).id, message.cookie
    raise AssertionError("the group was not asked")


FOUND_ID, SHOWN = told_to_the_group()
LONG_LIVED = BrokerAdvertisement("ghost", 1, 1, 86_400, ports={"udp": 4717, "tcp": 4717})


@examples(90)
@example([Shot(VICTIMS[0], LONG_LIVED, cookie=1)])  # one datagram, and a ping every half second for a day
@example([Shot(VICTIMS[0], LONG_LIVED), Shot(OWN, BrokerAdvertisement("ghost", 1, 2, 600, "198.51.100.1"))])
@given(volleys())
def test_a_directory_sends_a_silent_address_no_more_than_three_times_what_came_from_it(shots: list[Shot]) -> None:
    Range(a_directory()).play(shots, minutes=1)


@examples(90)
@given(volleys())
def test_a_responder_sends_a_silent_address_no_more_than_three_times_what_came_from_it(shots: list[Shot]) -> None:
    Range(a_responder()).play(shots, minutes=2)


CHALLENGED = Challenge(FOUND_ID, SHOWN)
FORGED = Acknowledgement(FOUND_ID, 1, landmarks=[f"{host}:{port}" for host, port in VICTIMS])


@examples(150)
@example([Shot(VICTIMS[0], CHALLENGED, cookie=1)])  # was answered by a long request, again and again
@example([Shot(VICTIMS[0], DiscoveryResponse(FOUND_ID, 1, "b0", ports={"tcp": 1}))])  # was pinged seven times
@example([Shot(NAMED, CHALLENGED, cookie=1), Shot(NAMED, FORGED, cookie=1)])  # the search measured whatever was named
@given(volleys(FOUND_ID, (b"", SHOWN, bytes(16))))
def test_a_finder_sends_a_silent_address_no_more_than_three_times_what_came_from_it(shots: list[Shot]) -> None:
    Range(a_finder()).play(shots, minutes=0.2)


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_whatever_comes_to_the_socket_for_time_is_not_answered(noise: list[bytes]) -> None:
    outbox = Outbox()
    servers = Servers((NAMED,), 64 * S, 1, outbox)
    servers.ask(S)
    asked = list(outbox.datagrams)
    for data in noise:
        servers.receive(data, 2 * S)
    assert outbox.datagrams == asked


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 80), st.integers(1, 1_300)), max_size=200))
def test_restraint_never_lets_more_than_three_times_as_much_out(steps: list[tuple[bool, int, int]]) -> None:
    restraint, came, went = Restraint(), Counter[int](), Counter[int]()
    for comes, host, size in steps:
        if comes:
            restraint.heard((f"h{host}", 1), size)
            came[host] += size
        elif restraint.may((f"h{host}", 1), size):
            went[host] += size
        assert went[host] <= FACTOR * came[host]


def test_strangers_cannot_push_out_those_that_a_search_counts_on() -> None:
    restraint = Restraint()
    restraint.heard(OWN, 100)
    restraint.keep(OWN)
    for number in range(2 * STRANGERS_MAX):
        restraint.heard((f"h{number}", 1), 100)
    assert restraint.left(OWN) == 300
    assert restraint.left(("h0", 1)) == 0
    assert restraint.left((f"h{STRANGERS_MAX}", 1)) == 300


# -- in both drivers ------------------------------------------------------------------------------------------------


def test_in_a_world_a_silent_host_gets_at_most_three_times_what_it_sent_to_all_together() -> None:
    """Three brokers, a directory and the group hear every kind of datagram from it; then minutes pass."""
    responder = ResponderConfig(directories=("bdn:4719",))
    stage = Stage(star(3, responder), directories=[DirectoryConfig()])
    stranger = stage.stranger()
    sent = 0
    for to in (("bdn", DIRECTORY_PORT), ("b0", DEFAULT_PORT), (GROUP, GROUP_PORT)):
        for body in (
            LONG_LIVED,
            DiscoveryRequest(ID, 1),
            Ping(1),
            CertificateRequest(bytes(32)),
            Landmarks(["client-raw:999"]),
            Spread(messages.write(DiscoveryRequest(ID, 2), pad=False), "client-raw", 999, "bdn", "client-raw:999"),
        ):
            data = messages.write(body, b"w" * 16).ljust(GROUP_BYTES if to[0] == GROUP else 0, b"\0")
            send(stage.world, stranger.host, "raw", to, data)
            sent += len(data)
    stage.run(180)
    came = heard(stranger.host)
    assert {messages.unpack(data).kind for data in came} == {MessageKind.CHALLENGE, MessageKind.PING, MessageKind.PONG}
    assert sum(map(len, came)) <= FACTOR * sent
    assert sum(messages.unpack(data).kind is MessageKind.PING for data in came) == 1


def test_a_client_cannot_say_on_the_topic_of_requests_that_somebody_proved_an_address() -> None:
    """Only brokers and directories may publish there, even where everybody may publish everything else."""
    everything = AccessConfig(rules=(RuleConfig(effect="allow", topics=("#", "+/#")),))
    stage = Stage([replace(plan, access=everything) for plan in star(2)])
    victim, client = stage.stranger("client-victim"), add(stage.world, "client-that-lies")
    dial(stage.world, client, "b0", DEFAULT_PORT)
    write(stage.world, client, control(Kind.HELLO, 0, b'{"versions": [1], "secret": "%b"}' % (b"0" * 32)))
    stage.run(0.5)
    spread = Spread(messages.write(DiscoveryRequest(ID, 1), pad=False), *victim.address, "b1", "client-victim:999")
    origin = origin_of(bytes(16))
    write(stage.world, client, event(REQUEST_TOPIC, messages.write(spread, pad=False), origin, 1))
    stage.run(1)
    assert heard(victim.host) == []
    assert [stage.responder(name)["remembered"] for name in ("b0", "b1")] == [0, 0]
    said = Splitter().split(b"".join(it(client).chunks))
    assert Kind.REFUSED in [Frame(raw).kind for raw in said]


@pytest.mark.live
@pytest.mark.parametrize("run", LOOPS, ids=["uvloop", "asyncio"])
def test_a_directory_with_a_real_socket_pings_a_silent_one_once(run: Callable[[Any], Any]) -> None:
    async def main() -> None:
        listener = ListenerConfig(name=DIRECTORY, port=0)
        async with running(build_alone(DIRECTORY, DirectoryConfig(port=0), seed=1), listener) as (bdn, _, address):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
                silent.bind(("127.0.0.1", 0))
                silent.setblocking(False)
                said = messages.write(LONG_LIVED, b"w" * 16)
                silent.sendto(said, address)
                await asyncio.sleep(1.7)  # three times as long as it took to repeat a ping
                came = _read(silent)
                assert [messages.unpack(data).kind for data in came] == [MessageKind.PING]
                assert sum(map(len, came)) <= FACTOR * len(said)
                assert bdn.report(DIRECTORY, "overview")["counts"]["lifetimes_cut"] == 1

    run(main())


def _read(bound: socket.socket) -> list[bytes]:
    found: list[bytes] = []
    while True:
        try:
            found.append(bound.recv(65_535))
        except BlockingIOError:
            return found
