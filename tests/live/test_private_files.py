"""Files that hold a secret: only their owner can read them, and programs that start together agree on the content."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from heliograph.errors import UsageError
from heliograph.live.name_secret import FILE, own_secret, secret_in
from heliograph.live.publisher_file import PublisherFile

pytestmark = pytest.mark.req("O6", "N10")


def test_the_secret_of_names_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    secret = own_secret(folder)
    assert own_secret(folder) == secret == secret_in(folder / FILE)
    assert len(secret) == 64
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_programs_that_start_together_get_the_same_secret(tmp_path: Path) -> None:
    together = Barrier(8)

    def start(_: int) -> bytes:
        together.wait()
        return own_secret(tmp_path)

    with ThreadPoolExecutor(8) as programs:
        assert len(set(programs.map(start, range(8)))) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_secret_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    own_secret(tmp_path)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(UsageError, match=f"run: chmod 600 {tmp_path / FILE}"):
        own_secret(tmp_path)
    PublisherFile("meter", tmp_path).close(0)
    (tmp_path / "meter.json").chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        PublisherFile("meter", tmp_path)


def test_a_file_that_is_no_secret_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        secret_in(tmp_path / "missing")
    short = tmp_path / "short"
    short.touch(0o600)
    short.write_text("   too short   ")
    with pytest.raises(UsageError, match="short: the secret of a durable name has 16 to 1024 bytes"):
        secret_in(short)


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--secret-file, or set .HELIOGRAPH_STATE_DIR"):
        own_secret(tmp_path / "file")


def test_a_publisher_runs_once_at_a_time_and_keeps_its_secret(tmp_path: Path) -> None:
    first = PublisherFile("meter", tmp_path)
    with pytest.raises(UsageError, match="runs already"):
        PublisherFile("meter", tmp_path)
    first.close(7)
    again = PublisherFile("meter", tmp_path)
    assert (again.secret, again.used) == (first.secret, 7)
    again.close(7)
    assert (tmp_path / "meter.json").stat().st_mode & 0o777 == 0o600
