"""Round trips: whatever fields are written into a frame are read out of it again.

In:    fields drawn by hypothesis.
Out:   claims about frames.py and bodies.py together.
State: none.
Not here: the exact bytes (test_golden.py), the scan that cuts a stream (test_scan.py).
"""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ProtocolError
from heliograph.timekeeping.clock import Reference, Told
from heliograph.wire import bodies, frames, times
from heliograph.wire.frames import Frame, Kind
from heliograph.wire.limits import HEAD_BYTES, TIME_BYTES_MAX

pytestmark = pytest.mark.req("N1")

u8, u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
names = st.binary(max_size=64)
blocks = st.binary(max_size=200)
words = st.text(max_size=20)
CONTROL = [kind for kind in Kind if kind >= Kind.HELLO]


@given(names, blocks, u64, u64, blocks, u8)
def test_an_event_keeps_every_field(
    topic: bytes, payload: bytes, origin: int, sequence: int, headers: bytes, flags: int
) -> None:
    raw = frames.event(topic, payload, origin, sequence, headers, flags)
    frame = Frame(raw)
    assert (frame.kind, frame.topic, frame.payload, frame.headers) == (Kind.EVENT, topic, payload, headers)
    assert (frame.origin, frame.sequence, frame.flags) == (origin, sequence, flags)
    assert len(raw) == 28 + len(topic) + len(headers) + len(payload)


@given(st.sampled_from(CONTROL), u64, blocks)
def test_a_control_frame_keeps_its_number_and_body(kind: Kind, number: int, body: bytes) -> None:
    frame = Frame(frames.control(kind, number, body))
    assert (frame.kind, frame.sequence, frame.payload) == (kind, number, body)
    assert (frame.flags, frame.topic, frame.origin, frame.headers) == (0, b"", 0, b"")


@given(names, blocks, u64, u64, blocks, u8)
def test_a_service_frame_keeps_every_field(
    name: bytes, body: bytes, number: int, asker: int, headers: bytes, flags: int
) -> None:
    frame = Frame(frames.service(name, body, number, asker, headers, flags))
    assert (frame.kind, frame.topic, frame.payload, frame.headers) == (Kind.SERVICE, name, body, headers)
    assert (frame.sequence, frame.origin, frame.flags) == (number, asker, flags)


@given(st.lists(u32, max_size=50), u64, st.lists(st.tuples(names, blocks), max_size=5))
def test_a_delivery_holds_whole_events(numbers: list[int], dropped: int, events: list[tuple[bytes, bytes]]) -> None:
    whole = b"".join(frames.event(topic, payload, 1, 2) for topic, payload in events)
    packed = struct.pack(f"<{len(numbers)}I", *numbers)
    frame = Frame(frames.delivery(packed, len(whole), dropped) + whole)
    assert (frame.kind, frame.headers, frame.payload) == (Kind.DELIVERY, packed, whole)
    assert (frame.origin, frame.sequence) == (dropped, 0)


@given(blocks, u8, u16, u64, u64, st.lists(u64, max_size=64), st.lists(u64, max_size=16))
def test_a_parcel_keeps_its_hop_prefix(
    whole: bytes, ttl: int, epoch: int, members: int, number: int, clusters: list[int], trace: list[int]
) -> None:
    raw = frames.parcel(len(whole), ttl, epoch, members, number, tuple(clusters), tuple(trace)) + whole
    frame = Frame(raw)
    assert (frame.kind, frame.flags, frame.origin, frame.sequence) == (Kind.PARCEL, ttl, members, number)
    assert int.from_bytes(raw[6:8], "little") == epoch
    hops = struct.pack("<HHI", len(clusters), len(trace), 0) + struct.pack(
        f"<{len(clusters + trace)}Q", *clusters, *trace
    )
    assert (frame.headers, frame.payload) == (hops, whole)


@given(
    st.lists(st.integers(0, 9), max_size=3),
    words,
    st.lists(words, max_size=3),
    words,
    st.integers(0, 10**6),
    st.booleans(),
)
def test_a_hello_is_read_as_it_was_meant(
    versions: list[int], secret: str, features: list[str], name: str, keep_alive_ms: int, hold: bool
) -> None:
    hello = bodies.Hello(versions, secret, features, name=name, keep_alive_ms=keep_alive_ms, hold=hold)
    assert bodies.decode(bodies.Hello, bodies.encode(hello)) == hello


@given(u32, words, words, words, st.booleans())
def test_a_subscribe_is_read_as_it_was_meant(number: int, pattern: str, language: str, policy: str, echo: bool) -> None:
    subscribe = bodies.Subscribe(number, pattern, language, policy, echo)
    assert bodies.decode(bodies.Subscribe, bodies.encode(subscribe)) == subscribe


objects = st.dictionaries(words | st.sampled_from(["time", "error", "stratum"]), st.integers() | words)


@given(st.binary(max_size=200) | objects.map(lambda each: json.dumps(each).encode()))
def test_any_body_of_a_pong_is_a_time_or_nothing_or_the_peers_fault(body: bytes) -> None:
    try:
        told = times.told_in(Frame(frames.control(Kind.PONG, 1, body)))
    except ProtocolError:
        return
    assert (told is None) == (body == b"")


@given(*[st.integers(0, 1 << 62) for _ in range(6)])
def test_a_time_is_read_as_it_was_meant(broker: int, era: int, time: int, error: int, age: int, stratum: int) -> None:
    told = Told(Reference(broker, era), time, error, age, stratum)
    assert times.told_in(Frame(times.pong(3, told))) == told
    assert len(times.pong(3, told)) <= HEAD_BYTES + TIME_BYTES_MAX
