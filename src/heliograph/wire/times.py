"""Time on the wire: what a PONG says of network time, to neighbours and to clients that asked for it.

In:    a Told; a PONG that came.
Out:   a PONG; a Told.
State: none.
Not here: what is made of it (timekeeping/), when it is asked for (broker/timing.py, client/timing.py).
"""

from __future__ import annotations

from heliograph.timekeeping.clock import Reference, Told
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, control

FEATURE = "time"
"""A client that names it in its HELLO gets the time in every PONG."""


def pong(number: int, told: Told | None) -> bytes:
    """The answer to a PING; without a body while there is nothing to tell."""
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
    """What a PONG says of the time; None if it says nothing. ProtocolError if its body is another one."""
    if not frame.payload:
        return None
    body = bodies.decode(bodies.Time, frame.payload)
    return Told(Reference(body.reference, body.era), body.time, body.error, body.age, body.stratum)
