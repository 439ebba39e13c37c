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
"""What ``compile`` knows. Topic filters are not among them: every subscription has one, beside its condition."""

REMEMBERED_MAX = 4_096  # conditions: an interest is read when it is checked, kept, told on, and taken back
REMEMBERED_CHARACTERS_MAX = 512  # of a condition that is remembered


def compile(language: str, text: str) -> Condition:
    """The condition of a text; ConditionError points at what is wrong with it."""
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ConditionError(f"no language {language[:64]!r}; there are {known}", reason=Reason.LANGUAGE_UNSUPPORTED)
    condition: Condition = import_module(f"{__name__}.{language}").read(text)
    check_length(condition.text)  # what is told to other brokers has to be readable there
    return condition


_compiled = lru_cache(maxsize=REMEMBERED_MAX)(compile)


def condition_of(language: str, text: str) -> Condition:
    """A peer's text as a condition; what is wrong with it is the peer's fault."""
    try:
        return _compiled(language, text) if len(text) <= REMEMBERED_CHARACTERS_MAX else compile(language, text)
    except ConditionError as error:
        raise ProtocolError(error.reason, str(error)) from None
