"""The language ``predicates``: ``disk > 120 and system = 'linux'``.

In:    a text, or JSON triples such as ``["disk", ">", 120]``.
Out:   a Condition whose box is exact.
State: none.
Not here: merging and writing (ranges.py), the meaning of predicates (model/predicates.py).
Paper: [resources] §3, [attribute, operator, value]; a time of day is the number of its second.

    condition = test {"and" test} | triple | "[" triple {"," triple} "]"
    test      = name op value | name "between" value "and" value | name "present" | "has" name | "true" | "false"
    op        = "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" | "prefix" | "^="
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from heliograph.errors import ConditionError
from heliograph.matching.condition import Condition
from heliograph.matching.languages.lexer import Reader, check_length, check_name, over_limit
from heliograph.matching.languages.ranges import NEVER, WORDS, canonical, write
from heliograph.model.predicates import INTEGER_MAX, INTEGER_MIN, Conjunction, Op, Predicate, Value

PREDICATES_MAX = 256  # of one condition: each costs a row of the index

_OPS = {"<>": Op.UNEQUAL, "^=": Op.PREFIX} | {str(op): op for op in Op if op != Op.PRESENT}
_ORDERS = (Op.BELOW, Op.AT_MOST, Op.ABOVE, Op.AT_LEAST)


def read(text: str) -> Condition:
    """The condition of a text in this language."""
    check_length(text)
    if text.lstrip().startswith("["):
        return condition(_json(text))
    return condition(_conjunction(text))


def condition(predicates: Iterable[Predicate]) -> Condition:
    """The condition that all of these hold; other languages use it too if their box is exact."""
    box = canonical(predicates)
    if len(box) > PREDICATES_MAX:
        over_limit(f"a condition has at most {PREDICATES_MAX} predicates, this one has {len(box)}")
    return Condition("predicates", write(box), box)


def from_triples(triples: Iterable[Any]) -> Conjunction:
    """Predicates from decoded JSON: each an attribute, an operator and, except for ``present``, a value."""
    return tuple(_triple(triple, number) for number, triple in enumerate(triples, 1))


def _conjunction(text: str) -> list[Predicate]:
    reader = Reader(text, WORDS)
    found = _test(reader)
    while reader.accept("and"):
        found += _test(reader)
        if len(found) > 4 * PREDICATES_MAX:
            over_limit(f"a condition has at most {PREDICATES_MAX} predicates", text, reader.next.position)
    reader.end("'and' or the end")
    return found


def _test(reader: Reader) -> list[Predicate]:
    if reader.accept("true"):
        return []
    if reader.accept("false"):
        return list(NEVER)
    if reader.accept("has"):
        return [Predicate(reader.name(), Op.PRESENT, True)]
    name = reader.name("a test such as disk > 120")
    if reader.accept("present"):
        return [Predicate(name, Op.PRESENT, True)]
    if reader.accept("between"):
        low = _value(reader, Op.AT_LEAST)
        reader.expect("and")
        return [Predicate(name, Op.AT_LEAST, low), Predicate(name, Op.AT_MOST, _value(reader, Op.AT_MOST))]
    sign = reader.accept(*_OPS)
    if sign is None:
        reader.fail("one of = != < <= > >= prefix between present")
    op = _OPS[sign.text]
    return [Predicate(name, op, _value(reader, op))]


def _value(reader: Reader, op: Op) -> Value:
    position = reader.next.position
    value = reader.literal()
    problem = _misuse(op, value)
    if problem is not None:
        raise ConditionError(problem, reader.text, position)
    return value


def _misuse(op: Op, value: Value) -> str | None:
    """Why this operator cannot be used with this value, or None."""
    if op == Op.PREFIX and not isinstance(value, str):
        return "a prefix is a text in single quotes"
    if op in _ORDERS and isinstance(value, bool):
        return "true and false are neither above nor below anything"
    return None


def _json(text: str) -> list[Predicate]:
    try:
        triples = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConditionError(f"not a JSON list of [attribute, operator, value]: {error}", text) from None
    if triples and isinstance(triples[0], str):
        triples = [triples]
    return list(from_triples(triples))


def _triple(triple: Any, number: int) -> Predicate:
    match triple:
        case [str() as name, "present"] | [str() as name, "present", True]:
            op, value = Op.PRESENT, True
        case [str() as name, str() as sign, bool() | int() | float() | str() as value] if sign in _OPS:
            op = _OPS[sign]
        case _:
            shown = repr(triple)[:60]
            raise ConditionError(
                f'predicate {number} is {shown}, and not like ["disk", ">", 120] or ["disk", "present"]'
            )
    try:
        check_name(name, "", 0)
        (name + str(value)).encode()
    except (ConditionError, UnicodeEncodeError) as error:
        raise ConditionError(f"predicate {number}: {error}") from None
    problem = _misuse(op, value)
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        problem = "integers have at most 64 bits"
    if isinstance(value, float) and value - value != 0:
        problem = "neither infinities nor NaN are values"
    if problem is not None:
        raise ConditionError(f"predicate {number}: {problem}")
    return Predicate(name, op, value)
