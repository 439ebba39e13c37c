"""Files that are not ours, not whole, not free or not writable."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.sqlite import (
    APPLICATION_ID,
    OVERDUE_BYTES,
    ROOM_BYTES,
    SMALL_BYTES,
    USED_BYTES,
    SqliteVault,
)
from heliograph.live.vaults.tables import VERSION
from heliograph.live.vaults.topic_sqlite import SqliteTopics
from heliograph.repository import Repository
from heliograph.vault import Append, Damage, Put, Read, ReadKeys, Run, RunsRead, TailDamage, Trim, Vault


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[SqliteVault]:
    backend = SqliteVault(Vault(name="v", place=str(tmp_path)))
    yield backend
    backend.close()


def a_vault(folder: Path) -> SqliteVault:
    return SqliteVault(Vault(name="v", place=str(folder)))


def a_repository(folder: Path) -> SqliteTopics:
    return SqliteTopics(Repository(name="t", place=str(folder)))


def refusal(backend: SqliteVault) -> tuple[Reason, str]:
    with pytest.raises(VaultError) as refused:
        backend.open()
    return refused.value.reason, refused.value.problem


def test_the_folder_is_made_and_the_file_says_whose_it_is(tmp_path: Path) -> None:
    backend = SqliteVault(Vault(name="v", place=str(tmp_path / "deep" / "down")))
    assert backend.open() > 0
    backend.close()
    with sqlite3.connect(backend.path) as file:
        assert file.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert file.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert file.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_every_commit_is_flushed(vault: SqliteVault) -> None:
    vault.open()
    assert vault.query("PRAGMA synchronous") == [(2,)]
    assert vault.query("PRAGMA wal_autocheckpoint") == [(0,)]


@pytest.mark.req("O6")
def test_a_vault_of_a_newer_version_is_refused_and_left_alone(vault: SqliteVault) -> None:
    vault.open()
    vault.query(f"PRAGMA user_version = {VERSION + 1}")
    vault.close()
    before = vault.path.read_bytes()
    reason, problem = refusal(vault)
    assert reason is Reason.VAULT_NEWER
    assert f"version {VERSION + 1}" in problem
    assert vault.path.read_bytes() == before


@pytest.mark.parametrize("content", [b"this is a letter to my aunt, not a database" * 50, b"SQLite format 3\x00" * 64])
def test_a_file_that_is_no_database_is_refused_and_left_alone(vault: SqliteVault, content: bytes) -> None:
    vault.path.write_bytes(content)
    assert refusal(vault)[0] in (Reason.VAULT_FOREIGN, Reason.VAULT_DAMAGED)
    assert vault.path.read_bytes() == content


@pytest.mark.req("O6")
def test_a_database_of_another_program_is_refused_and_left_alone(vault: SqliteVault) -> None:
    with sqlite3.connect(vault.path) as file:
        file.execute("CREATE TABLE letters (text)")
    file.close()
    before = vault.path.read_bytes()
    assert refusal(vault)[0] is Reason.VAULT_FOREIGN
    assert vault.path.read_bytes() == before


def test_an_empty_file_becomes_a_vault(vault: SqliteVault) -> None:
    vault.path.touch()
    vault.open()
    vault.commit([[Put("k", b"v")]])


@pytest.mark.req("O6")
def test_a_vault_has_one_user(vault: SqliteVault, tmp_path: Path) -> None:
    vault.open()
    vault.commit([[Put("k", b"v")]])
    other = SqliteVault(Vault(name="v", place=str(tmp_path)))
    reason, problem = refusal(other)
    assert reason is Reason.VAULT_LOCKED
    assert "another process uses it" in problem
    vault.commit([[Put("k", b"w")]])
    vault.close()
    other.open()
    assert other.read(ReadKeys()).pairs == (("k", b"w"),)  # type: ignore[union-attr]
    other.close()


READ_ONLY = """
import os, sys
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.vault import Vault
if os.geteuid() == 0:  # who may write everywhere
    os.setgid(65534)
    os.setuid(65534)
try:
    SqliteVault(Vault(name="v", place=sys.argv[1])).open()
except VaultError as error:
    print(error.reason.word)
else:
    print("opened")
