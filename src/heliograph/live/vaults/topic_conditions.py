"""Queries for topics as SQL: conditions that every matching entry meets, as text with parameters.

In:    a TopicQuestion; ``count``, which counts the entries that meet one test, up to a bound.
Out:   Clause: SQL over the tables of topic_tables.py, and its parameters.
State: none.
Not here: the exact test of every row, which follows (discovery/topics/queries.py), running it (topic_tables.py).

Text of a requester never becomes SQL: names and values are parameters, and all clauses are written here. The SQL may
let too many rows pass, never too few. A test that few entries meet is looked up in an index; one that many meet is
tried row by row. If no test of a conjunction is met by few, one on equality *leads*: its index has the entries in the
order of their numbers, so only entries that meet it are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heliograph.matching.languages import condition_of
from heliograph.matching.languages.sql import folded
from heliograph.matching.languages.sql_grammar import (
    All,
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
)
from heliograph.model.predicates import Op, Predicate, Value
from heliograph.repository import TopicQuestion

FEW = 1_000  # if fewer entries than this meet a test, it is looked up in the index
EXACT_BELOW = 1 << 53  # every integer below it is a float
LEAVES_MAX = 64  # tests of one query that become SQL; the exact test handles the others
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of SQL that is true or false for the row ``t`` of a topic, with its parameters."""

    sql: str
    values: tuple[Any, ...] = ()


Count = Callable[[Clause], int]
"""How many rows of open topics meet a clause; FEW means that many or more."""
TRUE = Clause("1=1")


def of_meta(question: TopicQuestion, count: Count) -> list[Clause]:
    """Owner, space, times, and which entities may see it. ``count`` counts topics."""
    found = [Clause("t.expires_ms >= ?", (question.expires_from_ms,))]
    if question.owner:
        found.append(Clause("t.owner = ?", (question.owner,)))
    if question.institution:
        found.append(_looked_up("{} = ?", "institution", (question.institution,), count))
    if question.space:
        below = (question.space, question.space + "/", question.space + "0")  # "0" follows "/"
        found.append(_looked_up("({0} = ? OR ({0} >= ? AND {0} < ?))", "space", below, count))
    if question.created_from_ms:
        found.append(Clause("t.created_ms >= ?", (question.created_from_ms,)))
    if question.created_until_ms:
        found.append(Clause("t.created_ms <= ?", (question.created_until_ms,)))
    if question.expires_until_ms:
        found.append(Clause("t.expires_ms <= ?", (question.expires_until_ms,)))
    if question.ids:
        found.append(Clause(f"t.id IN ({_marks(question.ids)})", question.ids))
    if not question.sees_all:
        found.append(_visible(question))
    return found


def _looked_up(test: str, column: str, values: tuple[Any, ...], count: Count) -> Clause:
    """A test on a column: by its index if few topics meet it, else row by row, as no index has them in order."""
    if count(Clause(test.format(f"t.{column}"), values)) < FEW:
        return Clause(f"t.number IN (SELECT s.number FROM topic s WHERE {test.format(f's.{column}')})", values)
    return Clause(test.format(f"(t.{column} || '')"), values)


def _visible(question: TopicQuestion) -> Clause:
    readers = "EXISTS (SELECT 1 FROM reader r WHERE r.entity = ? AND r.topic = t.number)"
    sql, values = f"t.is_open = 1 OR t.owner = ? OR {readers}", (question.asker, question.asker)
    if question.granted:
        return Clause(f"({sql} OR t.id IN ({_marks(question.granted)}))", (*values, *question.granted))
    return Clause(f"({sql})", values)


def of_properties(question: TopicQuestion, count: Count) -> tuple[Clause, Clause | None]:
    """Conditions on the properties of every matching entry; and one of them on the row ``d`` of a property, to lead.

    ``count`` counts properties.
    """
    budget = _Budget(count)
    if question.language == "sql":
        node = folded(question.text)
        return _of_node(node, budget), budget.leader(_equalities(node))
    if question.language == "predicates":
        box = condition_of("predicates", question.text).box
        equal = [(one.attribute, one.value) for one in box if one.op == Op.EQUAL and not one.attribute.startswith("$")]
        return _all([_of_predicate(one, budget) for one in box]), budget.leader(equal)
    return TRUE, None


def _equalities(node: Node) -> list[tuple[str, Value]]:
    """The properties that every matching entry has, with their values."""
    found: list[tuple[str, Value]] = []
    for part in node.parts if isinstance(node, All) else (node,):
        match part:
            case Compare("=", Name(attribute), SqlLiteral(constant)) | Compare(
                "=", SqlLiteral(constant), Name(attribute)
            ):
                found.append((attribute, constant))
    return found


