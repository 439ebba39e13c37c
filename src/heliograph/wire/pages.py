"""Pages: as many rows of a long answer as one frame holds.

In:    rows, each of any size that its own limits allow.
Out:   the first of them as JSON, and the one that did not fit.
State: none.
Not here: frames (frames.py), how the next page is asked for (each service's requests).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

PAGE_ROWS = 1_000
PAGE_BYTES = 512 << 10  # of rows in one page; with the rest, below what a frame holds

_encode = msgspec.json.Encoder().encode


def one_page(
    rows: Iterator[Any], first: msgspec.Raw | None = None, rows_max: int = PAGE_ROWS, bytes_max: int = PAGE_BYTES
) -> tuple[list[msgspec.Raw], msgspec.Raw | None]:
    """As many rows as one page holds, at least one, and the row that did not fit; ``first`` is the one of the last
    time."""
    page = [] if first is None else [first]
    size = 0 if first is None else len(bytes(first))
    for each in rows:
        text = _encode(each)
        if page and (len(page) >= rows_max or size + len(text) > bytes_max):
            return page, msgspec.Raw(text)
        page.append(msgspec.Raw(text))
        size += len(text)
    return page, None
