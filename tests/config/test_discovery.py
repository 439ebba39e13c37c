"""[discovery], [bdn] and network.join: what they mean to the machines, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.config.load import load_search, load_settings, parse_settings
from heliograph.discovery.brokers.config import DIRECTORY_PORT, GROUP, GROUP_PORT, DirectoryConfig, ResponderConfig
from heliograph.discovery.brokers.services import RESPONDER_SERVICE
from heliograph.errors import ConfigError

pytestmark = pytest.mark.req("B1", "O6")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text)
    return caught.value.problems


def test_by_default_a_broker_is_found_on_the_number_of_its_first_listener_and_from_this_machine_only() -> None:
    settings = parse_settings('[[listener]]\nport = 4801\n[[listener]]\nname = "more"\nport = 4802\n')
    responder = settings.of(ResponderConfig)
    own, _ = RESPONDER_SERVICE.sockets(responder, settings.broker)

    assert responder.enabled
    assert (own.host, own.port) == ("127.0.0.1", 4801)
    assert responder.multicast.address == (GROUP, GROUP_PORT)
    assert responder.multicast.interface == "127.0.0.1"
    assert responder.is_local
    assert not settings.of(DirectoryConfig).enabled
    assert settings.of(DirectoryConfig).port == DIRECTORY_PORT
    assert not settings.broker.network.join


def test_a_directory_elsewhere_needs_a_socket_that_reaches_it() -> None:
    (found,) = problems('[discovery]\ndirectories = ["bdn.example.org:4719"]\n')
    assert "set discovery.host" in found
    assert parse_settings('[discovery]\nhost = "0.0.0.0"\ndirectories = ["bdn.example.org:4719"]\n')


@pytest.mark.req("B14")
def test_group_port_ttl_and_interface_are_the_operators() -> None:
    settings = parse_settings(
        '[discovery]\nmulticast_group = "239.1.2.3"\nmulticast_port = 5000\nmulticast_ttl = 4\n'
        'multicast_interface = "0.0.0.0"\n'
    )
    group = settings.of(ResponderConfig).multicast
    assert (group.group, group.port, group.ttl, group.interface) == ("239.1.2.3", 5000, 4, "0.0.0.0")
    assert not settings.of(ResponderConfig).is_local
    assert not parse_settings("[discovery]\nmulticast = false\n").of(ResponderConfig).multicast.enabled


def test_every_problem_is_told_at_once_by_the_name_that_the_user_typed() -> None:
    found = problems(
        '[discovery]\nport = 70000\npolicy = "some"\nrealms = ["x"]\ndirectories = ["nowhere"]\n'
        'multicast_group = "192.0.2.1"\nmulticast_ttl = 300\nmulticast_interface = "eth0"\ngeography = "ü"\n'
        '[bdn]\nport = -1\nprivate = true\ninjection = "most"\nlinks = ["x"]\n[network]\njoin = true\n'
    )
    for start in (
        "discovery.port = 70000",
        "discovery.policy = 'some'",
        "discovery.realms has 'x'",
        "discovery.directories has 'nowhere'",
        "discovery.multicast_group = '192.0.2.1'",
        "discovery.multicast_ttl = 300",
        "discovery.multicast_interface = 'eth0'",
        "discovery.geography",
        "bdn.port = -1",
        "bdn.private = true needs bdn.advertise",
        "bdn.private = true needs tls.authority",
        "bdn.injection = 'most'",
        "bdn.links has 'x'",
        "network.join = true",
    ):
        assert any(problem.startswith(start) for problem in found), (start, found)


def test_a_token_of_a_directory_stays_in_its_file_and_off_the_open_network(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    text = '[bdn]\nentity = "bdn"\ntoken_file = "token"\nlinks = ["127.0.0.1:4717"]\n'
    (tmp_path / "heliograph.toml").write_text(text)
    settings = load_settings(None, {}, tmp_path)
    assert settings.of(DirectoryConfig).token == "secret"
    assert "secret" not in repr(settings)

    (away,) = problems(text.replace("127.0.0.1:4717", "192.0.2.1:4717"))
    assert "in clear" in away
    (nobody,) = problems('[bdn]\ntoken_file = "token"\n')
    assert nobody.startswith("bdn.token_file needs bdn.entity")


def test_the_directory_of_a_broker_has_its_listeners_name_to_itself() -> None:
    (found,) = problems('[bdn]\nenabled = true\n[[listener]]\nname = "bdn"\n')
    assert found.startswith("listener.bdn.name")


@pytest.mark.req("O6")
def test_a_wrong_search_option_of_the_file_or_the_environment_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text("[search]\npings = 'many'\n")
    with pytest.raises(ConfigError) as caught:
        load_search(file, {"HELIOGRAPH_SEARCH__TIMEOUT_MS": "soon"})
    first, second = caught.value.problems
    assert first.startswith(f"{file}: search.pings = 'many': must be a whole number")
    assert second.startswith("HELIOGRAPH_SEARCH__TIMEOUT_MS = 'soon': must be a whole number")
