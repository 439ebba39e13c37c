"""Counting TLS records in reads that end anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.live.tls_records import RecordCounter

bodies = st.lists(st.integers(min_value=0, max_value=600), min_size=1, max_size=30)


@pytest.mark.req("O6", "O10")
@given(bodies, st.lists(st.integers(min_value=1, max_value=700), max_size=60))
def test_every_record_is_counted_once_in_the_read_that_completes_its_head(sizes: list[int], reads: list[int]) -> None:
    stream, heads = b"", []
    for size in sizes:
        stream += b"\x17\x03\x03" + size.to_bytes(2, "big") + b"\xff" * size
        heads.append(len(stream) - size)  # where its head is complete
    counter, at = RecordCounter(), 0
    for length in [*reads, len(stream)]:
        end = min(at + length, len(stream))
        if end > at:
            assert counter.count(memoryview(stream)[at:end]) == sum(at < head <= end for head in heads)
        at = end
    assert at == len(stream)
