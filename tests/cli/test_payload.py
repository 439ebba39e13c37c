"""Publications as lines: readable, and JSON that comes in as it went out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.cli.payload import as_json, as_text, from_json, header
from heliograph.errors import UsageError
from heliograph.maps.cells import readable
from heliograph.model.publication import Publication


def publication(payload: bytes, headers: dict[str, Any] | None = None) -> Publication:
    return Publication("a/b", payload, 1, 2, json.dumps(headers).encode() if headers else b"")


@given(st.binary())
def test_a_line_for_people_is_one_printable_line(payload: bytes) -> None:
    line = as_text(publication(payload))

    assert line.isprintable()
    assert line.startswith("a/b ")


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"21.5", "21.5"),
        ("Grüße ☀".encode(), "Grüße ☀"),
        (b"C:\\temp", "C:\\temp"),
        (b"two\nlines", "two\\nlines"),
        (b"\x1b[31mred", "\\x1b[31mred"),
        (b"\xff\x00", "\\xff\\x00"),
        (b"", ""),
    ],
)
def test_payloads_for_people(payload: bytes, shown: str) -> None:
    assert readable(payload) == shown


@given(st.binary(), st.dictionaries(st.text(min_size=1).filter(lambda key: key[0] != "$"), st.integers() | st.text()))
def test_json_comes_in_as_it_went_out(payload: bytes, headers: dict[str, Any]) -> None:
    line = as_json(publication(payload, headers))

    assert "\n" not in line
    assert from_json(line.encode(), "other", {}) == ("a/b", payload, headers)


def test_a_line_without_topic_takes_the_commands() -> None:
    assert from_json(b'{"payload": "x", "headers": {"k": 2}}', "t", {"k": "1", "l": "3"}) == (
        "t",
        b"x",
        {"k": 2, "l": "3"},
    )


@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_line_is_a_publication_or_a_usage_error(line: bytes) -> None:
    try:
        from_json(line, "t", {})
    except UsageError:
        pass


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        '{"payload": 7}',
        '{"payload": "a", "payload_base64": "YQ=="}',
        '{"payload_base64": "?"}',
        '{"payload": "a", "topic": 7}',
        '{"payload": "a", "headers": []}',
        '{"payload": "a", "paylod": "b"}',
        '{"payload": "\\ud800"}',
    ],
)
def test_lines_that_make_no_publication(line: str) -> None:
    with pytest.raises(UsageError):
        from_json(line.encode(), "t", {})


def test_headers_are_written_key_equals_value() -> None:
    assert header("type=a=b") == ("type", "a=b")
    assert [header(f"x={text}")[1] for text in ("200", "1.5", "true", '"200"', "007", "[1]", "null")] == [
        200,
        1.5,
        True,
        "200",
        "007",
        "[1]",
        "null",
    ]
    for wrong in ("novalue", "=x", "$t=1"):
        with pytest.raises(UsageError):
            header(wrong)
