"""Shares: no source address keeps another out, and one that is alone may have everything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.commands import Room
from heliograph.broker.config import BrokerConfig, LimitsConfig, ListenerConfig
from heliograph.broker.sessions import CLAIMS_MAX, CLAIMS_PER_SOURCE_MAX
from heliograph.broker.shares import Shares, source_of
from heliograph.errors import Reason
from heliograph.machine import Peer
from heliograph.model.identity import Identity, Role
from tests.broker.talk import Talk

pytestmark = pytest.mark.req("O6")

CROWD, HONEST = "192.0.2.1", "198.51.100.7"


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.1:4717", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:4717", "192.0.2.1"),
        ("[2001:db8:1:2::3]:4717", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:ffff:ffff:ffff:ffff]:1", "2001:db8:1:2::/64"),
        ("[2001:db8:1:3::3]:4717", "2001:db8:1:3::/64"),
        ("[fe80::1%eth0]:4717", "fe80::/64"),
        ("[::1]:4717", "::/64"),
        ("client-3:50001", "client-3"),
        ("unknown", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_source_is_an_ipv4_address_or_the_64_bits_that_an_ipv6_subscriber_is_given(address: str, source: str) -> None:
    assert source_of(address) == source


@given(st.text(max_size=40))
def test_any_text_has_a_source(address: str) -> None:
    assert source_of(address)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3))))
def test_shares_agree_with_plain_counting(steps: list[tuple[bool, int, int]]) -> None:
    """A list of pairs, searched from the beginning, is the obvious way to keep them."""
    shares: Shares[int] = Shares()
    plain: list[tuple[int, str]] = []
    for adds, item, number in steps:
        source = f"s{number}"
        if adds and item not in shares:
            shares.add(source, item)
            plain.append((item, source))
        elif not adds:
            shares.remove(item)
            plain = [pair for pair in plain if pair[0] != item]
        of = {f"s{each}": [item for item, its in plain if its == f"s{each}"] for each in range(4)}
        assert len(shares) == len(plain)
        for each, items in of.items():
            assert shares.count(each) == len(items)
            assert shares.oldest(each) == (items[0] if items else None)
            most = max(map(len, of.values()))
            victim = shares.victim(each)
            if most < len(items) + 2:
                assert victim is None
            else:
                assert victim in [crowd[0] for crowd in of.values() if len(crowd) == most]


def a_talk(auth: str = "none", **limits: int) -> Talk:
    return Talk(BrokerConfig(limits=LimitsConfig(**limits), listeners=(ListenerConfig(auth=auth, secure=True),)))


def attach(talk: Talk, link: int, host: str, identity: Identity | None = None) -> None:
    address = f"[{host}]:{link}" if ":" in host else f"{host}:{link}"
    talk.attach(link, Peer("tcp", address, "main", identity))


def join(talk: Talk, link: int, host: str, identity: Identity | None = None) -> None:
    attach(talk, link, host, identity)
    if link not in talk.hangups:
        talk.say(link, talk.hello(link))


def is_welcome(talk: Talk, link: int) -> bool:
    return talk.heard[link].order[:1] == ["WELCOME"] and link not in talk.hangups


def test_silent_links_of_one_address_do_not_keep_a_newcomer_out_for_a_moment() -> None:
    talk = a_talk()
    for link in range(2_000):
        attach(talk, link, CROWD)
    join(talk, 5_000, HONEST)
    assert is_welcome(talk, 5_000)
    refused = talk.broker.report("overview")["refused"]
    assert refused == {"source_over_share": 2_000 - 1_024 + 1}
    assert talk.hangups[0] is Reason.SOURCE_OVER_SHARE, "the oldest made room"


def test_while_a_flood_goes_on_every_newcomer_from_elsewhere_gets_in() -> None:
    talk = a_talk(links_unproven_max=50)
    for number in range(400):
        attach(talk, number, CROWD)
        talk.pass_time(1)
        join(talk, 10_000 + number, f"198.51.{number // 200}.{number % 200}")
        assert is_welcome(talk, 10_000 + number)


def test_clients_behind_one_address_that_finish_their_handshakes_are_not_limited() -> None:
    talk = a_talk(links_unproven_max=10)
    for link in range(500):
        join(talk, link, CROWD)
    assert talk.hangups == {}
    assert talk.broker.report("overview")["sessions"] == 500


def test_a_client_is_let_in_although_its_own_address_has_silent_links() -> None:
    """A newcomer takes the place of one that has been silent for a while, not of one that may be about to speak."""
    talk = a_talk(links_unproven_max=10)
    for link in range(10):
        attach(talk, link, CROWD)
    join(talk, 100, CROWD)
    assert talk.hangups == {100: Reason.SOURCE_OVER_SHARE}
    talk.pass_time(501)
    join(talk, 101, CROWD)
    assert is_welcome(talk, 101)
    assert talk.hangups[0] is Reason.SOURCE_OVER_SHARE


def test_many_addresses_with_a_handshake_each_do_not_push_each_other_out() -> None:
    talk = a_talk(links_unproven_max=10)
    for link in range(11):
        attach(talk, link, f"192.0.2.{link}")
    assert talk.hangups == {10: Reason.LINKS_OVER_LIMIT}
    talk.say(0, talk.hello(0))
    assert is_welcome(talk, 0)


@pytest.mark.parametrize("dripping", [False, True])
def test_an_attacker_with_as_many_addresses_as_there_are_places_has_to_be_quick(dripping: bool) -> None:
    """A /48 has 65,536 subnets. Whoever has not finished its handshake after half a second makes room, also if it
    sends a byte now and then."""
    talk = a_talk(links_unproven_max=10)
    for link in range(10):
        attach(talk, link, f"2001:db8:0:{link:x}::1")
    for link in range(10):
        talk.pass_time(51)
        if dripping:
            talk.say(link, talk.hello(link)[:1])
    join(talk, 100, HONEST)
    assert is_welcome(talk, 100)
    assert talk.hangups == {0: Reason.SOURCE_OVER_SHARE}


def test_a_client_whose_token_is_being_checked_does_not_make_room() -> None:
    from tests.broker.test_broker import TOKEN, TOKEN_CONFIG

    talk = Talk(replace(TOKEN_CONFIG, limits=LimitsConfig(links_unproven_max=2)))
    attach(talk, 1, HONEST)
    talk.say(1, talk.hello(1, entity="sensor-7", token=TOKEN))
    attach(talk, 2, CROWD)
    talk.pass_time(600)
    attach(talk, 3, "192.0.2.9")
    assert talk.hangups == {2: Reason.SOURCE_OVER_SHARE}
    ticket, job = talk.jobs[-1]
    talk.broker.done(ticket, job.run(), talk.now)
    talk.take()
    assert is_welcome(talk, 1)


def test_an_attacker_with_a_whole_ipv6_subnet_is_one_source() -> None:
    talk = a_talk(links_unproven_max=10)
    for link in range(100):
        attach(talk, link, f"2001:db8::{link:x}:1")
    join(talk, 1_000, "2001:db8:0:1::1")
    assert is_welcome(talk, 1_000)
    assert all(reason is Reason.SOURCE_OVER_SHARE for reason in talk.hangups.values())


def test_welcomed_links_that_do_nothing_make_room_for_other_addresses_when_the_broker_is_full() -> None:
    talk = a_talk(links_max=20)
    for link in range(25):
        join(talk, link, CROWD)
    assert {talk.hangups[link] for link in range(20, 25)} == {Reason.LINKS_OVER_LIMIT}
    for link in range(20, 25):
        talk.leave(link, Reason.LINKS_OVER_LIMIT)
    join(talk, 100, HONEST)
    assert is_welcome(talk, 100)
    assert talk.hangups[0] is Reason.SOURCE_OVER_SHARE


def test_links_in_use_and_links_of_proven_clients_are_never_taken_for_a_newcomer() -> None:
    talk = a_talk(links_max=20)
    sensor = Identity("sensor-7", (Role.CLIENT,), "certificate")
    for link in range(10):
        join(talk, link, CROWD, sensor)
    for link in range(10, 15):
        join(talk, link, CROWD)
        talk.subscribe(link, "a")
    for link in range(15, 20):
        join(talk, link, CROWD)
        talk.publish(link, "b")
    join(talk, 100, HONEST)
    assert talk.hangups == {100: Reason.LINKS_OVER_LIMIT}


def test_idle_links_are_found_behind_any_number_that_are_in_use() -> None:
    """Each newcomer looks at a bounded number of links; those in use are not looked at again."""
    talk = a_talk(links_max=400)
    for link in range(400):
        join(talk, link, CROWD)
        if link < 300:
            talk.subscribe(link, "a")
    tried = 0
    for tried in range(20):
        join(talk, 1_000 + tried, HONEST)
        if 1_000 + tried not in talk.hangups:
            break
        talk.leave(1_000 + tried, Reason.LINKS_OVER_LIMIT)
    assert is_welcome(talk, 1_000 + tried)
    assert tried <= 5
    assert [link for link in talk.hangups if link < 400] == [300]


def test_the_driver_may_have_room_for_fewer_links_than_the_settings() -> None:
    talk = a_talk()
    talk.broker.tell(Room(30), talk.now)
    for link in range(30):
        attach(talk, link, CROWD)
    join(talk, 100, HONEST)
    assert is_welcome(talk, 100)


def test_an_address_may_have_so_many_links_that_have_proven_nothing() -> None:
    talk = a_talk(links_per_source_max=5)
    sensor = Identity("sensor-7", (Role.CLIENT,), "certificate")
    for link in range(6):
        join(talk, link, CROWD)
    assert talk.hangups == {5: Reason.SOURCE_OVER_SHARE}
    talk.leave(5, Reason.SOURCE_OVER_SHARE)
    talk.leave(0)
    for link in range(10, 20):
        join(talk, link, CROWD, sensor)
        assert is_welcome(talk, link), "who proves something does not count"
    join(talk, 30, CROWD)
    assert is_welcome(talk, 30)
    join(talk, 31, CROWD)
    assert talk.hangups[31] is Reason.SOURCE_OVER_SHARE
    join(talk, 32, HONEST)
    assert is_welcome(talk, 32)


def test_wrong_tokens_of_one_address_do_not_keep_those_of_others_from_being_checked() -> None:
    from tests.broker.test_broker import TOKEN, TOKEN_CONFIG

    talk = Talk(TOKEN_CONFIG)
    for link in range(CLAIMS_MAX):
        attach(talk, link, CROWD)
        talk.say(link, talk.hello(link, entity="sensor-7", token=f"wrong {link}"))
    assert len(talk.jobs) == CLAIMS_PER_SOURCE_MAX
    attach(talk, 100, HONEST)
    talk.say(100, talk.hello(100, entity="sensor-7", token=TOKEN))
    ticket, job = talk.jobs[-1]
    talk.broker.done(ticket, job.run(), talk.now)
    talk.take()
    assert is_welcome(talk, 100)


def test_links_whose_address_is_not_known_any_more_are_forgotten_like_others() -> None:
    talk = a_talk(links_per_source_max=2)
    for link in range(10):
        talk.attach(link, Peer("tcp", "unknown", "main"))
        talk.leave(link)
    assert talk.hangups == {}
    assert not sessions_count(talk)


@given(st.lists(st.tuples(st.sampled_from(["come", "speak", "use", "leave", "wait"]), st.integers(0, 7)), max_size=60))
def test_what_links_do_never_unbalances_the_shares(steps: list[tuple[str, int]]) -> None:
    """Whatever the order, once everybody has left nobody counts any more."""
    talk = a_talk(links_max=6, links_unproven_max=3, links_per_source_max=4)
    here: dict[int, int] = {}
    for number, (what, who) in enumerate(steps):
        link = here.get(who)
        if what == "come" and link is None:
            here[who] = number
            attach(talk, number, f"192.0.2.{who % 3}")
        elif what == "speak" and link is not None:
            talk.say(link, talk.hello(link))
        elif what == "use" and link is not None and is_welcome(talk, link):
            talk.subscribe(link, "a")
        elif what == "leave" and link is not None:
            talk.leave(here.pop(who))
        else:
            talk.pass_time(700)
        sessions = talk.broker._sessions
        assert len(sessions._unproven) <= 3
        assert sum(sessions._strangers.values()) <= len(here)
    for link in here.values():
        talk.leave(link)
    assert not sessions_count(talk)
    join(talk, 1_000, HONEST)
    assert is_welcome(talk, 1_000)


def sessions_count(talk: Talk) -> int:
    sessions = talk.broker._sessions
    return len(sessions._unproven) + len(sessions._idle) + len(sessions._strangers)
