"""The lexer: cuts texts into tokens; its reader reports what it expected where.

In:    the text of a condition.
Out:   Reader: one token after the other, or a ConditionError that points at the character.
State: a position.
Not here: any grammar (the other files of this folder), XPath, which has its own tokens (xpath_grammar.py).

The length of every text is checked here, before anything else.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from heliograph.errors import ConditionError, Reason
from heliograph.model.predicates import INTEGER_MAX, INTEGER_MIN, Value

TEXT_CHARACTERS_MAX = 8_192  # a longer condition should be several subscriptions
NESTING_MAX = 50  # parentheses inside parentheses: bounds the recursion of parsers
NAME_CHARACTERS_MAX = 256
TOKENS_MAX = 2_048  # enough for all predicates that a condition may have

_TOKEN = re.compile(
    r"""
    (?P<space> \s+ )
  | (?P<time> [0-9]{1,2}:[0-9]{2}(?::[0-9]{2})? )
  | (?P<number> (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
  | (?P<string> '(?:[^']|'')*+' )
  | (?P<quoted> "(?:[^"]|"")*+" )
  | (?P<name> [^\W\d][\w.$]* )
  | (?P<sign> <=|>=|<>|!=|\^=|!~|[~=<>+\-*/(),] )
    """,
    re.VERBOSE,
)
_UNCLOSED = {"'": "a text in single quotes that ends", '"': "a name in double quotes that ends"}


class Token(NamedTuple):
    """One piece of text. ``kind`` is a group of the pattern above, ``word`` for a reserved word, or ``end``."""

    kind: str
    text: str  # reserved words in lower case; names without their quotes
    value: Value
    position: int


class Reader:
    """The tokens of one text, taken from left to right."""

    __slots__ = ("_index", "_tokens", "text")

    def __init__(self, text: str, words: frozenset[str], tokens_max: int = TOKENS_MAX) -> None:
        check_length(text)
        self.text = text
        self._tokens = _tokens(text, words, tokens_max)
        self._index = 0

    @property
    def next(self) -> Token:
        """The next token, without taking it; the last one has the kind ``end`` and stays."""
        return self._tokens[self._index]

    def take(self) -> Token:
        """Take the next token."""
        token = self._tokens[self._index]
        if token.kind != "end":
            self._index += 1
        return token

    def accept(self, *texts: str) -> Token | None:
        """Take the next token if it is one of these signs or reserved words."""
        token = self.next
        if token.kind in ("sign", "word") and token.text in texts:
            return self.take()
        return None

    def expect(self, *texts: str) -> Token:
        """Take one of these signs or reserved words, or fail."""
        return self.accept(*texts) or self.fail(" or ".join(repr(text) for text in texts))

    def name(self, expected: str = "the name of an attribute") -> str:
        """Take the name of a publisher's own header."""
        token = self.next
        if token.kind not in ("name", "quoted"):
            self.fail(expected)
        check_name(token.text, self.text, token.position)
        return self.take().text

    def literal(self) -> Value:
        """Take a number (with or without a sign), a time of day, a text or a boolean."""
        negative = self.accept("-") is not None
        if not negative:
            self.accept("+")
        token = self.next
        numeric = token.kind in ("number", "time")
        if (negative and not numeric) or not (numeric or token.kind == "string" or token.text in ("true", "false")):
            self.fail(
                "a number" if negative else "a number, a time such as 09:30, a text in single quotes, true or false"
            )
        self.take()
        return self.number(token, negative) if numeric else token.value

    def number(self, token: Token, negative: bool = False) -> Value:
        """The number of a token; fails if events cannot have such a number."""
        assert isinstance(token.value, int | float)
        number = -token.value if negative else token.value
        if isinstance(number, int) and not INTEGER_MIN <= number <= INTEGER_MAX:
            raise ConditionError("integers have at most 64 bits", self.text, token.position)
        return number

    def end(self, expected: str) -> None:
        """Fail unless the whole text was read."""
        if self.next.kind != "end":
            self.fail(expected)

    def fail(self, expected: str) -> NoReturn:
        """Raise a ConditionError: what was expected at the next token, and what is there."""
        token = self.next
        found = "the text ends" if token.kind == "end" else f"there is {self.text[token.position :][:20]!r}"
        raise ConditionError(f"expected {expected}, but {found}", self.text, token.position)


def over_limit(problem: str, text: str = "", position: int = 0) -> NoReturn:
    """Refuse what would cost too much."""
    raise ConditionError(problem, text, position, Reason.CONDITION_OVER_LIMIT)


def check_length(text: str) -> None:
    """Refuse a text that is too long, or that cannot be encoded in UTF-8."""
    if len(text) > TEXT_CHARACTERS_MAX:
        over_limit(f"a condition has at most {TEXT_CHARACTERS_MAX} characters, this one has {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConditionError("half a surrogate pair is not a character", text, error.start) from None


def check_name(name: str, text: str, position: int) -> None:
    """Refuse what cannot be the name of a publisher's own header."""
    if not name or name.startswith("$"):
        raise ConditionError("names are not empty, and those that begin with '$' are reserved", text, position)
    if len(name) > NAME_CHARACTERS_MAX:
        over_limit(f"a name has at most {NAME_CHARACTERS_MAX} characters", text, position)


def seconds_of_day(time: str) -> int:
    """``09:30`` or ``09:30:15`` as seconds since midnight; ``24:00`` is the end of the day. Otherwise ValueError."""
    hours, minutes, seconds = [int(part) for part in (time + ":0").split(":")][:3]
    if minutes > 59 or seconds > 59 or hours * 3600 + minutes * 60 + seconds > 86_400:
        raise ValueError(time)
    return hours * 3600 + minutes * 60 + seconds


def quote(text: str) -> str:
    """A text as it is written in a condition."""
    return "'" + text.replace("'", "''") + "'"


def _tokens(text: str, words: frozenset[str], tokens_max: int) -> list[Token]:
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            expected = _UNCLOSED.get(text[position])
            problem = f"expected {expected}" if expected else f"{text[position]!r} has no meaning here"
            raise ConditionError(problem, text, position)
        if match.lastgroup != "space":
            if len(found) == tokens_max:
                over_limit(f"a condition has at most {tokens_max} words, values and signs", text, position)
            found.append(_token(str(match.lastgroup), match.group(), text, position, words))
        position = match.end()
    found.append(Token("end", "", "", len(text)))
    return found


def _token(kind: str, piece: str, text: str, position: int, words: frozenset[str]) -> Token:
    if kind == "name" and piece.lower() in words:
        word = piece.lower()
        return Token("word", word, word == "true" if word in ("true", "false") else word, position)
    if kind == "quoted":
        return Token(kind, piece[1:-1].replace('""', '"'), "", position)
    if kind == "string":
        return Token(kind, piece, piece[1:-1].replace("''", "'"), position)
    if kind == "time":
        try:
            return Token(kind, piece, seconds_of_day(piece), position)
        except ValueError:
            raise ConditionError("a time of day is between 00:00 and 24:00", text, position) from None
    if kind == "number":
        return Token(kind, piece, _number(piece, text, position), position)
    return Token(kind, piece, piece, position)


def _number(piece: str, text: str, position: int) -> int | float:
    if piece.isdigit():
        if len(piece) > 30:  # also keeps long texts from int(), which is slow for them
            raise ConditionError("integers have at most 64 bits", text, position)
        return int(piece)
    number = float(piece)
    if number == float("inf"):
        raise ConditionError("this number is beyond what a float holds", text, position)
    return number
