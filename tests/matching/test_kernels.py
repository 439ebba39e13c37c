"""The compiled table: strings under churn, its second look, and that no argument breaks it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.matching.boxes.box import box
from heliograph.matching.boxes.index import BoxIndex
from heliograph.matching.boxes.keys import TEXT, Interval
from heliograph.model.predicates import Conjunction, Op, Predicate
from tests.matching.box_oracle import boxes, fits

native = pytest.importorskip("heliograph.matching.boxes.native", reason="the compiled kernels are not installed")

TEXT_OPS = [Op.EQUAL, Op.UNEQUAL, Op.BELOW, Op.AT_MOST, Op.ABOVE, Op.AT_LEAST, Op.PREFIX]


def agree(index: BoxIndex, kept: dict[int, Conjunction], events: list[dict[str, object]]) -> None:
    for event in events:
        assert index.match(event).tolist() == [id for id in sorted(kept) if fits(kept[id], event)]


def test_strings_that_always_fall_between_the_last_two_are_labelled_anew() -> None:
    """Each string stands between the two before it, so that the room between labels is used up every thirty."""
    index, kept = BoxIndex(engine="native"), {}
    text = "m"
    for id in range(600):
        kept[id] = (Predicate("s", TEXT_OPS[id % len(TEXT_OPS)], text),)
        index.add(id, kept[id])
        text += "a" if id % 2 else "z"
    agree(index, kept, [{"s": text[:length] + tail} for length in range(1, 600, 37) for tail in ("", "\0", "b", "~")])


def test_strings_that_nobody_mentions_any_more_are_forgotten() -> None:
    index, kept = BoxIndex(engine="native"), {}
    dice = random.Random(4)
    sizes = []
    for round_ in range(40):
        for id in range(100):
            if id in kept:
                index.remove(id)
            kept[id] = (Predicate("s", dice.choice(TEXT_OPS), f"{dice.random()}"), Predicate("n", Op.ABOVE, round_))
            index.add(id, kept[id])
        sizes.append(index.report().size_bytes)
    assert sizes[-1] < 2 * sizes[5]
    agree(index, kept, [{"s": f"{dice.random()}", "n": dice.randint(0, 50)} for _ in range(50)])


@settings(deadline=None)
@given(st.lists(boxes, min_size=1, max_size=20))
def test_a_box_is_read_back_as_it_came(conjunctions: list[Conjunction]) -> None:
    table = native.NativeTable()
    wanted = {id: found for id, one in enumerate(conjunctions) if (found := box(one)) is not None}
    for id, one in wanted.items():
        table.put(id, one, link=7)
    for id, one in wanted.items():
        assert table._box(id) == one
    for id in wanted:
        assert table.drop(id) == 7
    assert table.attributes == {}
    assert table.size() == 0


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (1, 2),
        (-1, 0, {}, False),
        (2**31, 0, {}, False),
        (2**70, 0, {}, False),
        (1, 2**40, {}, False),
        (1, 0, [], False),
        (1, 0, {"a": 5}, False),
        (1, 0, {"a": (1, 2)}, False),
        (1, 0, {5: Interval(TEXT, "", None)}, False),
        (1, 0, {"a": Interval(TEXT, 5, None)}, False),
        (1, 0, {"a": Interval(9, 5, None)}, False),
        (1, 0, {"a": ("zone", 5, None, frozenset())}, False),
    ],
)
def test_wrong_arguments_are_errors_and_change_nothing(arguments: tuple[Any, ...]) -> None:
    table = native.Compiled()
    with pytest.raises((TypeError, ValueError, OverflowError)):
        table.put(*arguments)
    assert table.ids() == b""
    assert table.names == {}


@pytest.mark.req("O6")
def test_wrong_questions_are_errors() -> None:
    table = native.Compiled()
    table.put(0, 0, {"a": Interval(TEXT, "", None)}, False)
    with pytest.raises(ValueError, match="taken"):
        table.put(0, 0, {}, False)
    with pytest.raises(KeyError):
        table.drop(1)
    with pytest.raises(KeyError):
        table.bounds(-1)
    with pytest.raises(TypeError):
        table.match([])
    with pytest.raises(TypeError):
        table.match_links({}, [], 1)
    with pytest.raises(ValueError, match="question"):
        table.relate(0, {}, 0)
    with pytest.raises(TypeError):
        table.relate(1, None, 0)
    with pytest.raises(TypeError):
        native.Compiled(5)
    assert "x" not in table
    assert table.match({"a": "b", 5: 6}) == (b"\0\0\0\0", b"")


def test_ids_far_apart_and_chunks_that_empty_are_fine() -> None:
    index, kept = BoxIndex(engine="native"), {}
    for id in (0, 255, 256, 2_047, 2_048, 32_767, 32_768, 65_536, 3_999_999):
        kept[id] = (Predicate("n", Op.AT_LEAST, id), Predicate("n", Op.BELOW, 2 * id + 5))
        index.add(id, kept[id], link=id)
    for id in (256, 32_768):
        index.remove(id)
        del kept[id]
    agree(index, kept, [{"n": value} for value in (0, 300, 2_048, 40_000, 7_000_000)])
    assert sorted(index.match_links({"n": 3_000})) == [id for id in kept if fits(kept[id], {"n": 3_000})]
