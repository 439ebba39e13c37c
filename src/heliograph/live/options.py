"""The options of a client's methods as types: editors complete them, and type checkers find misspelt ones.

In:    nothing.
Out:   Literal types for options that are words, and the options of searches for topics.
State: none.
Not here: checking them at run time (each method, or the machine behind it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, get_args

from heliograph.errors import UsageError
from heliograph.model.spelling import nearest

PolicyName = Literal["drop_oldest", "disconnect", "hold"]
LanguageName = Literal["", "topic", "predicates", "sql", "regex", "xpath", "tags", "integer"]
StartName = Literal["", "first", "next"]
AcknowledgeName = Literal["auto", "manual"]
ModelName = Literal["static", "dynamic"]
MODELS: tuple[str, ...] = get_args(ModelName)
DeliverName = Literal["similarity", "normal", "direct"]
ResourceLanguageName = Literal["predicates", "sql"]
TopicLanguageName = Literal[
    "", "string", "keywords", "regex", "sql", "predicates", "xpath", "xquery", "tags", "integer"
]


def check_word(option: str, value: str, words: Sequence[str]) -> None:
    """UsageError if an option is none of its words."""
    if value not in words:
        meant = nearest(value, words) if isinstance(value, str) else None
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise UsageError(f"{option} is one of {', '.join(words)}, not {value!r}{hint}")


class TopicSearchOptions(TypedDict, total=False):
    """Which topics are searched for, and how: the options of ``discover_topics`` and ``watch_topics``."""

    count: int  # at most so many; 100
    owner: str
    institution: str
    space: str
    topics: Sequence[str]  # UUIDs
    created_from: float  # seconds since 1970, as the next two
    created_until: float
    expires_until: float
    valid_for: float  # seconds
    newest_first: bool
    directories: Sequence[str]  # only these
    timeout: float  # seconds; 5
    grants: Sequence[Any]  # GrantBundle, shown to directories
