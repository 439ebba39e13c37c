"""Events as columns: the compiled form and the one in Python say the same, and both what each frame says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ProtocolError
from heliograph.wire import events
from heliograph.wire.events import Want, plain_events, plain_select, times_of
from heliograph.wire.frames import Kind, event
from heliograph.wire.limits import HEAD_BYTES
from tests.examples import examples

needs_native = pytest.mark.skipif(not events.is_native, reason="the compiled parts are not installed or not wanted")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALL = int(Want.TOPICS | Want.HEADERS | Want.PAYLOADS | Want.TIMES | Want.IDS)
HEADERS = (
    b"", b"{}", b"{", b"}", b"[]", b"{},", b"\xff", b'{"$t":5}', b'{"$t":5,"disk":7}', b'{"disk":1.5,"n":null,"$t":-7}',
    b'{"$t":"x","$u":true}', b'{"$u":false}', b'{"$u":1}', b'{"$u":null,"$t":3}', b'{"$t":5,"$t":6}', b'{"$t":5.0}',
    b'{"$t":05}', b'{"$t":-0}', b'{"$t":1e3}', b'{"$t":9223372036854775807}', b'{"$t":4611686018427387904}',
    b'{"$t":5,}', b'{"$t":253402300799999999}', b'{"$t":253402300800000000}', b'{"$t":-62135596800000000}',
    b'{"$t":-62135596800000001}', b'{"$t":999999999999999999}',
    b'{ "$t": 5 }', b'{"\\u0024t":5}', b'{"a":{"$t":5},"b":[1,{"c":[]}]}', b'{"a":[1,]}', b'{"a":tru}', b'{"$t":true}',
    b'{"a":"\xc3\xa9","$t":8}', b'{"a":"\\n","$t":8}', b'{"$t":5}x', b'{"$t":' + b"9" * 30 + b"}",
    b'{"a":' + b"[" * 40 + b"}",
    b'{"a":' + b"[" * 30 + b"]" * 30 + b',"$t":1}', b'{"$q":{"s":"0f"},"$t":1794867600000000,"name":"a b"}', b'{"$t"}',
    b'{"":1,"$t":2}', b'{"$t":-}', b'{"$t":1.}', b'{"a":-1.25,"$t":9}', b'{"a":"', b'{"a',
)  # fmt: skip
# Half of them as clients write them, half with one byte changed.
changed = st.builds(lambda text, at, byte: text[: at % (len(text) + 1)] + byte + text[at % (len(text) + 1) + 1 :],
                    st.sampled_from(HEADERS), st.integers(0, 60), st.binary(max_size=1))  # fmt: skip
numbers = st.integers(0, 2**64 - 1)
made_frames = st.builds(
    event,
    st.binary(min_size=1, max_size=6),
    st.binary(max_size=12),
    numbers,
    numbers,
    st.sampled_from(HEADERS) | changed,
)
frames = st.lists(made_frames, max_size=20)


@needs_native
@pytest.mark.req("S1")
@examples(300)
@given(frames, st.integers(0, ALL), st.binary(max_size=40), st.integers(0, 20))
def test_both_forms_make_the_same_columns_and_refuse_the_same(
    made: list[bytes], wanted: int, noise: bytes, cut: int
) -> None:
    data = b"".join(made)
    pieces = [b"".join(made[:cut]), b"".join(made[cut:])]
    assert events.read_events(data, wanted) == plain_events([data], wanted)
    assert events.read_events(pieces, wanted) == plain_events(pieces, wanted) == plain_events([data], wanted)
    told: list[Any] = []
    for form in (events.native.read_events, lambda data, wanted, _: plain_events(data, wanted)):
        try:
            told.append(tuple(form([*pieces, noise], wanted, times_of)))
        except ValueError as error:
            told.append(str(error))
    assert told[0] == told[1]


@needs_native
@examples(200)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"cc"]), st.binary(max_size=5)), max_size=30), st.data())
def test_both_forms_select_the_same(made: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    frames = b"".join(event(topic, payload, 1, 2) for topic, payload in made) + data.draw(st.sampled_from([b"", b"\1"]))
    skip, count = data.draw(st.integers(0, 31)), data.draw(st.integers(0, 31))
    size = data.draw(st.integers(0, 400))
    known = {b"a": data.draw(st.booleans())}

    def wants(topic: bytes) -> bool:
        return topic == b"cc"

    found = events.native.select(frames, skip, count, size, known, wants)
    assert found == plain_select(frames, skip, count, size, known, wants)
    wanted = b"".join(frames[start:end] for start, end, _, _ in found[2])
    assert len(wanted) == found[1]
    assert all(known.get(topic, wants(topic)) for topic in _topics(wanted))


def _topics(data: bytes) -> set[bytes]:
    read = plain_events([data], Want.TOPICS)
    ends = memoryview(read.topic_ends).cast("i")
    return {read.topics[ends[n] : ends[n + 1]] for n in range(read.rows)}


@pytest.mark.parametrize("form", ["native", "plain"])
def test_errors_of_those_who_are_asked_are_passed_on(form: str) -> None:
    def fail(topic: bytes) -> bool:
        raise LookupError(topic)

    select = plain_select if form == "plain" or not events.is_native else events.native.select
    with pytest.raises(LookupError):
        select(event(b"t", b"", 1, 2), 0, 9, 9, {}, fail)


def test_what_is_no_whole_event_is_refused() -> None:
    whole = event(b"t", b"payload", 1, 2, b"{}")
    other = whole[:4] + bytes([Kind.PARCEL]) + whole[5:]
    for data in (whole[:-1], whole[:HEAD_BYTES], other, whole + b"\0" * HEAD_BYTES):
        with pytest.raises(ProtocolError, match="not whole"):
            events.read_events(data, ALL)
    assert events.read_events(b"", ALL).rows == 0
    if events.is_native:
        assert (events.native.HEAD, events.native.EVENT) == (HEAD_BYTES, Kind.EVENT)


@pytest.mark.req("S1", "O6")
def test_a_time_that_no_calendar_shows_is_left_out() -> None:
    """Such a row made every query that shows times fail."""
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    shown = [(each - EPOCH) // timedelta(microseconds=1) for each in (first, last)]
    for at in (*shown, shown[0] - 1, shown[1] + 1):
        assert times_of(b'{"$t":%d}' % at) == (at if at in shown else None, True)
