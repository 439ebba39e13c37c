"""Whole nodes as processes: what they say first, how signals end them, and what a crash looks like."""

from __future__ import annotations

import hashlib
import resource
import signal
import socket
import ssl
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.ports import free_port
from heliograph.broker.config import ListenerConfig
from heliograph.live.node import announced, describe_open
from heliograph.live.runtime import LocalToken, local_token, remove_token, runtime_dir, write_token
from heliograph.model.identity import Role
from tests.live.certificates import Authority
from tests.live.processes import Process, broker
from tests.wire.stdlib_client import EndedError, StdlibClient

pytestmark = pytest.mark.live

CRASHES = """
import sys
from heliograph.broker.config import ListenerConfig
from heliograph.live.loop import run
from heliograph.live.node import run_node
from heliograph.node import Node
from heliograph.observe.log import NodeLog
from tests.live.machines import Fragile, Recorder
class Deaf(Recorder):
    def tell(self, command, now): pass
class Brittle(Deaf, Fragile): pass
machine = {"fragile": Brittle, "deaf": Deaf}[sys.argv[1]]()
node = Node("broker", {"broker": machine}, (), {"main": "broker"})
sys.exit(run(run_node(node, (ListenerConfig(port=0),), NodeLog("broker", format="json"))))
"""


def client(port: int, **more: Any) -> StdlibClient:
    found = StdlibClient("127.0.0.1", port, **more)
    found.hello()
    return found


def reason_of_end(one: StdlibClient) -> str:
    with pytest.raises(EndedError) as caught:
        one.event()
    return caught.value.reason


@pytest.mark.req("O6")
def test_the_first_lines_say_what_is_open_and_the_switch_that_opens_more(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        port = node.port
        first, more = node.lines[0]["text"], node.lines[1]["text"]
        assert first == f"open on 127.0.0.1:{port} (this machine only, no authentication)"
        assert more.startswith(f"to open it to the network: heliograph broker run --listen 0.0.0.0:{port} --secure")
        assert more.endswith("[[listener]] in heliograph.toml")
        assert client(port).welcome["broker"] == "broker"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_says_goodbye_to_clients_and_ends_the_process_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with broker(tmp_path) as node:
        one = client(node.port)
        idle = socket.create_connection(("127.0.0.1", node.port))
        node.send(number)
        assert reason_of_end(one) == "stopping"
        assert node.wait() == 0
        assert node.lines[-1]["text"] == "stopped"
        assert f"{number.name}: stopping" in [line.get("text") for line in node.lines]
        idle.close()


def test_a_second_signal_ends_a_process_that_does_not_stop(tmp_path: Path) -> None:
    with Process(tmp_path, "deaf", program=CRASHES) as node:
        node.line("ready")
        node.send(signal.SIGTERM)
        node.line("stopping")
        node.send(signal.SIGTERM)
        assert node.wait() == 128 + signal.SIGTERM


@pytest.mark.req("O6")
def test_a_crash_is_logged_with_the_last_inputs_and_ends_the_process_non_zero(tmp_path: Path) -> None:
    with Process(tmp_path, "fragile", program=CRASHES) as node:
        with socket.create_connection(("127.0.0.1", node.port)) as peer:
            peer.sendall(b"secret crash")
            assert node.wait() == 1
        crash = node.line("broker crashed")
        assert crash["level"] == "error"
        assert "receive 1 12" in crash["text"]
        assert "AssertionError" in crash["text"]
        assert "secret" not in crash["text"]


@pytest.mark.req("O6")
def test_a_port_in_use_is_one_clear_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with broker(tmp_path, "--listen", f"127.0.0.1:{port}") as node:
            assert node.wait() == 1
            assert len(node.lines) == 1
            assert f"127.0.0.1:{port} is in use by another process" in node.lines[0]["text"]
            assert "another port" in node.lines[0]["text"]


def test_the_administrators_token_is_private_works_and_goes_with_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "run"))
    with broker(tmp_path) as node:
        token = local_token(node.port)
        assert token is not None
        file = tmp_path / "run" / f"admin-{node.port}.token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        admin = StdlibClient("127.0.0.1", node.port)
        assert "admin" in admin.hello(token=token)["roles"]
        assert admin.ask("admin", {"do": "report", "question": "overview"})["sessions"] == 1
        node.send(signal.SIGTERM)
        assert node.wait() == 0
        assert not file.exists()
        assert token not in str(node.lines)


