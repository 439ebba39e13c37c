"""The grammar of SQL selectors: parses a text into a tree, and writes a tree as its canonical text.

In:    a text in the selector grammar of JMS.
Out:   parse() → a tree of the nodes below; write() → its canonical text.
State: none.
Not here: what a tree means (sql_values.py), its box (sql.py).

    condition  = and_part {OR and_part}               and_part = not_part {AND not_part}
    not_part   = {NOT} test
    test       = sum [ op sum | [NOT] BETWEEN sum AND sum | [NOT] IN (literal, …) | [NOT] LIKE text [ESCAPE text]
               | IS [NOT] NULL ]
    sum        = product {(+|-) product}              product  = factor {(*|/) factor}
    factor     = {+|-} ( literal | name | TRUE | FALSE | "(" condition ")" )

Chains are lists, not nested trees, so a tree is never deeper than its parentheses, whose depth is limited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from heliograph.errors import ConditionError
from heliograph.matching.languages.lexer import NESTING_MAX, Reader, Token, over_limit, quote
from heliograph.matching.languages.ranges import write_name, write_value
from heliograph.model.predicates import Value

TOKENS_MAX = 1_024  # of one selector: each may cost a microsecond per event, and ten when it is parsed
LIKES_MAX = 32  # of one selector: each may cost some 20 µs per event
WORDS = frozenset(("and", "between", "escape", "false", "in", "is", "like", "not", "null", "or", "true"))


@dataclass(frozen=True, slots=True)
class SqlLiteral:
    """A literal value."""

    value: Value


@dataclass(frozen=True, slots=True)
class Name:
    """The value of an attribute; NULL if the event lacks it."""

    attribute: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A chain of + and -, or of * and /, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class SqlNegative:
    """A negated number."""

    of: Node


@dataclass(frozen=True, slots=True)
class Compare:
    """One of = <> < <= > >=."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """From low to high, both included."""

    of: Node
    low: Node
    high: Node


@dataclass(frozen=True, slots=True)
class In:
    """Equal to one of these literals."""

    of: Node
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """A text that matches this shape: pieces of plain text, None for "%", "" for "_"."""

    of: Node
    shape: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The event lacks the attribute, or the value is NULL."""

    of: Node


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; unknown stays unknown."""

    of: Node


@dataclass(frozen=True, slots=True)
class All:
    """AND."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """OR."""

    parts: tuple[Node, ...]


Node = SqlLiteral | Name | Arithmetic | SqlNegative | Compare | Between | In | Like | IsNull | Not | All | Some


def parse(text: str) -> Node:
    """The tree of a selector, or a ConditionError."""
    parser = _SqlParser(Reader(text, WORDS, TOKENS_MAX))
    tree = parser.condition()
    parser.reader.end("AND, OR or the end")
    return tree


def is_condition(node: Node) -> bool:
    """True if a node can be true, false or unknown. A name or a boolean literal can be a condition or a value."""
    if isinstance(node, SqlLiteral):
        return isinstance(node.value, bool)
    return not isinstance(node, Arithmetic | SqlNegative)


def is_value(node: Node) -> bool:
    """True if a node can be compared."""
    return isinstance(node, SqlLiteral | Name | Arithmetic | SqlNegative)


class _SqlParser:
    """Recursive descent; ``_depth`` counts the open parentheses."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._depth = 0
        self._likes = 0

    def condition(self) -> Node:
        """OR of ANDs; a single operand need not be a condition."""
        parts = [self._and_part()]
        while self._more("or", parts[-1]):
            parts.append(self._checked(self._and_part))
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _and_part(self) -> Node:
        parts = [self._not_part()]
        while self._more("and", parts[-1]):
            parts.append(self._checked(self._not_part))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _more(self, word: str, before: Node) -> bool:
        token = self.reader.accept(word)
        if token is not None and not is_condition(before):
            raise ConditionError(f"the text before {word.upper()} is not a condition", self.reader.text, token.position)
        return token is not None

    def _checked(self, part: Callable[[], Node]) -> Node:
        position = self.reader.next.position
        node = part()
        if not is_condition(node):
            raise ConditionError("expected a condition, but this is a value", self.reader.text, position)
        return node

    def _not_part(self) -> Node:
        negative = False
        while self.reader.accept("not"):
            negative = not negative
            if self.reader.next.text != "not":
                node = self._checked(self._test)
                return Not(node) if negative else node
        return self._test()

    def _test(self) -> Node:
        position = self.reader.next.position
        left = self._sum()
        reader = self.reader
        sign = reader.accept("=", "<>", "!=", "<", "<=", ">", ">=")
        if sign is not None:
            self._need_value(left, position)
            return Compare("<>" if sign.text == "!=" else sign.text, left, self._value())
        negative = reader.accept("not") is not None
        word = reader.accept("between", "in", "like") if negative else reader.accept("between", "in", "like", "is")
        if word is None:
            return reader.fail("BETWEEN, IN or LIKE") if negative else left
        self._need_value(left, position)
        if word.text == "is":
            negative = reader.accept("not") is not None
            reader.expect("null")
            node: Node = IsNull(left)
        elif word.text == "between":
            low = self._value()
            reader.expect("and")
            node = Between(left, low, self._value())
        else:
            node = In(left, self._list()) if word.text == "in" else Like(left, self._shape())
        return Not(node) if negative else node

    def _list(self) -> tuple[Value, ...]:
        self.reader.expect("(")
        values = {self.reader.literal(): None}
        while self.reader.accept(","):
            values[self.reader.literal()] = None
        self.reader.expect(")")
        return tuple(sorted(values, key=write_value))

    def _shape(self) -> tuple[str | None, ...]:
        token = self._text("a pattern in single quotes")
        self._likes += 1
        if self._likes > LIKES_MAX:
            over_limit(f"a selector has at most {LIKES_MAX} LIKE", self.reader.text, token.position)
        escape = None
        if self.reader.accept("escape"):
            mark = self._text("one character in single quotes")
            if len(str(mark.value)) != 1:
                raise ConditionError("ESCAPE takes one character", self.reader.text, mark.position)
            escape = str(mark.value)
        shape = like_shape(str(token.value), escape)
        if shape is None:
            raise ConditionError(
                "the escape character must be followed by '%', '_' or itself", self.reader.text, token.position
            )
        return shape

    def _text(self, expected: str) -> Token:
        if self.reader.next.kind != "string":
            self.reader.fail(expected)
        return self.reader.take()

    def _value(self) -> Node:
        position = self.reader.next.position
        node = self._sum()
        self._need_value(node, position)
        return node

    def _need_value(self, node: Node, position: int) -> None:
        if not is_value(node):
            raise ConditionError("a condition cannot be compared with anything", self.reader.text, position)

    def _sum(self) -> Node:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._factor))

    def _chain(self, signs: tuple[str, ...], operand: Callable[[], Node]) -> Node:
        position = self.reader.next.position
        first = operand()
        rest: list[tuple[str, Node]] = []
        while sign := self.reader.accept(*signs):
            self._need_number(first, position)
            position = self.reader.next.position
            node = operand()
            self._need_number(node, position)
            rest.append((sign.text, node))
        return Arithmetic(first, tuple(rest)) if rest else first

    def _need_number(self, node: Node, position: int) -> None:
        if not is_value(node) or (isinstance(node, SqlLiteral) and isinstance(node.value, str | bool)):
            raise ConditionError("only numbers are added and multiplied", self.reader.text, position)

    def _factor(self) -> Node:
        reader = self.reader
        negative, signed = False, False
        while sign := reader.accept("+", "-"):
            negative, signed = negative != (sign.text == "-"), True
        token = reader.next
        if token.kind in ("number", "time"):
            reader.take()
            return SqlLiteral(reader.number(token, negative))
        node = self._operand()
        if signed:
            self._need_number(node, token.position)
        return SqlNegative(node) if negative else node

    def _operand(self) -> Node:
        reader = self.reader
        token = reader.next
        if token.kind == "string" or reader.accept("true", "false"):
            if token.kind == "string":
                reader.take()
            return SqlLiteral(token.value)
        if not reader.accept("("):
            return Name(reader.name("a value, a name or '('"))
        if self._depth == NESTING_MAX:
            over_limit(f"at most {NESTING_MAX} parentheses inside each other", reader.text, token.position)
        self._depth += 1
        node = self.condition()
        reader.expect(")")
        self._depth -= 1
        return node


