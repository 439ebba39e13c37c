"""The language ``tags``: ``class=stock, price=9``, on comma-separated tag=value pairs.

In:    a text.
Out:   a Condition whose box is exact, over the tags of an event (matching/synopses.py).
State: none.
Not here: reading topics (matching/synopses.py), numbers (predicates.py: values of tags are texts).
Paper: [topics] §3, <tag, value> pairs.

    condition = test {"," test}
    test      = tag | tag "=" value | tag "!=" value | tag "=" start "*"
    value     = characters without , = ! * ' and blanks at its ends | a text in single quotes

A tag alone must be present. ``AAPL*`` matches values that begin with AAPL; ``*`` matches any value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from heliograph.errors import ConditionError
from heliograph.matching.condition import Condition
from heliograph.matching.languages.lexer import check_length, check_name, over_limit, quote
from heliograph.matching.languages.predicates import PREDICATES_MAX
from heliograph.matching.languages.ranges import NEVER, canonical
from heliograph.matching.synopses import TAG
from heliograph.model.predicates import Op, Predicate

_WORD = r"[^,=!*'\s]+(?:[ \t]+[^,=!*'\s]+)*"
_TEST = re.compile(
    rf"\s*(?P<name>{_WORD}|'(?:[^']|'')*+')\s*"
    rf"(?:(?P<op>!?=)\s*(?P<value>{_WORD}|'(?:[^']|'')*+')?(?P<star>\*)?\s*)?(?P<comma>,|\Z)"
)
_PLAIN = re.compile(_WORD + r"\Z")


def read(text: str) -> Condition:
    """The condition of a text in this language."""
    check_length(text)
    box = canonical(_tests(text))
    if len(box) > PREDICATES_MAX:
        over_limit(f"a condition has at most {PREDICATES_MAX} tests, this one has {len(box)}")
    if box == NEVER:
        return Condition("predicates", "false", NEVER)
    return Condition("tags", ", ".join(_write(predicate) for predicate in box), box)


def _tests(text: str) -> Iterator[Predicate]:
    position = 0
    more = True
    while more:
        match = _TEST.match(text, position)
        if match is None:
            raise ConditionError("expected a test such as class=stock", text, min(position, len(text)))
        yield _test(match, text)
        position, more = match.end(), match["comma"] == ","


def _test(match: re.Match[str], text: str) -> Predicate:
    name = _plain(match["name"])
    check_name(name, text, match.start("name"))
    if match["op"] is None:
        return Predicate(TAG + name, Op.PRESENT, True)
    if match["value"] is None:
        if match["star"] is None or match["op"] == "!=":
            raise ConditionError("expected a value; an empty one is ''", text, match.end("op"))
        return Predicate(TAG + name, Op.PRESENT, True)
    value = _plain(match["value"])
    if match["star"] is None:
        return Predicate(TAG + name, Op.EQUAL if match["op"] == "=" else Op.UNEQUAL, value)
    if match["op"] == "!=":
        raise ConditionError("'!=' takes a whole value", text, match.start("star"))
    return Predicate(TAG + name, Op.PREFIX, value)


def _plain(piece: str) -> str:
    return piece[1:-1].replace("''", "'") if piece.startswith("'") else piece


def _write(predicate: Predicate) -> str:
    name, value = (_quoted(part) for part in (predicate.attribute.removeprefix(TAG), str(predicate.value)))
    if predicate.op == Op.PRESENT:
        return name
    if predicate.op == Op.PREFIX:
        return f"{name}={value}*"
    return f"{name}{predicate.op}{value}"


def _quoted(text: str) -> str:
    return text if _PLAIN.match(text) else quote(text)
