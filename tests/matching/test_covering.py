"""The covering set against the plain definition."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.matching.covering import CoverSet
from heliograph.matching.filters import canonical
from heliograph.model.topics import covers
from tests.matching.test_topics import filters


@pytest.mark.req("N9")
@settings(max_examples=300)
@given(st.lists(filters, max_size=25), st.data())
def test_the_roots_are_what_no_other_filter_covers(patterns: list[bytes], data: st.DataObject) -> None:
    reduced = CoverSet()
    kept: list[bytes] = []
    told: dict[bytes, None] = {}
    for pattern in patterns:
        if kept and data.draw(st.integers(0, 2)) == 0:
            gone = kept.pop(data.draw(st.integers(0, len(kept) - 1)))
            came, went = reduced.remove(gone)
        else:
            kept.append(pattern)
            came, went = reduced.add(pattern)
        for root in went:
            del told[root]
        for root in came:
            assert root not in told
            told[root] = None
        distinct = dict.fromkeys(map(canonical, kept))
        expected = [one for one in distinct if not any(covers(other, one) for other in distinct if other != one)]
        assert sorted(reduced.roots) == sorted(expected)
        assert sorted(told) == sorted(reduced.roots), "what was told adds up to the roots"
        assert len(reduced) == len(distinct)


def test_removing_the_covering_filter_brings_back_what_it_covered() -> None:
    reduced = CoverSet()
    for pattern in (b"a/b", b"a/c", b"a/+", b"a/#"):
        reduced.add(pattern)
    assert list(reduced.roots) == [b"a/#"]
    assert reduced.remove(b"a/#") == ([b"a/+"], [b"a/#"])
    assert reduced.remove(b"a/+") == ([b"a/b", b"a/c"], [b"a/+"])
