"""The folder of own topics: kept by one program, read by the next, and nothing that others could have written."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.live.own_topics_folder import OwnTopicsFolder

ID = bytes(range(16))
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.mark.req("T10")
def test_what_one_program_keeps_another_reads_and_learns_when_it_is_gone(tmp_path: Path) -> None:
    here = {"HELIOGRAPH_STATE_DIR": str(tmp_path)}
    one, other, bobs = OwnTopicsFolder("alice", here), OwnTopicsFolder("alice", here), OwnTopicsFolder("bob", here)
    assert not one
    one.keep(ID, b"first")
    one.keep(ID, b"second")
    assert other
    assert other.has_changed
    assert other.read() == {UUID: b"second"}
    assert not other.has_changed
    assert not bobs
    one.forget(UUID)
    assert other.has_changed
    assert other.read() == {}


def test_a_file_that_others_can_write_is_ignored(tmp_path: Path) -> None:
    here = {"HELIOGRAPH_STATE_DIR": str(tmp_path)}
    folder = OwnTopicsFolder("alice", here)
    folder.keep(ID, b"mine")
    [file] = tmp_path.rglob("*.topic")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    assert folder.read() == {}


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "topics").write_text("a file is in the way")
    folder = OwnTopicsFolder("alice", {"HELIOGRAPH_STATE_DIR": str(tmp_path)})
    assert not folder.keep(ID, b"mine")
    folder.forget(UUID)
    assert folder.read() == {}
