"""The splitter: any cut of the stream gives the same frames, and no length is believed before it is checked."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import Reason
from heliograph.wire.frames import HEAD, Kind, control, delivery
from heliograph.wire.limits import CONTROL_BYTES_MAX, DELIVERY_BYTES_MAX, HEAD_BYTES, TIME_BYTES_MAX
from heliograph.wire.splitter import LARGE_BYTES, LENGTH_AND_KIND, Splitter

assert LARGE_BYTES < 9 * 9_000, "some of the frames below are large"

frames = st.one_of(
    st.binary(max_size=60).map(lambda body: control(Kind.WELCOME, 0, body)),
    st.integers(0, 9).map(lambda number: control(Kind.PONG, number)),
    st.binary(min_size=1, max_size=300).map(lambda run: delivery(b"\1\0\0\0", len(run), 0) + run),
    st.binary(min_size=1, max_size=9).map(lambda run: delivery(b"\1\0\0\0", 9_000 * len(run), 0) + 9_000 * run),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def split_all(pieces: list[bytes]) -> tuple[list[bytes], Reason | None]:
    splitter = Splitter()
    found = [frame for piece in pieces for frame in splitter.split(piece)]
    return found, splitter.fault


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 200_000), max_size=12))
def test_frames_come_out_whole_wherever_the_stream_is_cut(sent: list[bytes], places: list[int]) -> None:
    assert split_all(cut(b"".join(sent), places)) == (sent, None)


@given(st.lists(frames, max_size=4), st.binary(max_size=80), st.lists(st.integers(0, 10_000), max_size=12))
def test_garbage_gives_the_same_fault_wherever_it_is_cut(sent: list[bytes], garbage: bytes, places: list[int]) -> None:
    data = b"".join(sent) + garbage
    assert split_all(cut(data, places)) == split_all([data])


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("length", "kind", "reason"),
    [
        (23, Kind.PONG, Reason.FRAME_TOO_SHORT),
        (0, 0, Reason.FRAME_TOO_SHORT),
        (24, 99, Reason.KIND_UNKNOWN),
        (24, Kind.HELLO, Reason.KIND_UNEXPECTED),
        (24, Kind.EVENT, Reason.KIND_UNEXPECTED),
        (HEAD_BYTES + CONTROL_BYTES_MAX - 3, Kind.WELCOME, Reason.FRAME_OVER_LIMIT),
        (DELIVERY_BYTES_MAX - 3, Kind.DELIVERY, Reason.FRAME_OVER_LIMIT),
        (HEAD_BYTES + TIME_BYTES_MAX - 3, Kind.PONG, Reason.FRAME_OVER_LIMIT),
        (25, Kind.PING, Reason.FRAME_OVER_LIMIT),
        (0xFFFFFFFF, Kind.DELIVERY, Reason.FRAME_OVER_LIMIT),
    ],
)
def test_a_bad_head_is_refused_after_five_bytes(length: int, kind: int, reason: Reason) -> None:
    good = control(Kind.PONG, 7)
    assert split_all([good + LENGTH_AND_KIND.pack(length, kind)]) == ([good], reason)


def test_nothing_comes_out_after_a_fault() -> None:
    splitter = Splitter()
    splitter.split(bytes(5))
    assert splitter.split(control(Kind.PONG, 1)) == []
    assert splitter.fault is Reason.FRAME_TOO_SHORT


def test_the_largest_delivery_may_come_byte_by_byte_at_its_end() -> None:
    run = bytes(DELIVERY_BYTES_MAX - HEAD_BYTES - 4)
    frame = delivery(b"\1\0\0\0", len(run), 0) + run
    assert len(frame) == DELIVERY_BYTES_MAX
    pieces = [frame[:-9], *[frame[-9 + at : len(frame) - 8 + at] for at in range(9)]]
    assert split_all(pieces) == ([frame], None)
    assert HEAD.unpack_from(frame)[1] == Kind.DELIVERY
