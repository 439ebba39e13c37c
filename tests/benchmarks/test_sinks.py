"""Sinks: what a subscriber reads is compared with what was published, whatever the system.

In:    the frames that each system would deliver, some of them tampered with.
Out:   the claim that every such fault is noticed, and that nothing right is complained about.
State: none.
Not here: sockets and windows (test_flow.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.batches import Batches, FixedBatches, Load
from benchmarks.peers import SYSTEMS, mosquitto, nats, redis
from benchmarks.peers.ours import NumberedBatches
from benchmarks.sinks import MismatchError, Sink

LOAD = Load(("plant/bench/00/00", "plant/bench/00/01"), groups=2, payload_bytes=64, frames=20)
ORIGIN = 0x1122334455667788


def batches_of(name: str) -> Batches:
    makers: dict[str, Callable[[], Batches]] = {
        "ours": lambda: NumberedBatches(LOAD, ORIGIN),
        "nats": lambda: FixedBatches(LOAD, nats.publish, nats.deliver),
        "mosquitto": lambda: FixedBatches(LOAD, mosquitto.publish, mosquitto.publish),
        "redis": lambda: FixedBatches(LOAD, redis.publish, redis.deliver),
    }
    return makers[name]()


def delivery(frames: bytes, *, number: int = 1, lost: int = 0) -> bytes:
    return struct.pack("<IBBHQQII", 28 + len(frames), 3, 0, 0, lost, 0, 4, number) + frames


def expectation(name: str, group: int = 1) -> tuple[Sink, list[bytes]]:
    """A sink of one group that waits for two batches, and the frames that make them up."""
    sink = SYSTEMS[name].sink(LOAD.topics[0], LOAD.payload_bytes)
    batches, expected = batches_of(name), b""
    for _ in range(2):
        batch = batches.next()[1][group]
        sink.expect(batch)
        expected += batch
    size = sink.frame_bytes
    return sink, [expected[at : at + size] for at in range(0, len(expected), size)]


def wire(name: str, frames: Sequence[bytes]) -> bytes:
    """These frames as the system would send them: ours in deliveries of three."""
    if name != "ours":
        return b"".join(frames)
    return b"".join(delivery(b"".join(frames[at : at + 3])) for at in range(0, len(frames), 3))


def feed(sink: Sink, data: bytes, cuts: Sequence[int] = ()) -> None:
    """Show the data in pieces; what a sink has not settled is shown again with the next piece."""
    kept = b""
    bounds = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(bounds):
        kept += data[start:end]
        kept = kept[sink.feed(memoryview(kept)) :]
    assert kept == b""


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_was_published_is_accepted_and_counted(name: str) -> None:
    sink, frames = expectation(name)
    feed(sink, wire(name, frames))
    assert sink.frames == len(frames) == 20


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_group_has_frames_of_its_own(name: str) -> None:
    sink, _ = expectation(name, group=0)
    _, others = expectation(name, group=1)
    with pytest.raises(MismatchError):
        feed(sink, wire(name, others))


@pytest.mark.parametrize("name", SYSTEMS)
@given(data=st.data())
def test_the_stream_may_be_cut_anywhere(name: str, data: st.DataObject) -> None:
    sink, frames = expectation(name)
    stream = wire(name, frames)
    feed(sink, stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    assert sink.frames == len(frames)


@pytest.mark.parametrize("name", SYSTEMS)
@given(at=st.integers(0, 18))
def test_a_missing_frame_is_noticed(name: str, at: int) -> None:
    sink, frames = expectation(name)
    del frames[at]
    with pytest.raises(MismatchError, match=f"frame {at},"):
        feed(sink, wire(name, frames))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_missing_last_frame_shows_in_the_count(name: str) -> None:
    sink, frames = expectation(name)
    feed(sink, wire(name, frames[:-1]))
    assert sink.frames == len(frames) - 1


@pytest.mark.parametrize("name", SYSTEMS)
@given(at=st.integers(0, 18))
def test_two_swapped_frames_are_noticed(name: str, at: int) -> None:
    sink, frames = expectation(name)
    frames[at], frames[at + 1] = frames[at + 1], frames[at]
    with pytest.raises(MismatchError, match=f"frame {at},"):
        feed(sink, wire(name, frames))


@pytest.mark.parametrize("name", SYSTEMS)
@given(at=st.integers(0, 19), data=st.data())
def test_one_altered_byte_is_noticed(name: str, at: int, data: st.DataObject) -> None:
    sink, frames = expectation(name)
    altered = bytearray(frames[at])
    place = data.draw(st.integers(0, len(altered) - 1))
    altered[place] ^= data.draw(st.integers(1, 255))
    frames[at] = bytes(altered)
    with pytest.raises(MismatchError, match=f"frame {at}, byte {place}:"):
        feed(sink, wire(name, frames))


@pytest.mark.parametrize("name", SYSTEMS)
@given(at=st.integers(0, 19))
def test_a_frame_that_comes_twice_is_noticed(name: str, at: int) -> None:
    sink, frames = expectation(name)
    frames.insert(at, frames[at])
    with pytest.raises(MismatchError):
        feed(sink, wire(name, frames))


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_two_frames_of_a_load_are_alike(name: str) -> None:
    _, frames = expectation(name)
    assert len(set(frames)) == len(frames)


@given(at=st.integers(0, 20), cut=st.integers(0, 6))
def test_a_keep_alive_of_nats_between_frames_is_answered_and_not_counted(at: int, cut: int) -> None:
    sink, frames = expectation("nats")
    stream = b"".join(frames[:at]) + b"PING\r\n" + b"".join(frames[at:])
    feed(sink, stream, [at * sink.frame_bytes + cut])
    assert sink.frames == len(frames)
    assert sink.replies == b"PONG\r\n"


def test_a_keep_alive_of_nats_inside_a_frame_is_a_fault() -> None:
    sink, frames = expectation("nats")
    with pytest.raises(MismatchError):
        feed(sink, frames[0][:10] + b"PING\r\n" + frames[0][10:])


def test_a_keep_alive_of_ours_is_answered_with_its_number() -> None:
    sink, frames = expectation("ours")
    ping = struct.pack("<IBBHQQI", 24, 19, 0, 0, 0, 77, 0)
    feed(sink, wire("ours", frames[:6]) + ping + wire("ours", frames[6:]))
    assert sink.frames == len(frames)
    assert sink.replies == struct.pack("<IBBHQQI", 24, 20, 0, 0, 0, 77, 0)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda frames: delivery(frames[0], lost=3), "dropped 3"),
        (lambda frames: delivery(frames[0], number=2), "not for subscription"),
        (lambda frames: delivery(frames[0][:-1]), "not whole frames"),
        (lambda frames: delivery(b""), "not whole frames"),
        (lambda frames: struct.pack("<IBBHQQI", 24, 18, 0, 0, 0, 0, 0), "kind 18"),
    ],
)
def test_a_delivery_of_ours_that_is_not_in_order_is_noticed(fault: Callable[[list[bytes]], bytes], says: str) -> None:
    sink, frames = expectation("ours")
    with pytest.raises(MismatchError, match=says):
        feed(sink, fault(frames))


def test_our_frames_are_numbered_without_a_gap() -> None:
    batches = NumberedBatches(LOAD, ORIGIN)
    stream = b"".join(batches.next()[0] for _ in range(30))
    heads = [struct.unpack_from("<IBBHQQI", stream, at) for at in range(0, len(stream), batches.frame_bytes)]
    assert [head[5] for head in heads] == list(range(1, 30 * LOAD.frames + 1))
    assert {head[4] for head in heads} == {ORIGIN}
