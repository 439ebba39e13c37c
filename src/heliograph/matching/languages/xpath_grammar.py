"""The grammar of XPath 1.0, as far as its cost can be bounded.

In:    an expression.
Out:   parse() → a tree (xpath_tree.py).
State: none.
Not here: evaluation (documents.py), what can be decided without it (xpath_facts.py).

Left out, because nesting a few of them costs a power of the document's size: sideways and upward axes (siblings,
following, preceding, ancestors; parent inside predicates), absolute paths inside predicates, comparisons of two node
sets, descendants of descendants in a predicate. Left out, because they have no use here: variables, id(), lang().
"""

from __future__ import annotations

import re
from typing import NoReturn

from heliograph.errors import ConditionError
from heliograph.matching.languages.lexer import over_limit
from heliograph.matching.languages.xpath_tree import (
    Call,
    Literal,
    Negative,
    Node,
    Operation,
    Path,
    Step,
    cost,
    is_node_set,
    logic,
)

NESTING_MAX = 16  # brackets and parentheses inside each other
TOKENS_MAX = 512
STEPS_MAX = 64
CHAIN_MAX = 32  # operands in one chain of operators

_TOKEN = re.compile(
    r"""
    (?P<space> [ \t\r\n]+ )
  | (?P<number> [0-9]+(?:\.[0-9]*)?|\.[0-9]+ )
  | (?P<string> "[^"]*"|'[^']*' )
  | (?P<name> [^\W\d][\w.\-]*(?::(?!:)(?:[^\W\d][\w.\-]*|\*))? )
  | (?P<sign> \.\.|//|::|!=|<=|>=|[./()\[\]@,|+\-=<>*] )
    """,
    re.VERBOSE,
)
_AXES = ("child", "attribute", "self", "descendant", "descendant-or-self", "parent")
_TYPES = ("node", "text")
_FUNCTIONS = {  # name: fewest arguments, most arguments
    "boolean": (1, 1),
    "ceiling": (1, 1),
    "concat": (2, 16),
    "contains": (2, 2),
    "count": (1, 1),
    "false": (0, 0),
    "floor": (1, 1),
    "last": (0, 0),
    "local-name": (0, 1),
    "name": (0, 1),
    "namespace-uri": (0, 1),
    "normalize-space": (0, 1),
    "not": (1, 1),
    "number": (0, 1),
    "position": (0, 0),
    "round": (1, 1),
    "starts-with": (2, 2),
    "string": (0, 1),
    "string-length": (0, 1),
    "substring": (2, 3),
    "substring-after": (2, 2),
    "substring-before": (2, 2),
    "sum": (1, 1),
    "translate": (3, 3),
    "true": (0, 0),
}
_OF_NODES = ("count", "sum", "local-name", "name", "namespace-uri")
_LEVELS = (("or",), ("and",), ("=", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "div", "mod"))


def parse(text: str, offset: int, whole: str) -> Node:
    """The tree of an expression that begins at ``offset`` of the whole text, or a ConditionError."""
    parser = _Parser(text, offset, whole)
    tree = parser.expression(0)
    if parser.kind != "end":
        parser.fail("an operator or the end")
    if cost(tree)[1] > 1:
        over_limit("descendants of descendants inside a predicate cost too much", whole, offset)
    return tree