@pytest.mark.req("O5")
def test_the_token_of_a_killed_node_is_replaced_by_the_next_one_on_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "run"))
    port = free_port()
    with broker(tmp_path, "--listen", f"127.0.0.1:{port}") as node:
        assert node.port == port
        node.send(signal.SIGKILL)
        node.wait()
    left = local_token(port)
    assert left is not None
    with broker(tmp_path, "--listen", f"127.0.0.1:{port}") as node:
        assert node.port == port
        assert local_token(port) not in (None, left)
        stale = StdlibClient("127.0.0.1", port)
        with pytest.raises(EndedError):
            stale.hello(token=left)
        assert "admin" in StdlibClient("127.0.0.1", port).hello(token=local_token(port))["roles"]


@pytest.mark.req("O6")
def test_others_are_told_an_address_that_they_can_dial() -> None:
    everywhere = ListenerConfig(name="all", host="0.0.0.0", allow_open=True)
    here = ListenerConfig(name="here")
    named = ListenerConfig(name="named", host="::", announce="b.example.org", secure=True)
    addresses = {"all": ("0.0.0.0", 4717), "here": ("127.0.0.1", 4718), "named": ("::", 4719)}
    assert announced([here, named], addresses) == ["heliographs://b.example.org:4719", "heliograph://127.0.0.1:4718"]
    assert not any("0.0.0.0" in url for url in announced([everywhere], addresses))
    six = ListenerConfig(name="six", host="::1")
    assert announced([six], {"six": ("::1", 4717)}) == ["heliograph://[::1]:4717"]


@pytest.mark.parametrize("host", ["b.example.org:4717:x y", "no spaces", "heliograph://b"])
def test_an_address_to_announce_is_a_host_alone(host: str) -> None:
    [problem] = ListenerConfig(announce=host).problems("listener.main")
    assert str(problem).startswith("listener.main.announce")


@pytest.mark.req("O5")
def test_sighup_puts_new_settings_in_force_and_bad_ones_are_refused(tmp_path: Path) -> None:
    settings = tmp_path / "heliograph.toml"
    settings.write_text("[limits]\nlinks_max = 100\n")
    with broker(tmp_path) as node:
        one = client(node.port)
        settings.write_text('[[access.rules]]\neffect = "deny"\nverbs = ["publish"]\ntopics = ["secret/#"]\n')
        node.send(signal.SIGHUP)
        assert node.line("settings_reloaded")["rules"] == 1
        one.publish("secret/a", b"")
        one.flush()
        assert [each["reason"] for each in one.refused] == ["publish_denied"]
        settings.write_text("[limits]\nlinks_max = -1\n")
        node.send(signal.SIGHUP)
        refused = node.line("reload_failed")
        assert "limits.links_max" in refused["problems"][0]
        one.flush()


def serial(one: StdlibClient) -> str:
    """Of the certificate that the broker showed on this link."""
    assert isinstance(one.socket, ssl.SSLSocket)
    return str((one.socket.getpeercert() or {})["serialNumber"])


