"""Twins: checks that the compiled hot path and the Python around it use the same attributes and numbers.

In:    the names and numbers that _native.c uses.
Out:   nothing; an ImportError if they differ from those of the Python classes.
State: none.
Not here: whether both do the same (tests/broker/test_native.py, tests/broker/test_shortcut.py).

_native.c reads attributes by name and borrows their values, so each must be a slot or a class constant: a property
would return a value to which nothing holds a reference. This is checked when the broker is loaded, not for each
publication.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import FunctionType, MemberDescriptorType, MethodDescriptorType

from heliograph.broker.links import Link
from heliograph.broker.routes import Route, RouteTable
from heliograph.broker.routing.parcels import CONFIRM_BYTES, CONFIRM_EACH, Parcels, Way
from heliograph.broker.routing.ports import READY, UNCONFIRMED_BYTES_MAX, HopSink, Neighbour, Sink
from heliograph.broker.routing.seen import Origins, Seen
from heliograph.broker.routing.view import View
from heliograph.errors import Reason
from heliograph.machine import Outbox
from heliograph.wire.frames import BODY_BYTES, Kind
from heliograph.wire.limits import FRAME_BYTES_MAX, HEAD_BYTES, HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX
from heliograph.wire.scan import MISS, MORE, OTHER

SINK = "link own bytes_max neighbour _length"
SLOTS: dict[type, str] = {
    Link: "id state need neighbour seen routes touched pressed backlog dropped deliveries heard_at bytes_in publishes",
    Sink: f"{SINK} _dropped _rest",
    HopSink: f"{SINK} _fixed _hops",
    Neighbour: "suspected is_timed owed heard_in sent sent_bytes sent_number",
    Route: "only one guard guarded",
    RouteTable: "routes",
    Way: "is_here inside sinks groups lost",
    Seen: "origin next accepted admit",
    Origins: "_known _idle",
    Parcels: "_ways forwarded arrived",
    View: "settled",
    Outbox: "writes",
    deque: "append",
}
"""What _native.c reads, writes or calls, by class; its head has the same list."""

NUMBERS: dict[str, int] = {
    "HEAD": HEAD_BYTES,
    "BODY": BODY_BYTES,
    "HEADERS_MAX": HEADERS_BYTES_MAX,
    "PAYLOAD_MAX": PAYLOAD_BYTES_MAX,
    "FRAME_MAX": FRAME_BYTES_MAX,
    "EVENT": Kind.EVENT,
    "PARCEL": Kind.PARCEL,
    "DELIVERY": Kind.DELIVERY,
    "READY": READY,
    "CONFIRM_EACH": CONFIRM_EACH,
    "CONFIRM_BYTES": CONFIRM_BYTES,
    "UNCONFIRMED_BYTES_MAX": UNCONFIRMED_BYTES_MAX,
    "MORE": MORE,
    "OTHER": OTHER,
    "MISS": MISS,
    "FRAME_TOO_SHORT": Reason.FRAME_TOO_SHORT,
    "FRAME_OVER_LIMIT": Reason.FRAME_OVER_LIMIT,
    "TOPIC_OVER_FRAME": Reason.TOPIC_OVER_FRAME,
    "HEADERS_OVER_FRAME": Reason.HEADERS_OVER_FRAME,
    "ORIGIN_FOREIGN": Reason.ORIGIN_FOREIGN,
}

HELD = (MemberDescriptorType, FunctionType, MethodDescriptorType, int, type(None))  # slots, methods, constants


def check(names: Sequence[str], limits: Mapping[str, int]) -> None:
    """ImportError if _native.c was compiled for other names or numbers."""
    found = problems(names, limits)
    if found:
        raise ImportError(f"heliograph/broker/_native.c is not the twin of this Python: {'; '.join(found)}")


def problems(names: Sequence[str], limits: Mapping[str, int]) -> list[str]:
    """Everything that differs."""
    known = {name for listed in SLOTS.values() for name in listed.split()}
    found = [f"it reads {name}, which twins.py does not list" for name in names if name not in known]
    found += [f"twins.py lists {name}, which it does not read" for name in sorted(known) if name not in names]
    for owner, listed in SLOTS.items():
        for name in listed.split():
            if not isinstance(getattr(owner, name, ...), HELD):
                found.append(f"{owner.__name__}.{name} is no slot")
    for name in sorted({*limits, *NUMBERS}):
        if limits.get(name) != NUMBERS.get(name):
            found.append(f"{name} is {limits.get(name)} there and {NUMBERS.get(name)} here")
    return found
