"""PostgreSQL: whose schema it is, who has it, and what a lost connection or server does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from heliograph.errors import Reason
from heliograph.live.vaults import postgres as module
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.choice import make_backend
from heliograph.live.vaults.postgres import PostgresVault
from heliograph.live.vaults.tables import VERSION
from heliograph.vault import Append, Put, Read, ReadKeys, Vault
from tests.vaults.postgres import Server
from tests.vaults.subjects import NUMBERS

pytestmark = pytest.mark.live

APPEND = Append("log", b"abc", 3, 1, 2)


@pytest.fixture
def vault(postgres: Server) -> Iterator[PostgresVault]:
    backend = another(postgres, f"p{next(NUMBERS)}")
    yield backend
    backend.close()


def another(server: Server, name: str) -> PostgresVault:
    backend = make_backend(Vault(name=name, place=server.url))
    assert isinstance(backend, PostgresVault)
    return backend


def run(server: Server, *statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]


def refusal(backend: PostgresVault) -> Reason:
    with pytest.raises(VaultError) as refused:
        backend.open()
    return refused.value.reason


def cut(server: Server, backend: PostgresVault) -> None:
    """What a server does that is restarted by its administrator."""
    assert backend._connection is not None
    run(server, f"SELECT pg_terminate_backend({backend._connection.info.backend_pid})")


def test_a_schema_of_another_program_is_refused(vault: PostgresVault, postgres: Server) -> None:
    run(postgres, f"CREATE SCHEMA {vault._schema}", f"CREATE TABLE {vault._schema}.letters (text TEXT)")
    assert refusal(vault) is Reason.VAULT_FOREIGN


def test_an_empty_schema_becomes_a_vault(vault: PostgresVault, postgres: Server) -> None:
    run(postgres, f"CREATE SCHEMA {vault._schema}")
    vault.open()
    vault.commit([[APPEND]])


def test_a_vault_of_a_newer_version_is_refused(vault: PostgresVault) -> None:
    vault.open()
    vault.query("UPDATE vault SET version = ?", (VERSION + 1,))
    vault.close()
    assert refusal(vault) is Reason.VAULT_NEWER


def test_two_stores_cannot_use_one_schema(
    vault: PostgresVault, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_S", 0.2)
    vault.open()
    other = another(postgres, vault._schema.removeprefix("heliograph_"))
    assert refusal(other) is Reason.VAULT_LOCKED
    vault.close()
    other.open()
    other.close()


def test_a_user_who_may_not_write_is_refused(vault: PostgresVault, postgres: Server) -> None:
    vault.open()
    vault.close()
    run(postgres, f"CREATE ROLE reader_{vault._schema} LOGIN")
    url = postgres.url.replace("tests@", f"reader_{vault._schema}@")
    reader = PostgresVault(Vault(name=vault._schema.removeprefix("heliograph_"), place=url))
    assert refusal(reader) is Reason.VAULT_READ_ONLY


def test_no_server_is_a_failure_and_not_an_exception() -> None:
    nowhere = PostgresVault(Vault(name="v", place="postgresql://tests@127.0.0.1:1/postgres"))
    assert refusal(nowhere) is Reason.VAULT_FAILED


def test_a_commit_whose_connection_breaks_is_made_once(vault: PostgresVault, postgres: Server) -> None:
    vault.open()
    vault.commit([[APPEND]])
    cut(postgres, vault)
    (done,) = vault.commit([[APPEND, Put("k", b"v")]])
    assert done.positions == (3,)
    cut(postgres, vault)
    assert [run.position for run in vault.read(Read("log")).runs] == [0, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize("was_made", [False, True])
def test_a_commit_of_which_the_answer_was_lost_is_made_once(
    vault: PostgresVault, postgres: Server, was_made: bool
) -> None:
    """The connection breaks just before, or just after, the server carried out COMMIT."""
    vault.open()
    vault.commit([[APPEND]])
    query = vault.query
    broken: list[str] = []

    def break_at_commit(text: str, values: Any = ()) -> list[Any]:
        if text != "COMMIT" or broken:
            return query(text, values)
        broken.append(text)
        if was_made:
            query(text, values)
        cut(postgres, vault)
        return query("SELECT 1")

    vault.query = break_at_commit  # type: ignore[method-assign]
    (done,) = vault.commit([[APPEND]])
    assert done.positions == (3,)
    (done,) = vault.commit([[APPEND]])
    assert done.positions == (6,)
    assert [run.position for run in vault.read(Read("log")).runs] == [0, 3, 6]  # type: ignore[union-attr]


def test_a_vault_that_another_used_meanwhile_is_not_written_to(vault: PostgresVault, postgres: Server) -> None:
    vault.open()
    vault.commit([[APPEND]])
    cut(postgres, vault)
    other = another(postgres, vault._schema.removeprefix("heliograph_"))
    other.open()
    other.commit([[Put("mine", b"")]])
    other.close()
    with pytest.raises(VaultError) as refused:
        vault.commit([[APPEND]])
    assert refused.value.reason is Reason.VAULT_FAILED
    vault.open()
    assert vault.read(ReadKeys()).pairs == (("mine", b""),)  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_server_may_restart(vault: PostgresVault, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.open()
    vault.commit([[APPEND]])
    postgres.stop()
    postgres.start()
    (done,) = vault.commit([[APPEND]])
    assert done.positions == (3,)

    monkeypatch.setattr(module, "RECONNECT_S", 0.3)
    postgres.stop()
    try:
        with pytest.raises(VaultError) as refused:
            vault.commit([[APPEND]])
        assert refused.value.reason is Reason.VAULT_FAILED
    finally:
        postgres.start()
    vault.open()
    assert len(vault.read(Read("log")).runs) == 2  # type: ignore[union-attr]


def test_the_check_and_compacting_do_no_harm(vault: PostgresVault) -> None:
    vault.open()
    vault.commit([[APPEND]])
    assert vault.check() == []
    vault.compact()
    assert len(vault.read(Read("log")).runs) == 1  # type: ignore[union-attr]
