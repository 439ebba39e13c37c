"""Answers for people: what is true is called yes, wherever it stands."""

from __future__ import annotations

import pytest

from heliograph.cli.tables import show
from heliograph.maps.cells import cell


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "yes"),
        (False, "no"),
        ({"joined": True, "links": 2, "last": None}, "joined yes, links 2, last "),
        ([True, "a", 1], "yes,a,1"),
        (None, "-"),
        ([], "-"),
        ("a\x1b[2J", "a\\x1b[2J"),
    ],
)
def test_a_value_is_shown_in_words(value: object, shown: str) -> None:
    assert cell(value) == shown


def test_json_keeps_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    show({"time": {"synchronised": True}}, as_json=True)

    assert capsys.readouterr().out == '{"time": {"synchronised": true}}\n'
