"""The quick reader of requests reads every text as the full one does."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.pipeline.wish_texts import IMPOSSIBLE, UNREADABLE, WishReader
from heliograph.pipeline.wishes import NEVER, from_parts, key_of, signatures

pytestmark = pytest.mark.req("S5", "R11")

NAMES = ["a", "b", "a.b$c", "é", "And", "true", "nan", "inf", "present", '"a"', '"and"', "$a", "_", "9a", "a" * 257]
SIGNS = ["=", "<", ">", "<=", ">=", "!=", "<>", "==", "prefix", "^=", "between", "=<"]
NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "+5",
    "- 5",
    "5.",
    ".5",
    "1e3",
    "1E-3",
    "1e",
    "1e400",
    "5e-324",
    "-5e-324",
    "007",
    "0" * 40,
]
NUMBERS += [
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "1e20",
    "1.7e308",
    "2" * 25,
]
NUMBERS += [
    "09:30",
    "25:00",
    "nan",
    "inf",
    "1_000",
    "٣",
    "0x10",
    "true",
    "1.5.2",
    "4.999999999999999999",
    "5.000000000000001",
]
TEXTS = ["''", "'x'", "'it''s'", "'a and b'", "'x", "x'", "'\"'", "'é\0'", "'\ud800'", "'1'", "'a = 1'", '"x"']
spaces = st.sampled_from(["", " ", "  ", "\t", "\n", "\u00a0"])
values = st.sampled_from(NUMBERS + TEXTS) | st.integers(-9, 9).map(str) | st.floats().map(repr)
tests = st.tuples(spaces, st.sampled_from(NAMES), spaces, st.sampled_from(SIGNS), spaces, values, spaces).map("".join)
usual = st.tuples(st.sampled_from("ab"), st.sampled_from(SIGNS[:5]), st.integers(-3, 3).map(str) | st.just("'x'"))
joins = st.sampled_from([" and "] * 6 + [" AND ", "  and ", "and", " or ", " and\n", " and and "])


@st.composite
def texts(draw: st.DrawFn) -> str:
    parts = draw(st.lists(usual.map(" ".join) | tests, min_size=1, max_size=5))
    return parts[0] + "".join(draw(joins) + part for part in parts[1:])


@given(st.sampled_from(["t", "+/#", "a/+"]), st.sampled_from(["", "predicates", "sql"]), texts())
@example("t", "", "a = " + "0" * 3_000)
@example("t", "", " and ".join(f"a > {n}" for n in range(1_200)))
@example("t", "", "a > 5 and a < 5.000000000000001")
@example("t", "", "a >= 5 and a <= 5 and b = 'x' and b = 'x'")
@example("t", "", "a < 1.7976931348623157e308")
def test_quick_and_full_readers_agree(pattern: str, language: str, where: str) -> None:
    kind, bounds = WishReader().read(pattern, language, where)
    expected = key_of(pattern, language, where)
    if expected is None or expected == NEVER:
        assert (kind, bounds) == ({None: UNREADABLE, NEVER: IMPOSSIBLE}[expected], None)
        return
    assert kind.shape is not None
    assert (kind.shape if bounds is None else kind.shape + b"\0" + bounds) == expected
    wish = from_parts(kind.shape, bounds)
    assert kind.signatures == signatures(wish.filter.decode(), wish.names())


def test_the_usual_form_is_read_quickly() -> None:
    assert WishReader()._quickly("t", "kind = 'k3' and a > 17 and a < 18.5 and b >= -2e3") is not None
    assert WishReader()._quickly("t", "a > 1 or b > 1") is None
