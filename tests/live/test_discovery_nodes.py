"""Brokers and directories as processes: how they are found, whom they join, and how they go."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ports import free_port
from heliograph.config.keyring_files import load_keyring
from heliograph.discovery.brokers.config import DiscoveryConfig, MulticastConfig
from heliograph.discovery.brokers.result import SearchResult
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.live.lone import run_alone
from heliograph.live.loop import run
from heliograph.model.identity import Role
from heliograph.trust.config import TlsConfig
from heliograph.trust.keyring import Keyring
from tests.live.certificates import Authority
from tests.live.processes import Process, broker

pytestmark = [pytest.mark.live, pytest.mark.slow]

PATIENCE_S = 90.0
SEEDS = count(1)  # of searches: each has ids of its own
NO_GROUP = "[discovery]\nmulticast = false\n"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def bdn(folder: Path, *options: str) -> Process:
    listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
    program = "import sys; from heliograph.cli.main import main; main(['bdn', 'run', *sys.argv[1:]])"
    return Process(folder, *listen, "--log-format", "json", *options, program=program)


def settled(folder: Path, name: str, more: str = "") -> tuple[str, ...]:
    """Options of a broker of this name that takes no part in the machine's multicast group."""
    file = folder / f"{name}.toml"
    file.write_text(NO_GROUP + more)
    return ("--config", str(file), "--name", name)


def key_of(folder: Path) -> tuple[str, ...]:
    file = folder / "network.key"
    if not file.exists():
        file.touch(0o600)
        file.write_text("k" * 64)
    return ("--network-key-file", str(file))


def find(keyring: Keyring | None = None, **more: Any) -> SearchResult:
    config = DiscoveryConfig(**{"multicast": MulticastConfig(enabled=False), "cpu_permille_max": 1_000} | more)

    async def search() -> SearchResult:
        search = BrokerSearch(config, seed=next(SEEDS), keyring=keyring)
        await run_alone(search, BrokerSearch.sockets(config, "127.0.0.1", "127.0.0.1"))
        assert search.result is not None
        return search.result

    return run(search())


