"""The language ``sql``: selectors as in JMS, over the publisher's own headers.

In:    a text such as ``disk > 100 * 2 AND system LIKE 'lin%' AND (owner = 'ann' OR owner IS NULL)``.
Out:   a Condition: every conjunct that is a predicate goes into the box, the others form the residue.
State: none.
Not here: the grammar (sql_grammar.py), three-valued logic and arithmetic (sql_values.py).

If the box is exact, the condition is one of the language ``predicates``, so that equal conditions have equal texts.
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.errors import ConditionError
from heliograph.matching.condition import Condition, Event
from heliograph.matching.languages import predicates
from heliograph.matching.languages.ranges import NEVER, canonical, hull, kind_of
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
    is_condition,
    parse,
    write,
)
from heliograph.matching.languages.sql_values import Test, test, value
from heliograph.model.predicates import Conjunction, Op, Predicate, Value

_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPS = {"=": Op.EQUAL, "<>": Op.UNEQUAL, "<": Op.BELOW, "<=": Op.AT_MOST, ">": Op.ABOVE, ">=": Op.AT_LEAST}
Part = tuple[Conjunction, bool]
"""A conjunction that holds whenever a condition does, and whether the two are equivalent."""


@dataclass(frozen=True, slots=True)
class _Selector:
    """The conjuncts that are not predicates; unknown does not match."""

    test: Test
    terms: frozenset[str]

    def matches(self, event: Event) -> bool:
        return self.test(event.attributes) is True


def read(text: str) -> Condition:
    """The condition of a text in this language."""
    tree = parse(text)
    if not is_condition(tree):
        raise ConditionError("expected a condition, but this is a value", text, 0)
    exact: list[Predicate] = []
    wide: list[Predicate] = []
    left: dict[str, Node] = {}
    for node in _conjuncts(_folded(tree)):
        found, all_said = _box(node)
        (exact if all_said else wide).extend(found)
        if not all_said:
            left[write(node, 3)] = node  # as it is written as an operand of AND
    said = predicates.condition(exact)
    box = canonical((*said.box, *wide))
    if box == NEVER or not left:
        return predicates.condition(box)
    residue = _Selector(test(All(tuple(left.values()))), frozenset(f"sql {one}" for one in left))
    plain = [_predicate_text(predicate) for predicate in said.box] + sorted(left)
    return Condition("sql", " AND ".join(plain), box, residue)


def folded(text: str) -> Node:
    """The tree of a text with arithmetic on literals done and NOT moved inward, for callers that write it as SQL."""
    return _folded(parse(text))


def _conjuncts(node: Node) -> tuple[Node, ...]:
    return node.parts if isinstance(node, All) else (node,)


def _folded(node: Node) -> Node:
    """The tree with arithmetic on literals done, nested ANDs and ORs joined, and NOT moved inward to single tests."""
    match node:
        case Not(Not(of)):
            return _folded(of)
        case Not(All(parts)):
            return _folded(Some(tuple(Not(part) for part in parts)))
        case Not(Some(parts)):
            return _folded(All(tuple(Not(part) for part in parts)))
        case Not(SqlLiteral(constant)):
            return SqlLiteral(not constant)
        case Not(of):
            return Not(_folded(of))
        case All(parts):
            return _joined(All, [_folded(part) for part in parts])
        case Some(parts):
            return _joined(Some, [_folded(part) for part in parts])
        case Compare(op, left, right):
            return Compare(op, _constant(left), _constant(right))
        case Between(of, low, high):
            return Between(_constant(of), _constant(low), _constant(high))
        case In(of, values):
            return In(_constant(of), values)
        case Like(of, shape):
            return Like(_constant(of), shape)
        case IsNull(of):
            return IsNull(_constant(of))
    return node


def _joined(kind: type[All] | type[Some], parts: list[Node]) -> Node:
    """One node of this kind: parts of the same kind are merged into it, each once."""
    flat = [one for part in parts for one in (part.parts if isinstance(part, kind) else (part,))]
    distinct = tuple({write(one): one for one in flat}.values())
    return distinct[0] if len(distinct) == 1 else kind(distinct)


def _constant(node: Node) -> Node:
    """An operand with arithmetic on literals done, if the result is a number that can be written."""
    match node:
        case SqlNegative(of):
            node = SqlNegative(_constant(of))
        case Arithmetic(first, rest):
            node = Arithmetic(_constant(first), tuple((sign, _constant(operand)) for sign, operand in rest))
    if _is_constant(node) and not isinstance(node, SqlLiteral):
        result = value(node)({})
        if result is not None and result - result == 0:
            return SqlLiteral(result)
    return node


def _is_constant(node: Node) -> bool:
    match node:
        case SqlLiteral():
            return True
        case SqlNegative(of):
            return _is_constant(of)
        case Arithmetic(first, rest):
            return _is_constant(first) and all(_is_constant(operand) for _, operand in rest)
    return False


def _box(node: Node) -> Part:
    """The box of one conjunct."""
    match node:
        case SqlLiteral(constant):
            return (() if constant else NEVER), True
        case Name(attribute):
            return (Predicate(attribute, Op.EQUAL, True),), True
        case Not(Name(attribute)):
            return (Predicate(attribute, Op.EQUAL, False),), True
        case Not(IsNull(Name(attribute))):
            return (Predicate(attribute, Op.PRESENT, True),), True
        case Compare(op, Name(attribute), SqlLiteral(constant)):
            return _comparison(attribute, op, constant)
        case Compare(op, SqlLiteral(constant), Name(attribute)):
            return _comparison(attribute, _FLIPPED[op], constant)
        case Between(Name(attribute), SqlLiteral(low), SqlLiteral(high)):
            bounds = (_comparison(attribute, ">=", low), _comparison(attribute, "<=", high))
            return (*bounds[0][0], *bounds[1][0]), True
        case In(Name(attribute), values):
            return hull([(Predicate(attribute, Op.EQUAL, one),) for one in values]), len(values) == 1
        case Like(Name(attribute), shape):
            return _likeness(attribute, shape)
        case Some(parts):
            return hull([[one for conjunct in _conjuncts(part) for one in _box(conjunct)[0]] for part in parts]), False
        case Not(Compare() | Between() | In() | Like() as inner):
            return _present(inner), False
        case Compare() | Between() | In() | Like():
            return _present(node), False
    return (), False


def _comparison(attribute: str, op: str, constant: Value) -> Part:
    if kind_of(constant) == "boolean" and op not in ("=", "<>"):
        return NEVER, True  # neither above nor below: false for every event
    return (Predicate(attribute, _OPS[op], constant),), True


def _likeness(attribute: str, shape: tuple[str | None, ...]) -> Part:
    match shape:
        case ():
            return (Predicate(attribute, Op.EQUAL, ""),), True
        case (str() as whole,) if whole:
            return (Predicate(attribute, Op.EQUAL, whole),), True
        case (str() as start, *rest) if start:
            return (Predicate(attribute, Op.PREFIX, start),), rest == [None]
    return (Predicate(attribute, Op.PREFIX, ""),), shape == (None,)


def _present(node: Compare | Between | In | Like) -> Conjunction:
    """A test is unknown if an operand is NULL: every attribute in it has to be present."""
    operands: tuple[Node, ...]
    match node:
        case Compare(_, left, right):
            operands = (left, right)
        case Between(of, _, _) | In(of) | Like(of):
            operands = (of,)  # NOT BETWEEN needs only one side to be false, so the other may be NULL
    return tuple(Predicate(name, Op.PRESENT, True) for operand in operands for name in _names(operand))


def _names(node: Node) -> list[str]:
    match node:
        case Name(attribute):
            return [attribute]
        case SqlNegative(of):
            return _names(of)
        case Arithmetic(first, rest):
            return _names(first) + [name for _, operand in rest for name in _names(operand)]
    return []


def _predicate_text(predicate: Predicate) -> str:
    name = Name(predicate.attribute)
    if predicate.op == Op.PRESENT:
        return write(Not(IsNull(name)))
    if predicate.op == Op.PREFIX:
        start = str(predicate.value)
        return write(Like(name, (start, None) if start else (None,)))
    op = "<>" if predicate.op == Op.UNEQUAL else str(predicate.op)
    return write(Compare(op, name, SqlLiteral(predicate.value)))
