"""Questions to a directory: who may ask, how long lists come, and what broken ones are answered."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.brokers.questions import ROWS_MAX, Questions
from heliograph.errors import UsageError
from heliograph.wire.frames import Frame, ServiceFlag, service

pytestmark = pytest.mark.req("B1")


def report(question: str) -> Any:
    match question:
        case "overview":
            return {"brokers": 3}
        case "brokers":
            return [{"broker": f"b{number}"} for number in range(ROWS_MAX + 7)]
    raise UsageError(f"no report is called {question!r}")


QUESTIONS = Questions(sha256(b"token").digest(), report)


def answered(payload: bytes, questions: Questions = QUESTIONS) -> tuple[bool, Any]:
    frame = Frame(questions.answer(Frame(service(b"admin", payload, 7))))
    assert (frame.topic, frame.sequence) == (b"admin", 7)
    assert frame.flags & ServiceFlag.ANSWER
    return not frame.flags & ServiceFlag.REFUSAL, json.loads(frame.payload)


def asked(**fields: Any) -> tuple[bool, Any]:
    return answered(json.dumps({"token": "token"} | fields).encode())


def test_who_shows_the_token_gets_the_report() -> None:
    assert asked(question="overview") == (True, {"brokers": 3})


def test_a_long_list_comes_in_pages() -> None:
    _, first = asked(question="brokers")
    _, second = asked(question="brokers", start=ROWS_MAX)
    assert (first["total"], len(first["rows"]), len(second["rows"])) == (ROWS_MAX + 7, ROWS_MAX, 7)


@pytest.mark.parametrize("token", ["", "wrong", "tökèn"])
def test_who_does_not_show_it_gets_none(token: str) -> None:
    good, said = asked(token=token)
    assert not good
    assert said["reason"] == "ask_denied"


def test_a_directory_without_a_token_answers_nobody() -> None:
    good, _ = answered(b'{"token": ""}', Questions(b"", report))
    assert not good


def test_an_unknown_report_is_refused_by_name() -> None:
    good, said = asked(question="weather")
    assert not good
    assert "weather" in said["text"]


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_whatever_is_asked_is_answered(payload: bytes) -> None:
    good, said = answered(payload)
    assert not good
    assert said["reason"]
