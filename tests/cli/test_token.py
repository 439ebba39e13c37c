"""`heliograph token`: shown once, kept as a digest."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread

import pytest

from heliograph.cli.main import main
from heliograph.model.identity import Role
from heliograph.trust.tokens import load_tokens, verify

from .conftest import Run

pytestmark = pytest.mark.req("O2")


def test_a_new_token_is_printed_and_only_its_digest_is_kept(run: Run, tmp_path: Path) -> None:
    ran = run("token", "add", "sensor-7", "--role", "client", "--role", "admin", "--file", "tokens.toml")

    token = ran.out.strip()
    file = tmp_path / "tokens.toml"
    (record,) = load_tokens(file.read_text())
    assert ran.code == 0
    assert len(token) >= 40
    assert token not in file.read_text()
    assert token not in ran.err
    assert verify(record, token)
    assert (record.entity, record.roles) == ("sensor-7", (Role.CLIENT, Role.ADMIN))
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_token_can_go_straight_into_a_private_file(run: Run, tmp_path: Path) -> None:
    ran = run("token", "add", "sensor-7", "--out", "sensor-7.token")

    token = (tmp_path / "sensor-7.token").read_text().strip()
    assert ran.out == ""
    assert (tmp_path / "sensor-7.token").stat().st_mode & 0o777 == 0o600
    assert verify(load_tokens((tmp_path / "heliograph-tokens.toml").read_text())[0], token)


def test_a_token_is_replaced_only_by_force(run: Run, tmp_path: Path) -> None:
    first = run("token", "add", "sensor-7").out.strip()

    refused = run("token", "add", "sensor-7")
    second = run("token", "add", "sensor-7", "--force").out.strip()

    (record,) = load_tokens((tmp_path / "heliograph-tokens.toml").read_text())
    assert refused.code == 1
    assert "--force" in refused.err
    assert verify(record, second)
    assert not verify(record, first)


def test_list_and_remove(run: Run) -> None:
    run("token", "add", "a")
    run("token", "add", "b", "--role", "admin")

    assert run("token", "list").out == "a client\nb admin\n"
    assert run("token", "remove", "a").code == 0
    assert [json.loads(line) for line in run("token", "list", "--json").out.splitlines()] == [
        {"entity": "b", "roles": ["admin"]}
    ]
    assert run("token", "remove", "a").code == 1


def test_tokens_added_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"

    def add(number: int) -> None:
        with pytest.raises(SystemExit):
            main(["token", "add", f"e{number}", "--file", str(file), "--out", str(tmp_path / f"{number}.token")])

    threads = [Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {record.entity for record in load_tokens(file.read_text())} == {"e0", "e1", "e2", "e3"}


def test_a_broken_token_file_is_left_alone(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "heliograph-tokens.toml"
    file.write_text("[[token]]\nentity = 7\n")

    ran = run("token", "add", "sensor-7")

    assert ran.code == 1
    assert "token[0].entity = 7" in ran.err
    assert file.read_text() == "[[token]]\nentity = 7\n"


def test_a_mistake_makes_no_file(run: Run, tmp_path: Path) -> None:
    assert run("token", "add", "not valid").code == 2
    assert run("token", "list").code == 2
    assert run("token", "add", "a", "--file", "nowhere/tokens.toml").code == 2
    assert list(tmp_path.iterdir()) == []
