"""Subscription languages, one file each: every text becomes a Condition (matching/condition.py).

``compile`` is the entry point. A language is loaded on first use: RE2 and lxml cost tens of milliseconds.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from heliograph.errors import ConditionError, ProtocolError, Reason
from heliograph.matching.condition import Condition
from heliograph.matching.languages.lexer import check_length

LANGUAGES = ("predicates", "integer", "tags", "regex", "xpath", "sql")
"""The languages of ``compile``. Topic filters are not among them: every subscription has one besides its condition."""

REMEMBERED_MAX = 4_096  # conditions: an interest is parsed when it is checked, kept, passed on and removed
REMEMBERED_CHARACTERS_MAX = 512  # longer conditions are not remembered


def compile(language: str, text: str) -> Condition:
    """The condition of a text; a ConditionError points at the mistake."""
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ConditionError(f"no language {language[:64]!r}; there are {known}", reason=Reason.LANGUAGE_UNSUPPORTED)
    condition: Condition = import_module(f"{__name__}.{language}").read(text)
    check_length(condition.text)  # other brokers must be able to parse what they are told
    return condition


_compiled = lru_cache(maxsize=REMEMBERED_MAX)(compile)


def condition_of(language: str, text: str) -> Condition:
    """A peer's text as a condition; ProtocolError if it is invalid."""
    try:
        return _compiled(language, text) if len(text) <= REMEMBERED_CHARACTERS_MAX else compile(language, text)
    except ConditionError as error:
        raise ProtocolError(error.reason, str(error)) from None