@pytest.mark.req("O9")
def test_sighup_shows_a_new_certificate_to_new_links_and_old_links_stay(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.files("broker", roles=[Role.BROKER])
    (tmp_path / "heliograph.toml").write_text(
        "[[listener]]\nport = 0\nsecure = true\n"
        '[tls]\ncertificate = "broker.crt"\nkey = "broker.key"\nauthority = "authority.crt"\n'
    )
    trust = ssl.create_default_context(cafile=str(authority.file))
    with Process(tmp_path, "--log-format", "json") as node:
        port = node.port
        old = client(port, tls=trust)
        old.subscribe(1, "news")

        authority.files("broker", roles=[Role.BROKER])
        assert serial(client(port, tls=trust)) == serial(old), "nothing is read before it is told to"
        node.send(signal.SIGHUP)
        node.line("settings_reloaded")
        new = client(port, tls=trust)
        assert serial(new) != serial(old)
        new.publish("news", b"over both")
        assert old.event().frame.payload == b"over both"

        (tmp_path / "broker.crt").write_bytes(b"no certificate")
        node.send(signal.SIGHUP)
        assert "tls.certificate" in node.line("reload_failed")["problems"][0]
        assert serial(client(port, tls=trust)) == serial(new), "a bad file changes nothing"


def shown_by(authority: Authority, entity: str) -> ssl.SSLContext:
    """The TLS context of an entity with a certificate of its own."""
    trust = ssl.create_default_context(cafile=str(authority.file))
    files = authority.files(entity)
    assert files.certificate is not None
    trust.load_cert_chain(files.certificate, files.key)
    return trust


@pytest.mark.req("B17", "O5")
def test_a_revocation_list_named_while_the_broker_runs_is_in_force_at_the_reload(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.files("broker", roles=[Role.BROKER])
    settings = tmp_path / "heliograph.toml"
    settings.write_text(
        '[[listener]]\nport = 0\nsecure = true\nauth = "certificate"\n[tls]\ncertificate = "broker.crt"\n'
        'key = "broker.key"\nauthority = "authority.crt"\n'
    )
    good, bad = shown_by(authority, "alice"), shown_by(authority, "mallory")
    with Process(tmp_path, "--log-format", "json") as node:
        port = node.port
        mallory = client(port, tls=bad)
        mallory.subscribe(1, "news")
        authority.revoke("mallory")
        settings.write_text(settings.read_text() + 'revoked = "revoked.crl"\n')
        node.send(signal.SIGHUP)
        told = node.line("settings_reloaded")
        assert (told["taken"], told["restart"]) == (["tls.revoked"], [])
        with pytest.raises((EndedError, OSError)):
            mallory.event()
        with pytest.raises((EndedError, OSError)):
            client(port, tls=bad)
        client(port, tls=good).publish("news", b"for others")


@pytest.mark.req("O5", "O9")
def test_a_reload_takes_the_names_of_other_certificate_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for name in ("broker", "other"):
        authority.files(name, roles=[Role.BROKER])
    settings = tmp_path / "heliograph.toml"
    text = "[[listener]]\nport = 0\nsecure = true\n" + (
        '[tls]\ncertificate = "broker.crt"\nkey = "broker.key"\nauthority = "authority.crt"\n'
    )
    settings.write_text(text)
    trust = ssl.create_default_context(cafile=str(authority.file))
    with Process(tmp_path, "--log-format", "json") as node:
        port = node.port
        old = serial(client(port, tls=trust))
        (tmp_path / "copy.crt").write_bytes(authority.file.read_bytes())
        settings.write_text(text.replace('"broker.', '"other.').replace("authority.crt", "copy.crt"))
        node.send(signal.SIGHUP)
        told = node.line("settings_reloaded")
        assert (told["taken"], told["restart"]) == (["tls.certificate", "tls.key"], ["tls.authority"])
        assert serial(client(port, tls=trust)) != old


@pytest.mark.req("O5")
def test_certificates_where_there_were_none_need_a_restart_and_the_reload_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.files("broker", roles=[Role.BROKER])
    settings = tmp_path / "heliograph.toml"
    settings.write_text("")
    with broker(tmp_path) as node:
        one = client(node.port)
        settings.write_text(
            '[tls]\ncertificate = "broker.crt"\nkey = "broker.key"\nauthority = "authority.crt"\n'
            "[store]\nretain_s = 9\n[limits]\nlinks_max = 9\n"
        )
        node.send(signal.SIGHUP)
        told = node.line("settings_reloaded")
        assert told["taken"] == ["limits.links_max"]
        assert told["restart"] == ["store.retain_s", "tls.certificate", "tls.key", "tls.authority"]
        one.flush()


@pytest.mark.req("B17")
def test_a_revoked_certificate_loses_its_live_link_at_the_reload_and_gets_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.files("broker", roles=[Role.BROKER])
    authority.revoke()
    (tmp_path / "heliograph.toml").write_text(
        '[[listener]]\nport = 0\nsecure = true\nauth = "certificate"\n[tls]\ncertificate = "broker.crt"\n'
        'key = "broker.key"\nauthority = "authority.crt"\nrevoked = "revoked.crl"\n'
    )

    def shows(entity: str) -> ssl.SSLContext:
        trust = ssl.create_default_context(cafile=str(authority.file))
        files = authority.files(entity)
        assert files.certificate is not None
        trust.load_cert_chain(files.certificate, files.key)
        return trust

    good, bad = shows("alice"), shows("mallory")
    with Process(tmp_path, "--log-format", "json") as node:
        port = node.port
        alice, mallory = client(port, tls=good), client(port, tls=bad)
        mallory.subscribe(1, "news")
        authority.revoke("mallory")
        node.send(signal.SIGHUP)
        node.line("settings_reloaded")
        with pytest.raises((EndedError, OSError)):
            mallory.event()
        alice.publish("news", b"for others")
        alice.flush()
        with pytest.raises((EndedError, OSError)):
            client(port, tls=bad)


@pytest.mark.req("O6")
def test_an_authority_that_a_reload_takes_away_proves_nobody_any_more(tmp_path: Path) -> None:
    ours, old = Authority(tmp_path), Authority(tmp_path, "old")
    ours.files("broker", roles=[Role.BROKER])
    (tmp_path / "heliograph.toml").write_text(
        '[[listener]]\nport = 0\nsecure = true\nauth = "certificate"\n[tls]\ncertificate = "broker.crt"\n'
        'key = "broker.key"\nauthority = "both.crt"\n'
    )
    both = tmp_path / "both.crt"
    both.write_bytes(ours.file.read_bytes() + old.file.read_bytes())

    def shows(authority: Authority, entity: str) -> ssl.SSLContext:
        trust = ssl.create_default_context(cafile=str(ours.file))
        files = authority.files(entity)
        assert files.certificate is not None
        trust.load_cert_chain(files.certificate, files.key)
        return trust

    good, bad = shows(ours, "alice"), shows(old, "mallory")
    with Process(tmp_path, "--log-format", "json") as node:
        port = node.port
        mallory = client(port, tls=bad)
        mallory.subscribe(1, "news")
        both.write_bytes(ours.file.read_bytes())
        node.send(signal.SIGHUP)
        node.line("settings_reloaded")
        with pytest.raises((EndedError, OSError)):
            mallory.event()
        with pytest.raises((EndedError, OSError)):
            client(port, tls=bad)
        alice = client(port, tls=good)
        alice.publish("news", b"for others")
        alice.flush()


@pytest.mark.req("B17", "T11")
def test_a_list_that_one_broker_reloads_cuts_links_at_its_neighbour(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.files("broker", roles=[Role.BROKER])
    authority.revoke()
    tls = '[tls]\ncertificate = "broker.crt"\nkey = "broker.key"\nauthority = "authority.crt"\n'
    listener = '[[listener]]\nport = 0\nsecure = true\nauth = "certificate"\n'
    files = authority.files("mallory")
    assert files.certificate is not None
    shown = ssl.create_default_context(cafile=str(authority.file))
    shown.load_cert_chain(files.certificate, files.key)
    (tmp_path / "far.toml").write_text(listener + tls)
    with Process(tmp_path, "--config", "far.toml", "--name", "far", "--log-format", "json") as far:
        port = far.port
        link = f'[[network.links]]\nhost = "127.0.0.1"\nport = {port}\nsecure = true\n'
        (tmp_path / "near.toml").write_text(listener + link + tls + 'revoked = "revoked.crl"\n')
        with Process(tmp_path, "--config", "near.toml", "--name", "near", "--log-format", "json") as near:
            near.line("ready in")
            far.line("neighbour_linked")
            mallory = client(port, tls=shown)
            mallory.subscribe(1, "news")
            authority.revoke("mallory")
            near.send(signal.SIGHUP)
            with pytest.raises((EndedError, OSError)):
                mallory.event()
            far.line("certificate_revoked")
            with pytest.raises((EndedError, OSError)):
                client(port, tls=shown)


@pytest.mark.req("O5")
def test_an_administrator_can_have_settings_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "run"))
    settings = tmp_path / "heliograph.toml"
    settings.write_text("")
    with broker(tmp_path) as node:
        port = node.port
        admin = StdlibClient("127.0.0.1", port)
        admin.hello(token=local_token(port))
        settings.write_text("[limits]\nlinks_max = 77\n")
        answer = admin.ask("admin", {"do": "reload"})
        assert (answer["ok"], answer["taken"], answer["restart"]) == (True, ["limits.links_max"], [])
        assert admin.ask("admin", {"do": "report", "question": "limits"})["links_max"] == 77
        again = StdlibClient("127.0.0.1", port)
        assert "admin" in again.hello(token=local_token(port))["roles"]


def test_sigusr2_drains_and_then_ends(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        one = client(node.port)
        node.send(signal.SIGUSR2)
        node.line("drain_started")
        one.goodbye()
        assert node.wait() == 0


@pytest.mark.req("O6", "N15")
def test_bad_and_silent_peers_do_not_harm_a_good_one(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        port = node.port
        subscriber, publisher = client(port), client(port)
        subscriber.subscribe(1, "a/#")
        silent = socket.create_connection(("127.0.0.1", port))
        bad = socket.create_connection(("127.0.0.1", port))
        bad.sendall(b"\xff" * 1000)
        assert bad.recv(4) != b""  # a GOODBYE with the reason
        node.line("peer_refused")
        frame = publisher.publish("a/b", b"x")
        assert subscriber.event().frame.topic == "a/b"
        assert frame
        silent.settimeout(60)
        assert silent.recv(1 << 16) != b""  # handshake_too_slow
        assert node.process.poll() is None
        bad.close()
        silent.close()


FEW_FILES = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
runpy.run_module("heliograph.cli.main", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.req("O6")
def test_silent_peers_that_take_all_descriptors_do_not_end_a_broker(tmp_path: Path) -> None:
    options = ("broker", "run", "--listen", "127.0.0.1:0", "--log-format", "json")
    with Process(tmp_path, *options, program=FEW_FILES) as node:
        port = node.port
        one = client(port)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        assert "ulimit -n" in node.line("links_over_limit")["detail"]
        one.subscribe(1, "a/#", language="xpath", where="//b")  # whose module has to be found, opened and loaded
        one.publish("a/b", b"<b/>")
        assert one.event().frame.payload == b"<b/>"
        for each in silent:
            each.settimeout(60)
            with suppress(ConnectionResetError):
                while each.recv(1 << 16):  # until the handshake is too slow, and the usage was sampled twice
                    pass
            each.close()
        client(port).goodbye()
        one.goodbye()
        node.send(signal.SIGTERM)
        assert node.wait() == 0


@pytest.mark.slow
@pytest.mark.req("O6")
@pytest.mark.parametrize("descriptors", [192, 2_048])
def test_silent_links_of_one_address_do_not_keep_another_out(tmp_path: Path, descriptors: int) -> None:
    """Also where the process has few descriptors; none of the silent links is too slow while this runs."""
    (tmp_path / "heliograph.toml").write_text("[limits]\nlinks_unproven_max = 150\nhandshake_ms = 60000\n")
    program = FEW_FILES.replace("(128, 128)", f"({descriptors}, {descriptors})")
    options = ("broker", "run", "--config", "heliograph.toml", "--listen", "127.0.0.1:0", "--log-format", "json")
    with Process(tmp_path, *options, program=program) as node:
        port = node.port
        silent = [socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) for _ in range(300)]
        for _ in range(10):
            one = client(port)
            one.subscribe(1, "a")
            one.publish("a", b"let in")
            assert one.event().frame.payload == b"let in"
            one.goodbye()
        assert node.line("peer_refused")["reason"] in ("source_over_share", "links_over_limit")
        for each in silent:
            each.close()
        node.send(signal.SIGTERM)
        assert node.wait() == 0


def test_a_broker_lets_itself_have_as_many_descriptors_as_the_system_allows(tmp_path: Path) -> None:
    program = FEW_FILES.replace("(128, 128)", "(128, resource.getrlimit(resource.RLIMIT_NOFILE)[1])")
    with Process(tmp_path, "broker", "run", "--listen", "127.0.0.1:0", "--log-format", "json", program=program) as node:
        assert node.port
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        assert psutil.Process(node.process.pid).rlimit(psutil.RLIMIT_NOFILE) == (most, most)


@pytest.mark.req("N14", "O6")
def test_a_tls_node_serves_good_certificates_and_logs_why_others_are_not_let_in(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.files("broker-1", roles=[Role.BROKER])
    options = ("--certificate", str(files.certificate), "--key", str(files.key), "--authority", str(authority.file))
    with broker(tmp_path, "--secure", "--auth", "certificate", *options) as node:
        port = node.port
        assert "(this machine only, TLS, certificate)" in node.lines[0]["text"]
        good = authority.files("sensor-7")
        context = ssl.create_default_context(cafile=str(authority.file))
        context.load_cert_chain(str(good.certificate), str(good.key))
        one = client(port, tls=context)
        assert one.welcome["entity"] == "sensor-7"
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert node.line("peer_refused")["reason"] == "tls_failed"
        one.flush()
        node.send(signal.SIGTERM)
        assert reason_of_end(one) == "stopping"
        assert node.wait() == 0


def test_an_expired_certificate_stops_a_start_with_a_clear_line(tmp_path: Path) -> None:
    files = Authority(tmp_path).files("late", days_ago=50, days=10)
    options = ("--secure", "--certificate", str(files.certificate), "--key", str(files.key))
    with broker(tmp_path, *options) as node:
        assert node.wait() != 0
        assert any("expired on" in str(line) for line in node.lines)
        assert not any("Traceback" in str(line) for line in node.lines)


def test_what_is_open_to_the_network_is_said_so() -> None:
    local = ListenerConfig(name="local", port=1)
    wide = ListenerConfig(name="wide", host="::", port=2, secure=True, auth="any")
    text = describe_open([local, wide], {"local": ("127.0.0.1", 1), "wide": ("::", 2)})
    assert text == (
        "open on 127.0.0.1:1 (this machine only, no authentication), [::]:2 (the network, TLS, token or certificate)\n"
        "to open more: a [[listener]] in heliograph.toml"
    )


def test_a_token_is_found_only_where_nobody_else_could_have_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "run"))
    token = LocalToken()
    assert local_token(4717) is None
    file = write_token(4717, token)
    assert local_token(4717) == token.text
    assert token.digest == hashlib.sha256(token.text.encode()).digest()
    assert token.text not in repr(token)
    file.chmod(0o644)
    assert local_token(4717) is None
    newer = LocalToken()
    write_token(4717, newer)
    remove_token(4717, token)  # of a node that is gone: the file is not its own
    assert local_token(4717) == newer.text
    remove_token(4717, newer)
    assert local_token(4717) is None
    (tmp_path / "run").chmod(0o755)
    with pytest.raises(PermissionError, match="chmod 700"):
        write_token(4717, token)


def test_the_runtime_directory_follows_the_environment() -> None:
    assert runtime_dir({"HELIOGRAPH_RUNTIME_DIR": "/a", "XDG_RUNTIME_DIR": "/b"}) == Path("/a")
    assert runtime_dir({"XDG_RUNTIME_DIR": "/b"}) == Path("/b/heliograph")
    assert runtime_dir({}) == Path.home() / ".cache" / "heliograph" / "run"
