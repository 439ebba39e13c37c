"""A client that was told its network: a broker of another one is an error that names both."""

from __future__ import annotations

import pytest

from heliograph.client.config import ClientConfig
from heliograph.errors import NotConnectedError, Reason, UsageError
from tests.client.script import HERE, THERE, Script


def connecting(script: Script) -> None:
    script.dial()
    script.attach()


def test_a_broker_of_the_chosen_network_is_taken() -> None:
    script = Script(network="plant")
    connecting(script)
    script.welcome(network="plant")
    assert script.session.is_connected
    assert script.session.welcome is not None
    assert script.session.welcome.network == "plant"


@pytest.mark.parametrize(
    ("wanted", "there", "words"),
    [
        ("plant", "office", "belongs to network 'office'; network 'plant' was asked for"),
        ("plant", "", "belongs to a network without a name; network 'plant' was asked for"),
        ("", "office", "belongs to network 'office'; a network without a name was asked for"),
    ],
)
def test_a_given_address_of_another_network_ends_the_session_with_both_names(
    wanted: str, there: str, words: str
) -> None:
    script = Script(network=wanted)
    connecting(script)
    script.welcome(network=there)
    script.lose()
    assert script.session.ended
    error = script.session.error
    assert isinstance(error, NotConnectedError)
    assert error.reason is Reason.NETWORK_OTHER
    assert words in error.detail
    assert str(HERE) in error.detail


def test_of_several_addresses_the_one_in_the_network_is_found() -> None:
    script = Script(HERE, THERE, network="plant")
    connecting(script)
    script.welcome(network="office")
    script.lose()
    assert not script.session.ended
    connecting(script)
    script.welcome(network="plant")
    assert script.session.is_connected


def test_a_client_that_chose_no_network_takes_any() -> None:
    script = Script()
    connecting(script)
    script.welcome(network="office")
    assert script.session.is_connected


def test_what_is_no_name_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="not the name of a network"):
        ClientConfig(targets=(HERE,), network="a b").check()
