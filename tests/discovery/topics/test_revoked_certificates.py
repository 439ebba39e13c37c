"""Revocation lists spread from one broker to all, and end the links of what they revoke; also at one that was away."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.discovery.revocation_lists import (
    LIST_BYTES_MAX,
    PART_BYTES,
    ListPart,
    ListsRenewed,
    RevocationLists,
    parts_of,
)
from heliograph.discovery.topics.revocation_news import RevocationSpread
from heliograph.discovery.topics.rights import RightsKeeper
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Peer
from heliograph.model.identity import Role
from heliograph.trust.certificates import Pair, make_authority, revoke
from heliograph.trust.chains import Authorities, load_pem
from heliograph.trust.keyring import Keyring
from heliograph.trust.revocation import make_list
from tests.discovery.topics.stage import AUTHORITY, NOW, WALL_NS, TopicStage, keyring_of, pair_of
from tests.trust.parties import garbled

RIVAL = make_authority("test-authority", NOW - timedelta(days=1))


def a_list(*entities: str, before: bytes = b"", by: Pair = AUTHORITY, hours: int = 0) -> bytes:
    return revoke(by, [pair_of(entity).certificate for entity in entities], before, NOW + timedelta(hours=hours))


def der_of(pem: bytes) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    return x509.load_pem_x509_crl(pem).public_bytes(Encoding.DER)


def many(count: int) -> bytes:
    """A list with this many certificates, DER."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key: Any = load_pem_private_key(AUTHORITY.key, None)
    return der_of(make_list(load_pem(AUTHORITY.certificate)[0], key, [1 << 150 | n for n in range(count)], NOW))


class Lists(TopicStage):
    """Three brokers in a line, alice at the first, carol at the last."""

    def __init__(self) -> None:
        super().__init__(3, directories={}, entities=("alice", "bob", "carol"))

    def keeper(self, broker: str) -> RightsKeeper:
        keeper = next(seat.machine for seat in self.world.hosts[broker].seats if seat.name == "rights")
        assert isinstance(keeper, RightsKeeper)
        return keeper

    def reload(self, broker: str, pem: bytes) -> None:
        """The node's files have this list now."""
        ring = self.keeper(broker)._keyring
        ring.renew(Keyring(Authorities.from_pem(AUTHORITY.certificate, pem), ring.own))
        host = self.world.hosts[broker]
        host.tell(host.seat("rights"), ListsRenewed())

    def sends(self, to: str, der: bytes) -> None:
        """A neighbour sends this, whatever it is."""
        keeper, host = self.keeper(to), self.world.hosts[to]
        link = next(iter(keeper._news._neighbours))
        for part in parts_of(der):
            keeper._news.hear_neighbour(link, msgspec.msgpack.encode(RevocationSpread(part=part)), self.world.loop.now)
        host.tell(host.seat("rights"), ListsRenewed())  # so that the world asks for its effects
        self.run(0.5)

    def refused(self, broker: str) -> int:
        machine = self.world.hosts[broker].seat("broker").machine
        return int(machine.report("overview")["refused"].get("certificate_revoked", 0))

    def is_linked(self, entity: str) -> bool:
        return self.machine(entity)._session is not None and self.machine(entity)._session.welcomed


@pytest.mark.req("T11", "B17")
def test_a_list_at_one_broker_ends_links_at_every_broker_within_two_seconds() -> None:
    stage = Lists()
    assert stage.is_linked("carol")
    stage.reload("b1", a_list("carol"))
    stage.run(2.0)
    assert stage.refused("b3") >= 1
    assert not stage.is_linked("carol")
    stage.run(5.0)
    assert not stage.is_linked("carol"), "it dials again, and is refused each time"
    assert stage.is_linked("alice")
    chain = keyring_of("carol").own.chain  # type: ignore[union-attr]
    with pytest.raises(ProtocolError) as caught:
        stage.keeper("b3")._keyring.learn(chain, WALL_NS)
    assert caught.value.reason is Reason.CERTIFICATE_REVOKED
    assert [stage.keeper(name).report("overview")["lists"] for name in stage.brokers] == [1, 1, 1]


