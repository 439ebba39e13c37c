"""`heliograph ca`: files, permissions, and what is not overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.req("O2")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    assert run("ca", "init").code == 0
    return tmp_path / "heliograph-ca"


def test_keys_are_readable_by_their_owner_only(run: Run, folder: Path) -> None:
    run("ca", "issue", "sensor-7")

    assert mode(folder) == 0o700
    assert mode(folder / "authority.key") == mode(folder / "sensor-7.key") == 0o600
    assert sorted(path.name for path in folder.iterdir()) == [
        "authority.crt",
        "authority.key",
        "sensor-7.crt",
        "sensor-7.key",
    ]


def test_nothing_is_overwritten_without_force(run: Run, folder: Path) -> None:
    run("ca", "issue", "sensor-7")
    before = {path: path.read_bytes() for path in folder.iterdir()}

    for command in (("ca", "init"), ("ca", "issue", "sensor-7")):
        ran = run(*command)
        assert ran.code == 1
        assert "--force" in ran.err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before

    assert run("ca", "issue", "sensor-7", "--force").code == 0
    assert (folder / "sensor-7.key").read_bytes() != before[folder / "sensor-7.key"]
    assert mode(folder / "sensor-7.key") == 0o600


def test_a_certificate_shows_entity_roles_and_hosts(run: Run, folder: Path) -> None:
    run("ca", "issue", "b-1", "--role", "broker", "--role", "admin", "--host", "b.example.org", "--days", "30")

    told = json.loads(run("ca", "show", folder / "b-1.crt", "--json").out)

    assert (told["entity"], told["roles"]) == ("b-1", ["broker", "admin"])
    assert told["hosts"] == ["b.example.org"], "another machine's localhost is not this broker"
    assert (told["state"], told["authority"], told["issuer"]) == ("valid", False, "CN=heliograph-authority")
    assert len(told["fingerprint"]) == 64
    assert "b-1" in run("ca", "show", folder / "b-1.crt").out


@pytest.mark.req("O6")
def test_localhost_is_in_a_certificate_on_request_only(run: Run, folder: Path) -> None:
    run("ca", "issue", "b-1", "--role", "broker", "--localhost", "--host", "b.example.org")
    run("ca", "issue", "tdn-1", "--role", "directory", "--host", "tdn.example.org")

    told = json.loads(run("ca", "show", folder / "b-1.crt", "--json").out)

    assert set(told["hosts"]) == {"localhost", "127.0.0.1", "::1", "b.example.org"}
    assert json.loads(run("ca", "show", folder / "tdn-1.crt", "--json").out)["hosts"] == ["tdn.example.org"]


def test_a_client_is_the_default_and_has_no_hosts(run: Run, folder: Path) -> None:
    run("ca", "issue", "sensor-7")

    told = json.loads(run("ca", "show", folder / "sensor-7.crt", "--json").out)

    assert (told["roles"], told["hosts"]) == (["client"], [])


def test_show_without_a_file_shows_the_authority(run: Run, folder: Path) -> None:
    assert json.loads(run("ca", "show", "--json").out)["authority"] is True


def test_a_pair_can_be_written_elsewhere(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("ca", "issue", "sensor-7", "--out", tmp_path / "pairs").code == 0

    assert mode(tmp_path / "pairs") == 0o700
    assert (tmp_path / "pairs/sensor-7.key").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("issue", "Authority"), "authority's own name"),
        (("issue", "../../etc/x"), "not an entity id"),
        (("issue", "a", "--host", "b.example.org"), "--role broker"),
        (("issue", "a", "--localhost"), "--role broker"),
        (("issue", "a", "--role", "broker", "--host", "no host"), "neither a host name"),
        (("issue", "a", "--days", "0"), "between 1 and 3650"),
        (("issue", "a", "--role", "king"), "king"),
        (("issue", "a", "--dir", "nowhere"), "`heliograph ca init` makes it"),
        (("init", "--name", "a/b", "--force"), "not a name"),
        (("show", "gone.crt"), "gone.crt"),
        (("show", "heliograph-ca/authority.key"), "not a PEM certificate"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(
    run: Run, folder: Path, arguments: tuple[str, ...], told: str
) -> None:
    before = sorted(folder.parent.rglob("*"))

    ran = run("ca", *arguments)

    assert ran.code == 2
    assert told in ran.err
    assert "Traceback" not in ran.err
    assert sorted(folder.parent.rglob("*")) == before
