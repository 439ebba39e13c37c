"""Every file says which room it is, and stays small enough to be one."""

from __future__ import annotations

import pytest

from tests.architecture.house import SourceFile, source_files

FILES = [file for file in source_files() if file.path.name != "__init__.py"]
LINES_MAX = 600


def named(file: SourceFile) -> str:
    return file.name


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_file_begins_with_what_comes_in_and_out_and_what_is_not_here(file: SourceFile) -> None:
    lines = file.head.splitlines()
    missing = [
        word for word in ("In:", "Out:", "State:", "Not here:") if not any(line.startswith(word) for line in lines)
    ]
    assert missing == [], f"the head of {file.name} lacks these lines"


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_long_file_gives_its_reason(file: SourceFile) -> None:
    lines = len(file.path.read_text("utf-8").splitlines())
    assert lines <= LINES_MAX or "Long:" in file.head, (
        f"{file.name} has {lines} lines: find the second idea, or say why"
    )


@pytest.mark.parametrize("file", [file for file in source_files() if file.path.name == "__init__.py"], ids=named)
def test_a_package_says_what_it_is(file: SourceFile) -> None:
    assert file.head
