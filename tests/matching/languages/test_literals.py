"""Literals: what a regular expression needs is in every text that it matches."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heliograph.matching.languages.literals import needed
from heliograph.matching.languages.patterns import pattern


@pytest.mark.req("T8")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("hall-99[0-9]/pressure", (("hall-99",), ("/pressure",))),
        (r"^plant/hall\.3$", (("plant/hall.3",),)),
        ("(pressure|flow) of", (("pressure", "flow"), (" of",))),
        ("(pressure|.*) of", ((" of",),)),
        ("pressures? (of)? hall", (("pressure",), (" hall",))),
        ("a(bcd)*e(fgh)+(ijk){2,3}(lmn){0,}", (("fgh",), ("ijk",))),
        ("abc+d", (("abc",),)),
        ("abc{0}def", (("def",),)),
        ("(?P<name>abc)x|def", (("abc", "def"),)),
        (r"[]abc]def[^]x]ghi[a\]b]", (("def",), ("ghi",))),
        ("größe-12", (("e-12",),)),
        ("ab|cdef", ()),
        ("(?i)pressure", ()),
        (r"\Qa.b\Epressure", ()),
        (r"\x41bcdef", ()),
        (r"\p{Greek}pressure", ()),
        ("[[:alpha:]]pressure", ()),
        ("a{,3}pressure", ()),
        ("(" * 40 + "abc" + ")" * 40, ()),
        ("", ()),
    ],
)
def test_what_an_expression_needs(expression: str, expected: tuple[tuple[str, ...], ...]) -> None:
    pattern(expression)  # RE2 accepts it
    assert needed(expression) == expected


_LETTERS = st.sampled_from("abé-")
_ATOMS = st.one_of(
    st.text(_LETTERS, min_size=1, max_size=5),
    st.sampled_from([".", "[ab]", "[^a]", r"\.", r"\d", r"\b", "^", "$", r"[\]a]", r"\-", "(?i:b)", r"\x61", "(?:)"]),
)
_COUNTS = st.sampled_from(["", "", "", "*", "+", "?", "{0,2}", "{1,2}", "{2}", "*?", "+?"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds("({}){}".format, inner, _COUNTS)
    either = st.builds("{}|{}".format, inner, inner)
    return st.one_of(groups, either, st.builds("{}{}".format, inner, inner))


EXPRESSIONS = st.recursive(st.builds("{}{}".format, _ATOMS, _COUNTS), _larger, max_leaves=8)


@pytest.mark.req("T8")
@given(EXPRESSIONS, st.lists(st.text(st.sampled_from("abBé-.\n1"), max_size=14), min_size=1, max_size=8))
def test_every_matching_text_has_what_is_needed(expression: str, texts: list[str]) -> None:
    try:
        search, _ = pattern(expression)
    except ValueError:
        assume(False)
    found = [text for text in texts if search(text)]
    assume(found)
    wanted = needed(expression)
    assert all(any(piece in text for piece in pieces) for text in found for pieces in wanted)
