"""Literals: pieces of text that occur in whatever a regular expression matches, for an index to look up first.

In:    a regular expression that RE2 has accepted (patterns.py).
Out:   needed(): for each of several places, pieces of which at least one occurs.
State: none.
Not here: matching (patterns.py), the index (live/vaults/topic_sqlite.py).

It may find too few pieces, never a wrong one: an expression that is not understood (flags, rare escapes) needs nothing,
and then every text is searched. Pieces are printable ASCII; any other character may be written in several ways.
"""

from __future__ import annotations

import re

PIECE_MIN = 3  # characters: an index of trigrams knows no shorter ones
PIECES_MAX = 32  # of one alternative
DEPTH_MAX = 32

Needed = tuple[tuple[str, ...], ...]  # of each inner tuple, at least one piece occurs

_COUNTS = re.compile(r"\{([0-9]+)(?:,[0-9]*)?\}")
_GROUP = re.compile(r"\((?:\?:|\?P?<\w+>|(?!\?))")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\\[]|\\.|\[(?!:))*\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:([!-/:-@\[-^`{-~])|[dDsSwWbBtnrf])")
_SPECIAL = frozenset("\\[](){}*+?|^$.")


class _UnclearError(Exception):
    """The expression has something that is not understood."""


def needed(expression: str) -> Needed:
    """Pieces that every matching text contains; none if nothing is known."""
    reader = _Reader(expression)
    try:
        found = reader.choice(0)
        return tuple(dict.fromkeys(found)) if reader.is_at_end else ()
    except _UnclearError:
        return ()


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def choice(self, depth: int) -> list[tuple[str, ...]]:
        """Branches up to the end of a group. Of several, each contributes the pieces that say most."""
        if depth > DEPTH_MAX:
            raise _UnclearError
        branches = [self._branch(depth)]
        while self._text.startswith("|", self._at):
            self._at += 1
            branches.append(self._branch(depth))
        if len(branches) == 1:
            return branches[0]
        if not all(branches):
            return []
        best = [max(branch, key=lambda pieces: min(map(len, pieces))) for branch in branches]
        joined = tuple(dict.fromkeys(piece for pieces in best for piece in pieces))
        return [joined] if len(joined) <= PIECES_MAX else []

    def _branch(self, depth: int) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        piece = ""  # consecutive characters so far
        while not self.is_at_end and self._text[self._at] not in "|)":
            character, inner = self._atom(depth)
            least = self._least()
            if character and least is None:
                piece += character
                continue
            if character and least:
                piece += character
            found += _long_enough(piece) + (inner if least != 0 else [])
            piece = ""
        return found + _long_enough(piece)

    def _atom(self, depth: int) -> tuple[str, list[tuple[str, ...]]]:
        """A character, or "" for anything else; and what a group needs."""
        text, at = self._text, self._at
        if text[at] == "(":
            return "", self._group(depth)
        if text[at] == "[":
            self._skip(_CLASS)
            return "", []
        if text[at] == "\\":
            return self._skip(_ESCAPED)[1] or "", []
        if text[at] in _SPECIAL and text[at] not in "^$.":
            raise _UnclearError
        self._at += 1
        is_plain = " " <= text[at] <= "~" and text[at] not in _SPECIAL
        return text[at] if is_plain else "", []

    def _group(self, depth: int) -> list[tuple[str, ...]]:
        self._skip(_GROUP)
        found = self.choice(depth + 1)
        if not self._text.startswith(")", self._at):
            raise _UnclearError
        self._at += 1
        return found

    def _least(self) -> int | None:
        """How often the last atom occurs at least; None if no count follows it."""
        text = self._text
        if self.is_at_end or text[self._at] not in "*+?{":
            return None
        if text[self._at] == "{":
            least = int(self._skip(_COUNTS)[1])
        else:
            least = int(text[self._at] == "+")
            self._at += 1
        if text.startswith("?", self._at):
            self._at += 1
        if not self.is_at_end and text[self._at] in "*+?{":
            raise _UnclearError
        return least

    def _skip(self, form: re.Pattern[str]) -> re.Match[str]:
        match = form.match(self._text, self._at)
        if match is None:
            raise _UnclearError
        self._at = match.end()
        return match


def _long_enough(piece: str) -> list[tuple[str, ...]]:
    return [(piece,)] if len(piece) >= PIECE_MIN else []
