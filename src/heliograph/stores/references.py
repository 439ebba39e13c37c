"""References: runs of the log `main` that only name the place of their publications, in the log of a batch's part.

In:    a log's name and a position in it; runs of that log.
Out:   the data of a reference; the same runs at their positions in `main`.
State: none.
Not here: when batches are committed (batches.py), reading logs (channels.py).

A frame never has a length of 0, so four zero bytes distinguish a reference from frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from heliograph.vault import Damage, Run, RunSize

MAGIC = b"\0\0\0\0"


class PartReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the publications of a run are."""

    log: str
    start: int  # the position of the first one there
    until: int = 0  # the bytes of all publications that runs ever referred to, up to the end of this one


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PartReference).decode


def refer(log: str, start: int, until: int = 0) -> bytes:
    """The data of a run that refers to publications of another log."""
    return MAGIC + _encode(PartReference(log, start, until))


def reference_of(run: Run | RunSize | Damage) -> PartReference | None:
    """Where the publications of a run are; None if the run contains them."""
    if isinstance(run, Damage) or not run.data.startswith(MAGIC):
        return None
    try:
        return _decode(run.data[len(MAGIC) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return PartReference("", 0)


def resolved(run: Run, found: Sequence[Run | Damage]) -> list[Run | Damage]:
    """What was read for a reference, at its positions in `main`, and a reference to the part not read yet."""
    reference = reference_of(run)
    assert reference is not None
    shift = run.position - reference.start
    moved: list[Run | Damage] = []
    at = run.position
    for each in found:
        position = each.position + shift
        if (moved and position > at) or position >= run.next:
            break
        moved.append(replace(each, position=position))
        at = position + each.count
    if not moved:
        return [Damage(run.position, run.count, "the batch's part is gone")]
    if at < run.next:
        rest = refer(reference.log, at - shift)
        moved.append(Run(at, run.next - at, run.first_ns, run.last_ns, rest))
    return moved
