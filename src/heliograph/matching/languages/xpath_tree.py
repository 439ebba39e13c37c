"""Trees of XPath expressions: their canonical text, and how their cost grows with a document.

In:    what xpath_grammar.py parsed.
Out:   the nodes; write() → canonical text; cost() → steps, and the power of a document's depth.
State: none.
Not here: parsing (xpath_grammar.py), evaluation (documents.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

DEEP = ("descendant", "descendant-or-self")


@dataclass(frozen=True, slots=True)
class Literal:
    """A text or a number."""

    value: str | float


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path."""

    axis: str
    test: str
    predicates: tuple[Node, ...] = ()
    deep: bool = False  # preceded by "//"


@dataclass(frozen=True, slots=True)
class Path:
    """A location path; ``start`` is "/", nothing for the context node, or an expression in parentheses."""

    start: Node | str
    steps: tuple[Step, ...]
    filters: tuple[Node, ...] = ()  # predicates directly after the parentheses


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the core library."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """Operators of one level, from left to right; also "|" and, with one operand, "-"."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Negative:
    """A negated number."""

    of: Node


Node = Literal | Path | Call | Operation | Negative


def is_node_set(node: Node) -> bool:
    """True if an expression selects nodes."""
    return isinstance(node, Path) or (isinstance(node, Operation) and node.rest[0][0] == "|")


def logic(op: str, operands: list[Node]) -> Node:
    """One tree for the same operands of "and" or "or", in any order or repeated: joined, sorted, each once."""
    joined: dict[str, Node] = {}
    for node in operands:
        same = isinstance(node, Operation) and node.rest[0][0] == op
        parts = (node.first, *(one for _, one in node.rest)) if same and isinstance(node, Operation) else (node,)
        joined |= {write(part): part for part in parts}
    first, *rest = (joined[text] for text in sorted(joined))
    return Operation(first, tuple((op, node) for node in rest)) if rest else Call("boolean", (first,))


def cost(node: Node, power: int = 0, inside: bool = False) -> tuple[int, int]:
    """The number of steps, and how often each may visit a node: once (0), about once per ancestor (1), or worse."""
    match node:
        case Path():
            return _path_cost(node, power, inside)
        case Call(_, arguments):
            return _sum([cost(one, power, inside) for one in arguments])
        case Operation(first, rest):
            if rest[0][0] == "|":
                power += 1  # to join sets, libxml2 compares every node with every other
            return _sum([cost(one, power, inside) for one in (first, *(operand for _, operand in rest))])
        case Negative(of):
            return cost(of, power, inside)
    return (1, power)


def _path_cost(path: Path, power: int, inside: bool) -> tuple[int, int]:
    """From one node, a first descent visits each node once. From a set of nodes, or from every candidate of a
    predicate, it visits a node once per ancestor; the resulting set contains every node only once.
    """
    costs = [cost(one, power, True) for one in path.filters]
    descents = 0
    if not isinstance(path.start, str):
        costs.append(cost(path.start, power, inside))
        descents = 1
    for step in path.steps:
        descents += step.deep + (step.axis in DEEP)
        if step.axis == "parent":
            descents = 2  # many nodes share a parent, and libxml2 searches for it among all nodes found
        here = power + min(descents, 2) - (0 if inside else min(descents, 1))
        costs.append((1, here))
        costs += [cost(one, here, True) for one in step.predicates]
    return _sum(costs)


def _sum(costs: list[tuple[int, int]]) -> tuple[int, int]:
    return (sum(steps for steps, _ in costs) + 1, max((power for _, power in costs), default=0))


def write(node: Node) -> str:
    """One text for expressions that differ only in blanks, abbreviations and parentheses."""
    match node:
        case Literal(value):
            return _write_literal(value)
        case Path(start, steps, filters):
            text = "".join(_write_step(step) for step in steps)
            if isinstance(start, str):
                return (text or "/") if start else text[1:]  # a relative path begins without "/"
            return f"({write(start)})" + _write_predicates(filters) + text
        case Call(name, arguments):
            return f"{name}({', '.join(write(one) for one in arguments)})"
        case Negative(of):
            return f"-{_operand(of)}"
        case Operation(first, rest):
            operands = [_operand(one) for one in (first, *(operand for _, operand in rest))]
            return operands[0] + "".join(f" {op} {one}" for (op, _), one in zip(rest, operands[1:], strict=True))


def _write_step(step: Step) -> str:
    before = "//" if step.deep else "/"
    if step.test == "node()" and not step.predicates and step.axis in ("self", "parent"):
        return before + ("." if step.axis == "self" else "..")
    axis = {"child": "", "attribute": "@"}.get(step.axis, f"{step.axis}::")
    return before + axis + step.test + _write_predicates(step.predicates)


def _write_predicates(predicates: tuple[Node, ...]) -> str:
    return "".join(f"[{write(one)}]" for one in predicates)


def _operand(node: Node) -> str:
    return f"({write(node)})" if isinstance(node, Operation | Negative) else write(node)


def _write_literal(value: str | float) -> str:
    if isinstance(value, str):
        return f"'{value}'" if "'" not in value else f'"{value}"'
    return format(Decimal(repr(value)).normalize(), "f")
