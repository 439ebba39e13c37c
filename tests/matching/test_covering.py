"""Interests that ask for topics only, reduced by covering: against the plain definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.matching.filters import canonical
from heliograph.matching.interests import Change, Interest, InterestSet
from heliograph.model.topics import covers
from tests.examples import examples
from tests.matching.test_topics import filters


def filters_of(change: Change) -> tuple[list[bytes], list[bytes]]:
    came, went = change
    return [one.filter for one in came], [one.filter for one in went]


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
            came, went = filters_of(reduced.remove(Interest(gone)))
        else:
            kept.append(pattern)
            came, went = filters_of(reduced.add(Interest(pattern)))
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
        reduced.add(Interest(pattern))
    assert list(reduced.roots) == [Interest(b"a/#")]
    assert filters_of(reduced.remove(Interest(b"a/#"))) == ([b"a/+"], [b"a/#"])
    assert filters_of(reduced.remove(Interest(b"a/+"))) == ([b"a/b", b"a/c"], [b"a/+"])
