"""Time on the wire: the network time in a PONG, for neighbours and for clients that asked for it.

In:    a Told; a PONG that was received.
Out:   a PONG; a Told.
State: none.
Not here: how it is used (timekeeping/), when it is asked for (broker/timing.py, client/timing.py).
"""

from __future__ import annotations

from heliograph.timekeeping.clock import Reference, Told
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, control

FEATURE = "time"
"""A client that names this feature in its HELLO gets the time in every PONG."""


def pong(number: int, told: Told | None) -> bytes:
    """The answer to a PING; without a body if the time is not known."""
    if told is None:
        return control(Kind.PONG, number)
    reference = told.reference
    body = bodies.Time(
        time=told.time_ns,
        error=told.error_ns,
        stratum=told.stratum,
        reference=reference.broker,
        era=reference.era,
        age=told.age_ns,
    )
    return control(Kind.PONG, number, bodies.encode(body))


def told_in(frame: Frame) -> Told | None:
    """The time in a PONG; None if it has none. ProtocolError if its body is malformed."""
    if not frame.payload:
        return None
    body = bodies.decode(bodies.Time, frame.payload)
    return Told(Reference(body.reference, body.era), body.time, body.error, body.age, body.stratum)
