"""Which back end a vault has, and a disk that is really full."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.choice import make_backend
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.vault import Vault


def test_a_folder_is_sqlite(tmp_path: Path) -> None:
    assert isinstance(make_backend(Vault(name="v", place=str(tmp_path))), SqliteVault)


def test_postgresql_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "heliograph.live.vaults.postgres", raising=False)
    with pytest.raises(VaultError, match=r"heliograph\[postgres\]") as refused:
        make_backend(Vault(name="v", place="postgresql://nowhere"))
    assert refused.value.reason is Reason.VAULT_MISSING


@pytest.mark.parametrize("name", ["", "../elsewhere", "a b", "x" * 41, 'a"; DROP'])
def test_a_name_that_is_no_file_name_is_our_own_fault(name: str) -> None:
    with pytest.raises(AssertionError, match="no name for a vault"):
        Vault(name=name)


FULL = """
import sys
from pathlib import Path
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.vault import Append, Read, Vault

place = Path(sys.argv[1])
ballast = place / "ballast"
ballast.write_bytes(bytes(1_000_000))
backend = SqliteVault(Vault(name="v", place=str(place)))
backend.open()
made = 0

def fill():
    global made
    while True:
        try:
            backend.commit([[Append("log", bytes(50_000), 1, 0, 0)]])
            made += 1
            backend.tidy(busy=False)
        except VaultError as error:
            return error.reason.word

print(fill())
assert len(backend.read(Read("log", bytes_max=4 << 20)).runs) == made > 5
before = made
ballast.unlink()
fill()
assert made > before, "there is room, and it is not used"
backend.close()
backend.open()
assert len(backend.read(Read("log", bytes_max=4 << 20)).runs) == made
"""


@pytest.mark.live
@pytest.mark.req("O6")
def test_a_disk_that_is_really_full_loses_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """On a small file system in memory, which only some users may mount."""
    mount = f'mount -t tmpfs -o size=3m none "{tmp_path}"'
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    command = f'{mount} && exec "{sys.executable}" -c "$0" "{tmp_path}"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", command, FULL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "vault_full"