def eventually(holds: Callable[[], Any]) -> Any:
    """What it gives once that is something; the machine may be busy."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{holds} did not hold in {PATIENCE_S} s"
        time.sleep(0.1)
    return found


def found_at(address: str) -> list[str]:
    return sorted(finding.broker for finding in find(directories=(address,), timeout_ms=1_000, ping_ms=500).findings)


@pytest.mark.req("B1", "B9")
def test_a_broker_makes_itself_known_to_a_directory_and_tells_how_busy_its_computer_is(tmp_path: Path) -> None:
    with bdn(tmp_path) as directory:
        at = f"127.0.0.1:{directory.port}"
        assert "(directory, UDP and TCP, this machine only, open to all requesters)" in directory.lines[0]["text"]
        with broker(tmp_path, *settled(tmp_path, "b0"), "--directory", at) as b0:
            port = b0.port
            result = eventually(
                lambda: (one := find(directories=(at,))).found and one.findings[0].usage["memory_total"] and one
            )
            assert result.proven
            assert result.urls == (f"heliograph://127.0.0.1:{port}",)
            usage = result.findings[0].usage
            assert 0 < usage["memory_used"] < usage["memory_total"]


@pytest.mark.skipif(not has_ipv6(), reason="this computer has no IPv6")
@pytest.mark.req("B5", "B12")
def test_directories_and_brokers_are_asked_over_ipv6_too(tmp_path: Path) -> None:
    with bdn(tmp_path, "--listen", "[::1]:0") as directory:
        at = f"[::1]:{directory.port}"
        options = (*settled(tmp_path, "b6", 'host = "::1"\n'), "--listen", "[::1]:0", "--directory", at)
        with broker(tmp_path, *options) as b6:
            result = eventually(lambda: (one := find(directories=(at,))).proven and one)
            assert result.urls == (f"heliograph://[::1]:{b6.port}",)
            listed = eventually(lambda: (one := find(brokers=(f"[::1]:{b6.port}", "127.0.0.1:9"))).proven and one)
            assert listed.broker == "b6"


@pytest.mark.req("B3", "O5")
def test_sighup_puts_new_settings_of_a_directory_in_force_and_bad_ones_are_refused(tmp_path: Path) -> None:
    settings = tmp_path / "bdn.toml"
    settings.write_text("")
    with bdn(tmp_path, "--config", str(settings)) as directory:
        at = f"127.0.0.1:{directory.port}"
        with broker(tmp_path, *settled(tmp_path, "b0", 'geography = "asia"\n'), "--directory", at):
            eventually(lambda: found_at(at) == ["b0"])
            settings.write_text('[bdn]\ngeographies = ["europe"]\ntopics = ["a"]\n')
            directory.send(signal.SIGHUP)
            line = directory.line("directory_reloaded")
            assert (line["brokers"], line["restart"]) == (0, ["bdn.topics"])
            assert found_at(at) == []
            settings.write_text("[bdn]\nping_ms = -1\n")
            directory.send(signal.SIGHUP)
            assert "bdn.ping_ms" in directory.line("reload_failed")["problems"][0]
            directory.send(signal.SIGTERM)
            assert directory.wait() == 0


@pytest.mark.req("B2")
def test_a_directory_is_looked_up_by_name_and_reached_by_tcp_too(tmp_path: Path) -> None:
    with bdn(tmp_path) as directory:
        at = f"127.0.0.1:{directory.port}"
        links = f'directory_links = ["{at}"]\n'
        with (
            broker(tmp_path, *settled(tmp_path, "named"), "--directory", at.replace("127.0.0.1", "localhost")),
            broker(tmp_path, *settled(tmp_path, "linked", links)),
        ):
            eventually(lambda: found_at(at) == ["linked", "named"])


@pytest.mark.req("B1")
def test_a_directory_in_a_brokers_process_knows_that_broker(tmp_path: Path) -> None:
    with broker(tmp_path, *settled(tmp_path, "both", "[bdn]\nenabled = true\nport = 0\n")) as both:
        assert both.port
        at = both.line("(directory,")["text"].split(" ")[2]
        eventually(lambda: found_at(at) == ["both"])
        both.send(signal.SIGTERM)
        assert both.wait() == 0


@pytest.mark.req("O5")
def test_a_reload_reaches_every_service_and_says_what_waits_for_a_restart(tmp_path: Path) -> None:
    services = "[bdn]\nenabled = true\nport = 0\n"
    with broker(tmp_path, *settled(tmp_path, "both", services)) as both:
        assert both.port
        (tmp_path / "both.toml").write_text(f'{NO_GROUP}geography = "hall"\n{services}geographies = ["europe"]\n')
        both.send(signal.SIGHUP)
        assert both.line("directory_reloaded")["restart"] == []
        told = both.line("settings_reloaded")
        assert (told["taken"], told["restart"]) == (["bdn.geographies"], ["discovery.geography"])


@pytest.mark.req("B18")
def test_a_broker_that_looks_for_others_stops_when_it_is_told_to(tmp_path: Path) -> None:
    options = (*settled(tmp_path, "b0"), "--directory", "127.0.0.1:9", *key_of(tmp_path), "--join")
    with broker(tmp_path, *options) as b0:
        assert b0.port
        b0.send(signal.SIGTERM)
        assert b0.wait() == 0
        assert not [line for line in b0.lines if line["level"] == "error"]


@pytest.mark.req("B14")
def test_multicast_on_loopback_finds_a_broker_and_its_first_line_says_that_it_is_not_open(tmp_path: Path) -> None:
    group = f'[discovery]\nmulticast_group = "239.255.71.97"\nmulticast_port = {free_port()}\n'
    (tmp_path / "group.toml").write_text(group)
    with broker(tmp_path, "--config", str(tmp_path / "group.toml"), "--name", "b0") as b0:
        udp = f"UDP 127.0.0.1:{b0.port}"
        port = int(group.split()[-1])
        assert b0.line("found by")["text"] == f"found by {udp} and multicast 239.255.71.97:{port} (loopback only)"
        told = b0.line("to open that to the network")["text"]
        assert told.endswith("discovery.host and discovery.multicast_interface")
        result = eventually(
            lambda: (one := find(multicast=MulticastConfig(group="239.255.71.97", port=port))).found and one
        )
        assert result.broker == "b0"


def test_a_taken_port_stops_the_start_and_the_error_names_the_switch(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        options = settled(tmp_path, "b0", f"port = {port}\n")
        with broker(tmp_path, *options) as node:
            assert node.wait() == 1
            (error,) = [line["text"] for line in node.lines if line["level"] == "error"]
            assert f"127.0.0.1:{port} (UDP)" in error
            assert "discovery.port" in error
            assert "--no-discovery" in error
        with broker(tmp_path, *options, "--no-discovery") as node:
            assert node.port
            assert not any("found by" in str(line) for line in node.lines)


def test_a_group_that_cannot_be_joined_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text('[discovery]\nmulticast_interface = "192.0.2.77"\n')
    with broker(tmp_path, "--config", str(tmp_path / "odd.toml")) as node:
        assert node.line("socket_refused")["level"] == "warning"
        assert "multicast" not in node.line("found by UDP")["text"]
        node.line("ready in")


@pytest.mark.req("B2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_broker_that_goes_is_forgotten_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with bdn(tmp_path) as directory:
        at = f"127.0.0.1:{directory.port}"
        with (
            broker(tmp_path, *settled(tmp_path, "stays"), "--directory", at),
            broker(tmp_path, *settled(tmp_path, "goes"), "--directory", at) as goes,
        ):
            eventually(lambda: found_at(at) == ["goes", "stays"])
            goes.send(number)
            assert goes.wait() == 0
            assert "goes" not in found_at(at)
            eventually(lambda: found_at(at) == ["stays"])
        directory.send(signal.SIGTERM)
        assert directory.wait() == 0


@pytest.mark.req("B18", "N3")
def test_a_broker_joins_the_network_that_it_finds_and_looks_again_when_that_is_gone(tmp_path: Path) -> None:
    with bdn(tmp_path) as directory:
        at = f"127.0.0.1:{directory.port}"
        known = ("--directory", at, *key_of(tmp_path))
        with broker(tmp_path, *settled(tmp_path, "newcomer"), *known, "--join") as newcomer:
            assert "running alone" in newcomer.line("joined no broker")["text"]
            with broker(tmp_path, *settled(tmp_path, "first"), *known) as first:
                newcomer.line(f"joined first at heliograph://127.0.0.1:{first.port}")
                first.line("neighbour_linked")
            with broker(tmp_path, *settled(tmp_path, "second"), *known) as second:
                newcomer.line(f"joined second at heliograph://127.0.0.1:{second.port}")


@pytest.mark.req("B18", "N3")
def test_two_islands_become_one_when_a_broker_that_joined_looks_again(tmp_path: Path) -> None:
    program = (
        "import sys; from heliograph.live import join; join.MEND_S = 0.5; "
        "from heliograph.cli.main import main; main(['broker', 'run', *sys.argv[1:]])"
    )
    with bdn(tmp_path) as directory:
        at = f"127.0.0.1:{directory.port}"
        known = ("--listen", "127.0.0.1:0", "--log-format", "json", "--directory", at, *key_of(tmp_path))
        with (
            broker(tmp_path, *settled(tmp_path, "a"), *known) as a,
            Process(tmp_path, *settled(tmp_path, "b"), *known, "--join", program=program) as b,
        ):
            b.line(f"joined a at heliograph://127.0.0.1:{a.port}")
            with broker(tmp_path, *settled(tmp_path, "other"), *known) as other:
                b.line(f"joined other at heliograph://127.0.0.1:{other.port}")
                assert [line for line in b.lines if line.get("note") == "neighbour_lost"] == []


@pytest.mark.req("B18")
def test_a_broker_with_another_key_is_passed_over_for_the_next_one(tmp_path: Path) -> None:
    with bdn(tmp_path) as directory:
        at = f"127.0.0.1:{directory.port}"
        key = key_of(tmp_path)
        (tmp_path / "other.key").touch(0o600)
        (tmp_path / "other.key").write_text("o" * 64)
        with (
            broker(
                tmp_path, *settled(tmp_path, "a"), "--directory", at, "--network-key-file", str(tmp_path / "other.key")
            ),
            broker(tmp_path, *settled(tmp_path, "b"), "--directory", at, *key),
        ):
            eventually(lambda: found_at(at) == ["a", "b"])
            with broker(tmp_path, *settled(tmp_path, "c"), "--directory", at, *key, "--join") as newcomer:
                newcomer.line("joined b at")


@pytest.mark.req("B4", "B17")
def test_certificates_of_the_settings_sign_and_a_private_directory_demands_them(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    files = authority.files("b0", roles=(Role.BROKER,))
    proof = ("--certificate", str(files.certificate), "--key", str(files.key), "--authority", str(authority.file))
    port = free_port()
    private = ("--listen", f"127.0.0.1:{port}", "--private", "--advertise", f"127.0.0.1:{port}")
    with bdn(tmp_path, *private, "--authority", str(authority.file)) as directory:
        assert directory.port == port
        assert "signed requests only" in directory.lines[0]["text"]
        at = f"127.0.0.1:{port}"
        with broker(tmp_path, *settled(tmp_path, "b0"), "--directory", at, *proof):

            def refused() -> bool:
                unsigned = find(directories=(at,), timeout_ms=1_000, ping_ms=500)
                assert not unsigned.found
                return any("sign the request" in words for words in unsigned.tried)

            eventually(refused)
            client = authority.files("client")
            tls = TlsConfig(certificate=str(client.certificate), key=str(client.key), authority=str(authority.file))
            signed = eventually(lambda: (one := find(load_keyring(tls), directories=(at,))).found and one)
            assert signed.broker == "b0"
