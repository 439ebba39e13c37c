"""The door to all languages, and what every one of them refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from heliograph.errors import ConditionError, Reason
from heliograph.matching.condition import Event
from heliograph.matching.languages import LANGUAGES, compile


def test_an_unknown_language_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConditionError, match="there are predicates, integer, tags, regex, xpath, sql") as raised:
        compile("xquery", "x")
    assert raised.value.reason is Reason.LANGUAGE_UNSUPPORTED


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("text", ["x" * 100_000, "(" * 100_000, "1," * 50_000, "'" * 100_000, "a=b," * 25_000])
def test_a_text_of_100000_characters_is_refused_at_once(language: str, text: str) -> None:
    with pytest.raises(ConditionError) as raised:
        compile(language, text)
    assert raised.value.reason is Reason.CONDITION_OVER_LIMIT
    assert len(str(raised.value)) < 1_000


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "text", ["", " ", "'", "\ud800", "'" * 8_001, "- " * 4_000, "(" * 8_000 + ",", "[" * 8_000 + "="]
)
def test_nonsense_is_refused_by_every_language(language: str, text: str) -> None:
    with pytest.raises(ConditionError):
        compile(language, text)


def test_an_event_shows_its_own_headers_and_what_is_null_is_not_there() -> None:
    event = Event(b"meters/42", b'{"a": 1, "b": null, "$t": 5, "c": [1], "d": true}', b"")
    assert event.attributes == {"a": 1, "c": [1], "d": True}
    assert event.attributes_with(["integer"])["$integer"] == 42
    assert event.attributes_with(["tags"]) == event.attributes | {"$tag:a": "1", "$tag:d": "true"}
    assert event.attributes_with([]) is event.attributes


@pytest.mark.parametrize("headers", [b"", b"{", b"[1]", b"\xff", b'{"a": 1e999}', b'{"a": NaN}', b"[" * 60_000])
def test_malformed_headers_read_as_none(headers: bytes) -> None:
    assert Event(b"t", headers, b"").attributes == {}


def test_a_language_is_loaded_when_it_is_spoken() -> None:
    """RE2 and lxml cost tens of milliseconds to load, and ``heliograph --help`` needs neither."""
    program = (
        "import sys, heliograph.matching.covering; from heliograph.matching.languages import compile; "
        "compile('predicates', 'a > 1'); print([name for name in ('lxml', 're2') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
