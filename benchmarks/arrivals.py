"""Arrivals: which of our publications a subscriber has read, by their numbers.

In:    bytes of a link, split anywhere.
Out:   sequences of the publications in it, in order; answers that the link should send.
State: bytes of a frame that has not come in full.
Not here: comparing contents (sinks.py), which costs more than a probe may.
"""

from __future__ import annotations

from benchmarks.peers.ours import CONFIRMED, DELIVERY, EVENT, HEAD, PING, PONG, control
from benchmarks.sinks import MismatchError


class Arrivals:
    """One subscriber's reading."""

    def __init__(self) -> None:
        self.replies = b""
        self._unread = b""

    def feed(self, data: bytes) -> list[int]:
        """The numbers of the publications that have come in full."""
        data = self._unread + data
        found: list[int] = []
        at = 0
        while at + HEAD.size <= len(data):
            length, kind, _, _, lost, number, headers = HEAD.unpack_from(data, at)
            end = at + length + 4
            if end > len(data):
                break
            if kind == DELIVERY:
                if lost:
                    raise MismatchError(f"the broker says that it dropped {lost} publications for this link")
                found += _numbers(data, at + HEAD.size + headers, end)
            elif kind == PING:
                self.replies += control(PONG, number)
            elif kind not in (CONFIRMED, PONG):
                raise MismatchError(f"a subscriber received kind {kind}: {data[at : at + 200]!r}")
            at = end
        self._unread = data[at:]
        return found


def _numbers(data: bytes, at: int, end: int) -> list[int]:
    """The numbers of the publications in a delivery."""
    found = []
    while at < end:
        length, kind, _, _, _, number, _ = HEAD.unpack_from(data, at)
        if kind != EVENT:
            raise MismatchError(f"in a delivery there is kind {kind}")
        found.append(number)
        at += length + 4
    return found