@pytest.mark.req("T11", "B17")
def test_a_broker_that_was_away_learns_of_the_list_when_it_comes_back() -> None:
    stage = Lists()
    away = stage.world.hosts["b3"]
    stage.world.crash(away)
    stage.run(1)
    stage.reload("b1", a_list("carol"))
    stage.run(1)
    stage.world.start(away)
    stage.run(8)
    assert not stage.is_linked("carol")
    assert stage.refused("b3") >= 1


@pytest.mark.req("T11", "B17")
def test_a_list_replaces_an_older_one_even_of_the_same_second_and_never_a_newer_one() -> None:
    stage = Lists()
    first = a_list("bob")
    second = a_list("carol", before=first)
    stage.reload("b1", first)
    stage.run(1)
    assert stage.is_linked("carol")
    stage.reload("b1", second)
    stage.run(1)
    assert not stage.is_linked("carol")
    stage.sends("b3", der_of(first))
    assert len(stage.keeper("b3")._keyring.authorities.revoked) == 2, "an old list takes nothing back"


@pytest.mark.req("T11", "B17")
def test_a_list_of_a_neighbour_survives_a_reload_of_the_files() -> None:
    stage = Lists()
    stage.reload("b1", a_list("carol"))
    stage.run(1)
    stage.reload("b3", b"")
    stage.run(1)
    assert len(stage.keeper("b3")._keyring.authorities.revoked) == 1


HOSTILE = {
    "of another authority with the same name": (der_of(revoke(RIVAL, [], b"", NOW)), "certificate_untrusted"),
    "of the future": (der_of(a_list("carol", hours=5)), "certificate_not_yet_valid"),
    "with another certificate's place": (der_of(a_list("carol"))[:-1] + b"x", "certificate_untrusted"),
    "that is no list": (b"x" * 100, "certificate_malformed"),
}


@pytest.mark.req("T11", "B17")
@pytest.mark.parametrize(("der", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_list_that_is_worth_nothing_is_refused_with_its_reason(der: bytes, reason: str) -> None:
    stage = Lists()
    stage.sends("b3", der)
    assert stage.keeper("b3").report("overview")["counts"][reason] == 1
    assert stage.is_linked("carol")
    assert stage.keeper("b2").report("overview")["lists"] == 0, "it spreads nowhere"


@pytest.mark.req("T11", "B17")
def test_a_long_list_travels_in_parts_and_one_that_misses_a_part_is_refused() -> None:
    der = many(5_000)
    assert len(parts_of(der)) > 3
    lists = RevocationLists(keyring_of("b1", Role.BROKER))
    parts = parts_of(der)
    assert [lists.gather(1, part) for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert lists.gather(1, parts[-1]) == der
    new = lists.take(der, WALL_NS)
    assert new is not None
    assert len(new.serials) == 5_000
    assert lists.take(der, WALL_NS) is None
    for order in ([parts[0], parts[2]], [parts[1]], [parts[0], ListPart(bytes(32), 9, PART_BYTES, b"")]):
        with pytest.raises(ProtocolError):
            _ = [lists.gather(2, part) for part in order]
    altered = ListPart(parts[0].digest, 3, 0, b"abc")
    with pytest.raises(ProtocolError):
        lists.gather(2, altered)
    assert parts_of(bytes(LIST_BYTES_MAX + 1)) == []


@given(
    st.one_of(
        garbled(msgspec.msgpack.encode(RevocationSpread(part=parts_of(der_of(a_list("carol")))[0]))),
        st.binary(max_size=200),
    )
)
@settings(deadline=None)
def test_messages_of_neighbours_of_any_bytes_are_read_or_counted(data: bytes) -> None:
    keeper = RightsKeeper("b1", seed=1, keyring=keyring_of("b1", Role.BROKER))
    keeper.clock(WALL_NS, 0)
    keeper.attach(9, Peer("pipe", "broker"), 0)
    keeper._news.hear_neighbour(1, data, 0)
    said = keeper.report("overview")
    assert said["lists"] == said["counts"].get("lists", 0)
