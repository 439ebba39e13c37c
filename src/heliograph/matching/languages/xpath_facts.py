"""Facts: necessary conditions of an XPath expression, as comparisons that many expressions share.

In:    trees (xpath_tree.py).
Out:   facts(tree) → comparisons of plain paths that have to hold, and whether they are sufficient.
State: none.
Not here: evaluating facts on a document (documents.py).

``//item[price > 140]`` is true exactly if some ``//item/price`` is above 140. What ``//item/price`` selects is computed
once per document for all expressions; each expression then costs one comparison. Even if facts are not sufficient, they
avoid the evaluation for most documents.
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.matching.languages.xpath_tree import (
    Call,
    Literal,
    Negative,
    Node,
    Operation,
    Path,
    Step,
    is_node_set,
    write,
)

FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Fact:
    """Some node of a path without predicates compares with a value; without a value: there is such a node."""

    path: Path
    op: str = ""
    value: str | float | None = None
    wanted: bool = True  # False: there must be no such node

    @property
    def text(self) -> str:
        """The path as text."""
        return write(self.path)


Facts = tuple[tuple[Fact, ...], bool]
"""Facts that all have to hold, and whether they are sufficient."""
_NOTHING: Facts = ((), False)


def facts(node: Node) -> Facts:
    """What has to hold for an expression, taken as a boolean, to be true."""
    match node:
        case Path():
            return _path_facts(node, "", None)
        case Call("boolean", (of,)):
            return facts(of)
        case Call("not", (of,)):
            return _opposite(facts(of))
        case Call("true", ()):
            return (), True
        case Operation(first, rest) if rest[0][0] == "and":
            parts = [facts(first), *(facts(operand) for _, operand in rest)]
            return tuple(fact for found, _ in parts for fact in found), all(said for _, said in parts)
        case Operation(left, ((op, right),)) if op in FLIPPED:
            return _comparison(op, left, right)
    return _NOTHING


def _opposite(found: Facts) -> Facts:
    match found:
        case ((Fact(path, op, value, wanted),), True):
            return (Fact(path, op, value, not wanted),), True
    return _NOTHING


def _comparison(op: str, left: Node, right: Node) -> Facts:
    if isinstance(left, Path) and (value := constant(right)) is not None:
        return _path_facts(left, op, value)
    if isinstance(right, Path) and (value := constant(left)) is not None:
        return _path_facts(right, FLIPPED[op], value)
    return _NOTHING


def constant(node: Node) -> str | float | None:
    """The value of a literal, or None."""
    match node:
        case Literal(value):
            return value
        case Negative(Literal(float() as number)):
            return -number
    return None


def _path_facts(path: Path, op: str, value: str | float | None) -> Facts:
    """A path without its predicates selects more, so the comparison must hold for it too. Predicates add facts."""
    if not isinstance(path.start, str) or not path.steps:
        return _NOTHING
    plain: tuple[Step, ...] = ()
    found: list[Fact] = []
    predicates = 0
    said = True
    for step in path.steps:
        plain += (Step(step.axis, step.test, (), step.deep),)
        for predicate in step.predicates:
            inner, inner_said = _inside(Path(path.start, plain), predicate)
            found += inner
            predicates += 1
            # Only after the last step, and only one test: several might hold for different nodes.
            said = inner_said and len(inner) == 1 and predicates == 1 and step is path.steps[-1] and value is None
    if predicates == 0 or not said:
        found.insert(0, Fact(Path(path.start, plain), op, value))
    return tuple(found), said


def _inside(before: Path, predicate: Node) -> Facts:
    """The facts of a predicate, as seen from the beginning of the path."""
    if not (is_node_set(predicate) or isinstance(predicate, Operation | Call)):
        return _NOTHING
    found, said = facts(predicate)
    kept = [fact for fact in found if fact.wanted and fact.path.start == ""]
    joined = tuple(Fact(_joined(before, fact.path), fact.op, fact.value) for fact in kept)
    return joined, said and len(kept) == len(found)


def _joined(before: Path, after: Path) -> Path:
    steps = after.steps
    if steps[0] == Step("self", "node()"):  # "." is the context node
        steps = steps[1:]
    return Path(before.start, before.steps + steps)
