"""The demo's report: it ends well only if every check held."""

from __future__ import annotations

import os

import pytest

from heliograph.cli.demo.report import Report
from heliograph.cli.demo.scenes import own_folder


def test_the_report_lists_the_checks_that_failed_and_no_others() -> None:
    report = Report()

    report.check(True, "this held")
    report.check(False, "this did not")

    assert report.problems == ["this did not"]


@pytest.mark.parametrize("before", ["", "/somewhere"])
def test_the_runtime_folder_of_its_scenes_is_gone_with_them(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if before:
        monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", before)
    else:
        monkeypatch.delenv("HELIOGRAPH_RUNTIME_DIR", raising=False)
    with own_folder() as folder:
        assert os.environ["HELIOGRAPH_RUNTIME_DIR"] == str(folder)
        (folder / "network").mkdir()
    assert os.environ.get("HELIOGRAPH_RUNTIME_DIR", "") == before
    assert not folder.exists()
