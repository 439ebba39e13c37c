"""What a client may hear and publish, as its broker tells a store.

In:    fields.
Out:   a struct, part of the headers of a request on a pipe and of the body that a store gets.
State: none.
Not here: who fills it (broker/hearings.py), what a store does with it (stores/hearer.py).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from heliograph.wire.bodies import Body


class Hearing(Body, frozen=True):
    """The rules for subscribing that apply to a client, in the order in which they are tried, and its rights; with a
    commit those for publishing instead."""

    as_of: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # frames return it
    proof: str  # how the reader was proven; "none": it was not
    default: bool  # whether it may if no rule fits
    rules: list[tuple[str, bool]] = []  # pattern, and whether it allows
    roots: list[str] = []  # created topics that it has a right to
    spoken: list[tuple[str, bool]] = []  # the rules for publishing, with `commit`
    spoken_roots: list[str] = []  # created topics to which it may publish, with `commit`
