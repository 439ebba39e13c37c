"""Flows: the window holds, all that is published is waited for, and a broker that cheats is found out.

In:    a relay on loopback that forwards frames unread, or tampers with them.
Out:   claims about Flow and Pump.
State: the relay's thread, which ends with its links.
Not here: the comparison itself (test_sinks.py).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks.batches import FixedBatches, Load
from benchmarks.flow import Flow, Interval, Pump, Reader, Usage
from benchmarks.links import Link
from benchmarks.sinks import MismatchError, Sink

LOAD = Load(("a/b",), payload_bytes=32, frames=20)
SIZE = LOAD.payload_bytes
Tamper = Callable[[int, bytes], bytes]

pytestmark = pytest.mark.live


def encode(topic: str, payload: bytes) -> bytes:
    return payload


@contextmanager
def relay(subscribers: int, tamper: Tamper) -> Iterator[int]:
    """Sends what its last peer writes to all others, frame by frame through ``tamper``; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_forward, args=(listener, subscribers, tamper), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)
        assert not thread.is_alive()


def _forward(listener: socket.socket, subscribers: int, tamper: Tamper) -> None:
    outs = [listener.accept()[0] for _ in range(subscribers)]
    source = listener.accept()[0]
    number, rest = 0, b""
    try:
        while data := source.recv(1 << 16):
            data = rest + data
            whole = len(data) - len(data) % SIZE
            frames = [data[at : at + SIZE] for at in range(0, whole, SIZE)]
            rest = data[whole:]
            for frame in frames:
                for out in outs:
                    out.sendall(tamper(number, frame))
                number += 1
    except OSError:
        pass  # the test has seen enough and closed its links
    for link in (source, *outs):
        link.close()


def measured(
    tamper: Tamper, *, subscribers: int = 1, window: int = 100, frames_per_write: int = 20
) -> tuple[Interval, Flow]:
    with relay(subscribers, tamper) as port:
        readers = [Reader(Link(port), Sink(SIZE)) for _ in range(subscribers)]
        publisher = Link(port)
        for link in (publisher, *(reader.link for reader in readers)):
            link.loaded()
        flow = Flow(
            publisher,
            FixedBatches(LOAD, encode, encode),
            readers,
            window=window,
            stride=1,
            frames_per_write=frames_per_write,
        )
        pump = Pump([flow])
        try:
            return pump.measure(0.01, 0.05, lambda: Usage(0.0, 0.0, 0.0)), flow
        finally:
            pump.close()


@pytest.mark.parametrize("subscribers", [1, 3])
@pytest.mark.parametrize(("window", "frames_per_write"), [(1, 1), (7, 1), (20, 20), (100, 20)])
def test_the_window_is_used_and_never_exceeded(subscribers: int, window: int, frames_per_write: int) -> None:
    interval, flow = measured(
        lambda _, frame: frame, subscribers=subscribers, window=window, frames_per_write=frames_per_write
    )
    assert 0 < flow.outstanding_max <= window
    assert flow.published == flow.completed >= interval.messages > 0


@pytest.mark.parametrize(
    ("fault", "tamper"),
    [
        ("lost", lambda number, frame: b"" if number == 130 else frame),
        ("altered", lambda number, frame: frame[:-1] + b"?" if number == 130 else frame),
        ("sent twice", lambda number, frame: frame * 2 if number == 130 else frame),
    ],
)
def test_a_frame_that_is_tampered_with_fails_the_run(fault: str, tamper: Tamper) -> None:
    with pytest.raises(MismatchError, match="frame 13"):
        measured(tamper)


def test_a_batch_that_is_lost_as_a_whole_fails_the_run() -> None:
    with pytest.raises(MismatchError):
        measured(lambda number, frame: b"" if number in range(200, 220) else frame)


def test_frames_that_stay_away_at_the_end_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.flow.STALL_S", 0.2)
    held: list[bytes] = []

    def keep_the_latest(number: int, frame: bytes) -> bytes:
        held.append(frame)
        return held[number - 1] if number else b""

    with pytest.raises(MismatchError, match="1 messages never arrived"):
        measured(keep_the_latest)


def test_a_broker_that_delivers_nothing_does_not_hang_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.flow.WARM_S_MAX", 0.1)
    monkeypatch.setattr("benchmarks.flow.STALL_S", 0.1)
    with pytest.raises(MismatchError, match="100 messages never arrived"):
        measured(lambda _, __: b"")