"""


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "expected"),
    [
        (0o666, 0o777, "opened"),
        (0o444, 0o777, "vault_read_only"),
        (0o666, 0o555, "vault_read_only"),
        (None, 0o555, "vault_read_only"),
    ],
)
def test_what_cannot_be_written_to_is_refused(file_mode: int | None, folder_mode: int, expected: str) -> None:
    with tempfile.TemporaryDirectory(prefix="heliograph-vault-") as name:
        folder = Path(name)
        if file_mode is not None:
            backend = SqliteVault(Vault(name="v", place=name))
            backend.open()
            backend.close()
            backend.path.chmod(file_mode)
            if os.geteuid() == 0:
                os.chown(backend.path, 65534, 65534)
        folder.chmod(folder_mode)
        done = subprocess.run([sys.executable, "-c", READ_ONLY, name], capture_output=True, text=True, check=False)
        folder.chmod(0o755)
    assert done.stdout.strip() == expected, done.stderr


def test_a_folder_that_cannot_be_made_is_told_with_what_chooses_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(VaultError, match=r"file.*--store-place"):
        SqliteVault(Vault(name="v", place=str(tmp_path / "file" / "below"))).open()


def modes_of(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.req("O6")
@pytest.mark.parametrize("make", [a_vault, a_repository])
def test_others_cannot_read_the_files_also_in_a_folder_that_they_can_read(
    tmp_path: Path, make: Callable[[Path], SqliteVault | SqliteTopics]
) -> None:
    tmp_path.chmod(0o755)
    backend = make(tmp_path)
    before = os.umask(0)
    try:
        backend.open()
    finally:
        os.umask(before)
    backend.query("CREATE TABLE more (column)")  # now the write-ahead log has something in it

    modes = modes_of(tmp_path)
    assert len(modes) >= 2
    assert set(modes.values()) == {0o600}
    assert not backend.narrowed
    backend.close()


@pytest.mark.req("O6")
@pytest.mark.parametrize("make", [a_vault, a_repository])
def test_files_that_others_could_read_are_made_private_when_they_are_opened(
    tmp_path: Path, make: Callable[[Path], SqliteVault | SqliteTopics]
) -> None:
    first = make(tmp_path)
    first.open()
    first.close()
    first.path.chmod(0o644)
    wal = first.path.with_name(first.path.name + "-wal")
    wal.touch(0o644)
    wal.chmod(0o644)

    again = make(tmp_path)
    again.open()
    assert again.narrowed
    assert set(modes_of(tmp_path).values()) == {0o600}
    again.close()


@pytest.mark.req("O6")
def test_a_vault_that_others_can_read_and_that_belongs_to_another_user_is_refused(vault: SqliteVault) -> None:
    vault.open()
    vault.close()
    if os.geteuid() != 0:
        pytest.skip("only root can make a file of another user")
    with tempfile.TemporaryDirectory(prefix="heliograph-vault-") as name:
        Path(name).chmod(0o777)
        path = Path(shutil.copy(vault.path, name))
        path.chmod(0o666)
        done = subprocess.run([sys.executable, "-c", READ_ONLY, name], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "vault_read_only", done.stderr
        assert stat.S_IMODE(path.stat().st_mode) == 0o666


@pytest.mark.req("O6")
def test_a_database_of_another_program_keeps_its_mode(vault: SqliteVault) -> None:
    with closing(sqlite3.connect(vault.path)) as file:
        file.execute("CREATE TABLE theirs (column)")
    vault.path.chmod(0o644)
    assert refusal(vault)[0] is Reason.VAULT_FOREIGN
    assert stat.S_IMODE(vault.path.stat().st_mode) == 0o644


@pytest.mark.req("O6")
def test_no_flipped_byte_goes_unnoticed(vault: SqliteVault) -> None:
    """Every record comes back as it was, or is told as damaged with its positions, or the vault says that it is."""
    appends = [Append("log", b"%03d" % n * 200, 2, n, n) for n in range(40)]
    vault.open()
    vault.commit([appends])
    vault.close()
    whole = vault.path.read_bytes()
    runs = [Run(2 * n, 2, n, n, append.data) for n, append in enumerate(appends)]
    random = Random(1)
    told = 0
    for _ in range(150):
        broken = bytearray(whole)
        broken[random.randrange(100, len(broken))] ^= 1 << random.randrange(8)
        vault.path.write_bytes(broken)
        found = open_and_read(vault)
        if isinstance(found, Reason):
            assert found in (Reason.VAULT_DAMAGED, Reason.VAULT_FOREIGN)
            told += 1
            continue
        at = 0
        for each in found:
            assert each.position == at
            assert isinstance(each, Damage) or each == runs[at // 2]
            at = each.next
        assert at == 80
        told += any(isinstance(each, Damage) for each in found)
    assert told > 50


def open_and_read(backend: SqliteVault) -> list[Run | Damage] | Reason:
    try:
        backend.open()
        return read_all(backend)
    except VaultError as error:
        return error.reason
    finally:
        backend.close()


def read_all(backend: SqliteVault) -> list[Run | Damage]:
    found: list[Run | Damage] = []
    while True:
        answer = backend.read(Read("log", found[-1].next if found else 0, bytes_max=5_000))
        assert isinstance(answer, RunsRead)
        if not answer.runs:
            return found
        found += answer.runs


def test_a_lost_row_is_told_as_damage(vault: SqliteVault) -> None:
    vault.open()
    vault.commit([[Append("log", b"x", 2, 0, 0)] * 4])
    for gone in (0, 4, 6):
        vault.query("DELETE FROM runs WHERE position = ?", (gone,))
    missing = "missing"
    assert read_all(vault) == [Damage(0, 2, missing), Run(2, 2, 0, 0, b"x"), Damage(4, 4, missing)]
    answer = vault.read(Read("log", 5))
    assert isinstance(answer, RunsRead)
    assert answer.runs == (Damage(4, 4, missing),)
    assert vault.check_tail() == (TailDamage("log", 4, 4, missing),)
    vault.query("DELETE FROM runs")
    assert vault.check_tail() == (TailDamage("log", 0, 8, missing),)
    vault.query("UPDATE logs SET next = 9")
    ((log, _, count, problem),) = ((each.log, each.position, each.count, each.problem) for each in vault.check_tail())
    assert (log, count, "wrong checksum" in problem) == ("b'log'", 0, True)


def test_the_check_finds_what_is_wrong_and_compacting_gives_space_back(vault: SqliteVault) -> None:
    vault.open()
    vault.commit([[Append("log", bytes(100_000), 1, 0, 0)] * 20])
    assert vault.check() == []
    vault.commit([[Trim("log", 19)]])
    vault.compact()
    assert vault.path.stat().st_size < 300_000
    vault.close()
    broken = bytearray(vault.path.read_bytes())
    broken[4096 * 2 : 4096 * 2 + 8] = b"\xff" * 8
    vault.path.write_bytes(broken)
    problems: object
    try:
        vault.open()
        problems = vault.check()
    except VaultError as error:
        problems = error.reason is Reason.VAULT_DAMAGED
    assert problems


def test_the_write_ahead_log_does_not_grow_for_ever(vault: SqliteVault) -> None:
    vault.open()
    append = Append("log", bytes(1 << 20), 1, 0, 0)
    for n in range(3 * OVERDUE_BYTES >> 20):
        vault.commit([[append, Trim("log", n)]])
        vault.tidy(busy=True)
    log = vault.path.with_name(vault.path.name + "-wal")
    assert log.stat().st_size < 2 * OVERDUE_BYTES


def write_ahead_log(vault: SqliteVault) -> Path:
    return vault.path.with_name(vault.path.name + "-wal")


def commit_little(vault: SqliteVault, first: int, count: int) -> None:
    for n in range(first, first + count):
        vault.commit([[Append("log", b"%05d" % n, 1, n, n)]])
        vault.tidy(busy=True)


@pytest.mark.req("O6")
def test_small_commits_use_one_stretch_of_the_write_ahead_log_and_a_copy_of_a_killed_vault_is_whole(
    vault: SqliteVault, tmp_path: Path
) -> None:
    vault.open()
    commit_little(vault, 0, 1)  # with the checkpoint after opening
    assert write_ahead_log(vault).stat().st_size < USED_BYTES
    commit_little(vault, 1, 30)
    assert write_ahead_log(vault).stat().st_size == ROOM_BYTES
    assert_whole_when_killed(vault, tmp_path / "early", 31)
    commit_little(vault, 31, 600)
    assert write_ahead_log(vault).stat().st_size == ROOM_BYTES
    assert_whole_when_killed(vault, tmp_path / "late", 631)


def assert_whole_when_killed(vault: SqliteVault, folder: Path, count: int) -> None:
    folder.mkdir()
    for file in (vault.path, write_ahead_log(vault)):
        shutil.copy(file, folder)
    copy = SqliteVault(Vault(name="v", place=str(folder)))
    copy.open()
    assert copy.check() == []
    assert [each.data for each in read_all(copy) if isinstance(each, Run)] == [b"%05d" % n for n in range(count)]
    commit_little(copy, count, 1)
    assert len(read_all(copy)) == count + 1
    copy.close()
    assert not write_ahead_log(copy).exists()


def test_a_vault_with_large_commits_or_few_takes_no_room(vault: SqliteVault) -> None:
    vault.open()
    vault.tidy(busy=True)
    vault.commit([[Put("key", b"value")]])
    vault.tidy(busy=True)
    vault.tidy(busy=False)
    assert write_ahead_log(vault).stat().st_size < USED_BYTES
    for _ in range(4):
        vault.commit([[Append("log", bytes(2 * SMALL_BYTES), 1, 0, 0)]])
        vault.tidy(busy=True)
    assert write_ahead_log(vault).stat().st_size < ROOM_BYTES


FULL = """
import resource, sys
from heliograph.live.vaults.sqlite import ROOM_BYTES, SqliteVault
from heliograph.vault import Append, Read, Vault
vault = SqliteVault(Vault(name="v", place=sys.argv[1]))
vault.open()
resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES // 2, ROOM_BYTES // 2))
for n in range(50):
    vault.commit([[Append("log", b"x", 1, n, n)]])
    vault.tidy(busy=True)
print((vault.path.parent / "v.vault-wal").stat().st_size < ROOM_BYTES // 2, len(vault.read(Read("log")).runs))
"""


def test_where_there_is_no_room_the_rest_is_left_to_commits(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "50"], done.stderr
