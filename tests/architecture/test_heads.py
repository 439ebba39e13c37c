"""Every file says which room it is, and stays small enough to be one."""

from __future__ import annotations

from tests.architecture.house import source_files

FILES = [file for file in source_files() if file.path.name != "__init__.py"]
PACKAGES = [file for file in source_files() if file.path.name == "__init__.py"]
LINES_MAX = 600


def test_a_file_begins_with_what_comes_in_and_out_and_what_is_not_here() -> None:
    wrong = [
        f"{file.name} lacks {word}"
        for file in FILES
        for word in ("In:", "Out:", "State:", "Not here:")
        if not any(line.startswith(word) for line in file.head.splitlines())
    ]
    assert wrong == []


def test_a_long_file_gives_its_reason() -> None:
    long = {file.name: len(file.path.read_text("utf-8").splitlines()) for file in FILES if "Long:" not in file.head}
    wrong = {name: lines for name, lines in long.items() if lines > LINES_MAX}
    assert wrong == {}, "find the second idea, or say why"


def test_a_package_says_what_it_is() -> None:
    assert [file.name for file in PACKAGES if not file.head] == []
