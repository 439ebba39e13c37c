"""The directory: what it keeps, to whom it hands requests, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.config import DEFAULT_PORT, AccessConfig, RuleConfig
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import (
    DIRECTORY_PORT,
    SOCKET,
    DirectoryConfig,
    DiscoveryConfig,
    ResponderConfig,
)
from heliograph.discovery.brokers.directory import Directory, ReloadDirectory
from heliograph.discovery.brokers.known import KnownBrokers
from heliograph.discovery.brokers.messages import (
    DIRECTORY_FRAMES,
    NO_COOKIE,
    Acknowledgement,
    BrokerAdvertisement,
    DiscoveryRequest,
    Message,
    MessageKind,
    Ping,
    Pong,
    Relay,
    Spread,
)
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import Effects, Peer, TurnedAway
from heliograph.model.identity import Identity, Role
from heliograph.notes import DirectoryReloaded, PeerRefused
from heliograph.wire import bodies
from heliograph.wire.bodies import Hello
from heliograph.wire.frames import Frame, service
from heliograph.wire.splitter import Splitter
from tests.discovery.brokers.stage import NO_MULTICAST, Plan, Stage, star
from tests.discovery.brokers.test_messages import EXAMPLES

BDN = ("bdn", DIRECTORY_PORT)
ID = bytes(range(16))
SECOND = 1_000_000_000
AT_BDN = ResponderConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)
BY_BDN = DiscoveryConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)
REQUEST = DiscoveryRequest(ID, 1, budget=50)
HERE = ("192.0.2.7", 5)
OPEN_TOPICS = AccessConfig(rules=(RuleConfig(effect="allow", topics=("Services/#",)),))


class Talk:
    """A directory, driven by hand."""

    def __init__(self, config: DirectoryConfig | None = None) -> None:
        self.directory = Directory(config or DirectoryConfig(), seed=1)
        self.now = SECOND
        self.directory.clock(10**18, self.now)
        self.directory.take()

    def hear(self, source: tuple[str, int], data: bytes) -> list[tuple[tuple[str, int], Message]]:
        self.directory.receive_datagram(SOCKET, source, data, self.now)
        return self.said()

    def said(self) -> list[tuple[tuple[str, int], Message]]:
        return [(to, messages.unpack(data)) for _, to, data in self.directory.take().datagrams]

    def wait(self, seconds: float) -> list[tuple[tuple[str, int], Message]]:
        said, until = [], self.now + int(seconds * SECOND)
        while self.now < until:
            self.now += SECOND // 20
            self.directory.wake(self.now)
            said += self.said()
        return said

    def register(self, name: str, island: str = "main", round_trip_ms: int = 10, **more: Any) -> tuple[str, int]:
        """A broker advertises itself and answers the ping."""
        address = (f"host-of-{name}", DEFAULT_PORT)
        body = advertisement(name, island=island, **more)
        ((to, ping),) = self.hear(address, messages.write(body, name.encode().ljust(16, b"!")))
        assert (to, ping.kind) == (address, MessageKind.PING)
        before, self.now = self.now, self.now + round_trip_ms * 1_000_000
        self.hear(address, messages.write(Pong(messages.decode(Ping, ping.body).sent_ns, name), ping.cookie))
        self.now = before
        return address

    def ask(
        self, request: DiscoveryRequest = REQUEST, source: tuple[str, int] = HERE
    ) -> list[tuple[tuple[str, int], Message]]:
        """A requester asks, with its cookie."""
        ((_, challenge),) = self.hear(source, messages.write(request))
        return self.hear(source, messages.write(request, challenge.cookie))

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = self.directory.report("overview")["counts"]
        return found


def advertisement(name: str, **more: Any) -> BrokerAdvertisement:
    fields = {"incarnation": 1, "number": 1, "lifetime_s": 30, "ports": {"udp": DEFAULT_PORT}} | more
    return BrokerAdvertisement(name, **fields)


def injected(said: list[tuple[tuple[str, int], Message]]) -> list[str]:
    return sorted(to[0].removeprefix("host-of-") for to, message in said if message.kind is MessageKind.SPREAD)


@pytest.mark.req("B5")
def test_a_request_is_acknowledged_at_once_and_a_repeat_of_it_changes_nothing() -> None:
    talk = Talk()
    talk.register("b0")
    first, again = talk.ask(), talk.ask()

    assert [message.kind for _, message in first] == [MessageKind.ACKNOWLEDGEMENT, MessageKind.SPREAD]
    assert [message.kind for _, message in again] == [MessageKind.ACKNOWLEDGEMENT]
    assert first[0] == again[0]
    said = messages.decode(Acknowledgement, first[0][1].body)
    assert (said.id, said.directory, said.brokers, said.asked, said.reason) == (ID, "bdn", 1, 1, 0)
    assert talk.counts["request_repeated"] == 1


@pytest.mark.req("B10")
def test_an_address_that_did_not_show_its_cookie_gets_only_that() -> None:
    talk = Talk()
    talk.register("b0")
    said = talk.hear(("192.0.2.7", 5), messages.write(REQUEST))
    assert [message.kind for _, message in said] == [MessageKind.CHALLENGE]
    stolen = said[0][1].cookie
    said = talk.hear(("192.0.2.8", 5), messages.write(REQUEST, stolen))
    assert [message.kind for _, message in said] == [MessageKind.CHALLENGE]


@pytest.mark.req("B6")
def test_a_request_goes_to_the_nearest_and_the_farthest_broker_of_each_island() -> None:
    talk = Talk()
    for number in range(6):
        talk.register(f"b{number}", "main", 10 + number)
    for number in range(3):
        talk.register(f"c{number}", "other", 50 - number)
    assert injected(talk.ask()) == ["b0", "b5", "c0", "c2"]


@pytest.mark.req("B6")
def test_unlinked_brokers_all_get_the_request() -> None:
    talk = Talk()
    for number in range(20):
        talk.register(f"b{number:02}", island=f"island{number}")
    assert len(injected(talk.ask())) == 20
    few = {name for id in range(20) for name in injected(talk.ask(DiscoveryRequest(bytes([id]) * 16, 1, budget=5)))}
    assert len(few) == 20  # five at a time, in turn


@pytest.mark.req("B6")
def test_what_is_handed_on_is_the_request_as_it_came_with_the_proven_address_and_the_brokers_own_cookie() -> None:
    talk = Talk()
    talk.register("b0")
    spread_message = talk.ask()[1][1]
    assert spread_message.cookie == b"b0".ljust(16, b"!")
    spread = messages.decode(Spread, spread_message.body)
    assert (spread.host, spread.port, spread.by, spread.relay) == ("192.0.2.7", 5, "bdn", "")
    inner = messages.unpack(spread.request, padded=False)
    assert inner.cookie == NO_COOKIE
    assert messages.decode(DiscoveryRequest, inner.body) == REQUEST


def test_a_repeated_attempt_is_handed_to_more_brokers() -> None:
    talk = Talk()
    for number in range(6):
        talk.register(f"b{number}", "main", 10 + number)
    assert len(injected(talk.ask())) == 2
    assert len(injected(talk.ask(DiscoveryRequest(ID, 2, budget=50)))) == 6


@pytest.mark.req("B2")
def test_a_broker_that_does_not_renew_is_forgotten() -> None:
    talk = Talk()
    address = talk.register("b0", lifetime_s=5)
    talk.wait(4)
    talk.hear(address, messages.write(advertisement("b0", number=2, lifetime_s=5, island="main")))
    talk.wait(4)
    assert talk.directory.report("overview")["brokers"] == 1
    talk.wait(3)
    assert talk.directory.report("overview") | {"counts": {}} == {
        "directory": "bdn",
        "brokers": 0,
        "measured": 0,
        "islands": 0,
        "landmarks": [],
        "placed": 0,
        "links": 0,
        "guests": 0,
        "requests_remembered": 0,
        "sources": 1,
        "counts": {},
    }


@pytest.mark.req("B3")
def test_new_settings_are_in_force_at_once_and_the_rest_is_named() -> None:
    talk = Talk(DirectoryConfig(links=("10.0.0.1:4717", "10.0.0.2:4717")))
    talk.register("here", geography="europe/graz")
    talk.register("there", geography="asia")
    talk.ask()
    for number in range(5):
        talk.ask(DiscoveryRequest(bytes([number]) * 16, 1))
    kept = ("10.0.0.2:4717", "10.0.0.3:4717")
    config = DirectoryConfig(geographies=("europe",), links=kept, requests_remembered=2, port=9, name="other")
    talk.directory.tell(ReloadDirectory(config), talk.now)
    effects = talk.directory.take()
    assert effects.notes == [DirectoryReloaded(1, ["bdn.name", "bdn.port"])]
    assert [dial.host for _, dial in effects.dials] == ["10.0.0.3"]
    overview = talk.directory.report("overview")
    assert (overview["directory"], overview["brokers"], overview["requests_remembered"]) == ("bdn", 1, 2)
    talk.hear(("host-of-there", DEFAULT_PORT), messages.write(advertisement("there", number=2, geography="asia")))
    assert talk.counts["advertisement_unwanted"] == 1


def test_a_link_that_is_gone_from_the_settings_is_ended() -> None:
    directory = Directory(DirectoryConfig(links=("10.0.0.1:4717",)), seed=1)
    directory.clock(10**18, SECOND)
    ((ticket, _),) = directory.take().dials
    directory.attach(7, Peer("tcp", "10.0.0.1:4717", ticket=ticket), SECOND)
    directory.take()
    directory.tell(ReloadDirectory(DirectoryConfig()), 2 * SECOND)
    assert directory.take().hangups == [(7, Reason.GOODBYE)]


def hello_of(effects: Effects) -> Hello:
    """The HELLO that a directory sent on a link that it dialled."""
    ((_, frames), *_) = effects.writes
    return bodies.decode(Hello, Frame(bytes(frames[0])).payload)


@pytest.mark.req("B20")
def test_a_directory_with_a_token_does_not_dial_a_broker_that_only_an_advertisement_names() -> None:
    config = DirectoryConfig(links=("10.0.0.1:4717",), entity="bdn", token="secret")
    directory = Directory(config, seed=1)
    directory.clock(10**18, SECOND)
    assert [dial.host for _, dial in directory.take().dials] == ["10.0.0.1"]
    talk = Talk(config)
    talk.register("rogue", ports={"udp": DEFAULT_PORT, "tcp": 4717, "tls": 4718})
    dials = []
    for second in range(2, 8):
        talk.directory.wake(second * SECOND)
        dials += [dial.host for _, dial in talk.directory.take().dials]
    assert dials == []


@pytest.mark.req("B20")
@pytest.mark.parametrize("roles", [None, (Role.CLIENT,), (Role.BROKER,)])
def test_only_a_learned_broker_with_the_certificate_of_a_broker_sees_the_token(roles: tuple[Role, ...] | None) -> None:
    talk = Talk(DirectoryConfig(links_secure=True, entity="bdn", token="secret"))
    talk.register("b0", ports={"udp": DEFAULT_PORT, "tcp": 4717, "tls": 4718})
    talk.directory.wake(4 * SECOND)
    ((ticket, dial),) = talk.directory.take().dials
    assert (dial.host, dial.port, dial.secure) == ("host-of-b0", 4718, True)
    identity = None if roles is None else Identity("b0", roles, proof="certificate")
    talk.directory.attach(7, Peer("tls", "host-of-b0:4718", identity=identity, ticket=ticket), 4 * SECOND)
    hello = hello_of(talk.directory.take())
    assert (hello.entity, hello.token) == (("bdn", "secret") if roles == (Role.BROKER,) else ("", ""))


def test_a_broker_that_the_settings_name_sees_the_token() -> None:
    directory = Directory(DirectoryConfig(links=("10.0.0.1:4717",), entity="bdn", token="secret"), seed=1)
    directory.clock(10**18, SECOND)
    ((ticket, _),) = directory.take().dials
    directory.attach(7, Peer("tcp", "10.0.0.1:4717", ticket=ticket), SECOND)
    assert hello_of(directory.take()).token == "secret"


@pytest.mark.req("B2")
def test_two_brokers_of_one_name_on_one_host_are_both_known() -> None:
    talk = Talk()
    for port in (4717, 5717):
        body = advertisement("b0", incarnation=port, ports={"udp": port})
        ((to, ping),) = talk.hear(("192.0.2.9", port), messages.write(body, b"c" * 16))
        talk.hear(to, messages.write(Pong(messages.decode(Ping, ping.body).sent_ns, "b0"), ping.cookie))
    assert [row["ports"] for row in talk.directory.report("brokers")] == [{"udp": 4717}, {"udp": 5717}]
    talk.hear(("192.0.2.9", 4717), messages.write(advertisement("b0", incarnation=4717, withdrawn=True), b"c" * 16))
    assert [row["ports"] for row in talk.directory.report("brokers")] == [{"udp": 5717}]


@pytest.mark.req("B2")
def test_an_old_advertisement_renews_nothing() -> None:
    talk = Talk()
    address = talk.register("b0", incarnation=5, number=9, lifetime_s=5)
    talk.wait(4)
    for incarnation, number in ((5, 9), (5, 8), (4, 99)):
        old = advertisement("b0", incarnation=incarnation, number=number, lifetime_s=500)
        talk.hear(address, messages.write(old))
    talk.wait(2)
    assert talk.directory.report("brokers") == []
    assert talk.counts["advertisement_stale"] == 2


def test_a_forged_advertisement_takes_nobodys_place_and_gets_no_request() -> None:
    talk = Talk()
    talk.register("b0")
    forged = advertisement("b0", incarnation=99, island="main")
    talk.hear(("203.0.113.66", 4717), messages.write(forged))  # its address never answers
    assert injected(talk.ask()) == ["b0"]
    assert talk.directory.report("overview")["measured"] == 1


def test_a_pong_that_nobody_asked_for_measures_nothing() -> None:
    talk = Talk()
    address = ("host-of-b0", DEFAULT_PORT)
    ((_, ping),) = talk.hear(address, messages.write(advertisement("b0")))
    sent_ns = messages.decode(Ping, ping.body).sent_ns
    talk.hear(address, messages.write(Pong(sent_ns, "b0"), bytes(range(16))))
    talk.hear(("203.0.113.66", 1), messages.write(Pong(sent_ns, "b0"), ping.cookie))
    talk.hear(address, messages.write(Pong(sent_ns - 5, "b0"), ping.cookie))
    assert talk.directory.report("overview")["measured"] == 0
    assert talk.counts["sender_unproven"] == 2


def test_a_broker_that_stops_answering_pings_gets_no_more_requests_until_it_answers() -> None:
    talk = Talk(DirectoryConfig(ping_ms=1_000))
    talk.register("b0", lifetime_s=600)
    pings = [message for _, message in talk.wait(6) if message.kind is MessageKind.PING]
    assert len(pings) >= 4
    assert injected(talk.ask()) == []
    sent_ns = messages.decode(Ping, pings[-1].body).sent_ns
    talk.hear(("host-of-b0", DEFAULT_PORT), messages.write(Pong(sent_ns, "b0"), pings[-1].cookie))
    assert injected(talk.ask(DiscoveryRequest(bytes(16), 1))) == ["b0"]


@pytest.mark.req("B3")
def test_a_directory_keeps_only_what_it_wants() -> None:
    talk = Talk(DirectoryConfig(geographies=("EU/", "US/MN"), institutions=("ACME",)))
    for name, geography, institution in (
        ("right", "EU/GB", "ACME"),
        ("here", "US/MN", "ACME Labs"),
        ("elsewhere", "US/FL", "ACME"),
        ("other", "EU/GB", "Other"),
        ("unknown", "", ""),
    ):
        body = advertisement(name, geography=geography, institution=institution)
        talk.hear((name, 1), messages.write(body))
    assert [broker["broker"] for broker in talk.directory.report("brokers")] == ["right", "here"]
    assert talk.counts["advertisement_unwanted"] == 3


def test_the_table_of_brokers_is_bounded() -> None:
    talk = Talk(DirectoryConfig(brokers_max=3))
    for number in range(5):
        talk.hear((f"h{number}", 1), messages.write(advertisement(f"b{number}")))
    assert talk.directory.report("overview")["brokers"] == 3
    assert talk.counts["brokers_over_limit"] == 2


def test_pings_are_spread_over_time() -> None:
    talk = Talk(DirectoryConfig(pings_per_s=20, ping_ms=1_000))
    for number in range(100):
        talk.hear((f"h{number}", 1), messages.write(advertisement(f"b{number}", lifetime_s=600)))
    assert len(talk.wait(5)) <= 20 * 5 + 1


def test_ten_thousand_brokers_of_one_island_cost_a_request_no_more_than_ten() -> None:
    known = KnownBrokers(DirectoryConfig())
    for number in range(10_000):
        one = known.add(advertisement(f"b{number}", island="main"), (f"h{number}", 1), NO_COOKIE, 0)
        known.ponged(one, (number * 7_919) % 10_000 + 1, 0)
    assert [one.round_trip_ns for one in known.ends(50)] == [1, 10_000]
    assert len(known.several(50)) <= 100
    assert known.measured == 10_000


@pytest.mark.req("O6")
def test_nothing_is_left_of_a_broker_that_was_forgotten() -> None:
    known = KnownBrokers(DirectoryConfig())
    where = ("192.0.2.1", 1)
    one = known.add(advertisement("b0", lifetime_s=3), where, NO_COOKIE, 0)
    known.ponged(one, 10, 0)
    other = known.add(advertisement("b1", lifetime_s=30), where, NO_COOKIE, 0)
    assert known.at(where) == [one, other]
    known.expire(4 * SECOND)
    assert (known.all(), known.at(where), known.measured, known.islands) == ([other], [other], 0, 0)
    known.expire(31 * SECOND)
    assert (known.all(), known.at(where)) == ([], [])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3), st.integers(1, 90)), max_size=60))
def test_the_islands_agree_with_the_brokers_whatever_comes(steps: list[tuple[int, int, int, int]]) -> None:
    known = KnownBrokers(DirectoryConfig(brokers_max=5))
    now = 0
    for number, (name, island, action, time) in enumerate(steps):
        now += time * SECOND // 10
        body = advertisement(f"b{name}", island=f"i{island}", number=number, lifetime_s=3)
        if len(known) == 5 and known.get((f"b{name}", f"h{name}", DEFAULT_PORT)) is None:
            with pytest.raises(ProtocolError):
                known.add(body, (f"h{name}", 1), NO_COOKIE, now)
            continue
        one = known.add(body, (f"h{name}", 1), NO_COOKIE, now)
        if action == 0:
            known.missed(one)
        elif action < 3:
            known.ponged(one, time, now)
        known.expire(now)
        measured = [one for one in known.all() if one.round_trip_ns is not None]
        assert known.measured == len(measured)
        assert known.islands == len({one.advertisement.island for one in measured})
        for end in known.ends(10):
            same = [one for one in measured if one.advertisement.island == end.advertisement.island]
            trips = [one.round_trip_ns for one in same]
            assert end.round_trip_ns in (min(trips), max(trips))  # type: ignore[type-var]


# -- links ----------------------------------------------------------------------------------------------------------


def frames(talk: Talk, link: int) -> list[Message]:
    splitter, found = Splitter(DIRECTORY_FRAMES), []
    for to, chunks in talk.directory.take().writes:
        if to == link:
            found += splitter.split(b"".join(chunks))
    return [messages.unpack(Frame(raw).payload, padded=False) for raw in found]


@pytest.mark.req("B5")
def test_a_request_over_a_link_needs_no_cookie_and_gets_its_answers_there() -> None:
    talk = Talk()
    broker = talk.register("b0")
    talk.directory.attach(9, Peer("tcp", "192.0.2.7:5555", "bdn"), talk.now)
    request = DiscoveryRequest(ID, 1, port=40_000, relay=True)
    talk.directory.receive(9, service(b"bdn", messages.write(request, pad=False), 0), talk.now)
    effects = talk.directory.take()
    ((_, chunks),) = effects.writes
    assert messages.unpack(Frame(chunks[0]).payload, padded=False).kind is MessageKind.ACKNOWLEDGEMENT
    spread = messages.decode(Spread, messages.unpack(effects.datagrams[0][2]).body)
    assert (spread.host, spread.port, spread.relay) == ("192.0.2.7", 40_000, "topic")

    response = messages.write(EXAMPLES[4], pad=False)
    relay = messages.write(Relay(ID, response, "", "192.0.2.7", 40_000))
    talk.hear(broker, relay)
    talk.directory.receive_datagram(SOCKET, broker, relay, talk.now)
    (relayed,) = frames(talk, 9)
    assert messages.decode(Relay, relayed.body) == Relay(ID, response, "host-of-b0")


@pytest.mark.req("B2")
def test_a_broker_can_register_over_a_link() -> None:
    talk = Talk()
    talk.directory.attach(9, Peer("tcp", "192.0.2.7:5555", "bdn"), talk.now)
    data = service(b"bdn", messages.write(advertisement("b0"), pad=False), 0)
    for start in range(0, len(data), 7):
        talk.directory.receive(9, data[start : start + 7], talk.now)
    (broker,) = talk.directory.report("brokers")
    assert (broker["broker"], broker["datagrams"]) == ("b0", f"192.0.2.7:{DEFAULT_PORT}")
    (ping,) = frames(talk, 9)
    assert ping.kind is MessageKind.PING
    pong = messages.write(Pong(messages.decode(Ping, ping.body).sent_ns, "b0"), pad=False)
    talk.directory.receive(9, service(b"bdn", pong, 0), talk.now)
    assert talk.directory.report("overview")["measured"] == 1
    talk.ask()
    talk.directory.detach(9, Reason.CLOSED, talk.now)
    assert talk.directory.report("overview")["guests"] == 0


@pytest.mark.req("O6")
def test_a_guest_that_has_advertised_a_broker_keeps_its_link_when_others_come() -> None:
    talk = Talk(DirectoryConfig(links_max=3))
    for link in range(3):
        talk.directory.attach(link, Peer("tcp", f"192.0.2.1:{50_000 + link}", "bdn"), talk.now)
    data = service(b"bdn", messages.write(advertisement("b0"), pad=False), 0)
    talk.directory.receive(0, data, talk.now)
    talk.directory.take()
    for number in range(3):
        talk.directory.attach(10 + number, Peer("tcp", f"198.51.100.{number}:1", "bdn"), talk.now)
    hung_up = dict(talk.directory.take().hangups)
    assert 0 not in hung_up
    assert hung_up[1] is Reason.SOURCE_OVER_SHARE


def test_a_guest_that_is_quiet_or_one_too_many_loses_its_link() -> None:
    talk = Talk(DirectoryConfig(links_max=1, link_idle_ms=1_000))
    talk.directory.attach(1, Peer("tcp", "192.0.2.7:1", "bdn"), talk.now)
    talk.directory.attach(2, Peer("tcp", "192.0.2.8:1", "bdn"), talk.now)
    assert talk.directory.take().hangups == [(2, Reason.LINKS_OVER_LIMIT)]
    talk.now += 2 * SECOND
    talk.directory.wake(talk.now)
    assert talk.directory.take().hangups == [(1, Reason.SILENT)]


@pytest.mark.req("O6")
def test_guests_of_one_address_do_not_keep_another_out_of_a_directory() -> None:
    talk = Talk(DirectoryConfig(links_max=10))
    for link in range(10):
        talk.directory.attach(link, Peer("tcp", f"192.0.2.1:{50_000 + link}", "bdn"), talk.now)
    assert not talk.directory.take().hangups
    talk.directory.attach(100, Peer("tcp", "192.0.2.1:1", "bdn"), talk.now)
    talk.directory.attach(101, Peer("tcp", "198.51.100.7:1", "bdn"), talk.now)
    assert talk.directory.take().hangups == [(100, Reason.LINKS_OVER_LIMIT), (0, Reason.SOURCE_OVER_SHARE)]
    talk.directory.receive(0, b"rubbish that is still on its way", talk.now)
    for link in (0, 100, 101):
        talk.directory.detach(link, Reason.CLOSED, talk.now)
    assert not talk.directory.take().hangups


def test_a_guest_whom_the_driver_turned_away_is_counted_and_noted() -> None:
    talk = Talk()
    talk.directory.tell(TurnedAway(Reason.LINKS_OVER_LIMIT, "192.0.2.7:1: no room"), talk.now)
    assert talk.directory.take().notes == [PeerRefused(0, Reason.LINKS_OVER_LIMIT, "192.0.2.7:1: no room")]
    assert talk.directory.report("overview")["counts"] == {"links_over_limit": 1}


def test_only_answers_to_requests_that_were_asked_here_are_relayed_and_no_more_than_wanted() -> None:
    talk = Talk()
    broker = talk.register("b0")
    talk.ask(DiscoveryRequest(ID, 1, budget=2, relay=True))
    response = messages.write(EXAMPLES[4], pad=False)
    relay = messages.write(Relay(ID, response, "", *HERE))
    relayed = [talk.hear(broker, relay) for _ in range(4)]
    assert [len(said) for said in relayed] == [1, 1, 0, 0]
    assert relayed[0][0][0] == HERE
    assert talk.hear(broker, messages.write(Relay(bytes(16), response, "", *HERE))) == []
    assert talk.hear(("203.0.113.66", 1), relay) == []
    assert talk.counts["sender_unproven"] == 1


@pytest.mark.req("B7")
def test_who_uses_the_id_of_another_search_at_a_directory_takes_neither_its_brokers_nor_its_answers() -> None:
    talk = Talk()
    broker, thief = talk.register("b0"), ("192.0.2.99", 7)
    talk.ask(DiscoveryRequest(ID, 1, budget=1, relay=True))
    assert injected(talk.ask(DiscoveryRequest(ID, 64, budget=1, relay=True), thief)) == ["b0"]
    assert injected(talk.ask(DiscoveryRequest(ID, 2, budget=1, relay=True))) == ["b0"]
    response = messages.write(EXAMPLES[4], pad=False)
    for to in (thief, HERE):
        relayed = [talk.hear(broker, messages.write(Relay(ID, response, "", *to))) for _ in range(2)]
        assert [[address for address, _ in said] for said in relayed] == [[to], []]


def test_a_relay_carries_answers_and_nothing_else() -> None:
    talk = Talk()
    broker = talk.register("b0")
    talk.ask(DiscoveryRequest(ID, 1, relay=True))
    for wrong in (messages.write(Ping(1)), b"noise", b""):
        assert talk.hear(broker, messages.write(Relay(ID, wrong, "", *HERE))) == []


@given(st.lists(st.binary(max_size=1_300), max_size=5), st.booleans())
def test_noise_gets_no_answer(noise: list[bytes], by_link: bool) -> None:
    talk = Talk()
    talk.directory.attach(9, Peer("tcp", "192.0.2.7:5555", "bdn"), talk.now)
    for data in noise:
        if by_link:
            talk.directory.receive(9, data, talk.now)
        else:
            talk.directory.receive_datagram(SOCKET, ("192.0.2.7", 5), data, talk.now)
    effects = talk.directory.take()
    assert not effects.datagrams
    assert not effects.writes


@given(st.sampled_from(EXAMPLES), st.integers(0, 3), st.binary(max_size=200))
def test_no_message_with_any_flags_makes_it_say_more_than_it_heard(
    body: messages.MessageBody, flags: int, chain: bytes
) -> None:
    talk = Talk()
    data = messages.pack(Message(messages.KINDS[type(body)], flags, bytes(16), messages.encode(body), chain))
    talk.directory.receive_datagram(SOCKET, ("192.0.2.7", 5), data, talk.now)
    assert sum(len(answer) for _, _, answer in talk.directory.take().datagrams) <= len(data)


def test_it_takes_only_the_commands_and_questions_it_knows() -> None:
    talk = Talk()
    with pytest.raises(UsageError):
        talk.directory.tell("hurry", 0)
    with pytest.raises(UsageError):
        talk.directory.report("weather")


# -- in a world -----------------------------------------------------------------------------------------------------


@pytest.mark.req("B1")
def test_one_registered_broker_is_enough_to_find_all_that_are_linked_to_it() -> None:
    plans = [Plan("b0", 30, (), AT_BDN)]
    quiet = ResponderConfig(public=False, multicast=NO_MULTICAST)
    plans += [Plan(f"b{number}", 30 - 5 * number, (f"b{number - 1}",), quiet) for number in range(1, 5)]
    stage = Stage(plans, directories=[DirectoryConfig()])
    assert stage.directory("bdn")["brokers"] == 1
    result = stage.find(BY_BDN)
    assert result.broker == "b4"
    assert len(result.findings) == 5


@pytest.mark.req("B1")
def test_directories_need_not_agree() -> None:
    one = ResponderConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)
    two = ResponderConfig(directories=("bdn2:4719",), multicast=NO_MULTICAST)
    plans = [Plan("b0", 20, (), one), Plan("b1", 10, (), two)]
    stage = Stage(plans, directories=[DirectoryConfig(), DirectoryConfig(name="bdn2")])
    both = DiscoveryConfig(directories=("bdn:4719", "bdn2:4719"), multicast=NO_MULTICAST)
    assert stage.find(BY_BDN).broker == "b0"
    assert stage.find(both).broker == "b1"


@pytest.mark.req("B2")
def test_a_directory_with_a_link_hears_of_brokers_on_the_public_topic_and_asks_them_there() -> None:
    quiet = ResponderConfig(multicast=NO_MULTICAST)
    plans = [Plan("b0", 10, (), quiet, access=OPEN_TOPICS), Plan("b1", 5, ("b0",), quiet)]
    stage = Stage(plans, directories=[DirectoryConfig(links=("b0:4717",))], settle_s=12)
    overview = stage.directory("bdn")
    assert (overview["links"], overview["brokers"]) == (1, 2)
    result = stage.find(BY_BDN)
    assert result.broker == "b1"
    assert stage.directory("bdn")["counts"].get("injected", 0) == 0  # by the link alone


@pytest.mark.req("B2")
def test_a_topic_of_its_own_reaches_the_directories_that_listen_to_it() -> None:
    own = ResponderConfig(multicast=NO_MULTICAST, public=False, topics=("Services/Ours",))
    plans = [Plan("b0", 10, (), own, access=OPEN_TOPICS)]
    listens = DirectoryConfig(links=("b0:4717",), topics=("Services/Ours",))
    stage = Stage(plans, directories=[listens, DirectoryConfig(name="bdn2", links=("b0:4717",))], settle_s=12)
    assert stage.directory("bdn")["brokers"] == 1
    assert stage.directory("bdn2")["brokers"] == 0


def test_a_directory_without_rights_at_a_broker_does_without_its_link() -> None:
    stage = Stage(star(2, AT_BDN), directories=[DirectoryConfig(links=("b0:4717", "nowhere:1"))])
    assert stage.directory("bdn")["links"] == 0
    assert stage.find(BY_BDN).broker == "b0"


@pytest.mark.req("B2")
def test_brokers_whose_datagrams_do_not_come_through_make_themselves_known_by_tcp() -> None:
    by_tcp = ResponderConfig(directory_links=("bdn:4719", "nowhere:1"), multicast=NO_MULTICAST)
    stage = Stage([], directories=[DirectoryConfig()])
    stage.world.datagrams.worsen("bdn", "b?", 1.0)
    stage.world.datagrams.worsen("b?", "bdn", 1.0)
    for plan in (Plan("b0", 10, (), by_tcp), Plan("b1", 5, (), by_tcp)):
        stage.add_broker(plan)
    stage.run(5)
    assert stage.directory("bdn")["measured"] == 2
    assert len(stage.find(BY_BDN).findings) == 2
    stage.world.crash(stage.world.hosts["bdn"])
    stage.run(1)
    stage.world.start(stage.world.hosts["bdn"])
    stage.run(12)
    assert stage.directory("bdn")["measured"] == 2


@pytest.mark.req("B4")
def test_a_private_directory_announces_itself_and_brokers_that_want_make_themselves_known_to_it() -> None:
    joins = ResponderConfig(multicast=NO_MULTICAST, public=False, join_private=True)
    stays = ResponderConfig(multicast=NO_MULTICAST, public=False)
    plans = [
        Plan("b0", 10, (), joins, access=OPEN_TOPICS),
        Plan("b1", 5, ("b0",), joins),
        Plan("b2", 5, ("b0",), stays),
    ]
    private = DirectoryConfig(private=True, links=("b0:4717",), advertise="bdn:4719")
    stage = Stage(plans, directories=[private], settle_s=5)
    assert sorted(broker["broker"] for broker in stage.directory("bdn", "brokers")) == ["b0", "b1"]
    result = stage.find(BY_BDN)
    assert result.reason is Reason.BROKER_NOT_FOUND
    assert result.tried == (
        "directory bdn:4719: refused, credential_missing: this directory is private: sign the request",
    )
