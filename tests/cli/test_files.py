"""Files that commands write: private, in one step, and nothing is lost that was there before."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.cli.files import write_file
from heliograph.errors import HeliographError


def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"somebody else was faster")
    with pytest.raises(HeliographError, match="--force"):
        write_file(file, b"ours")
    assert file.read_bytes() == b"somebody else was faster"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]

    write_file(file, b"ours", force=True)
    assert file.read_bytes() == b"ours"
    assert file.stat().st_mode & 0o777 == 0o600
