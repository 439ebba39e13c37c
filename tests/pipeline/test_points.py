"""Comparing many points equals comparing them two by two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.matching.similarity import Forest
from heliograph.pipeline import points
from heliograph.pipeline.points import Array, below, connected, minimal

pytestmark = pytest.mark.req("S5", "R11")


@pytest.fixture(autouse=True, params=[1, 1 << 14])
def cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "CELLS", request.param)
    monkeypatch.setattr(points, "FEW", min(8, request.param))


def some_points(seed: int, count: int, width: int, values: int) -> Array:
    return np.random.default_rng(seed).integers(0, values, (count, width)).astype(float)


@pytest.mark.parametrize(("width", "values"), [(0, 1), (1, 5), (2, 9), (4, 4), (6, 30)])
def test_below_equals_two_by_two(width: int, values: int) -> None:
    lower, upper = some_points(1, 60, width, values), some_points(2, 90, width, values)
    found = below(lower, upper)
    expected = (lower[None, :, :] <= upper[:, None, :]).all(axis=2)
    assert found.count.tolist() == expected.sum(axis=1).tolist()
    for place, one in enumerate(found.first.tolist()):
        assert expected[place, one] if one >= 0 else not expected[place].any()
    forest = Forest()
    for row in expected:
        for one, other in zip(np.flatnonzero(row)[:-1].tolist(), np.flatnonzero(row)[1:].tolist(), strict=True):
            forest.join(one, other)
    assert connected(60, found.links).tolist() == [forest.find(number) for number in range(60)]


@pytest.mark.parametrize(("width", "values"), [(1, 5), (2, 30), (4, 4), (6, 30)])
def test_minimal_points_have_none_below(width: int, values: int) -> None:
    some = np.unique(some_points(3, 400, width, values), axis=0)
    expected = (some[None, :, :] <= some[:, None, :]).all(axis=2).sum(axis=1) == 1
    assert minimal(some).tolist() == np.flatnonzero(expected).tolist()


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=40))
def test_parts_are_what_links_connect(links: list[tuple[int, int]]) -> None:
    forest = Forest()
    for one, other in links:
        forest.join(one, other)
    arrays = np.array([one for one, _ in links], np.int64), np.array([other for _, other in links], np.int64)
    assert connected(20, arrays).tolist() == [forest.find(number) for number in range(20)]


def test_nothing_is_below_nothing() -> None:
    none = np.zeros((0, 3))
    assert below(none, none).first.tolist() == []
    assert below(none, np.zeros((2, 3))).first.tolist() == [-1, -1]
    assert minimal(none).tolist() == []