def like_shape(pattern: str, escape: str | None) -> tuple[str | None, ...] | None:
    """The pieces of a LIKE pattern; None if its escape character escapes nothing."""
    pieces: list[str | None] = []
    plain = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                return None
            plain += following
        elif character in "%_":
            if plain:
                pieces.append(plain)
            plain = ""
            if character == "_" or pieces[-1:] != [None]:
                pieces.append(None if character == "%" else "")
        else:
            plain += character
    if plain:
        pieces.append(plain)
    return tuple(pieces)


def write(node: Node, above: int = 0) -> str:
    """One text for trees that differ only in blanks, case, parentheses, or the order and repetition of AND and OR."""
    level = _level(node)
    text = _write(node, level)
    return f"({text})" if level < above else text


def _level(node: Node) -> int:
    """How tightly a node binds: one that binds less tightly than its place requires is written in parentheses."""
    match node:
        case Some():
            return 1
        case All():
            return 2
        case Not(of):
            return 4 if isinstance(of, IsNull) else 3
        case Arithmetic(_, rest):
            return 5 if rest[0][0] in ("+", "-") else 6
        case SqlNegative():
            return 7
        case SqlLiteral() | Name():
            return 8
    return 4


def _write(node: Node, level: int) -> str:
    match node:
        case SqlLiteral(value):
            return value_text(value)
        case Name(attribute):
            return write_name(attribute, WORDS)
        case Arithmetic(first, rest):
            return write(first, level + 1) + "".join(f" {sign} {write(one, level + 1)}" for sign, one in rest)
        case SqlNegative(of):
            return f"- {write(of, 8)}"
        case Compare(op, left, right):
            return f"{write(left, 5)} {op} {write(right, 5)}"
        case Between(of, low, high):
            return f"{write(of, 5)} BETWEEN {write(low, 5)} AND {write(high, 5)}"
        case In(of, values):
            return f"{write(of, 5)} IN ({', '.join(value_text(value) for value in values)})"
        case Like(of, shape):
            return f"{write(of, 5)} LIKE {write_shape(shape)}"
        case IsNull(of):
            return f"{write(of, 5)} IS NULL"
        case Not(IsNull(of)):
            return f"{write(of, 5)} IS NOT NULL"
        case Not(of):
            return f"NOT {write(of, 4)}"
        case All(parts):
            return " AND ".join(sorted({write(part, 3) for part in parts}))
        case Some(parts):
            return " OR ".join(sorted({write(part, 2) for part in parts}))


def value_text(value: Value) -> str:
    """A literal of SQL."""
    return write_value(value).upper() if isinstance(value, bool) else write_value(value)


def write_shape(shape: tuple[str | None, ...]) -> str:
    """A LIKE pattern, with an escape character if it needs one."""
    text = "".join(piece or "" for piece in shape)
    if not any(character in text for character in "%_"):
        return quote("".join("%" if piece is None else piece or "_" for piece in shape))
    marked = [piece and piece.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for piece in shape]
    return quote("".join("%" if piece is None else piece or "_" for piece in marked)) + " ESCAPE '\\'"
