"""Observations: a broker's notes and a sample of arriving parcels, kept until the monitor asks for them.

In:    the broker's notes; parcels that arrive.
Out:   numbered rows; a requester asks for those after a number.
State: a ring of rows. Nothing is kept before the first request, so a broker without a monitor pays nothing.
Not here: publishing them (services/monitor.py), log lines and counters (observe/).

Of the parcels that are read in batches, one in ``PARCELS_EACH`` is kept. Single publications take the shortcut, which
bypasses this part; so each request makes sure that the next parcel is sampled (``sample_next``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from heliograph.model.publication import stamp_of
from heliograph.notes import Note
from heliograph.wire.frames import HEAD
from heliograph.wire.limits import HEAD_BYTES
from heliograph.wire.pages import one_page

ROWS_MAX = 512  # kept; a requester is told how many it missed
PARCELS_EACH = 1_000
NS_PER_US = 1_000

# Notes that are kept for the monitor, and what each is about.
ABOUT = {
    "session_welcomed": "links",
    "link_detached": "links",
    "peer_refused": "links",
    "neighbour_linked": "joins",
    "neighbour_lost": "joins",
    "brokers_lost": "joins",
    "brokers_reached": "joins",
    "action_denied": "denials",
    "publication_refused": "denials",
}

_headers = msgspec.json.Decoder(dict[str, Any]).decode


class Observations:
    """A ring of what happened."""

    __slots__ = ("_is_wanted", "_last", "_parcels_left", "_rows")

    def __init__(self) -> None:
        self._rows: deque[dict[str, Any]] = deque(maxlen=ROWS_MAX)
        self._last = 0  # the number of the newest row
        self._is_wanted = False
        self._parcels_left = PARCELS_EACH

    def keep(self, notes: Sequence[Note], time_us: int) -> None:
        """What the broker noted at this network time."""
        if not self._is_wanted:
            return
        for note in notes:
            row: dict[str, Any] = msgspec.to_builtins(note)
            about = ABOUT.get(row["note"])
            if about is not None:
                if "reason" in row:
                    row["reason"] = note.reason.word  # type: ignore[attr-defined]
                self._add(about, row, time_us)

    def is_due(self) -> bool:
        """True if the parcel that has arrived should be kept. Called for each one that does not take the shortcut."""
        self._parcels_left -= 1
        if self._parcels_left > 0:
            return False
        self._parcels_left = PARCELS_EACH
        return self._is_wanted

    def parcel(self, frames: bytes, trace: tuple[int, ...], time_us: int) -> None:
        """Keep a parcel that came through these brokers (ids; this broker is the last)."""
        row = _first_of(frames)
        if row is not None:
            row["way"] = [f"{broker:016x}" for broker in trace]
            self._add("hops", row, time_us)

    def sample_next(self) -> None:
        """Keep the next parcel that arrives."""
        self._parcels_left = 0

    def after(self, number: int) -> dict[str, Any]:
        """The rows with higher numbers, as far as they fit a frame, and how many of those are already gone."""
        self._is_wanted = True
        first = self._last - len(self._rows) + 1
        skip = max(0, number + 1 - first)
        rows = list(islice(self._rows, skip, None))
        count = len(one_page(iter(rows))[0])
        last = self._last - (len(rows) - count)
        return {"rows": rows[:count], "last": last, "missed": max(0, first - number - 1)}

    def _add(self, about: str, row: dict[str, Any], time_us: int) -> None:
        self._last += 1
        self._rows.append({"about": about, "time_us": time_us, **row})


def _first_of(frames: bytes) -> dict[str, Any] | None:
    """The first publication of a parcel, without its payload; None if it cannot be read."""
    if len(frames) < HEAD_BYTES:
        return None
    length, _, _, topic_length, origin, sequence, header_length = HEAD.unpack_from(frames)
    top = HEAD_BYTES + topic_length
    try:
        topic = frames[HEAD_BYTES:top].decode()
        headers = _headers(frames[top : top + header_length]) if header_length else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return {
        "topic": topic,
        "origin": f"{origin:016x}",
        "sequence": sequence,
        "bytes": length + 4,
        "published_us": stamp_of(headers),
    }