class _Parser:
    """Recursive descent over a list of tokens."""

    def __init__(self, text: str, offset: int, whole: str) -> None:
        self._whole = whole
        self._tokens = list(_tokens(text, offset, whole))
        self._index = 0
        self._open = 0
        self._brackets = 0
        self._steps = 0

    @property
    def kind(self) -> str:
        return self._tokens[self._index][0]

    @property
    def _text(self) -> str:
        return self._tokens[self._index][1]

    @property
    def _position(self) -> int:
        return self._tokens[self._index][2]

    def _take(self) -> str:
        text = self._text
        self._index += 1
        return text

    def _accept(self, *texts: str) -> bool:
        if self.kind in ("sign", "name") and self._text in texts:
            self._index += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self.fail(repr(text))

    def fail(self, expected: str) -> NoReturn:
        """Raise a ConditionError that tells what was expected here."""
        found = "the text ends" if self.kind == "end" else f"there is {self._text[:20]!r}"
        raise ConditionError(f"expected {expected}, but {found}", self._whole, self._position)

    def _refuse(self, problem: str, position: int) -> NoReturn:
        raise ConditionError(problem, self._whole, position)

    def expression(self, level: int) -> Node:
        """Parse operators of this level and those that bind tighter."""
        if level == len(_LEVELS):
            return self._unary()
        position = self._position
        first = self.expression(level + 1)
        rest: list[tuple[str, Node]] = []
        while self._text in _LEVELS[level] and self.kind in ("sign", "name"):
            op = self._take()
            node = self.expression(level + 1)
            previous = rest[-1][1] if rest else first
            if level in (2, 3) and is_node_set(previous) and is_node_set(node):
                self._refuse("two node sets are not compared; compare with a literal, or with string(…)", position)
            rest.append((op, node))
            self._check_chain(rest)
        if rest and level < 2:
            return logic(rest[0][0], [first, *(node for _, node in rest)])
        return Operation(first, tuple(rest)) if rest else first

    def _check_chain(self, rest: list[tuple[str, Node]]) -> None:
        if len(rest) >= CHAIN_MAX:
            over_limit(f"at most {CHAIN_MAX} operands in one chain of operators", self._whole, self._position)

    def _unary(self) -> Node:
        signs = 0
        while self._accept("-"):
            signs += 1
        node = self._union()
        if signs == 0:
            return node
        return Negative(node) if signs % 2 else Negative(Negative(node))

    def _union(self) -> Node:
        position = self._position
        first = self._path()
        rest: list[tuple[str, Node]] = []
        while self._accept("|"):
            rest.append(("|", self._path()))
            self._check_chain(rest)
        if rest and not all(is_node_set(node) for node in (first, *(node for _, node in rest))):
            self._refuse("'|' joins node sets", position)
        return Operation(first, tuple(rest)) if rest else first

    def _path(self) -> Node:
        position = self._position
        if self._text in ("/", "//") and self.kind == "sign":
            if self._brackets:
                self._refuse("a path inside a predicate begins at its node, not at '/'", position)
            if self._take() == "//":
                return Path("/", self._relative(deep=True))
            return Path("/", self._relative() if self._begins_step() else ())
        if self._begins_step():
            return Path("", self._relative())
        node = self._primary()
        filters = self._predicates()
        steps: tuple[Step, ...] = ()
        if self._text in ("/", "//") and self.kind == "sign":
            steps = self._relative(deep=self._take() == "//")
        if not filters and not steps:
            return node
        if not is_node_set(node):
            self._refuse("only node sets have predicates and steps", position)
        return Path(node, steps, filters)

    def _begins_step(self) -> bool:
        if self.kind == "name":
            following = self._tokens[self._index + 1][1]
            return following != "(" or self._text in _TYPES
        return self.kind == "sign" and self._text in (".", "..", "@", "*")

    def _relative(self, deep: bool = False) -> tuple[Step, ...]:
        steps = [self._step(deep)]
        while self._text in ("/", "//") and self.kind == "sign":
            steps.append(self._step(deep=self._take() == "//"))
        return tuple(steps)

    def _step(self, deep: bool) -> Step:
        self._steps += 1
        if self._steps > STEPS_MAX:
            over_limit(f"an expression has at most {STEPS_MAX} steps", self._whole, self._position)
        position = self._position
        if self._accept("."):
            return Step("self", "node()", (), deep)
        up = self._accept("..")
        axis = "parent" if up else self._axis()
        if axis == "parent" and self._brackets:
            self._refuse("the parent inside a predicate costs too much; say it from the other side", position)
        return Step(axis, "node()", (), deep) if up else Step(axis, self._test(), self._predicates(), deep)

    def _axis(self) -> str:
        if self._accept("@"):
            return "attribute"
        if self.kind == "name" and self._tokens[self._index + 1][1] == "::":
            if self._text not in _AXES:
                self.fail("one of the axes " + ", ".join(_AXES))
            axis = self._take()
            self._take()
            return axis
        return "child"

    def _test(self) -> str:
        if self._accept("*"):
            return "*"
        if self.kind != "name":
            self.fail("a step")
        name = self._take()
        if not self._accept("("):
            return name
        if name not in _TYPES:
            self._index -= 2
            self.fail("node() or text()")
        self._expect(")")
        return f"{name}()"

    def _predicates(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while self._accept("["):
            self._brackets += 1
            found.append(self._inside("]"))
            self._brackets -= 1
        return tuple(found)

    def _inside(self, closing: str) -> Node:
        if self._open == NESTING_MAX:
            over_limit(f"at most {NESTING_MAX} brackets inside each other", self._whole, self._position)
        self._open += 1
        node = self.expression(0)
        self._expect(closing)
        self._open -= 1
        return node

    def _primary(self) -> Node:
        if self._accept("("):
            return self._inside(")")
        if self.kind == "string":
            return Literal(self._take()[1:-1])
        if self.kind == "number":
            return self._number()
        if self.kind == "name" and self._text in _FUNCTIONS:
            return self._call()
        return self.fail("a path, a literal, or a function of the core library")

    def _number(self) -> Literal:
        number = float(self._text)
        if number == float("inf"):
            self._refuse("this number is beyond what a float holds", self._position)
        self._take()
        return Literal(number)

    def _call(self) -> Call:
        position = self._position
        name = self._take()
        self._expect("(")
        arguments: list[Node] = []
        if not self._accept(")"):
            arguments.append(self._argument())
            while self._accept(","):
                arguments.append(self._argument())
            self._expect(")")
        fewest, most = _FUNCTIONS[name]
        if not fewest <= len(arguments) <= most:
            self._refuse(f"{name}() does not take {len(arguments)} arguments", position)
        if name in _OF_NODES and not all(is_node_set(one) for one in arguments):
            self._refuse(f"{name}() takes a node set", position)
        return Call(name, tuple(arguments))

    def _argument(self) -> Node:
        if self._open == NESTING_MAX:
            over_limit(f"at most {NESTING_MAX} brackets inside each other", self._whole, self._position)
        self._open += 1
        node = self.expression(0)
        self._open -= 1
        return node


def _tokens(text: str, offset: int, whole: str) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            problem = f"{text[position]!r} has no meaning here"
            if text[position] in "'\"":
                problem = "expected a text in quotes that ends"
            raise ConditionError(problem, whole, offset + position)
        if match.lastgroup != "space":
            found.append((str(match.lastgroup), match.group(), offset + position))
        if len(found) > TOKENS_MAX:
            over_limit(f"an expression has at most {TOKENS_MAX} tokens", whole, offset + position)
        position = match.end()
    return [*found, ("end", "", offset + len(text)), ("end", "", offset + len(text))]
