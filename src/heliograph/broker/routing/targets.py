"""Targets: the destinations of publications between brokers.

In:    slots of this cluster, parts of clusters, groups.
Out:   values that plans, sinks and parcels share.
State: none.
Not here: which path leads to them (plans.py), the prefix in which they travel (ports.py).
"""

from __future__ import annotations


class Targets:
    """The destinations of a parcel: slots of this cluster, parts of clusters, and the groups to which it is
    restricted."""

    __slots__ = ("groups", "key", "members", "parts")

    def __init__(self, members: int, parts: tuple[int, ...] = (), groups: tuple[int, ...] = ()) -> None:
        self.members = members
        self.parts = parts
        self.groups = groups
        self.key = (members, parts, groups)  # equal targets have equal keys


class TargetedRun:
    """Frames that have the same targets, and how far they have come."""

    __slots__ = ("frames", "targets", "trace", "ttl")

    def __init__(self, targets: Targets, ttl: int, trace: tuple[int, ...], frames: bytes) -> None:
        self.targets = targets
        self.ttl = ttl
        self.trace = trace  # not including us
        self.frames = frames
