"""Masks: XPath predicates evaluated for all candidates at once, one bit each.

In:    trees (xpath_tree.py), and a function that compiles paths to evaluators.
Out:   plan(tree) → a function of a document; None if libxml2 has to evaluate the expression.
State: none; a document keeps what was computed for it.
Not here: lxml (documents.py), comparisons without predicates (xpath_facts.py).

``//item[qty > 3 and price < 10]``: the ``qty`` and ``price`` of every ``//item`` are computed once per document for all
expressions. A comparison is then a look-up that gives the items for which it holds, as bits of an integer; "and" is
"&". Positions, functions and predicates on more than one step are left to libxml2.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from heliograph.matching.languages.documents import Document
from heliograph.matching.languages.xpath_facts import FLIPPED, constant
from heliograph.matching.languages.xpath_tree import Call, Node, Operation, Path, Step, write
from heliograph.matching.languages.xpath_values import Candidates, Evaluate

Compile = Callable[[str], Evaluate]
Plan = Callable[[Document], bool | None]
"""Whether a document matches; None if it has too many candidates."""
Mask = Callable[[Candidates], int]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def plan(node: Node, compile: Compile) -> Plan | None:
    """How to decide an expression, taken as a boolean, without evaluating all of it."""
    match node:
        case Path():
            return _exists(node, "", None, compile)
        case Call("boolean", (of,)):
            return plan(of, compile)
        case Call("not", (of,)):
            inner = plan(of, compile)
            return inner and (lambda document: None if (found := inner(document)) is None else not found)
        case Operation(first, rest) if rest[0][0] in ("and", "or"):
            return _joined(rest[0][0], [plan(one, compile) for one in (first, *(operand for _, operand in rest))])
        case Operation(left, ((op, right),)) if op in FLIPPED:
            if (value := constant(right)) is None and (value := constant(left)) is not None:
                op, left = FLIPPED[op], right
            if isinstance(left, Path) and value is not None:
                return _exists(left, op, value, compile)
            if isinstance(left, Call) and left.name == "count" and isinstance(value, float):
                return _counted(left.arguments[0], op, value, compile)
    return None


def _joined(op: str, parts: list[Plan | None]) -> Plan | None:
    plans = [part for part in parts if part is not None]
    if len(plans) < len(parts):
        return None
    deciding = op == "or"

    def joined(document: Document) -> bool | None:
        for part in plans:
            found = part(document)
            if found is None or found is deciding:
                return found
        return not deciding

    return joined


def _exists(path: Path, op: str, value: str | float | None, compile: Compile) -> Plan | None:
    """Some node of a path compares like this; at most one step of the path has predicates."""
    text = _plain(path)
    if text is not None:
        evaluate = compile(text)
        return lambda document: document.values(text, evaluate).compare(op, value)
    index = next((index for index, step in enumerate(path.steps) if step.predicates), -1)
    tail = path.steps[index + 1 :]
    masks = []
    if tail or value is not None:
        masks.append(_compared(Path("", tail or (Step("self", "node()"),)), op, value, compile))
    found = _selected(Path(path.start, path.steps[: index + 1]), masks, compile)
    return found and (lambda document: None if (bits := found(document)) is None else bits != 0)


def _counted(path: Node, op: str, number: float, compile: Compile) -> Plan | None:
    """The number of nodes of a path compares like this; at most the last step of the path has predicates."""
    if not isinstance(path, Path):
        return None
    compare = _COMPARE[op]
    text = _plain(path)
    if text is not None:
        evaluate = compile(text)
        return lambda document: compare(document.values(text, evaluate).count, number)
    found = _selected(path, [], compile)
    return found and (lambda document: None if (bits := found(document)) is None else compare(bits.bit_count(), number))


def _plain(path: Path) -> str | None:
    """The text of a path without predicates."""
    if not isinstance(path.start, str) or not path.steps or any(step.predicates for step in path.steps):
        return None
    return write(path)


def _selected(path: Path, masks: list[Mask | None], compile: Compile) -> Callable[[Document], int | None] | None:
    """The candidates for the last step of a path that satisfy its predicates and these masks."""
    if not isinstance(path.start, str) or not path.steps:
        return None
    *before, step = path.steps
    if step.axis == "attribute" or step.test == "text()" or any(one.predicates for one in before):
        return None  # attributes and texts are strings here, and no path begins at a string
    masks = [*(mask(one, compile) for one in step.predicates), *masks]
    wanted = [one for one in masks if one is not None]
    if len(wanted) < len(masks):
        return None
    base = write(Path(path.start, (*before, Step(step.axis, step.test, (), step.deep))))
    select = compile(base)

    def selected(document: Document) -> int | None:
        candidates = document.candidates(base, select)
        if candidates is None:
            return None
        left = candidates.all
        for one in wanted:
            left &= one(candidates)
            if not left:
                break
        return left

    return selected


def mask(node: Node, compile: Compile) -> Mask | None:
    """The candidates for which a predicate holds; None if this cannot be decided."""
    match node:
        case Path():
            return _compared(node, "", None, compile)
        case Call("boolean", (of,)):
            return mask(of, compile)
        case Call("not", (of,)):
            inner = mask(of, compile)
            return inner and (lambda candidates: candidates.all & ~inner(candidates))
        case Operation(first, rest) if rest[0][0] in ("and", "or"):
            return _combined(rest[0][0], [mask(one, compile) for one in (first, *(operand for _, operand in rest))])
        case Operation(left, ((op, right),)) if op in FLIPPED:
            if (value := constant(right)) is None and (value := constant(left)) is not None:
                op, left = FLIPPED[op], right
            if isinstance(left, Path) and value is not None:
                return _compared(left, op, value, compile)
    return None


def _combined(op: str, parts: list[Mask | None]) -> Mask | None:
    masks = [part for part in parts if part is not None]
    if len(masks) < len(parts):
        return None

    def combined(candidates: Candidates) -> int:
        found = candidates.all if op == "and" else 0
        for one in masks:
            found = found & one(candidates) if op == "and" else found | one(candidates)
        return found

    return combined


def _compared(path: Path, op: str, value: str | float | None, compile: Compile) -> Mask | None:
    if path.start != "" or not path.steps or any(step.predicates for step in path.steps):
        return None
    text = write(path)
    evaluate = compile(text)
    return lambda candidates: candidates.column(text, evaluate).compare(op, value)
