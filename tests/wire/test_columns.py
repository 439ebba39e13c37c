"""Columns against the frame-by-frame scan: they must mean the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.routing.seen import Seen
from heliograph.wire import columns
from heliograph.wire import scan as module
from heliograph.wire.columns import Mixed
from heliograph.wire.frames import event
from heliograph.wire.scan import scan
from tests.examples import examples

ROUTES = {b"a": "one", b"b": "two", b"c": "one", b"dd": "two"}


class Known(dict):
    def __missing__(self, topic):
        return None


def runs(data: bytes, first: int) -> tuple[list, int, int, tuple]:
    """What a scan finds, with every run cut into its frames."""
    seen = Seen(7, 100)
    if first >= 0:
        seen.next = first
    spans: list = []
    pos, why = scan(data, 0, Known(ROUTES), seen, 1 << 20, spans)
    found = []
    for route, start, end in spans:
        if isinstance(route, Mixed):
            assert b"".join(route.frames) == data[start:end]
            found += zip(route.routes, route.frames, strict=True)
            continue
        while start < end:
            stop = start + 4 + int.from_bytes(data[start : start + 4], "little")
            found.append((route, data[start:stop]))
            start = stop
    return found, pos, why, (seen.next, seen.accepted, seen.duplicates, tuple(seen.gaps))


frames = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"a", b"a", b"b", b"c", b"dd", b"?"]),
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 1, 3]),  # how the sequence jumps
        st.sampled_from([4, 4, 4, 4, 4, 4, 5]),  # payload length
        st.sampled_from([7] * 30 + [8]),  # origin
        st.integers(1, 40),  # repeated so often
    ),
    max_size=12,
)


@examples(200)
@given(frames, st.sampled_from([-1, 0, 200, 65_500, (1 << 24) - 30, (1 << 63) - 5]), st.integers(0, 60))
def test_columns_find_what_the_plain_scan_finds(plan: list, first: int, cut: int) -> None:
    data, sequence = b"", max(first, 0)
    for topic, jump, size, origin, times in plan:
        sequence = max(0, sequence + jump)
        for _ in range(times):
            data += event(topic, bytes(size), origin, sequence)
            sequence += 1
    data = data[: len(data) - cut] if cut < len(data) else data
    with_columns = runs(data, first)
    kept, columns.FRAMES_MIN = columns.FRAMES_MIN, 1 << 30
    try:
        module.FRAMES_MIN = 1 << 30
        plain = runs(data, first)
    finally:
        columns.FRAMES_MIN = module.FRAMES_MIN = kept
    assert with_columns == plain


@pytest.mark.parametrize("topics", [[b"a"], [b"a", b"b"], [b"a", b"c"]])
def test_a_batch_of_equal_frames_is_read_at_once(topics: list[bytes]) -> None:
    data = b"".join(event(topics[n % len(topics)], b"x" * 9, 7, 250 + n) for n in range(200))
    spans: list = []
    seen = Seen(7, 10)
    seen.next = 250
    assert scan(data, 0, Known(ROUTES), seen, 1 << 20, spans)[0] == len(data)
    assert len(spans) <= 12
    assert seen.accepted == 200
