"""Reliable publications, durable subscriptions and replays from the command line, with a real broker and store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import Process, broker, piped

pytestmark = [pytest.mark.live, pytest.mark.req("N10", "N11", "O2")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with broker(home, HELIOGRAPH_STORE__ENABLED="true", HELIOGRAPH_STORE__PATTERNS="orders/#") as (_, address):
        yield address


def test_what_was_stored_is_printed_again(home: Path, url: str) -> None:
    lines = b"\n".join(b"order %d" % number for number in range(500))
    ran = piped(home, "publish", "orders/7", "-", "--reliable", "--json", "--url", url, data=_as_json(lines))
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert json.loads(ran.stdout) == {"published": 500, "stored": 500}

    ran = piped(home, "replay", "orders/#", "--json", "--url", url, data=b"")
    assert (ran.returncode, ran.stderr) == (0, b"")
    printed = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one["payload"] for one in printed] == [f"order {number}" for number in range(500)]
    assert [one["position"] for one in printed] == list(range(500))

    ran = piped(home, "replay", "orders/#", "--position", "store=490", "--count", "3", "--url", url, data=b"")
    assert ran.stdout == b"orders/7 order 490\norders/7 order 491\norders/7 order 492\n"


def test_a_durable_subscription_is_listed_goes_on_and_is_dropped(home: Path, url: str) -> None:
    durable = ("subscribe", "orders/new", "--durable", "billing", "--url", url)
    first = Process(home, *durable, "--count", "1")
    try:
        assert first.remark().startswith("subscribed to orders/new")
        for text in ("one", "two"):
            assert piped(home, "publish", "orders/new", text, "--reliable", "--url", url, data=b"").returncode == 0
        assert first.line() == "orders/new one"
        assert first.popen.wait(60) == 0
    finally:
        first.end()
    ran = piped(home, *durable, "--count", "1", "--json", data=b"")
    assert json.loads(ran.stdout)["payload"] == "two"

    ran = piped(home, "subscription", "list", "--json", "--url", url, data=b"")
    (listed,) = json.loads(ran.stdout)
    assert (listed["name"], listed["filter"], listed["lag"]) == ("billing", "orders/new", 0)
    ran = piped(home, "subscription", "drop", "billing", "--json", "--url", url, data=b"")
    assert json.loads(ran.stdout) == {"dropped": 1}
    ran = piped(home, "subscription", "drop", "billing", "--url", url, data=b"")
    assert (ran.returncode, b"no durable subscription" in ran.stderr) == (1, True)


@pytest.mark.req("O6")
def test_a_name_is_used_with_its_secret_or_after_an_administrator_has_released_it(
    home: Path, url: str, tmp_path: Path
) -> None:
    assert piped(home, "publish", "orders/mine", "x", "--reliable", "--url", url, data=b"").returncode == 0
    durable = ("subscribe", "orders/mine", "--durable", "wages", "--from", "first", "--count", "1", "--url", url)
    secret = tmp_path / "wages.secret"
    secret.write_text("the secret of two machines\n")
    ran = piped(home, *durable, "--secret-file", secret, data=b"")
    assert (ran.returncode, b"chmod 600" in ran.stderr) == (2, True)
    secret.chmod(0o600)
    assert piped(home, *durable, "--secret-file", secret, data=b"").stdout == b"orders/mine x\n"

    ran = piped(home, *durable, data=b"")
    assert (ran.returncode, b"name_foreign" in ran.stderr, b"subscription release wages" in ran.stderr) == (
        1,
        True,
        True,
    )
    ran = piped(home, "subscription", "list", "--json", "--url", url, data=b"", HELIOGRAPH_RUNTIME_DIR=str(tmp_path))
    assert json.loads(ran.stdout) == []  # without the local token this user is no administrator
    ran = piped(home, "subscription", "release", "wages", "--json", "--url", url, data=b"")
    assert json.loads(ran.stdout) == {"released": 1}
    assert piped(home, "subscription", "drop", "wages", "--url", url, data=b"").returncode == 0
    assert (home / "state" / "names.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "command",
    [
        ("publish", "elsewhere", "x", "--reliable"),
        ("subscribe", "elsewhere", "--durable", "d"),
        ("replay", "elsewhere"),
    ],
)
def test_without_a_store_for_the_topic_the_error_says_what_to_do(home: Path, url: str, command: tuple[str]) -> None:
    ran = piped(home, *command, "--url", url, data=b"")
    assert ran.returncode == 1
    assert b"no store serves 'elsewhere'" in ran.stderr
    assert b"heliograph store run --pattern" in ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("subscribe", "a", "b", "--durable", "d"),
        ("subscribe", "a", "--from", "first"),
        ("replay", "a", "--position", "7"),
        ("replay", "a", "--since", "soon"),
        ("replay", "a/#/b"),
    ],
)
def test_mistakes_are_one_line(home: Path, url: str, command: tuple[str]) -> None:
    ran = piped(home, *command, "--url", url, data=b"")
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1


def _as_json(lines: bytes) -> bytes:
    return b"\n".join(json.dumps({"payload": line.decode()}).encode() for line in lines.splitlines())
