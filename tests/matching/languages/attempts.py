"""Compiling what may be nonsense.

In:    a language and any text.
Out:   attempt(): a condition, or the error it was refused with; check_attempt(): what must hold of both.
State: none.
Not here: tests.
"""

from __future__ import annotations

from heliograph.errors import ConditionError
from heliograph.matching.condition import Condition, Event
from heliograph.matching.conditions import matches
from heliograph.matching.languages import compile


def attempt(language: str, text: str) -> Condition | ConditionError:
    try:
        return compile(language, text)
    except ConditionError as error:
        return error


def check_attempt(language: str, text: str, event: Event) -> None:
    """An error points into the text; a condition has a text that can be read again, and answers."""
    found = attempt(language, text)
    if isinstance(found, ConditionError):
        assert 0 <= found.position <= len(text)
        assert str(found)
        return
    assert compile(found.language, found.text) == found
    assert matches(found, event) in (True, False)
