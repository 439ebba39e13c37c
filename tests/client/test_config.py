"""Addresses and settings: what is wrong is said at once, all of it, in words."""

from __future__ import annotations

import pytest

from heliograph.client.config import ClientConfig, Target, parse_target
from heliograph.client.session import Session
from heliograph.errors import UsageError
from heliograph.model.hosts import is_loopback


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("heliograph://broker.example:5000", Target(host="broker.example", port=5000)),
        ("heliographs://broker.example", Target(host="broker.example", port=4717, secure=True)),
        ("heliograph://[::1]:4718/", Target(host="::1", port=4718)),
        ("localhost", Target(host="localhost", port=4717)),
        ("10.0.0.1:80", Target(host="10.0.0.1", port=80)),
    ],
)
def test_an_address_is_read_as_it_is_written(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://broker",
        "heliograph://",
        "heliograph://host:0",
        "heliograph://host:65536",
        "host:port",
        "a b",
        "h/path",
        "::1",
    ],
)
def test_what_is_not_an_address_is_refused_with_the_form_it_should_have(text: str) -> None:
    with pytest.raises(UsageError, match="heliograph://host:port"):
        parse_target(text)


def test_a_secret_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        parse_target("heliograph://user:hunter2@host")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["127.evil.example", "10.0.0.1", "localhost.example", "0.0.0.0"])
def test_a_name_that_looks_like_loopback_is_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.req("O6", "B20")
def test_a_token_is_not_sent_over_a_plain_link_to_another_machine() -> None:
    config = ClientConfig(targets=(Target(host="broker.example", port=1),), entity="me", token="hunter2")
    with pytest.raises(UsageError, match=r"clear text: use heliographs://broker\.example:1") as caught:
        Session(config, secret=bytes(16), seed=0)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(config)


def test_a_token_may_go_over_tls_or_stay_on_this_machine() -> None:
    targets = (Target(host="broker.example", port=1, secure=True), Target(host="::1", port=1))
    ClientConfig(targets=targets, entity="me", token="hunter2").check()


@pytest.mark.req("O5")
def test_all_problems_are_told_at_once() -> None:
    config = ClientConfig(targets=(), retry_ms=10, retry_ms_max=5, keep_alive_ms=0, entity="no spaces", give_up_ms=0)
    with pytest.raises(UsageError) as caught:
        config.check()
    for part in ("no address", "retry_ms_max", "keep_alive_ms", "no spaces", "give_up_ms"):
        assert part in str(caught.value)


@pytest.mark.parametrize("size", [0, 15, 65])
def test_a_secret_has_a_length_that_brokers_take(size: int) -> None:
    with pytest.raises(UsageError):
        Session(ClientConfig(targets=(Target(host="h", port=1),)), secret=bytes(size), seed=0)