class _Budget:
    """Limits how many tests become SQL."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._left = LEAVES_MAX
        self._few = False  # a test is met by few entries

    def leader(self, equal: list[tuple[str, Value]]) -> Clause | None:
        """The test on equality that leads; None if another test is met by few, which is better."""
        if self._few or not equal:
            return None
        name, value = equal[0]
        if isinstance(value, bool):
            return Clause("d.name = ? AND d.text_value = ?", (name, "true" if value else "false"))
        if isinstance(value, str):
            return Clause("d.name = ? AND d.text_value = ?", (name, value))
        return Clause("d.name = ? AND d.number_value = ?", (name, float(value)))

    def leaf(self, name: str, test: str, values: tuple[Any, ...]) -> Clause:
        """A test on one property, looked up in the index or tried row by row."""
        self._left -= 1
        if self._left < 0:
            return TRUE
        clause = Clause(f"p.name = ? AND {test}", (name, *values))
        if self._count(clause) < FEW:
            self._few = True
            return Clause(f"t.number IN (SELECT p.topic FROM property p WHERE {clause.sql})", clause.values)
        return Clause(f"EXISTS (SELECT 1 FROM property p WHERE p.topic = t.number AND {clause.sql})", clause.values)


def _of_node(node: Node, budget: _Budget) -> Clause:
    match node:
        case All(parts):
            return _all([_of_node(part, budget) for part in parts])
        case Some(parts):
            clauses = [_of_node(part, budget) for part in parts]
            if any(clause == TRUE for clause in clauses):
                return TRUE
            return Clause(f"({' OR '.join(c.sql for c in clauses)})", tuple(v for c in clauses for v in c.values))
        case Compare(op, Name(attribute), SqlLiteral(constant)):
            return _comparison(attribute, op, constant, budget)
        case Compare(op, SqlLiteral(constant), Name(attribute)) if op in _FLIPPED:
            return _comparison(attribute, _FLIPPED[op], constant, budget)
        case Between(Name(attribute), SqlLiteral(low), SqlLiteral(high)) if _is_number(low) and _is_number(high):
            return budget.leaf(attribute, "p.number_value BETWEEN ? AND ?", (float(low), float(high)))
        case In(Name(attribute), values) if values and all(isinstance(one, str) for one in values):
            return budget.leaf(attribute, f"p.text_value IN ({_marks(values)})", tuple(values))
        case Like(Name(attribute), shape) | Not(Like(Name(attribute), shape)):
            prefix = shape[0] if shape and isinstance(node, Like) else None
            if isinstance(prefix, str) and prefix:
                return budget.leaf(attribute, "p.text_value >= ? AND p.text_value < ?", (prefix, prefix + "\U0010ffff"))
            return budget.leaf(attribute, "p.text_value IS NOT NULL", ())
        case Name(attribute):
            return budget.leaf(attribute, "p.text_value = ?", ("true",))
        case Not(Name(attribute)):
            return budget.leaf(attribute, "p.text_value = ?", ("false",))
        case Not(IsNull(Name(attribute))) | Not(Compare(_, Name(attribute), SqlLiteral())):
            return budget.leaf(attribute, "1=1", ())
    return TRUE


def _of_predicate(predicate: Predicate, budget: _Budget) -> Clause:
    name, value = predicate.attribute, predicate.value
    if name.startswith("$"):
        return TRUE
    if predicate.op == Op.PREFIX and isinstance(value, str) and value:
        return budget.leaf(name, "p.text_value >= ? AND p.text_value < ?", (value, value + "\U0010ffff"))
    if predicate.op in (Op.PRESENT, Op.UNEQUAL, Op.PREFIX):
        return budget.leaf(name, "1=1", ())
    return _comparison(name, str(predicate.op), value, budget)


def _comparison(attribute: str, op: str, constant: Value, budget: _Budget) -> Clause:
    if op == "<>":
        return budget.leaf(attribute, "1=1", ())
    if isinstance(constant, bool):
        return budget.leaf(attribute, "p.text_value = ?", ("true" if constant else "false",))
    if isinstance(constant, str):
        return budget.leaf(attribute, f"p.text_value {op} ?", (constant,)) if op == "=" else TRUE
    if abs(constant) >= EXACT_BELOW:  # large integers are rounded, so the exact test decides
        op = {"<": "<=", ">": ">="}.get(op, op)
    return budget.leaf(attribute, f"p.number_value {op} ?", (float(constant),))


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all(clauses: list[Clause]) -> Clause:
    wanted = [clause for clause in clauses if clause != TRUE]
    if not wanted:
        return TRUE
    sql = " AND ".join(clause.sql for clause in wanted)
    return Clause(f"({sql})", tuple(value for clause in wanted for value in clause.values))


def _marks(values: tuple[Any, ...]) -> str:
    return ", ".join("?" for _ in values)
