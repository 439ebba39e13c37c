"""What protects those who answer: cookies, buckets, remembered ids, policies, budgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.brokers.config import (
    DirectoryConfig,
    DiscoveryConfig,
    MulticastConfig,
    ResponderConfig,
    WeightsConfig,
    address_of,
    written,
)
from heliograph.discovery.brokers.messages import NO_COOKIE
from heliograph.discovery.brokers.policy import AnswerPolicy, is_among
from heliograph.discovery.brokers.remembered import BROKERS_MAX, Remembered, decode, encode
from heliograph.discovery.buckets import Buckets
from heliograph.discovery.cookies import PERIOD_NS, Cookies
from heliograph.discovery.repeats import Repeats
from heliograph.errors import ProtocolError, Reason

HERE, THERE = ("192.0.2.1", 40_000), ("192.0.2.1", 40_001)
SECOND = 1_000_000_000


@pytest.mark.req("B10")
def test_a_cookie_is_good_for_one_address_and_a_short_time() -> None:
    cookies = Cookies(7, "requester")
    cookie = cookies.of(HERE, 0)
    assert cookies.is_right(HERE, cookie, 0)
    assert cookies.is_right(HERE, cookie, PERIOD_NS)
    assert not cookies.is_right(THERE, cookie, 0)
    assert not cookies.is_right(HERE, cookie, 2 * PERIOD_NS)
    assert not cookies.is_right(HERE, NO_COOKIE, 0)
    assert not Cookies(8, "requester").is_right(HERE, cookie, 0)
    assert not Cookies(7, "directory").is_right(HERE, cookie, 0)


def test_a_source_gets_its_burst_and_then_its_rate() -> None:
    buckets = Buckets(rate_per_s=10, burst=5, sources_max=10)
    assert [buckets.may("a", 0) for _ in range(6)] == [True] * 5 + [False]
    assert buckets.may("b", 0)
    assert not buckets.may("a", SECOND // 20)
    assert buckets.may("a", SECOND // 10)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, SECOND)), max_size=200))
def test_the_table_of_sources_is_bounded(asked: list[tuple[int, int]]) -> None:
    buckets = Buckets(rate_per_s=1, burst=1, sources_max=8)
    for source, now in asked:
        buckets.may(str(source), now)
    assert len(buckets) <= 8


@pytest.mark.req("B7")
def test_the_last_ids_are_remembered_and_a_higher_attempt_is_new() -> None:
    repeats: Repeats[str] = Repeats(1_000)
    for number in range(1_001):
        repeats.add(number.to_bytes(16, "big"), HERE, 1, "")
    first, second = bytes(16), (1).to_bytes(16, "big")
    assert len(repeats) == 1_000
    assert repeats.is_new(first, HERE, 1)
    assert not repeats.is_new(second, HERE, 1)
    assert repeats.is_new(second, HERE, 2)
    repeats.add(second, HERE, 2, "again")
    assert not repeats.is_new(second, HERE, 1)
    assert repeats.get(second, HERE) == "again"


@pytest.mark.req("B8")
@pytest.mark.parametrize(
    ("config", "host", "reason"),
    [
        (ResponderConfig(), "198.51.100.1", None),
        (ResponderConfig(policy="silent"), "198.51.100.1", Reason.ASK_DENIED),
        (ResponderConfig(policy="credential"), "198.51.100.1", Reason.CREDENTIAL_MISSING),
        (ResponderConfig(policy="realm", realms=("192.0.2.0/24",)), "192.0.2.9", None),
        (ResponderConfig(policy="realm", realms=("192.0.2.0/24", "2001:db8::/32")), "2001:db8::5", None),
        (ResponderConfig(policy="realm", realms=("192.0.2.0/24",)), "198.51.100.1", Reason.REALM_FOREIGN),
        (ResponderConfig(policy="realm", realms=("192.0.2.0/24",)), "a-name", Reason.REALM_FOREIGN),
    ],
)
def test_a_broker_answers_as_its_policy_says(config: ResponderConfig, host: str, reason: Reason | None) -> None:
    assert config.problems() == []
    if reason is None:
        AnswerPolicy(config).check(host, None)
        return
    with pytest.raises(ProtocolError) as caught:
        AnswerPolicy(config).check(host, None)
    assert caught.value.reason is reason


@pytest.mark.req("B10")
def test_of_many_brokers_about_as_many_answer_as_the_budget_has_places() -> None:
    answering = [sum(is_among(bytes([id] * 16), 1, f"b{n}", 5_000, 50) for n in range(5_000)) for id in range(10)]
    assert 35 <= sum(answering) / 10 <= 65
    assert all(0 < count < 100 for count in answering)
    assert all(is_among(bytes(16), 1, f"b{n}", 50, 50) for n in range(50))


def test_another_attempt_is_answered_by_others() -> None:
    who = [{n for n in range(2_000) if is_among(bytes(16), attempt, f"b{n}", 2_000, 50)} for attempt in (1, 2)]
    assert who[0] != who[1]


@pytest.mark.req("B15")
def test_remembered_brokers_come_back_unless_they_are_too_old_or_from_the_future() -> None:
    brokers = [Remembered("a", "192.0.2.1:4717", 1_000), Remembered("b", "[2001:db8::1]:4717", 1_500)]
    data = encode(brokers)
    assert decode(data, 1_600, 10_000) == tuple(brokers)
    assert decode(data, 1_600, 200) == (brokers[1],)
    assert decode(data, 1_200, 10_000) == (brokers[0],)


@given(st.binary(max_size=200))
def test_a_damaged_file_remembers_nobody(data: bytes) -> None:
    assert decode(data, 0, 10) == ()


def test_what_is_remembered_is_bounded() -> None:
    data = encode([Remembered(f"b{number}", "h:1", 5) for number in range(500)])
    assert len(decode(data, 5, 10)) == BROKERS_MAX


@pytest.mark.parametrize("text", ["192.0.2.1:4717", "[2001:db8::1]:80", "name.example:1"])
def test_an_address_is_written_as_it_was_read(text: str) -> None:
    address = address_of(text)
    assert address is not None
    assert written(address) == text


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "2001:db8::1:80", "host:٣"])
def test_what_is_no_address_is_none(text: str) -> None:
    assert address_of(text) is None


def test_every_default_works() -> None:
    for config in (DiscoveryConfig(), ResponderConfig(), DirectoryConfig(), MulticastConfig(), WeightsConfig()):
        assert config.problems() == []


def test_all_problems_are_named_at_once_with_their_path() -> None:
    wrong = DiscoveryConfig(
        directories=("nowhere",),
        multicast=MulticastConfig(group="192.0.2.1", port=0, ttl=300),
        timeout_ms=0,
        answers_max=5_000,
        targets_max=0,
        retry_ms_max=1,
        patience=-1,
        tie_ratio=0.5,
        name="no name",
        weights=WeightsConfig(cpu=-1),
    )
    found = "\n".join(map(str, wrong.problems()))
    for word in (
        "discovery.directories has 'nowhere'",
        "discovery.multicast_group",
        "discovery.multicast_port",
        "discovery.multicast_ttl",
        "discovery.timeout_ms",
        "discovery.answers_max",
        "discovery.targets_max",
        "discovery.retry_ms_max",
        "discovery.patience",
        "discovery: tie_ratio",
        "discovery.name",
        "discovery.weights.cpu",
    ):
        assert word in found
    responder = ResponderConfig(policy="maybe", realms=("192.0.2.1/24",), port=-1, geography="ü", lifetime_s=0)
    assert len(responder.problems()) == 5
    directory = DirectoryConfig(name="", private=True, links=("x",), token="t", links_learned_max=-1, port=70_000)
    assert len(directory.problems()) == 6
    assert "needs discovery.realms" in str(ResponderConfig(policy="realm").problems()[0])
