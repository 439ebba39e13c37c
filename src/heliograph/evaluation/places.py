"""Places on the earth, and the delays of datagrams between them.

In:    latitudes and longitudes.
Out:   one-way delays.
State: none.
Not here: hosts (stage.py).

Delays are computed, not measured: the great-circle distance, times 1.5 because cables do not run straight, at two
thirds of the speed of light, plus half a millisecond for the last mile at each end. A single site is a LAN.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import asin, cos, radians, sin, sqrt

EARTH_KM = 6_371.0
DETOUR = 1.5
FIBRE_KM_PER_MS = 200.0  # two thirds of the speed of light
LAST_MILE_MS = 0.5
LAN_MS = 0.2
JITTER_MS = 1.0  # each datagram takes up to this much longer …
LAN_JITTER_MS = 0.1  # … and on a LAN


@dataclass(frozen=True, slots=True)
class Place:
    """A place on the earth, in degrees."""

    latitude: float
    longitude: float

    def km(self, other: Place) -> float:
        """The great-circle distance."""
        here, there = radians(self.latitude), radians(other.latitude)
        across = radians(other.longitude - self.longitude)
        half = sin((there - here) / 2) ** 2 + cos(here) * cos(there) * sin(across / 2) ** 2
        return 2 * EARTH_KM * asin(sqrt(min(1.0, half)))

    def one_way_ms(self, other: Place) -> float:
        """The delay of a datagram."""
        if self == other:
            return LAN_MS
        return self.km(other) * DETOUR / FIBRE_KM_PER_MS + 2 * LAST_MILE_MS

    def round_trip_ms(self, other: Place) -> float:
        """The round-trip time."""
        return 2 * self.one_way_ms(other)


# The sites of [brokers] Table 1, and Bloomington, the site of its clients and directory.
SITES = {
    "bloomington": Place(39.17, -86.53),
    "indianapolis": Place(39.77, -86.16),
    "minneapolis": Place(44.97, -93.23),
    "urbana": Place(40.11, -88.21),
    "tallahassee": Place(30.44, -84.28),
    "cardiff": Place(51.48, -3.18),
}
BROKER_SITES = ("indianapolis", "minneapolis", "urbana", "tallahassee", "cardiff")
CLIENT_SITES = ("tallahassee", "cardiff", "minneapolis", "urbana", "bloomington")
DIRECTORY_SITE = "bloomington"


def round_trips() -> list[dict[str, str | float]]:
    """The table of round-trip times between the sites, in milliseconds."""
    return [
        {"": here, **{there: round(SITES[here].round_trip_ms(SITES[there]), 1) for there in SITES}} for here in SITES
    ]
