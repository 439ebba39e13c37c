"""Frames become columns, whatever is in them; what the plain reading of each frame says is what the columns say."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ProtocolError, UsageError
from heliograph.pipeline.rows import COLUMNS, UNKNOWN, own_headers, parse_attributes, to_batch
from heliograph.services.broker_session import _publications
from heliograph.wire.frames import event

numbers = st.integers(0, 2**62)
headers = st.sampled_from(
    [b"", b"{", b"\xff", b'{"$t":5,"disk":7}', b'{"$t":"x","$u":true,"disk":"7"}', b'{"disk":1.5,"n":null}']
)
origins = st.integers(0, 2**64 - 1)
frames = st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=20), origins, numbers, headers))


@pytest.mark.req("S1")
@given(frames)
def test_columns_say_what_each_frame_says(made: list) -> None:
    data = b"".join(event(topic, payload, origin, number, head) for topic, payload, origin, number, head in made)
    batch = to_batch("s", [data], [range(len(made))], list(COLUMNS), parse_attributes("disk double"))
    rows = batch.to_pylist()
    for row, publication in zip(rows, _publications(data), strict=True):
        assert row["topic"] == publication.topic
        assert row["value"] == publication.payload
        assert row["origin"] == f"{publication.origin:016x}"
        assert row["sequence"] == publication.sequence
        stamp = row["timestamp"]
        assert (None if stamp is None else round(stamp.timestamp() * 1e6)) == publication.timestamp_us
        assert row["synchronised"] == publication.synchronised
        disk = publication.headers.get("disk")
        assert row["disk"] == (float(disk) if type(disk) in (int, float) else None)
    assert [row["offset"] for row in rows] == list(range(len(made)))


@pytest.mark.req("S1")
def test_each_row_has_the_time_that_holds_at_its_position() -> None:
    data = b"".join(event(b"t", b"", 1, number) for number in range(5))
    taken = [(10, 1_000_000), (12, UNKNOWN), (14, 2_000_000)]
    rows = to_batch("s", [data], [range(9, 12), [13, 20]], ["stored"], taken=taken).column("stored")
    assert rows.cast(pa.int64()).to_pylist() == [None, 1_000_000, 1_000_000, None, 2_000_000]


@given(st.binary(max_size=80), frames)
def test_bytes_that_are_no_whole_frames_are_refused(noise: bytes, made: list) -> None:
    data = b"".join(event(*each) for each in made) + noise
    try:
        batch = to_batch("s", [data], [range(len(made))], ["topic", "value", "timestamp"])
    except ProtocolError:
        return
    assert batch.num_rows == len(made)


def test_wrong_columns_and_attributes_are_told() -> None:
    with pytest.raises(UsageError, match="columns: there is no 'colour'"):
        to_batch("s", [], [], ["colour"])
    with pytest.raises(UsageError, match="attributes: 'disk float' is not a name and one of double"):
        parse_attributes("disk float")


@pytest.mark.req("S1")
def test_a_header_that_no_double_can_hold_is_null() -> None:
    head = b'{"disk": 1' + b"0" * 309 + b"}"
    data = event(b"a", b"", 1, 1, head) + event(b"a", b"", 1, 2, b'{"disk": 1e300}')
    batch = to_batch("s", [data], [range(2)], ["topic"], parse_attributes("disk double"))
    assert batch.column("disk").to_pylist() == [None, 1e300]


@pytest.mark.req("S1")
@pytest.mark.parametrize("text", [None, "", "[1]", "7", "{", "null", '{"$t": 5}'])
def test_what_is_no_object_counts_as_no_headers(text: str | None) -> None:
    assert own_headers(text) == {}
    assert own_headers('{"$t": 5, "disk": 7}') == {"disk": 7}
