"""Chance: secrets, nonces and delays come from sources that tell nothing about each other."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from heliograph import node
from heliograph.broker.config import BrokerConfig, ListenerConfig, TimeConfig
from heliograph.broker.routing.config import LinkConfig, NetworkConfig
from heliograph.live.chance import system_seed
from heliograph.machine import Peer, SocketOpened
from heliograph.model.chance import SEED_BYTES, Seed, SystemSeed, delays_of, nonces_of, secret_of
from heliograph.stores.config import StoreConfig
from heliograph.timekeeping.sntp import PACKET

pytestmark = pytest.mark.req("O6")

SEED = SystemSeed(secrets=b"s" * SEED_BYTES, nonces=b"n" * SEED_BYTES, delays=7)
OTHER_SECRETS = replace(SEED, secrets=b"t" * SEED_BYTES)
S = 1_000_000_000


def test_each_purpose_has_a_secret_of_its_own() -> None:
    assert secret_of(SEED, "one") == secret_of(SEED, "one")
    assert len({secret_of(SEED, "one"), secret_of(SEED, "two"), secret_of(OTHER_SECRETS, "one")}) == 3


def test_nonces_and_delays_do_not_come_from_the_source_of_secrets() -> None:
    assert nonces_of(SEED, "one") == nonces_of(OTHER_SECRETS, "one") != secret_of(SEED, "one")
    assert delays_of(SEED).random() == delays_of(OTHER_SECRETS).random()


def test_a_live_seed_is_new_each_time_long_enough_and_not_shown() -> None:
    one, two = system_seed(), system_seed()
    assert len(one.secrets) == len(one.nonces) == SEED_BYTES
    assert len({one.secrets, one.nonces, two.secrets, two.nonces}) == 4
    assert one.delays != two.delays
    assert repr(one.secrets) not in repr(one)


def test_a_simulated_node_draws_everything_from_a_number() -> None:
    assert secret_of(3, "stores") == secret_of(3, "stores") != secret_of(4, "stores")
    assert delays_of(3).random() == Random(3).random()


class Shown:
    """What a broker with a time server, a neighbour to dial and a store shows to those who listen, and what not."""

    def __init__(self, seed: Seed) -> None:
        config = BrokerConfig(
            name="b",
            listeners=(ListenerConfig(),),
            time=TimeConfig(servers=("192.0.2.1",)),
            network=NetworkConfig(links=(LinkConfig(host="192.0.2.2"),), key=b"k" * 16),
        )
        built = node.build(config, seed=seed, incarnation=1, services=[StoreConfig(enabled=True, patterns=("#",))])
        broker, store = built.machines["broker"], built.machines["store"]
        broker.clock(1_800_000_000 * S, 0)
        [(ticket, _)] = broker.take().dials
        broker.attach(1, Peer("tcp", "192.0.2.2:4717", ticket=ticket), 0)
        self.linked = broker.take().writes
        broker.tell(SocketOpened("time", ("192.0.2.9", 1)), 0)
        self.asked = [data for _, _, data in broker.take().datagrams]
        for second in range(1, 8):
            broker.wake(second * S)
            self.asked += [data for _, _, data in broker.take().datagrams]
        store.attach(1, Peer("pipe", "broker"), 0)
        self.secret = store.take().writes


def test_what_a_node_sends_in_clear_text_says_nothing_about_its_secrets() -> None:
    one, two = Shown(SEED), Shown(OTHER_SECRETS)
    assert one.linked
    assert len(one.asked) >= 4
    assert (one.linked, one.asked) == (two.linked, two.asked)
    assert one.secret != two.secret


def test_the_nonces_for_time_servers_are_no_output_of_a_generator() -> None:
    """Such output shows the generator's state, and its seed."""
    asked = [PACKET.unpack(data)[-1] for data in Shown(1).asked]
    assert len(set(asked)) == len(asked)
    assert Random(1).getrandbits(64) not in asked
