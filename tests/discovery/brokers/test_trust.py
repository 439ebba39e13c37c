"""Who is believed: signed requests, answers and advertisements; rogues, replays, seals."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Any

import pytest

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import (
    SOCKET,
    DirectoryConfig,
    DiscoveryConfig,
    MulticastConfig,
    ResponderConfig,
)
from heliograph.discovery.brokers.directory import Directory
from heliograph.discovery.brokers.messages import (
    DiscoveryRequest,
    DiscoveryResponse,
    MessageFlag,
    MessageKind,
    Ping,
    Pong,
)
from heliograph.discovery.brokers.responder import Responder
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.discovery.brokers.services import RESPONDER_SERVICE
from heliograph.discovery.brokers.signing import Signing, domain_of
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Address, Instant, SocketOpened
from heliograph.model.identity import Role
from heliograph.node import Node
from heliograph.trust.certificates import Pair, issue, make_authority
from heliograph.trust.chains import Authorities
from heliograph.trust.keyring import Keyring, Own
from tests.discovery.brokers.stage import NO_MULTICAST, Plan, Stage, star
from tests.sim.machines import Recorder

BEGIN = datetime(2024, 12, 1, tzinfo=UTC)  # a month before worlds begin
WALL_NS = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp()) * 10**9
ID = bytes(range(16))
AT_BDN = ResponderConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)
BY_BDN = DiscoveryConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)
GROUP_ONLY = DiscoveryConfig(timeout_ms=500)


@cache
def authority(name: str = "ours") -> Pair:
    return make_authority(name, BEGIN, draw=Random(name).randbytes)


@cache
def pair(entity: str, role: Role = Role.BROKER, by: str = "ours", hosts: tuple[str, ...] = (), days: int = 90) -> Pair:
    draw = Random(f"{entity}/{role}/{by}").randbytes
    return issue(authority(by), entity, (role,), hosts, BEGIN, days, draw=draw)


def ring(entity: str = "", role: Role = Role.BROKER, by: str = "ours", **more: Any) -> Keyring:
    """A keyring that trusts our authority, with a certificate of its own if it is anybody."""
    own = pair(entity, role, by, **more) if entity else None
    trusted = Authorities.from_pem(authority().certificate)
    return Keyring(trusted, None if own is None else Own.from_pem(own.certificate, own.key))


def signed_star(count: int, responder: ResponderConfig, **more: Any) -> list[Plan]:
    return [replace(plan, keyring=ring(plan.name, **more)) for plan in star(count, responder)]


@pytest.mark.req("B17")
def test_signed_requests_answers_and_advertisements_find_a_broker() -> None:
    stage = Stage(signed_star(3, AT_BDN), directories=[DirectoryConfig()], keyring=ring("bdn"))
    result = stage.find(BY_BDN, keyring=ring("client", Role.CLIENT))
    assert result.broker == "b0"
    assert result.proven
    assert len(result.findings) == 3
    assert stage.directory("bdn")["brokers"] == 3


@pytest.mark.req("B17")
def test_whoever_only_checks_needs_no_certificate_of_its_own() -> None:
    stage = Stage(signed_star(2, ResponderConfig()))
    assert stage.find(DiscoveryConfig(), keyring=ring()).broker == "b0"


@pytest.mark.req("B17")
def test_a_directory_with_authorities_keeps_only_what_the_broker_itself_signed() -> None:
    plans = [
        Plan("unsigned", 5, (), AT_BDN),
        Plan("foreign", 5, (), AT_BDN, keyring=ring("foreign", by="theirs")),
        Plan("posing", 5, (), AT_BDN, keyring=ring("other")),
        Plan("client", 5, (), AT_BDN, keyring=ring("client", Role.CLIENT)),
        Plan("right", 5, (), AT_BDN, keyring=ring("right")),
    ]
    stage = Stage(plans, directories=[DirectoryConfig()], keyring=ring("bdn"))
    overview = stage.directory("bdn")
    assert [broker["broker"] for broker in stage.directory("bdn", "brokers")] == ["right"]
    for word in ("credential_missing", "certificate_untrusted", "credential_wrong", "role_missing"):
        assert overview["counts"][word] > 0


@pytest.mark.req("B8")
def test_a_broker_that_asks_for_credentials_answers_those_who_have_some() -> None:
    plans = signed_star(2, ResponderConfig(policy="credential"))
    stage = Stage(plans)
    assert stage.find(DiscoveryConfig(), keyring=ring("client", Role.CLIENT)).broker == "b0"
    assert stage.find(GROUP_ONLY).reason is Reason.BROKER_NOT_FOUND
    assert stage.responder("b0")["counts"]["credential_missing"] > 0


@pytest.mark.req("B4")
def test_a_private_directory_passes_on_what_is_signed() -> None:
    config = DirectoryConfig(private=True, advertise="bdn:4719")
    stage = Stage(signed_star(2, AT_BDN), directories=[config], keyring=ring("bdn"))
    assert stage.find(BY_BDN, keyring=ring("client", Role.CLIENT)).broker == "b0"
    assert stage.find(replace(BY_BDN, timeout_ms=500)).reason is Reason.BROKER_NOT_FOUND
    untrusted = stage.find(replace(BY_BDN, timeout_ms=500), keyring=ring("client", Role.CLIENT, by="theirs"))
    assert "certificate_untrusted" in untrusted.tried[0]


@pytest.mark.req("B17")
def test_a_chain_that_does_not_fit_is_asked_for() -> None:
    hosts = tuple(f"a-rather-long-name-of-a-host-{number}.of.some.network.example" for number in range(8))
    own = pair("b0", hosts=hosts)
    assert 800 < len(Own.from_pem(own.certificate, own.key).chain) < 1_190
    stage = Stage([Plan("b0", 5, keyring=ring("b0", hosts=hosts))])
    result = stage.find(DiscoveryConfig(), keyring=ring("client", Role.CLIENT, hosts=hosts))
    assert result.broker == "b0"
    assert result.proven


@pytest.mark.req("B17")
def test_sealed_answers_are_for_the_requester_only() -> None:
    stage = Stage(signed_star(2, ResponderConfig()))
    assert stage.find(DiscoveryConfig(), keyring=ring("client", Role.CLIENT), sealed=True).broker == "b0"

    broker, client, other = ring("b0"), ring("client", Role.CLIENT), ring("other", Role.CLIENT)
    own = client.own
    assert own is not None
    recipient = broker.learn(own.chain, WALL_NS)
    message = Signing(broker, required=True).message(DiscoveryResponse(ID, 1, "b0"), recipient=recipient)
    assert message.flags == MessageFlag.SIGNED | MessageFlag.SEALED
    assert b"b0" not in message.body
    response, holder = Signing(client, required=True).read(message, DiscoveryResponse, WALL_NS, Role.BROKER)
    assert response.broker == "b0"
    assert holder is not None
    assert holder.identity.entity == "b0"
    for stranger in (Signing(other, required=True), Signing(None, required=True)):
        with pytest.raises(ProtocolError) as caught:
            stranger.read(message, DiscoveryResponse, WALL_NS)
        assert caught.value.reason is Reason.SEAL_BROKEN


@pytest.mark.req("B17")
@pytest.mark.parametrize("by_link", [False, True])
def test_a_request_can_be_sealed_for_the_directory_which_passes_it_on(by_link: bool) -> None:
    bdn = ring("bdn")
    assert bdn.own is not None
    stage = Stage(signed_star(2, AT_BDN), directories=[DirectoryConfig()], keyring=bdn)
    config = replace(BY_BDN, directories=(), directory_links=BY_BDN.directories) if by_link else BY_BDN
    result = stage.find(config, keyring=ring("client", Role.CLIENT), directory_chain=bdn.own.chain)
    assert result.broker == "b0"
    other = replace(config, timeout_ms=300)
    wrong = ring("other").own
    assert wrong is not None
    refused = stage.find(other, keyring=ring("client", Role.CLIENT), directory_chain=wrong.chain)
    assert not refused.found
    assert stage.directory("bdn")["counts"]["seal_broken"] > 0


def test_a_chain_too_long_for_a_datagram_comes_by_the_link_to_a_directory() -> None:
    hosts = tuple(f"a-rather-long-name-of-a-host-{number}.of.some.network.example" for number in range(14))
    long = ring("b0", hosts=hosts)
    assert long.own is not None
    assert len(long.own.chain) > 1_232
    bdn = ring("bdn")
    bdn.learn(long.own.chain, WALL_NS)  # by TCP or TLS, from whoever has it
    stage = Stage([Plan("b0", 5, (), AT_BDN, keyring=long)], directories=[DirectoryConfig()], keyring=bdn)
    stage.world.datagrams.worsen("b0", "client*", 1.0)
    config = replace(BY_BDN, directories=(), directory_links=BY_BDN.directories)
    assert stage.find(config, keyring=ring()).broker == "b0"


# -- rogues ---------------------------------------------------------------------------------------------------------


class Rogue(Recorder):
    """Answers every request at once, and every ping, as the nearest and idlest of brokers; keeps what it heard."""

    def __init__(self, signing: Signing) -> None:
        super().__init__()
        self._signing = signing

    def receive_datagram(self, socket: str, source: Address, data: bytes, now: Instant) -> None:
        super().receive_datagram(socket, source, data, now)
        message = messages.unpack(data)
        if message.kind is MessageKind.REQUEST:
            id = Signing(None, required=False).glance(message, DiscoveryRequest).id
            response = DiscoveryResponse(id, 1, "rogue", ports={"tcp": 4717, "udp": 4717})
            self.outbox.datagrams.append((SOCKET, source, messages.pack(self._signing.message(response))))
        elif message.kind is MessageKind.PING:
            pong = messages.write(Pong(messages.decode(Ping, message.body).sent_ns, "rogue"), message.cookie)
            self.outbox.datagrams.append((SOCKET, source, pong))


def with_rogue(keyring: Keyring | None, plans: list[Plan]) -> tuple[Stage, Rogue]:
    stage = Stage(plans, far_ms=1.0)
    rogue = Rogue(Signing(keyring, required=False))
    sockets = {"it": RESPONDER_SERVICE.sockets(ResponderConfig(), None)}
    node = Node(name="rogue", machines={"it": rogue}, pipes=(), listeners={}, sockets=sockets)
    stage.world.start(stage.world.add("rogue", lambda _: node))
    return stage, rogue


@pytest.mark.req("B20")
@pytest.mark.parametrize(
    ("keyring", "reason"),
    [
        (None, "credential_missing"),
        (ring("rogue", by="theirs"), "certificate_untrusted"),
        (ring("rogue", Role.CLIENT), "role_missing"),
        (ring("rogue", days=5), "certificate_expired"),
        (ring("another-broker"), "credential_wrong"),
    ],
)
def test_a_rogue_that_answers_multicast_is_dropped_and_counted_by_whoever_has_authorities(
    keyring: Keyring | None, reason: str
) -> None:
    stage, _ = with_rogue(keyring, signed_star(2, ResponderConfig()))
    result = stage.find(DiscoveryConfig(), keyring=ring("client", Role.CLIENT))
    assert result.broker == "b0"
    assert [finding.broker for finding in result.findings] == ["b0", "b1"]
    assert result.counts[reason] >= 1


@pytest.mark.req("B20")
def test_a_rogue_learns_nothing_secret() -> None:
    """A search has no password or token that it could tell, and what it signs is good for nothing else."""
    keyring = ring("client", Role.CLIENT)
    stage, rogue = with_rogue(None, [])
    stage.find(GROUP_ONLY, keyring=keyring)
    heard = [data for _, _, _, data in rogue.of("datagram")]
    assert heard
    (request, *_) = [messages.unpack(data) for data in heard]
    body, holder = Signing(ring(), required=True).read(request, DiscoveryRequest, WALL_NS)
    assert holder is not None
    told = {name: value for name, value in zip(body.__struct_fields__, _values(body), strict=True) if value}
    assert set(told) == {"id", "attempt", "role", "port", "transports", "budget", "issued_ms"}
    assert not [field.name for field in fields(DiscoveryConfig) if "token" in field.name or "password" in field.name]
    for kind in MessageKind:
        if kind is not MessageKind.REQUEST:
            with pytest.raises(ProtocolError):
                ring_that_knows(keyring).verify(domain_of(kind), request.body, WALL_NS)


def ring_that_knows(other: Keyring) -> Keyring:
    keyring = ring()
    assert other.own is not None
    keyring.learn(other.own.chain, WALL_NS)
    return keyring


def _values(body: messages.MessageBody) -> list[Any]:
    return [getattr(body, name) for name in body.__struct_fields__]


@pytest.mark.req("B17")
def test_a_response_that_was_changed_or_signed_for_another_search_is_not_taken() -> None:
    search = BrokerSearch(replace(BY_BDN, directories=("192.0.2.1:1",)), seed=1, keyring=ring("client", Role.CLIENT))
    search.clock(WALL_NS, 0)
    search.tell(SocketOpened(SOCKET, ("192.0.2.7", 40_000)), 0)
    request = messages.unpack(search.take().datagrams[0][2])
    id = Signing(None, required=False).glance(request, DiscoveryRequest).id
    broker = Signing(ring("b0"), required=True)
    good = messages.pack(broker.message(DiscoveryResponse(id, 1, "b0", ports={"tcp": 1})))
    changed = bytearray(good)
    changed[26 + 97 + 30] ^= 1
    other = messages.pack(broker.message(DiscoveryResponse(ID, 1, "b0", ports={"tcp": 1})))
    for data in (bytes(changed), other):
        search.receive_datagram(SOCKET, ("192.0.2.9", 1), data, 1)
    assert search.report("overview")["candidates"] == 0
    search.receive_datagram(SOCKET, ("192.0.2.9", 1), good, 2)
    assert search.report("overview")["candidates"] == 1


# -- replays --------------------------------------------------------------------------------------------------------


class Copy:
    """Somebody who copied a signed request and sends it to a broker from an address of its own."""

    def __init__(self, issued_ns: int) -> None:
        self.responder = Responder(
            ResponderConfig(requests_remembered=1), "b0", seed=1, incarnation=1, keyring=ring("b0")
        )
        self.responder.clock(WALL_NS, 0)
        signing = Signing(ring("client", Role.CLIENT), required=True)
        self.message = signing.message(DiscoveryRequest(ID, 1, issued_ms=issued_ns // 10**6))
        self.signing = signing

    def send(self, source: Address, message: messages.Message) -> dict[str, int]:
        self.responder.receive_datagram(SOCKET, source, messages.pack(message), 1)
        ((_, _, challenge),) = self.responder.take().datagrams
        cookie = messages.unpack(challenge).cookie
        self.responder.receive_datagram(SOCKET, source, messages.pack(replace(message, cookie=cookie)), 2)
        self.responder.take()
        counts: dict[str, int] = self.responder.report("overview")["counts"]
        return counts


@pytest.mark.req("B17")
def test_a_copied_request_is_worth_nothing_at_another_address() -> None:
    copy = Copy(WALL_NS)
    assert "replayed" not in copy.send(("192.0.2.7", 5), copy.message)
    assert copy.send(("203.0.113.66", 5), copy.message)["replayed"] == 1
    other = copy.signing.message(DiscoveryRequest(bytes(16), 1, issued_ms=WALL_NS // 10**6))
    copy.send(("192.0.2.7", 5), other)  # now the first is forgotten
    assert copy.send(("192.0.2.7", 5), copy.message)["replayed"] == 2


@pytest.mark.req("B17")
def test_whose_request_was_copied_gets_no_refusal_for_that_and_its_next_attempt_is_taken() -> None:
    directory = Directory(DirectoryConfig(), seed=1, keyring=ring("bdn"))
    directory.clock(WALL_NS, 0)
    signing = Signing(ring("client", Role.CLIENT), required=True)

    def ask(source: Address, attempt: int) -> list[MessageKind]:
        request = signing.message(DiscoveryRequest(ID, attempt, issued_ms=WALL_NS // 10**6))
        directory.receive_datagram(SOCKET, source, messages.pack(request), 1)
        ((_, _, challenge),) = directory.take().datagrams
        cookie = messages.unpack(challenge).cookie
        directory.receive_datagram(SOCKET, source, messages.pack(replace(request, cookie=cookie)), 2)
        return [messages.unpack(data).kind for _, _, data in directory.take().datagrams]

    assert ask(("203.0.113.66", 5), 1) == [MessageKind.ACKNOWLEDGEMENT]
    assert ask(("192.0.2.7", 5), 1) == []
    assert ask(("192.0.2.7", 5), 2) == [MessageKind.ACKNOWLEDGEMENT]


@pytest.mark.req("B17")
def test_an_old_request_is_dropped() -> None:
    for issued_ns in (WALL_NS - 60 * 10**9, WALL_NS + 60 * 10**9):
        copy = Copy(issued_ns)
        assert copy.send(("192.0.2.7", 5), copy.message)["stale"] == 1


def test_without_a_keyring_what_is_signed_is_read_and_nobody_is_proven() -> None:
    message = Signing(ring("b0"), required=True).message(DiscoveryResponse(ID, 1, "b0"))
    response, holder = Signing(None, required=True).read(message, DiscoveryResponse, None)
    assert response.broker == "b0"
    assert holder is None


def test_without_the_time_no_certificate_is_believed() -> None:
    message = Signing(ring("b0"), required=True).message(DiscoveryResponse(ID, 1, "b0"))
    with pytest.raises(ProtocolError) as caught:
        Signing(ring(), required=True).read(message, DiscoveryResponse, None)
    assert caught.value.reason is Reason.STALE


def test_a_spread_request_keeps_the_chain_so_that_every_broker_can_read_it() -> None:
    plans = signed_star(3, AT_BDN)
    stage = Stage(plans, directories=[DirectoryConfig()], keyring=ring("bdn"))
    result = stage.find(BY_BDN, keyring=ring("client", Role.CLIENT))
    assert len(result.findings) == 3
    assert all("certificate_unknown" not in stage.responder(plan.name)["counts"] for plan in plans)


def test_the_group_of_a_broker_is_configurable() -> None:
    mine = MulticastConfig(group="239.255.1.2", port=5_000)
    stage = Stage([Plan("b0", 5, (), ResponderConfig(multicast=mine)), Plan("b1", 1)])
    assert stage.find(DiscoveryConfig(multicast=mine)).broker == "b0"
