"""Running a broker from the command line, and asking one that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Run
from .processes import broker, started, subscriber

pytestmark = [pytest.mark.live, pytest.mark.req("O2")]


@pytest.mark.req("O8")
def test_the_first_lines_say_what_is_open_and_how_to_open_more(tmp_path: Path) -> None:
    with broker(tmp_path, "--name", "plant-7") as (process, _):
        first, more = json.loads(process.said[0]), json.loads(process.said[1])

        assert first["broker"] == "plant-7"
        assert "this machine only" in first["text"]
        assert "heliograph broker run --listen 0.0.0.0:" in more["text"]
        assert process.interrupt() == 0


def test_the_administrator_of_this_machine_needs_no_credential(run: Run, tmp_path: Path) -> None:
    with broker(tmp_path) as (_, url), subscriber(tmp_path, "a/#", "b", HELIOGRAPH_URL=url):
        overview = json.loads(run("broker", "status", "--json", "--url", url).out)
        links = json.loads(run("broker", "links", "--json", "--url", url).out)
        subscriptions = json.loads(run("broker", "subscriptions", "--json", "--url", url).out)
        table = run("broker", "links", "--url", url).out.splitlines()

    assert overview["subscriptions"] == 2
    assert any(link["name"] == "heliograph subscribe" and link["subscriptions"] == 2 for link in links)
    assert [row["filter"] for row in subscriptions] == ["a/#", "b"]
    assert table[0].split()[:4] == ["link", "entity", "name", "address"]
    assert any("heliograph subscribe" in line for line in table[1:])


@pytest.mark.req("O6")
def test_nobody_else_is_the_administrator(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "elsewhere"))
    with broker(tmp_path) as (_, url):
        ran = run("broker", "status", "--url", url)

    assert ran.code == 1
    assert "ask_denied" in ran.err
    assert "role admin" in ran.err


def test_a_drained_broker_ends_by_itself(run: Run, tmp_path: Path) -> None:
    with broker(tmp_path) as (process, url):
        assert run("broker", "drain", "--grace-ms", "100", "--url", url).code == 0

        assert process.popen.wait(60) == 0


@pytest.mark.req("O9")
def test_new_rules_are_in_force_after_a_reload(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text("")
    with broker(tmp_path) as (_, url):
        assert run("publish", "secret/x", "1", "--url", url).code == 0

        file.write_text('[[access.rules]]\neffect = "deny"\nverbs = ["publish"]\ntopics = ["secret/#"]\n')
        assert run("broker", "reload", "--url", url).code == 0
        assert "publish_denied" in run("publish", "secret/x", "1", "--url", url).err

        file.write_text("[limits]\nlinks_max = 0\n")
        ran = run("broker", "reload", "--url", url)
        assert ran.code == 1
        assert "config_invalid" in ran.err
        assert "publish_denied" in run("publish", "secret/x", "1", "--url", url).err


@pytest.mark.req("N14", "O6")
def test_certificates_made_here_let_in_those_they_name_and_nobody_else(run: Run, tmp_path: Path) -> None:
    run("ca", "init")
    run("ca", "issue", "broker-1", "--role", "broker", "--localhost")
    run("ca", "issue", "sensor-7")
    run("ca", "issue", "alice", "--role", "admin")
    folder = tmp_path / "heliograph-ca"
    own = ("--certificate", folder / "broker-1.crt", "--key", folder / "broker-1.key")
    authority = ("--authority", folder / "authority.crt")

    def shown(entity: str) -> tuple[str | Path, ...]:
        return ("--certificate", folder / f"{entity}.crt", "--key", folder / f"{entity}.key", *authority)

    options = ("--secure", "--auth", "certificate", *own, *authority)
    with broker(tmp_path, *options, scheme="heliographs") as (_, url):
        with subscriber(tmp_path, "a", "--json", "--url", url, *shown("sensor-7")) as terminal:
            assert run("publish", "a", "x", "--url", url, *shown("sensor-7")).code == 0
            assert json.loads(terminal.line())["payload"] == "x"
            links = json.loads(run("broker", "links", "--json", "--url", url, *shown("alice")).out)
        nobody = run("publish", "a", "x", "--url", url, *authority)
        stranger = run("publish", "a", "x", "--url", url)
        plain = run("publish", "a", "x", "--url", url.replace("heliographs", "heliograph"))

    assert {(link["entity"], link["proof"]) for link in links if link["transport"] == "tls"} == {
        ("sensor-7", "certificate"),
        ("alice", "certificate"),
    }
    for ran in (nobody, stranger, plain):
        assert ran.code == 1
        assert len(ran.err.splitlines()) == 1, ran.err
    assert "credential_missing" in nobody.err
    assert "give --certificate and --key" in nobody.err
    assert "certificate_untrusted" in stranger.err


@pytest.mark.req("O6")
def test_tokens_made_here_let_in_those_who_show_them(run: Run, tmp_path: Path) -> None:
    run("token", "add", "sensor-7", "--file", "tokens.toml", "--out", "sensor-7.token")
    (tmp_path / "wrong.token").write_text("wrong-token")
    (tmp_path / "wrong.token").chmod(0o600)
    with broker(tmp_path, "--auth", "token", "--tokens", "tokens.toml") as (process, url):
        good = run("publish", "a", "x", "--url", url, "--entity", "sensor-7", "--token-file", "sensor-7.token")
        wrong = run("publish", "a", "x", "--url", url, "--entity", "sensor-7", "--token-file", "wrong.token")
        none = run("publish", "a", "x", "--url", url)
        process.interrupt()
        log = process.end()

    assert good.code == 0, good.err
    assert "credential_wrong" in wrong.err
    assert "credential_missing" in none.err
    assert wrong.code == none.code == 1
    assert "wrong-token" not in log
    assert (tmp_path / "sensor-7.token").read_text().strip() not in log


@pytest.mark.req("O6")
def test_a_port_in_use_is_told_in_one_line(run: Run, tmp_path: Path) -> None:
    with broker(tmp_path) as (_, url):
        ran = run("broker", "run", "--listen", f"127.0.0.1:{url.rpartition(':')[2]}")

    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert "in use" in ran.err


@pytest.mark.req("O5")
@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--listen", "4717"), 2, "write HOST:PORT"),
        (("--listen", "127.0.0.1:many"), 2, "a port is a number from 0 to 65535"),
        (("--listen", "127.0.0.1:99999"), 2, "a port is a number from 0 to 65535"),
        (("--listen", "0.0.0.0:0"), 1, "--allow-open"),
        (("--secure",), 1, "needs tls.certificate and tls.key"),
        (("--auth", "king"), 1, "none, token, certificate, any"),
        (("--auth", "token"), 1, "needs tokens.file"),
        (("--tokens", "gone.toml"), 2, "there is no such file"),
        (("--config", "gone.toml"), 2, "gone.toml cannot be read"),
        (("--log-format", "xml"), 1, "text, json"),
    ],
)
def test_a_broker_with_bad_settings_does_not_start(run: Run, options: tuple[str, ...], code: int, told: str) -> None:
    ran = run("broker", "run", *options)

    assert ran.code == code
    assert told in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.req("O8")
def test_an_open_broker_must_be_meant(tmp_path: Path) -> None:
    with started(tmp_path, "broker", "run", "--listen", "0.0.0.0:0", "--allow-open") as process:
        assert "the network, no authentication" in process.remark()
