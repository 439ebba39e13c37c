"""`heliograph config`: check, show and explain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.config.sections import KEYS

from .conftest import Run

pytestmark = pytest.mark.req("O2", "O5")


def test_check_accepts_no_file_at_all(run: Run) -> None:
    ran = run("config", "check")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("no settings file: good")


def test_check_lists_every_problem_and_fails(run: Run, tmp_path: Path) -> None:
    (tmp_path / "heliograph.toml").write_text('[limits]\nlink_max = 1\nlinks_max = "x"\n[log]\nlevel = "loud"\n')

    ran = run("config", "check")

    assert ran.code == 1
    file = tmp_path / "heliograph.toml"
    assert ran.err.splitlines() == [
        f"heliograph: {file}: limits.link_max: unknown key; did you mean 'links_max'?",
        f"heliograph: {file}: limits.links_max = 'x': must be a whole number (above 0)",
        f"heliograph: {file}: log.level = 'loud': must be one of debug, info, warning, error",
    ]


def test_check_takes_the_file_as_show_does(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[broker]\nname = "b"\n')

    assert run("config", "check", "mine.toml").out == run("config", "check", "--config", "mine.toml").out

    both = run("config", "check", "mine.toml", "--config", "mine.toml")
    assert (both.code, "not both" in both.err) == (2, True)


def test_check_of_a_file_that_is_not_there_is_not_understood(run: Run) -> None:
    ran = run("config", "check", "gone.toml")

    assert ran.code == 2
    assert "the settings file gone.toml cannot be read: No such file or directory" in ran.err


def test_check_looks_into_the_certificate_files(run: Run, tmp_path: Path) -> None:
    run("ca", "init")
    run("ca", "issue", "broker-1", "--role", "broker")
    (tmp_path / "heliograph.toml").write_text(
        "[[listener]]\nsecure = true\n"
        '[tls]\ncertificate = "heliograph-ca/broker-1.crt"\nkey = "heliograph-ca/broker-1.key"\n'
    )
    assert run("config", "check").code == 0

    (tmp_path / "heliograph-ca/broker-1.key").chmod(0o644)
    ran = run("config", "check")

    assert ran.code == 1
    assert "chmod 600" in ran.err


def test_show_says_where_each_value_came_from(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heliograph.toml").write_text('[broker]\nname = "plant-7"\n')
    monkeypatch.setenv("HELIOGRAPH_LIMITS__LINKS_MAX", "100")

    lines = [line.rsplit("#", 1) for line in run("config", "show").out.splitlines()[1:]]

    shown = {key.strip(): source.strip() for key, source in lines}
    assert shown['broker.name = "plant-7"'] == "file"
    assert shown["limits.links_max = 100"] == "environment HELIOGRAPH_LIMITS__LINKS_MAX"
    assert shown["listener.main.port = 4717"] == "default"


def test_show_as_json_holds_the_same(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[[access.rules]]\neffect = "deny"\nwho = ["sensor-*"]\n')

    told = json.loads(run("config", "show", "--config", "mine.toml", "--json").out)

    assert told["file"] == "mine.toml"
    assert told["values"]["access.rules[0].who"] == {
        "value": ["sensor-*"],
        "source": "file",
        "typed": "access.rules[0].who",
    }


def test_explain_lists_all_keys(run: Run) -> None:
    lines = run("config", "explain").out.splitlines()

    assert [line.split()[0] for line in lines] == list(KEYS)


@pytest.mark.parametrize("key", ["listener.port", "listener.main.port", "HELIOGRAPH_LISTENER__MAIN__PORT"])
def test_explain_knows_a_key_in_every_form_a_user_may_have_seen(run: Run, key: str) -> None:
    ran = run("config", "explain", key)

    assert ran.out.startswith("listener.port: the TCP port to listen on\n")
    for word in ("whole number", "4717", "0 to 65535", "[[listener]] port", "HELIOGRAPH_LISTENER__NAME__PORT"):
        assert word in ran.out


@pytest.mark.parametrize("key", KEYS)
def test_every_key_can_be_explained(run: Run, key: str) -> None:
    told = json.loads(run("config", "explain", key, "--json").out)

    assert told["key"] == key
    unset = ("network.slot", "discovery.port", "search.timeout_ms", "search.network")
    empty = (0, False, "", [], *((None,) if key in unset else ()))
    assert all(told[name] or told[name] in empty for name in told)


def test_explain_suggests_a_key_for_a_misspelt_one(run: Run) -> None:
    ran = run("config", "explain", "limits.link_max")

    assert ran.code == 2
    assert "did you mean limits.links_max?" in ran.err


@pytest.mark.parametrize("key", ["limits.foo", "nothing", "broker.zzz", "HELIOGRAPH_LIMITS__FOO"])
def test_explain_suggests_nothing_far_fetched(run: Run, key: str) -> None:
    ran = run("config", "explain", key)

    assert ran.code == 2
    assert "did you mean" not in ran.err


@pytest.mark.parametrize("section", ["limits", "[limits]", "network.links"])
def test_explain_lists_the_keys_of_a_section(run: Run, section: str) -> None:
    ran = run("config", "explain", section)

    known = [key for key in KEYS if key.startswith(f"{section.strip('[]')}.")]
    assert [line.split()[0] for line in ran.out.splitlines()] == known
    assert list(json.loads(run("config", "explain", section, "--json").out)) == known
