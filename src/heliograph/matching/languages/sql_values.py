"""What SQL selectors mean: trees become functions of an event's attributes.

In:    trees (sql_grammar.py).
Out:   test(node) → a function that returns True, False or None for unknown; value(node) → a value, or None for NULL.
State: none.
Not here: parsing (sql_grammar.py), which part of a selector is a box (sql.py).

An attribute that an event lacks is NULL. Anything computed from NULL is NULL, and a comparison with it is unknown. A
comparison of values of different kinds is false. Arithmetic on anything but numbers, and division by zero, give NULL;
integers that exceed 64 bits become floats; the division of integers drops the remainder.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from heliograph.matching.languages.lexer import over_limit
from heliograph.matching.languages.patterns import PatternOverLimitError, pattern
from heliograph.matching.languages.ranges import kind_of
from heliograph.matching.languages.sql_grammar import (
    All,
    Arithmetic,
    Between,
    Compare,
    In,
    IsNull,
    Like,
    Name,
    Node,
    Not,
    Some,
    SqlLiteral,
    SqlNegative,
)
from heliograph.model.predicates import INTEGER_MAX, INTEGER_MIN, Value

Attributes = Mapping[str, Any]
Test = Callable[[Attributes], bool | None]
Get = Callable[[Attributes], Any]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def test(node: Node) -> Test:
    """True, False or None (unknown) for an event's attributes."""
    match node:
        case SqlLiteral(constant):
            return lambda attributes: bool(constant)
        case Name(attribute):
            return lambda attributes: _boolean(attributes.get(attribute))
        case Compare(op, left, right):
            return _comparison(op, value(left), value(right))
        case Between(of, low, high):
            parts = (_comparison(">=", value(of), value(low)), _comparison("<=", value(of), value(high)))
            return lambda attributes: _all(parts, attributes)
        case In(of, values):
            return _membership(value(of), frozenset((kind_of(one), one) for one in values))
        case Like(of, shape):
            return _likeness(value(of), shape)
        case IsNull(of):
            get = value(of)
            return lambda attributes: get(attributes) is None
        case Not(of):
            inner = test(of)
            return lambda attributes: None if (result := inner(attributes)) is None else not result
        case All(nodes):
            tests = tuple(test(part) for part in nodes)
            return lambda attributes: _all(tests, attributes)
        case Some(nodes):
            options = tuple(test(part) for part in nodes)
            return lambda attributes: _some(options, attributes)
    raise AssertionError("the parser makes no other node a condition")


def value(node: Node) -> Get:
    """The value of an operand, or None for NULL."""
    match node:
        case SqlLiteral(constant):
            return lambda attributes: constant
        case Name(attribute):
            return lambda attributes: attributes.get(attribute)
        case SqlNegative(of):
            inner = value(of)
            return lambda attributes: _calculate("-", 0, inner(attributes))
        case Arithmetic(first, rest):
            start = value(first)
            steps = tuple((sign, value(operand)) for sign, operand in rest)

            def chain(attributes: Attributes) -> Any:
                result = start(attributes)
                for sign, operand in steps:
                    result = _calculate(sign, result, operand(attributes))
                return result

            return chain
    raise AssertionError("the parser makes no other node a value")


def _boolean(found: Any) -> bool | None:
    return found if isinstance(found, bool) else None


def _comparison(op: str, left: Get, right: Get) -> Test:
    compare = _COMPARE[op]
    ordered = op not in ("=", "<>")

    def test(attributes: Attributes) -> bool | None:
        one, other = left(attributes), right(attributes)
        if one is None or other is None:
            return None
        kind = _kind(one)
        if kind != _kind(other) or kind is None or (ordered and kind == "boolean"):
            return False
        return compare(one, other)

    return test


def _membership(get: Get, members: frozenset[tuple[str, Value]]) -> Test:
    def test(attributes: Attributes) -> bool | None:
        found = get(attributes)
        return None if found is None else (kind := _kind(found)) is not None and (kind, found) in members

    return test


def _all(tests: tuple[Test, ...], attributes: Attributes) -> bool | None:
    result: bool | None = True
    for test in tests:
        one = test(attributes)
        if one is False:
            return False
        if one is None:
            result = None
    return result


def _some(tests: tuple[Test, ...], attributes: Attributes) -> bool | None:
    result: bool | None = False
    for test in tests:
        one = test(attributes)
        if one is True:
            return True
        if one is None:
            result = None
    return result


def _calculate(sign: str, left: Any, right: Any) -> int | float | None:
    if not (_is_number(left) and _is_number(right)):
        return None
    if sign == "/":
        if right == 0:
            return None
        if isinstance(left, int) and isinstance(right, int):
            result: int | float = abs(left) // abs(right)
            result = result if (left < 0) == (right < 0) else -result
        else:
            result = left / right
    elif sign == "*":
        result = left * right
    else:
        result = left + right if sign == "+" else left - right
    if isinstance(result, int):
        return result if INTEGER_MIN <= result <= INTEGER_MAX else float(result)
    return None if result != result else result


def _is_number(found: Any) -> bool:
    return _kind(found) == "number"


def _kind(found: Any) -> str | None:
    """The kind of values that a value can be compared with; None if it cannot be compared, such as a list."""
    if isinstance(found, int) and not INTEGER_MIN <= found <= INTEGER_MAX:
        return None
    return kind_of(found) if isinstance(found, int | float | str) else None


def _likeness(get: Get, shape: tuple[str | None, ...]) -> Test:
    search = _search(shape)

    def test(attributes: Attributes) -> bool | None:
        found = get(attributes)
        return None if found is None else isinstance(found, str) and search(found)

    return test


def _search(shape: tuple[str | None, ...]) -> Callable[[str], bool]:
    """String methods if they suffice, otherwise RE2: several "%" must not make matching slow."""
    match shape:
        case ():
            return lambda text: text == ""
        case (str() as whole,) if whole:
            return lambda text: text == whole
        case (str() as start, None) if start:
            return lambda text: text.startswith(start)
        case (None, str() as end) if end:
            return lambda text: text.endswith(end)
        case (None, str() as inside, None) if inside:
            return lambda text: inside in text
    pieces = [".*" if piece is None else _plain(piece) if piece else "." for piece in shape]
    try:
        return pattern(r"\A(?:" + "".join(pieces) + r")\z", dot_nl=True)[0]
    except PatternOverLimitError as error:
        over_limit(f"a LIKE pattern is too costly: {error}")


def _plain(piece: str) -> str:
    return "".join(letter if letter.isalnum() else f"\\x{{{ord(letter):x}}}" for letter in piece)
