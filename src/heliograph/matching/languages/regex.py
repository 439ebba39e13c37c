"""The language ``regex``: ``topic ~ '^sensors/k' and owner ~ 'ann|bob'``.

In:    a text.
Out:   a Condition: its box requires the tags that are tested, its residue searches for the patterns.
State: none.
Not here: RE2 and the bounds of patterns (patterns.py).

    condition = test {"and" test}
    test      = ("topic" | name) ("~" | "!~") pattern in single quotes

A name is a tag: a text header, or a tag=value pair of the topic (matching/synopses.py). A pattern may match anywhere in
the text; ``^`` and ``$`` anchor it to the ends. For a tag that an event lacks, both ``~`` and ``!~`` are false.
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.errors import ConditionError
from heliograph.matching.condition import Condition, Event
from heliograph.matching.languages.lexer import Reader, over_limit, quote
from heliograph.matching.languages.patterns import PROGRAM_MAX, PatternOverLimitError, Search, pattern
from heliograph.matching.languages.ranges import canonical, write_name
from heliograph.matching.synopses import TAG
from heliograph.model.predicates import Op, Predicate

_WORDS = frozenset(("and", "topic"))


@dataclass(frozen=True, slots=True)
class _Test:
    """One pattern, on the topic or on a tag."""

    text: str
    attribute: str | None  # None: the topic
    wanted: bool
    search: Search
    size: int


@dataclass(frozen=True, slots=True)
class _Searches:
    """Tests that all have to hold."""

    tests: tuple[_Test, ...]
    terms: frozenset[str]

    def matches(self, event: Event) -> bool:
        for test in self.tests:
            if test.attribute is None:
                subject = event.topic.decode("utf-8", "replace")
            else:
                subject = str(event.tags.get(test.attribute, ""))
            if test.search(subject) != test.wanted:
                return False
        return True


def read(text: str) -> Condition:
    """The condition of a text in this language."""
    reader = Reader(text, _WORDS)
    tests = {}
    size = 0
    more = True
    while more:
        position = reader.next.position
        test = _test(reader)
        if test.text not in tests:
            size += test.size
        tests[test.text] = test
        if size > PROGRAM_MAX:
            over_limit(f"the patterns need more than {PROGRAM_MAX} instructions together", text, position)
        more = reader.accept("and") is not None
    reader.end("'and' or the end")
    ordered = tuple(tests[one] for one in sorted(tests))
    box = canonical(Predicate(test.attribute, Op.PRESENT, True) for test in ordered if test.attribute is not None)
    residue = _Searches(ordered, frozenset(f"regex {one}" for one in tests))
    return Condition("regex", " and ".join(test.text for test in ordered), box, residue)


def _test(reader: Reader) -> _Test:
    name = None if reader.accept("topic") else reader.name("topic, or the name of a tag or header")
    sign = reader.expect("~", "!~").text
    token = reader.next
    if token.kind != "string":
        reader.fail("a pattern in single quotes")
    reader.take()
    expression = str(token.value)
    try:
        search, size = pattern(expression)
    except PatternOverLimitError as error:
        over_limit(str(error), reader.text, token.position)
    except ValueError as error:
        raise ConditionError(str(error), reader.text, token.position) from None
    shown = "topic" if name is None else write_name(name, _WORDS)
    plain = f"{shown} {sign} {quote(expression)}"
    return _Test(plain, None if name is None else TAG + name, sign == "~", search, size)
