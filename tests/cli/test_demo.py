"""The demo's report: it ends well only if every check held."""

from __future__ import annotations

from heliograph.cli.demo.report import Report


def test_the_report_lists_the_checks_that_failed_and_no_others() -> None:
    report = Report()

    report.check(True, "this held")
    report.check(False, "this did not")

    assert report.problems == ["this did not"]
