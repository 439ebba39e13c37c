"""Interests that ask for topics only, reduced by covering: against the plain definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.matching.covering import Change, ConditionedFilter, InterestSet
from heliograph.matching.filters import canonical
from heliograph.model.topics import covers
from tests.examples import examples
from tests.matching.test_topics import filters

LONG = 10_000  # steps: all there are


def filters_of(change: Change) -> tuple[list[bytes], list[bytes]]:
    came, went = change
    return [one.filter for one in came], [one.filter for one in went]


def add(reduced: InterestSet, pattern: bytes) -> tuple[list[bytes], list[bytes]]:
    """With everything that follows from it."""
    return filters_of(both(reduced.add(ConditionedFilter(pattern)), reduced.go_on(LONG)))


def remove(reduced: InterestSet, pattern: bytes) -> tuple[list[bytes], list[bytes]]:
    """With everything that follows from it."""
    return filters_of(both(reduced.remove(ConditionedFilter(pattern)), reduced.go_on(LONG)))


def both(first: Change, second: Change) -> Change:
    """Two changes, one after the other."""
    came = [one for one in first[0] if one not in second[1]] + [one for one in second[0] if one not in first[1]]
    went = [one for one in first[1] if one not in second[0]] + [one for one in second[1] if one not in first[0]]
    return came, went


@pytest.mark.req("N9")
@examples(150)
@given(st.lists(filters, max_size=25), st.data())
def test_the_roots_are_what_no_other_filter_covers(patterns: list[bytes], data: st.DataObject) -> None:
    reduced = InterestSet()
    kept: list[bytes] = []
    told: dict[bytes, None] = {}
    for pattern in patterns:
        if kept and data.draw(st.integers(0, 2)) == 0:
            gone = kept.pop(data.draw(st.integers(0, len(kept) - 1)))
            came, went = remove(reduced, gone)
        else:
            kept.append(pattern)
            came, went = add(reduced, pattern)
        for root in went:
            del told[root]
        for root in came:
            assert root not in told
            told[root] = None
        distinct = dict.fromkeys(map(canonical, kept))
        expected = [one for one in distinct if not any(covers(other, one) for other in distinct if other != one)]
        roots = [root.filter for root in reduced.roots]
        assert sorted(roots) == sorted(expected)
        assert sorted(told) == sorted(roots), "what was told adds up to the roots"
        assert len(reduced) == len(distinct)


def test_removing_the_covering_filter_brings_back_what_it_covered() -> None:
    reduced = InterestSet()
    for pattern in (b"a/b", b"a/c", b"a/+", b"a/#"):
        add(reduced, pattern)
    assert list(reduced.roots) == [ConditionedFilter(b"a/#")]
    assert remove(reduced, b"a/#") == ([b"a/+"], [b"a/#"])
    assert remove(reduced, b"a/+") == ([b"a/b", b"a/c"], [b"a/+"])
