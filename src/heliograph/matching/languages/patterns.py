"""Patterns: the only file that uses RE2, which matches in time linear in the text, whatever the pattern.

In:    a regular expression in RE2's syntax.
Out:   functions that tell whether a text matches, or which of many do; ValueError for a bad or too costly pattern.
State: none of ours; RE2 keeps at most MEMORY_BYTES_MAX of states per pattern.
Not here: conditions (regex.py, sql.py).

Searching a text of TEXT_BYTES_MAX with a program of PROGRAM_MAX takes some 10 µs; about 5 ms if RE2 runs out of room
for states, which happens only with patterns made for that.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import re2  # type: ignore[import-untyped]

PATTERN_CHARACTERS_MAX = 512
PROGRAM_MAX = 500  # instructions of RE2: steps per byte of text in the worst case
MEMORY_BYTES_MAX = 1 << 18
TEXT_BYTES_MAX = 4_096  # a longer text matches no pattern

Search = Callable[[str], bool]
_ALONE = re.compile(r"\\[AzZGQC]|\(\?[a-zA-Z]*-?[a-zA-Z]*m|\(\?[a-zA-Z]*[sU]")  # would change in joined texts


class PatternOverLimitError(ValueError):
    """A pattern that would cost too much."""


def pattern(expression: str, *, dot_nl: bool = False, text_bytes_max: int = TEXT_BYTES_MAX) -> tuple[Search, int]:
    """A search for this pattern anywhere in a text, and its size in instructions."""
    if len(expression) > PATTERN_CHARACTERS_MAX:
        raise PatternOverLimitError(f"a pattern has at most {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MEMORY_BYTES_MAX
    options.dot_nl = dot_nl
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        problem = error.args[0] if error.args else ""
        problem = problem.decode("utf-8", "replace") if isinstance(problem, bytes) else str(problem)
        kind = PatternOverLimitError if "too large" in problem else ValueError
        raise kind(f"RE2 says: {problem}") from None
    size: int = compiled.programsize
    if size > PROGRAM_MAX:
        raise PatternOverLimitError(f"this pattern needs {size} instructions, at most {PROGRAM_MAX} are allowed")
    find = compiled.search

    def search(text: str) -> bool:
        if len(text) > text_bytes_max // 4 and len(text.encode("utf-8", "replace")) > text_bytes_max:
            return False
        return find(text) is not None

    return search, size


def scanner(expression: str, text_bytes_max: int) -> Callable[[Sequence[str]], list[int]]:
    """A search for this pattern in many texts at once: the numbers of those that match.

    The texts are joined by line ends, and RE2 searches all of them at once. In the joined text, ``^`` and ``$`` may
    hold in more places, and a match may begin in one text and end in the next. So a match only shows where to look: the
    text in which it begins is searched by itself, and the search continues after that text, so none is skipped.
    """
    search, _ = pattern(expression, text_bytes_max=text_bytes_max)
    if _ALONE.search(expression):
        return lambda texts: [number for number, text in enumerate(texts) if search(text)]
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 4 * MEMORY_BYTES_MAX
    loose = re2.compile(f"(?m:{expression})".encode(), options)

    def scan(texts: Sequence[str]) -> list[int]:
        found: list[int] = []
        coded = [text.encode("utf-8", "replace") for text in texts]
        starts = list(accumulate((len(text) + 1 for text in coded), initial=0))
        joined = b"\n".join(coded)  # bytes: RE2 would encode a str again for every search
        following = 0  # the text at which the search continues
        while following < len(texts):
            met = loose.search(joined, starts[following])
            if met is None:
                break
            number = min(bisect_right(starts, met.start()), len(texts)) - 1
            if search(texts[number]):
                found.append(number)
            following = number + 1
        return found

    return scan
