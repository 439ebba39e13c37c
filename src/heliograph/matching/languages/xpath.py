"""The language ``xpath``: an XPath 1.0 expression over an XML payload or a header with XML.

In:    a text: ``declare namespace p = 'uri';`` any number of times, ``in header 'name':`` or not, an expression.
Out:   a Condition that is only a residue: the expression, taken as a boolean, is true.
State: none; the event keeps its parsed document, so it is parsed at most once per event.
Not here: the grammar (xpath_grammar.py), lxml (documents.py), what expressions share (xpath_facts.py, xpath_masks.py).

Relative paths begin at the root element. A payload that is not a document (documents.py) matches nothing. A document
that is too large for an expression (STEPS_MAX) does not match it either: no evaluation exceeds its budget.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from heliograph.errors import ConditionError
from heliograph.matching.condition import Condition, Event
from heliograph.matching.languages.documents import Document, compile_path, read_document
from heliograph.matching.languages.lexer import check_length, check_name, over_limit, quote
from heliograph.matching.languages.ranges import canonical
from heliograph.matching.languages.xpath_facts import facts
from heliograph.matching.languages.xpath_grammar import parse
from heliograph.matching.languages.xpath_masks import Plan, plan
from heliograph.matching.languages.xpath_tree import cost, write
from heliograph.matching.languages.xpath_values import Evaluate
from heliograph.model.predicates import Op, Predicate

NAMESPACES_MAX = 16
STEPS_MAX = 100_000  # nodes that one evaluation may visit; measured 10 to 700 ns each
PLANNED_STEPS_MAX = 24  # for longer expressions libxml2 is cheaper than columns that no other expression shares

_DECLARE = re.compile(r"\s*declare\s+namespace\s+([^\W\d][\w.\-]*)\s*=\s*('(?:[^']|'')*+')\s*;\s*")
_HEADER = re.compile(r"\s*in\s+header\s+('(?:[^']|'')*+')\s*:\s*")


@dataclass(frozen=True, slots=True)
class _Check:
    """A fact with its evaluator."""

    path: str
    evaluate: Evaluate
    op: str
    value: str | float | None
    wanted: bool


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression, decided in one of three ways: by a plan, else by facts, and by libxml2 if those do not suffice."""

    header: str | None
    checks: tuple[_Check, ...]
    plan: Plan | None
    evaluate: Evaluate | None
    whole: Evaluate
    steps: int
    nested: bool
    terms: frozenset[str]

    def matches(self, event: Event) -> bool:
        document = self._readable(event)
        if document is None:
            return False
        found = None if self.plan is None else self.plan(document)
        if found is not None:
            return found
        for check in self.checks:
            if document.values(check.path, check.evaluate).compare(check.op, check.value) is not check.wanted:
                return False
        return self.evaluate is None or document.holds(self.evaluate)

    def matches_alone(self, event: Event) -> bool:
        """The same by libxml2 alone: cheaper if no other expression is tested on this event."""
        document = self._readable(event)
        return document is not None and document.holds(self.whole)

    def _readable(self, event: Event) -> Document | None:
        """The document, unless there is none or it is too large for this expression."""
        document = document_of(event, self.header)
        if not isinstance(document, Document):
            return None
        cost = self.steps * document.nodes * (document.again if self.nested else 1)
        return document if cost <= STEPS_MAX else None


def read(text: str) -> Condition:
    """The condition of a text in this language."""
    check_length(text)
    namespaces, header, start = _prolog(text)
    tree = parse(text[start:], start, text)
    plain = write(tree)
    declared = "".join(f"declare namespace {one} = {quote(namespaces[one])}; " for one in sorted(namespaces))
    where = "" if header is None else f"in header {quote(header)}: "
    steps, power = cost(tree)
    found, said = facts(tree)
    prefixes = tuple(namespaces.items())
    try:
        whole = compile_path(f"boolean({plain})", namespaces)
        checks = tuple(
            _Check(declared + fact.text, _path(fact.text, prefixes), fact.op, fact.value, fact.wanted)
            for fact in dict.fromkeys(found)
        )
        planned = not said and not namespaces and steps <= PLANNED_STEPS_MAX
        masks = plan(tree, lambda path: _path(path, ())) if planned else None
    except ValueError as error:
        raise ConditionError(f"libxml2 says: {error}", text, start) from None
    canon = declared + where + plain
    evaluate = None if said else whole
    residue = _Expression(header, checks, masks, evaluate, whole, steps, power > 0, frozenset((f"xpath {canon}",)))
    box = () if header is None else canonical((Predicate(header, Op.PREFIX, ""),))
    return Condition("xpath", canon, box, residue, reads_payload=header is None)


def document_of(event: Event, header: str | None) -> Any:
    """The document in an event's payload, or in one of its headers; a text says why there is none."""
    if event.document is None:
        event.document = {}
    document = event.document.get(header)
    if document is None:
        if header is None:
            document = read_document(event.payload)
        else:
            value = event.attributes.get(header)
            document = read_document(value.encode("utf-8", "replace")) if isinstance(value, str) else "not a text"
        event.document[header] = document
    return document


@lru_cache(maxsize=4_096)
def _path(path: str, namespaces: tuple[tuple[str, str], ...]) -> Evaluate:
    """Expressions that need the same path share its evaluator."""
    return compile_path(path, dict(namespaces))


def _prolog(text: str) -> tuple[dict[str, str], str | None, int]:
    """The declared namespaces, the header to read, and where the expression begins."""
    namespaces: dict[str, str] = {}
    position = 0
    while match := _DECLARE.match(text, position):
        uri = _unquoted(match[2])
        if not uri or len(namespaces) == NAMESPACES_MAX:
            over_limit(f"at most {NAMESPACES_MAX} namespaces, none of them empty", text, position)
        namespaces[match[1]] = uri
        position = match.end()
    header = None
    if match := _HEADER.match(text, position):
        header = _unquoted(match[1])
        check_name(header, text, match.start(1))
        position = match.end()
    return namespaces, header, position


def _unquoted(piece: str) -> str:
    return piece[1:-1].replace("''", "'")
